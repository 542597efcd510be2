"""The command line: parses, calls and prints."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from ridgeformer import __version__
from ridgeformer.errors import InputError

__all__ = ["main"]


class _Group(click.Group):
    """Shows commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  ridgeformer info\n  ridgeformer bench --quick\n  ridgeformer bench --json > speed.json",
)
@click.version_option(__version__, message="ridgeformer %(version)s")
def cli() -> None:
    """In-context learning in linear transformers, near the machine's limit."""


@cli.command(epilog="Example:\n\n\b\n  ridgeformer info --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def info(as_json: bool) -> None:
    """Show the version, the CPU features in use and the number of threads."""
    facts = _facts()
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name.replace('_', ' '):<18} {text}")


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer bench --quick\n  ridgeformer bench --only import --only scaling\n"
    "  ridgeformer bench --json --out speed.json"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
@click.option("--quick", is_flag=True, help="Fewer repetitions and no comparison with PyTorch and JAX.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this group of figures; may be repeated.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the JSON to this file.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads to use (default: all cores).")
def bench(as_json: bool, quick: bool, only: tuple[str, ...], out: Path | None, threads: int | None) -> None:
    """Measure this machine's speed as ratios taken in one run.

    The whole run compares with PyTorch and JAX if they are installed: pip install 'ridgeformer[bench]'.
    """
    from rich.console import Console

    from ridgeformer.benchmarks import run
    from ridgeformer.benchmarks.report import table

    if out is not None and not os.access(out.parent, os.W_OK):
        raise InputError(f"--out must be in a writable folder; {out.parent} is not. Choose another file.")
    error_console = Console(stderr=True)
    with error_console.status("measuring ...") as status:
        results = run(
            quick=quick, only=only, threads=threads, progress=lambda text: status.update(f"measuring {text} ...")
        )
    record: dict[str, Any] = {"machine": _facts(), "figures": [figure.as_dict() for figure in results]}
    if out is not None:
        out.write_text(json.dumps(record, indent=2) + "\n")
    if as_json:
        click.echo(json.dumps(record, indent=2))
        return
    console = Console()
    console.print(table(results, console.width))


def _facts() -> dict[str, Any]:
    import platform

    import numpy

    from ridgeformer import engine

    facts: dict[str, Any] = {
        "version": __version__,
        "engine": engine.current().name,
        "engines": list(engine.available()),
        "threads": engine.default_threads(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }
    return facts


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every error is one line on stderr and exit code 2."""
    warnings.showwarning = lambda message, *_, **__: click.echo(f"ridgeformer: warning: {message}", err=True)
    try:
        code = cli.main(args=arguments, prog_name="ridgeformer", standalone_mode=False)
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
        _fail(f"{error.filename or 'the system'}: {error.strerror}")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    click.echo("ridgeformer: error: " + " ".join(message.split()), err=True)
    sys.exit(2)
