"""Callbacks: what is told about a training while it runs.

A callback is an object with any of the methods of `Callback`. A plain function is the simplest form: it is called where
`on_step` is. If a callback raises an error, training stops; with a folder for runs it can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ridgeformer.errors import kind_of, refuse
from ridgeformer.training.spec import Spec

if TYPE_CHECKING:
    from ridgeformer.training.results import Training

__all__ = ["AnyCallback", "Callback", "TrainingProgress", "as_callbacks"]


@dataclass(frozen=True)
class TrainingProgress:
    """How far a call of `train` or `train_many` has come.

    Attributes:
        spec: The run that is being trained now. The models that a model is grown from come first.
        phase: The part of that run.
        fraction: How much of the whole call is done, from 0 to 1; an estimate.
        loss: The training loss now.
        seconds: Time since the call began.
        remaining: Seconds until the call ends; an estimate.
        record: What was recorded, by the names of the columns: of a descent a row of its history (step, time,
            sequences, loss, adjusted_loss, gradient_norm, seconds, ratio), of a search its loss.
    """

    spec: Spec
    phase: str
    fraction: float
    loss: float
    seconds: float
    remaining: float
    record: Mapping[str, float] = field(default_factory=dict)


class Callback:
    """The base class of callbacks, whose methods do nothing. A class of your own overrides those that it needs.

    >>> class Stop(Callback):
    ...     def on_step(self, progress):
    ...         if progress.loss < 0.5:
    ...             raise KeyboardInterrupt
    """

    def on_start(self, spec: Spec) -> None:
        """Called before a run is trained, not for one that is found finished.

        Args:
            spec: The run; `spec.name` is the name of its folder.
        """

    def on_step(self, progress: TrainingProgress) -> None:
        """Called for every recorded step of a descent, several at a time, and for every piece of work of a search.

        Args:
            progress: How far training has come, and what was recorded.
        """

    def on_end(self, training: Training) -> None:
        """Called when a run is finished and stored.

        Args:
            training: The run, with its whole history, also that before an interruption.
        """


AnyCallback = Callback | Callable[[TrainingProgress], None]


class _Function(Callback):
    """A plain function, called with every step."""

    def __init__(self, function: Callable[[TrainingProgress], Any]) -> None:
        self._function = function

    def on_step(self, progress: TrainingProgress) -> None:
        self._function(progress)


def as_callbacks(values: Sequence[AnyCallback]) -> list[Callback]:
    """Return callbacks from objects of the base class and from plain functions.

    Args:
        values: Callbacks or functions.

    Returns:
        The callbacks.

    Raises:
        InputError: One is neither.
    """
    if isinstance(values, Callback) or callable(values) or not isinstance(values, Sequence):
        refuse("callbacks must be a list", kind_of(values), "Pass callbacks=[...].")
    found = []
    for value in values:
        if not isinstance(value, Callback) and (isinstance(value, type) or not callable(value)):
            refuse(
                "a callback must be a Callback or a function", f"{value!r}"[:80], "Pass CSVLogger(path), for example."
            )
        found.append(value if isinstance(value, Callback) else _Function(value))
    return found
