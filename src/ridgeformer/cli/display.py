"""Progress displays, on stderr."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import click


@contextlib.contextmanager
def training_display(quiet: bool) -> Iterator[list[Any]]:
    """Callbacks that say on stderr how far training has come: one line on a terminal, else one every ten seconds."""
    from rich.console import Console

    from ridgeformer.training.callbacks import Display

    if quiet:
        yield []
        return
    if not Console(stderr=True).is_terminal:
        yield [_lines()]
        return
    line = Display(after=0.0)
    try:
        yield [line]
    finally:
        line.close()


def _lines() -> Callable[[Any], None]:
    """For logs: a line now and then."""
    last = 0.0

    def show(now: Any) -> None:
        nonlocal last
        if now.seconds - last >= 10:
            last = now.seconds
            loss = now.record.get("adjusted_loss", now.loss)
            text = f"{now.spec.describe_model()}, {now.phase}: loss {loss:.4g}, about {now.remaining:.0f} s left"
            click.echo(f"{now.seconds:.0f} s, {100 * now.fraction:.0f} %: {text}", err=True)

    return show


@contextlib.contextmanager
def sweep_display(quiet: bool) -> Iterator[Callable[[Any], None]]:
    """Runs done, running and failed, the time left, the best so far; where stderr is no terminal, twice a minute."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if quiet:
        yield lambda state: None
        return
    last = 0.0
    columns = BarColumn(bar_width=20), TextColumn("{task.fields[state]}")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        row = bar.add_task("", total=1.0, state="")

        def show(state: Any) -> None:
            nonlocal last
            text = _sweep_state(state)
            bar.update(row, completed=state.done, total=state.total, state=text)
            if not console.is_terminal and state.seconds - last >= 30:
                last = state.seconds
                click.echo(text, err=True)

        yield show


def _sweep_state(state: Any) -> str:
    left = f", about {_duration(state.remaining)} left" if state.remaining < float("inf") else ""
    best = f"; closest to its floor: {state.best[0]}, ratio {state.best[1]:.3f}" if state.best else ""
    return f"{state.done} of {state.total} runs done, {state.running} running, {state.failed} failed{left}{best}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; where that is no terminal, a line every ten seconds."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _steps(label)
        return
    with Progress(console=console, transient=True) as bar:
        row = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(row, completed=done, total=total)


def _steps(label: str) -> Callable[[int, int], None]:
    """For logs: the share of the steps that are done, now and then."""
    began = last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 10:
            last = now
            click.echo(f"{now - began:.0f} s, {100 * done / max(total, 1):.0f} %: {label}", err=True)

    return show
