"""A claim, and what deciding one needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ridgeformer.papers.vladymyrov2024.evidence import BAYES, Evidence
from ridgeformer.papers.vladymyrov2024.paper import Row

__all__ = ["ALIKE", "SLACK", "Array", "Claim", "curve", "decide", "exploded", "levels", "loss"]

Verdict = Literal["supported", "contradicted", "partly supported"]
Array = NDArray[np.float64]
ALIKE = 1.25  # losses within this factor are called alike
SLACK = 1.01  # 'at least as good' allows a percent: the size of a standard error


@dataclass(frozen=True)
class Claim:
    """A claim in our words, which of the paper's sentences it stands for, the rule, the numbers, and the verdict."""

    where: str
    sentence: str
    rule: str
    numbers: str
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def decide(holds: Iterable[bool]) -> Verdict:
    """All of the rule's parts, some, or none."""
    found = list(holds)
    return "supported" if all(found) else "partly supported" if any(found) else "contradicted"


def loss(evidence: Evidence, method: str, layers: int | None, noise: str) -> float:
    """A number of the table."""
    return evidence.table[method, layers, noise].loss


def curve(evidence: Evidence, noise: str, method: str, layers: int | None = None) -> Array:
    """A profile, [K]."""
    return np.array(evidence.profiles[noise][Row(method, layers).name].losses)


def exploded(evidence: Evidence, noise: str, method: str, layers: int | None = None) -> NDArray[np.int64]:
    """How many sequences exploded at every level of a profile, [K]; their losses rule the mean there."""
    return np.array(evidence.profiles[noise][Row(method, layers).name].exploded)


def levels(evidence: Evidence, noise: str) -> tuple[Array, NDArray[np.bool_]]:
    """The noise levels of a problem's profiles, and which can occur; [K] each."""
    known = evidence.profiles[noise][BAYES]
    return np.array(known.sigmas), np.array(known.inside)
