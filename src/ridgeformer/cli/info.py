"""`ridgeformer info`: this installation and this machine."""

from __future__ import annotations

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
