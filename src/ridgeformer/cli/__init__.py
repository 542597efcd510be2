"""The command line: parses, calls and prints."""

from __future__ import annotations

import os
import sys
import warnings
from typing import NoReturn

import click

from ridgeformer.cli import edit, evaluate, explain, info, papers, sweep, training  # noqa: F401 (commands)
from ridgeformer.cli.options import cli, one_line
from ridgeformer.errors import RidgeformerError

WIDE = 200  # the most characters of a word in a message


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every error is one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_, **__: click.echo(f"ridgeformer: warning: {message}", err=True)
    try:
        code = cli.main(args=arguments, prog_name="ridgeformer", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 0
    except click.ClickException as error:
        _fail(error.format_message())
    except RidgeformerError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("ridgeformer: interrupted", err=True)
        sys.exit(130)
    except MemoryError:
        _fail("there is not enough memory for this computation. Use fewer sequences or a smaller dimension.")
    except RecursionError:
        _fail("a file or an argument is nested too deeply. Use fewer layers, or another file.")
    except OverflowError as error:
        _fail(f"a number is too large to compute with ({error}). Use smaller numbers.")
    except UnicodeError as error:
        _fail(f"all text must be UTF-8; some is not ({error}). Check the given files and names.")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror}" if error.strerror else str(error))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    """One line: no control characters, and no word that fills the screen."""
    words = (word if len(word) <= WIDE else f"{word[: WIDE // 2]}...{word[-WIDE // 4 :]}" for word in message.split())
    click.echo("ridgeformer: error: " + one_line(" ".join(words)), err=True)
    sys.exit(2)
