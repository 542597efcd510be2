"""The group that every command belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ridgeformer import __version__

ORDER = (
    *("problem", "train", "descend", "sweep", "runs", "eval", "explain", "edit", "export", "models", "papers", "play"),
    "info",
)


class Group(click.Group):
    """A group that lists its commands in the given order, with their whole first sentences.

    Args:
        order: The names of its commands. Others are listed last.
    """

    def __init__(self, *arguments: Any, order: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._order = list(order)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in order."""
        last = len(self._order)
        return sorted(self.commands, key=lambda name: self._order.index(name) if name in self._order else last)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; long sentences are wrapped, not cut."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(200)) for name in self.list_commands(ctx)]
            )


@click.group(
    cls=Group,
    order=ORDER,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  ridgeformer train --family diag --layers 3 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer problem --noise 'uniform(0,5)'\n  ridgeformer models --family full\n"
    "  ridgeformer eval 'zoo:diag/7/uniform(0,5)' --baselines\n  ridgeformer explain 'zoo:diag/7/uniform(0,5)'\n"
    "  ridgeformer papers table1\n\n"
    "Every command has --help with examples. The words are explained in docs/reference/glossary.md.",
)
@click.version_option(__version__, message="ridgeformer %(version)s")
def cli() -> None:
    """Train, evaluate and understand linear transformers that learn linear regression in context."""
