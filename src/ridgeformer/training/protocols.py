"""Ways to train, as values: ours, and the paper's."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ridgeformer.errors import refuse
from ridgeformer.validation import integer, number

__all__ = ["Paper", "Protocol", "Search", "as_protocol"]


@dataclass(frozen=True)
class Search:
    """Our protocol; nothing in it needs tuning.

    Attributes:
        effort: How many starts and steps, relative to the default.
        caution: How much contexts on which a model explodes count in the objective, relative to the default. With 0
            they are ignored: losses are then a few percent lower on nearly every sequence, and huge on one in a
            million.
        precision: What descents compute in: `float32`, `float64` or `auto`. With `auto` BFGS (few parameters) uses
            float64, and other descents use it where losses come near float32's rounding. Selection and the reported
            loss are always float64.
        seconds: Stop after this time, with the best model so far; None for no limit. Such a run cannot be repeated bit
            for bit. Every model it is grown from gets a part of the time. What was found last may still explode, and is
            then not chosen.

    Raises:
        InputError: A value is outside its range.
    """

    effort: float = 1.0
    caution: float = 1.0
    precision: str = "auto"
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < number("effort", self.effort) <= 1000:
            refuse("effort must lie in (0, 1000]", self.effort, "Pass 1 for the default.")
        if not number("caution", self.caution) <= 1000:
            refuse("caution must lie in [0, 1000]", self.caution, "Pass 1 for the default.")
        if self.precision not in ("auto", "float32", "float64"):
            refuse("precision must be auto, float32 or float64", repr(self.precision), "Choose one of these.")
        if self.seconds is not None and not number("seconds", self.seconds) > 0:
            refuse("seconds must be positive", self.seconds, "Pass the time that training may take, or None.")


@dataclass(frozen=True)
class Paper:
    """What the paper did: the query loss, Adam, a constant rate, one small random start.

    Attributes:
        steps: Steps of Adam.
        batch: Sequences per step.
        rate: The learning rate.

    Raises:
        InputError: A value is outside its range.
    """

    steps: int = 200_000
    batch: int = 2048
    rate: float = 1e-4

    def __post_init__(self) -> None:
        integer("steps", self.steps)
        integer("batch", self.batch, 1, 1 << 24)
        if not 0 < number("rate", self.rate) < float("inf"):
            refuse("the learning rate must be positive and finite", self.rate, "Pass 1e-4, for example.")


Protocol = Search | Paper
NAMES: dict[str, type[Protocol]] = {"search": Search, "paper": Paper}


def as_protocol(value: object) -> Protocol:
    """Return a protocol from one or from its name.

    Args:
        value: A `Search` or `Paper`, or `search` or `paper` for one with default settings.

    Returns:
        The protocol.

    Raises:
        InputError: It is none of these.
    """
    if isinstance(value, Search | Paper):
        return value
    if isinstance(value, str) and value in NAMES:
        return NAMES[value]()
    refuse("the protocol must be search, paper, or a Search or Paper", repr(value), "Choose one of these.")


def describe(protocol: Protocol) -> dict[str, Any]:
    """Return a protocol as values that JSON can hold.

    Args:
        protocol: The protocol.

    Returns:
        Its name, and its parameters by name.
    """
    return {"name": next(name for name, kind in NAMES.items() if kind is type(protocol)), **asdict(protocol)}
