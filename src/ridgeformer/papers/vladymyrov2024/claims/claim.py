"""Checks of the claims of the paper, and the numbers that decide them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.papers.check import Check
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, Evidence
from ridgeformer.papers.vladymyrov2024.paper import Row

__all__ = ["ALIKE", "SLACK", "Array", "Finding", "claim", "curve", "exploded", "levels", "loss"]

Array = NDArray[np.float64]
Finding = tuple[str, Iterable[bool]]  # the numbers in words, and whether each part of the rule holds
ALIKE = 1.25  # losses within this factor are called alike
SLACK = 1.01  # 'at least as good' allows a percent: the size of a standard error


def claim(
    where: str, sentence: str, rule: str
) -> Callable[[Callable[[Evidence], Finding]], Callable[[Evidence], Check]]:
    """Decorate a function that reads from the evidence the numbers which decide a claim: it then returns the check.

    Args:
        where: The place of the claim in the paper.
        sentence: The claim in our words.
        rule: The rule that the numbers must satisfy.

    Returns:
        The decorator. The decorated function takes the evidence.
    """

    def decorate(read: Callable[[Evidence], Finding]) -> Callable[[Evidence], Check]:
        @functools.wraps(read)
        def check(evidence: Evidence) -> Check:
            numbers, holds = read(evidence)
            parts = tuple(bool(part) for part in holds)
            reason = "The paper states the claim in words; the rule says what it means in numbers."
            return Check(sentence, numbers, rule, "none", reason, f"rejected unless: {rule}", parts, where=where)

        return check

    return decorate


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
