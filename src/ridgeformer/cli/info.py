"""`ridgeformer info`: this installation and this machine."""

from __future__ import annotations

from pathlib import Path

import click

from ridgeformer.cli.group import cli
from ridgeformer.cli.output import Answer, answers


@cli.command(epilog="Examples:\n\n\b\n  ridgeformer info\n  RIDGEFORMER_THREADS=1 ridgeformer info --json")
@answers()
def info() -> Answer:
    """Print the version, the compute engine (CPU instruction set) in use and the number of threads."""
    from ridgeformer.papers.machine import facts

    known = facts()
    texts = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in known.items()}
    lines = [f"{name.replace('_', ' '):<18} {text}" for name, text in texts.items()]
    return Answer("\n".join(lines), known, [texts])


@cli.command(epilog="Examples:\n\n\b\n  ridgeformer play\n  ridgeformer play --out class.html --no-open")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("playground.html"),
    show_default=True,
    help="Write the page to this file.",
)
@click.option("--open/--no-open", "opened", default=True, help="Open the page in a browser, which is the default.")
def play(out: Path, opened: bool) -> None:
    """Write and open the playground: a page on which models are explored, trained and taught.

    The page is one file that needs no network. It runs the same core as this program, compiled to WebAssembly: set the
    parameters of a model, drag the examples of a context, train live, and follow ten guided chapters.
    """
    import webbrowser

    from ridgeformer.playground import write_page

    path = write_page(out).resolve()
    click.echo(f"The playground is in {out}.")
    if opened and not webbrowser.open(path.as_uri()):
        click.echo("No browser was found. Open the file yourself.")
