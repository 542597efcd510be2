"""The group that every command belongs to."""

from __future__ import annotations

import click

from ridgeformer import __version__

__all__ = ["cli"]


class _Group(click.Group):
    """Shows commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  ridgeformer info\n  ridgeformer baselines --noise 'uniform(0,5)'\n"
    "  ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer bench --quick",
)
@click.version_option(__version__, message="ridgeformer %(version)s")
def cli() -> None:
    """In-context learning in linear transformers, near the machine's limit."""
