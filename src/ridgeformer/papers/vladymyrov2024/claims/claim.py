"""A claim, and what deciding one needs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ridgeformer.papers.vladymyrov2024.evidence import BAYES, Evidence
from ridgeformer.papers.vladymyrov2024.paper import Row

__all__ = ["ALIKE", "SLACK", "Array", "Claim", "Finding", "claim", "curve", "decide", "exploded", "levels", "loss"]

Verdict = Literal["supported", "contradicted", "partly supported"]
Array = NDArray[np.float64]
Finding = tuple[str, Iterable[bool]]  # the numbers in words, and whether each part of the rule holds
ALIKE = 1.25  # losses within this factor are called alike
SLACK = 1.01  # 'at least as good' allows a percent: the size of a standard error


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and whether the measurements support it.

    Attributes:
        where: Which of the paper's sentences it stands for.
        sentence: The claim in our words.
        rule: What the numbers must satisfy.
        numbers: The numbers, in words.
        verdict: Whether all of the rule holds, some of it, or none.
    """

    where: str
    sentence: str
    rule: str
    numbers: str
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """Return the claim as values that JSON can hold."""
        return asdict(self)


def claim(
    where: str, sentence: str, rule: str
) -> Callable[[Callable[[Evidence], Finding]], Callable[[Evidence], Claim]]:
    """Decorate a function that finds, in the evidence, the numbers which decide a claim: it then returns the claim.

    Args:
        where: Which of the paper's sentences it stands for.
        sentence: The claim in our words.
        rule: What the numbers must satisfy.

    Returns:
        The decorator. The decorated function takes the evidence and returns a `Claim`.
    """

    def decorate(find: Callable[[Evidence], Finding]) -> Callable[[Evidence], Claim]:
        @functools.wraps(find)
        def check(evidence: Evidence) -> Claim:
            numbers, holds = find(evidence)
            return Claim(where, sentence, rule, numbers, decide(holds))

        return check

    return decorate


def decide(holds: Iterable[bool]) -> Verdict:
    """Decide a claim by the parts of its rule.

    Args:
        holds: Whether each part holds.

    Returns:
        The verdict: all parts hold, some do, or none does.
    """
    found = list(holds)
    return "supported" if all(found) else "partly supported" if any(found) else "contradicted"


def loss(evidence: Evidence, method: str, layers: int | None, noise: str) -> float:
    """Return a number of the table.

    Args:
        evidence: The measurements.
        method: A family or a baseline.
        layers: The depth; None for a baseline.
        noise: The noise of the column.

    Returns:
        The adjusted loss.
    """
    return evidence.table[method, layers, noise].loss


def curve(evidence: Evidence, noise: str, method: str, layers: int | None = None) -> Array:
    """Return a profile.

    Args:
        evidence: The measurements.
        noise: The noise of the problem.
        method: A family or a baseline.
        layers: The depth; None for a baseline.

    Returns:
        The mean loss at every noise level, [K].
    """
    return np.array(evidence.profiles[noise][Row(method, layers).name].losses)


def exploded(evidence: Evidence, noise: str, method: str, layers: int | None = None) -> NDArray[np.int64]:
    """Return how many sequences exploded at every level of a profile; their losses dominate the mean there.

    Args:
        evidence: As for `curve`.
        noise: As for `curve`.
        method: As for `curve`.
        layers: As for `curve`.

    Returns:
        The numbers, [K].
    """
    return np.array(evidence.profiles[noise][Row(method, layers).name].exploded)


def levels(evidence: Evidence, noise: str) -> tuple[Array, NDArray[np.bool_]]:
    """Return the noise levels of a problem's profiles.

    Args:
        evidence: The measurements.
        noise: The noise of the problem.

    Returns:
        The levels, and whether each can occur; [K] each.
    """
    known = evidence.profiles[noise][BAYES]
    return np.array(known.sigmas), np.array(known.inside)
