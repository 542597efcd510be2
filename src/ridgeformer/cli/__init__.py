"""The command line: parses, calls and prints."""

from __future__ import annotations

import os
import sys
import warnings

import click

from ridgeformer.cli import (  # noqa: F401  registers them
    evidence,
    explain,
    export,
    machine,
    measure,
    second_order,
    sweep,
    training,
    verify,
)
from ridgeformer.cli.group import cli
from ridgeformer.errors import InputError

__all__ = ["main"]


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
    except InputError as error:
        _fail(str(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("ridgeformer: interrupted", err=True)
        sys.exit(130)
    except MemoryError:
        _fail("not enough memory for this; use fewer sequences or a smaller dimension")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        _fail(f"{error.filename or 'the system'}: {error.strerror}" if error.strerror else str(error))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    click.echo("ridgeformer: error: " + " ".join(message.split()), err=True)
    sys.exit(2)
