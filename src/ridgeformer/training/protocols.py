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
        effort: how many starts and steps, relative to the default.
        caution: what contexts on which a model explodes count in the objective, relative to the default. 0 ignores all
            but the bulk: losses are then a few percent lower on nearly every sequence, and huge on one in a million.
        precision: what descents compute in: `float32`, `float64`, or `auto`: float64 for BFGS (few parameters), and
            where losses come near float32's rounding. Selection and the reported loss are float64 always.
        seconds: stop after so long, with the best model so far; such a run cannot be repeated bit for bit. Every model
            it is grown from gets its part of the time; what was found last may still explode, and is then not chosen.
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
    """What the paper did: the query loss, Adam, a constant rate, one small random start."""

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
    """A protocol from one or from its name."""
    if isinstance(value, Search | Paper):
        return value
    if isinstance(value, str) and value in NAMES:
        return NAMES[value]()
    refuse("the protocol must be search, paper, or a Search or Paper", repr(value), "Choose one of these.")


def describe(protocol: Protocol) -> dict[str, Any]:
    """The protocol as JSON: its name and its parameters."""
    return {"name": next(name for name, kind in NAMES.items() if kind is type(protocol)), **asdict(protocol)}
