"""What a single loss means: explosions, the cap, and losses below the floor."""

import math
import warnings

import numpy as np
import pytest

from ridgeformer.losses import BelowFloorWarning, capped, exploded, ratio, threshold, warn_below_floor, without_rounding
from support import each


def test_a_loss_above_the_threshold_explodes():
    losses = np.array([[0.0, 299.0, 300.0], [300.1, np.inf, np.nan], [-299.0, -301.0, -np.inf]])
    assert exploded(losses, 3).tolist() == [[False, False, False], [True, True, True], [False, True, True]]
    assert threshold(3) == 300
    assert exploded(losses.astype(np.float32), 3).tolist() == exploded(losses, 3).tolist()


def test_capped_losses_are_finite():
    losses = np.array([1.0, 2e12, -2e12, np.inf, np.nan, -0.5])
    assert capped(losses, 10).tolist() == [1.0, 1e12, 1e12, 1e12, 1e12, -0.5]
    assert capped(losses, 1e7).tolist() == [1.0, 2e12, -2e12, 1e13, 1e13, -0.5]  # in units in which 10^12 is ordinary


@each(
    (0.04, 0.001, 0.04, 0.001),  # the floor itself
    (0.0345, 0.001, 0.04, 0.001),  # 3.9 standard errors below: chance
    (0.05, 0.001, 0.04, 0.001),
    (0.0, 0.0, 1e-28, 0.0),  # a floor of 0 but for rounding
    (0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, float("nan"), float("nan")),  # not known
    (float("nan"), float("nan"), 0.04, 0.001),
    (0.0, float("inf"), 0.04, 0.001),
)
def test_no_warning(loss, error, floor, floor_error):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_below_floor("it", loss, error, floor, floor_error, 10.0)


@each((0.0342, 0.001, 0.04, 0.001), (0.0, 0.0, 0.04, 0.001), (-0.5, 0.01, 0.04, 0.001), (0.0, 0.0, 0.04, 0.0))
def test_a_warning(loss, error, floor, floor_error):
    with pytest.warns(BelowFloorWarning, match=r"expected loss below the Bayes floor; it has .* check that"):
        warn_below_floor("it", loss, error, floor, floor_error, 10.0)


def test_ratios():
    assert ratio(3.0, 2.0, 10.0) == 1.5
    assert ratio(1e-30, 0.0, 10.0) == 1
    assert math.isnan(ratio(0.1, math.nan, 10.0))
    assert ratio(1e12, 0.006, 10.0) == math.inf  # a model that diverged
    assert ratio(0.1, 1e-25, 10.0) == math.inf  # a floor that is 0 to rounding


@pytest.mark.parametrize("unit", [1e-24, 1e-10, 1.0, 1e20])
def test_rounding_is_relative_to_the_signal(unit):
    assert ratio(3.0 * unit, 2.0 * unit, 10.0 * unit) == pytest.approx(1.5)
    assert ratio(0.1 * unit, 1e-25 * unit, 10.0 * unit) == math.inf
    assert without_rounding(1e-22 * unit, 10.0 * unit) == 0
    assert without_rounding(1e-18 * unit, 10.0 * unit) == 1e-18 * unit
    with pytest.warns(BelowFloorWarning):
        warn_below_floor("it", 0.0, 0.0, 1e-3 * unit, 1e-5 * unit, 10.0 * unit)
