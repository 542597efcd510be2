"""The line on stderr that shows how far training has come. It is the only thing that the library itself prints."""

from __future__ import annotations

from typing import Any

from ridgeformer.training.callbacks import Callback, TrainingProgress

__all__ = ["Display"]

PATIENCE = 2.0  # seconds after which the line appears


class Display(Callback):
    """A progress line on stderr, where that is a terminal or a notebook. Close it when training is over.

    Args:
        after: Seconds after which it appears: short trainings show nothing.
        floor: The floor of the adjusted loss, to show ratios; None to leave them out.
    """

    def __init__(self, after: float = PATIENCE, floor: float | None = None) -> None:
        self.after, self.floor = after, floor
        self._bar: Any = None
        self._quiet = False

    def on_step(self, progress: TrainingProgress) -> None:
        """See `Callback.on_step`."""
        if self._quiet or progress.seconds < self.after:
            return
        if self._bar is None:
            self.begin(progress.spec.describe_model())
        if self._bar is not None:
            self._show(progress)

    def begin(self, text: str, state: str = "") -> None:
        """Show the line, if stderr is a terminal or a notebook.

        Args:
            text: What is trained.
            state: How far it has come.
        """
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        if not (console.is_terminal or console.is_jupyter):
            self._quiet = True
            return
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}")
        self._bar = Progress(*columns, console=console, transient=True)
        self._row = self._bar.add_task(text, total=1.0, state=state)
        self._bar.start()

    def _show(self, now: TrainingProgress) -> None:
        loss, ratio = now.record.get("adjusted_loss", now.loss), ""
        if self.floor is not None and loss < 1e6 * self.floor:
            ratio = f" ({loss / self.floor:.2f} times the floor)"
        step = f" step {now.record['step']:,.0f}" if "step" in now.record else ""
        state = f"{now.phase}{step}: loss {loss:.4g}{ratio}, {now.seconds:.0f} s, about {now.remaining:.0f} s left"
        self._bar.update(self._row, completed=now.fraction, description=now.spec.describe_model(), state=state)

    def close(self) -> None:
        """Remove the line."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None
