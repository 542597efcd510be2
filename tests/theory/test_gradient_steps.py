"""Gradient descent with a constant rate: exact losses against measured ones, and the model that makes the steps."""

import numpy as np
import pytest

from ridgeformer import InputError, Problem, evaluate
from ridgeformer.theory.gradient_steps import best_rate, expected_loss, model_of


@pytest.mark.parametrize(("context", "sigma", "steps"), [(20, 0, 1), (20, 1, 3), (5, 1, 4), (8, 0, 2)])
def test_the_exact_loss_is_the_measured_one(context, sigma, steps):
    problem = Problem(8, context, sigma)
    rate = best_rate(problem, steps)
    row = evaluate(problem, model_of(steps, rate, 8), sequences=40_000, seed=3, with_floor=False)
    assert abs(row.unadjusted - expected_loss(problem, steps, rate)) < 4 * row.unadjusted_error


def test_one_step_has_the_rate_of_the_closed_form():
    assert np.isclose(1 / best_rate(Problem(10, 20, 2), 1), 20 + 10 + 1 + 4)


def test_no_other_rate_is_better():
    problem = Problem(6, 12, 0.5)
    rate = best_rate(problem, 5)
    assert all(expected_loss(problem, 5, f * rate) > expected_loss(problem, 5, rate) for f in (0.95, 1.05))


def test_passes_of_the_model_are_steps_on_the_tokens():
    tokens = Problem(4, 9, 1).sequences(20)
    w = np.zeros((20, 4))
    for _ in range(3):
        w -= 0.05 * np.einsum("bnd,bn->bd", tokens.x, np.einsum("bnd,bd->bn", tokens.x, w) - tokens.y)
    assert np.allclose(model_of(3, 0.05, 4).weights(tokens.moments), w)


def test_rare_eigenvalues_can_be_left_out():
    problem = Problem(10, 20, 0)
    losses = [expected_loss(problem, 20, best_rate(problem, 20, rare), rare) for rare in (0.0, 1e-6, 1e-3)]
    assert losses[0] > 1.2 * losses[1] > 1.2 * losses[2]


def test_other_problems_are_refused():
    with pytest.raises(InputError, match="known for isotropic problems"):
        expected_loss(Problem(3, 6, 1, features="powerlaw(1)"), 2, 0.1)
