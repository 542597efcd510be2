"""The meaning of a single loss: when it counts as exploded, its weight at most, and when it cannot be true.

Losses are halves of squared errors. The signal of a problem is the mean square of what is to be predicted, d where
features and tasks are N(0, I). Predicting zero has a loss of half the signal, so a sequence whose loss is above 100
times the signal is not predicted badly: the model has exploded on it. Every count of explosions uses this one rule.

>>> import numpy as np
>>> exploded(np.array([0.04, 1001.0, np.nan]), signal=10)
array([False,  True,  True])
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXPLODES = 100  # times the signal: a loss above which a sequence counts as exploded
CAP = 1e12  # a loss counts as at most this, so that one overflow gives a huge mean, not a NaN
LARGE_UNITS = 1e6  # times the signal: the same in units of labels in which this is more
ROUNDING = 1e-21  # times the signal: a smaller loss is 0, such as the floor of a known noise level
SAYS_NOTHING = 1e6  # a ratio of a model that diverged
ERRORS = 4  # standard errors below its floor from which on a loss is too good to be true


class BelowFloorWarning(UserWarning):
    """A loss lies clearly below the least expected loss that any predictor can have: the data or the code is wrong."""


def threshold(signal: float) -> float:
    """The loss above which a sequence counts as exploded.

    Args:
        signal: The mean square of what is to be predicted, `problem.signal`.

    Returns:
        `EXPLODES` times the signal.
    """
    return float(EXPLODES * signal)


def exploded(losses: NDArray[np.floating[Any]], signal: float) -> NDArray[np.bool_]:
    """Which losses count as exploded: those above the threshold, and those that are not a number.

    A loss estimated with a sampled query may be negative, because the oracle's loss is subtracted. It counts by its
    absolute value.

    Args:
        losses: Losses of single sequences, of any shape.
        signal: The mean square of what is to be predicted, `problem.signal`.

    Returns:
        A mask of the same shape.
    """
    return np.asarray(~(np.abs(losses) <= threshold(signal)))


def largest(signal: float) -> float:
    """The largest loss that enters a mean.

    Args:
        signal: The mean square of what is to be predicted, `problem.signal`.

    Returns:
        `CAP`, or `LARGE_UNITS` times the signal where that is more.
    """
    return max(CAP, LARGE_UNITS * signal)


def capped(losses: NDArray[np.float64], signal: float) -> NDArray[np.float64]:
    """The losses as they enter a mean: at most 10^12, or 10^6 times the signal where that is more.

    Args:
        losses: Losses of single sequences, of any shape. Those that are not a number count as the largest.
        signal: The mean square of what is to be predicted, `problem.signal`.

    Returns:
        Finite losses of the same shape.
    """
    most = largest(signal)
    return np.where(np.abs(losses) <= most, losses, most)


def rounding(signal: float) -> float:
    """The mean loss up to which a loss is 0 but for rounding errors.

    Args:
        signal: The mean square of what is to be predicted, `problem.signal`.

    Returns:
        `ROUNDING` times the signal: it scales with the units of the labels.
    """
    return ROUNDING * signal


def without_rounding(loss: float, signal: float) -> float:
    """Return a mean loss, or 0 where it is 0 but for rounding: that of the oracle, or the floor of a known noise level.

    Args:
        loss: The loss.
        signal: The mean square of what is to be predicted, `problem.signal`.

    Returns:
        The loss.
    """
    return 0.0 if abs(loss) <= rounding(signal) else float(loss)


def ratio(loss: float, floor: float, signal: float) -> float:
    """Divide a loss by its floor: 1 is the best possible value.

    Args:
        loss: The loss.
        floor: The floor.
        signal: The mean square of what is to be predicted, `problem.signal`.

    Returns:
        The ratio; infinite where it says nothing (above a million, or where the floor is 0 to rounding and the loss is
        not), and NaN where the floor is not known.

    >>> ratio(0.06, 0.04, signal=10), ratio(0.06, 1e-30, signal=10)
    (1.5, inf)
    """
    if floor > rounding(signal) or math.isnan(floor):
        quotient = without_rounding(loss, signal) / floor
        return math.inf if quotient >= SAYS_NOTHING else quotient
    return 1.0 if loss <= rounding(signal) else math.inf


def warn_below_floor(name: str, loss: float, error: float, floor: float, floor_error: float, signal: float) -> None:
    """Warn if a mean loss is more than 4 standard errors below its floor.

    The standard error of the difference is taken to be that of independent estimates, hypot(error, floor_error). Both
    are measured on the same sequences, and sequences that are hard for one predictor are hard for the other. So the
    true error of the difference is smaller, and the warning comes late rather than too early.

    A floor that is not known (NaN), or that is 0 to rounding because the noise level is known, is not checked.

    Args:
        name: What has the loss, for the message.
        loss: The mean adjusted loss.
        error: Its standard error.
        floor: The mean adjusted loss of the Bayes predictor.
        floor_error: Its standard error.
        signal: The mean square of what is to be predicted, `problem.signal`.
    """
    if not floor > rounding(signal):
        return
    spread = math.hypot(error, floor_error)
    if floor - loss > ERRORS * spread:
        warnings.warn(
            f"no predictor can have an expected loss below the Bayes floor; {name} has {loss:.4g} +- {error:.2g}, and "
            f"the floor is {floor:.4g} +- {floor_error:.2g}. The data or the code is wrong: check that the predictor "
            "does not use sigma or the true w, and that the floor belongs to the same problem.",
            BelowFloorWarning,
            stacklevel=3,
        )
