"""BFGS with a rule when to stop, on functions whose minimum is known."""

import numpy as np
import pytest

from ridgeformer.bfgs import BfgsState, descend


def rosenbrock(x):
    return 1e-3 + (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2, np.array(
        [-2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)]
    )


def test_bfgs_finds_a_minimum_and_goes_on_where_it_stopped():
    end = descend(rosenbrock, BfgsState.at(np.array([-1.2, 1.0])), 200, 1e-9)
    np.testing.assert_allclose(end.point, [1, 1], atol=1e-3)
    assert end.rested
    first = descend(rosenbrock, BfgsState.at(np.array([-1.2, 1.0])), 5)
    assert not first.rested
    second = descend(rosenbrock, first, 200, 1e-9)
    np.testing.assert_allclose(second.point, [1, 1], atol=1e-3)
    assert second.evaluations > first.evaluations


def test_bfgs_survives_where_nothing_is_finite():
    end = descend(lambda x: (np.inf, np.zeros_like(x)), BfgsState.at(np.ones(3)), 10)
    assert not end.rested
    assert (end.point == 1).all()


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_bfgs_takes_the_same_way_at_every_scale(scale):
    """It descends on the logarithm, whose gradient does not depend on the scale."""
    one = descend(rosenbrock, BfgsState.at(np.zeros(2)), 20)
    other = descend(lambda x: tuple(scale * part for part in rosenbrock(x)), BfgsState.at(np.zeros(2)), 20)
    np.testing.assert_allclose(other.point, one.point, rtol=1e-6)
    assert other.value == pytest.approx(scale * one.value, rel=1e-6)
