"""The group that every command belongs to."""

from __future__ import annotations

import click

from ridgeformer import __version__

__all__ = ["cli"]


ORDER = (
    *("train", "show", "sweep", "eval", "profile", "baselines", "table1", "figures", "report"),
    *("explain", "export", "verify", "second-order", "info"),
)


class _Group(click.Group):
    """Shows commands in an order that makes sense."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.commands, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole first sentences, wrapped rather than cut."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(200)) for name in self.list_commands(ctx)]
            )


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer baselines --noise 'uniform(0,5)'\n  ridgeformer table1\n"
    "  ridgeformer explain 'zoo:diag/7/uniform(0,5)'",
)
@click.version_option(__version__, message="ridgeformer %(version)s")
def cli() -> None:
    """In-context learning in linear transformers, near the machine's limit."""
