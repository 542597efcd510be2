"""Checks of the claims of the paper, and the numbers that decide them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.papers.check import Check
from ridgeformer.papers.vladymyrov2024.evidence import Evidence

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
