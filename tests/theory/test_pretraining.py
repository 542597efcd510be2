"""Pretraining on finitely many contexts: the law of the contexts, the regression, and the limit of large dimensions."""

import numpy as np
import pytest

from ridgeformer import InputError, Problem
from ridgeformer.theory import one_layer
from ridgeformer.theory.pretraining import fit, limit, sample

PROBLEM = Problem(3, 7, "categorical(0.5,2)", features=[2.0, 1.0, 0.5], tasks="pool(4,seed=1)")


def test_contexts_without_tokens_have_the_moments_of_those_with_tokens():
    count = 200_000
    drawn, tokens = sample(PROBLEM, count, np.random.default_rng(0)), PROBLEM.moments(count, seed=1).moments
    for ours, theirs in (
        (drawn.b, tokens.b),
        (drawn.q[:, None], tokens.q[:, None]),
        (drawn.b * drawn.q[:, None], tokens.b * tokens.q[:, None]),
        (drawn.b**2, tokens.b**2),
        (drawn.b[:, :2] * drawn.b[:, 1:], tokens.b[:, :2] * tokens.b[:, 1:]),
        (drawn.q[:, None] ** 2, tokens.q[:, None] ** 2),
        (drawn.b**2 / drawn.q[:, None] ** 2, tokens.b**2 / tokens.q[:, None] ** 2),  # little but the noise of b varies
    ):
        error = np.hypot(ours.std(0), theirs.std(0)) / np.sqrt(count)
        assert (np.abs(ours.mean(0) - theirs.mean(0)) < 4.5 * error).all()


def test_the_risk_of_a_matrix_for_sums_and_squares_is_the_measured_one():
    W = 0.1 * np.random.default_rng(0).standard_normal((3, 4))
    draw = PROBLEM.moments(200_000, seed=2)
    weights = np.column_stack([draw.moments.b, draw.moments.q]) @ W.T
    losses = draw.losses(weights, draw.task)
    assert abs(losses.mean() - one_layer.risk(PROBLEM, W)) < 4 * losses.std() / np.sqrt(len(losses))


@pytest.mark.parametrize("contexts", [9, 40])  # fewer and more than the 12 unknowns
def test_the_regression_is_that_of_its_equations(contexts):
    W = fit(PROBLEM, contexts, penalty=0.1, seed=3)
    drawn = sample(PROBLEM, contexts, np.random.default_rng([3, 11]))
    scale = np.array([3, 3, 3, 1]) / 7
    rows = np.einsum("bi,bj->bij", drawn.query, np.column_stack([drawn.b, drawn.q]) * scale).reshape(contexts, -1)
    plain = np.linalg.solve(rows.T @ rows + contexts / 3 * 0.1 * np.eye(12), rows.T @ drawn.answer)
    assert np.allclose(W, plain.reshape(3, 4) * scale)


def test_many_contexts_lead_to_the_optimum():
    problem = PROBLEM.replace(tasks=None)
    W = fit(problem, 100_000, penalty=0, precision="float32")
    assert one_layer.risk(problem, W) < 1.01 * one_layer.risk(problem, one_layer.optimum(problem))


def test_the_limits_are_continuous_in_what_the_formulas_treat_apart():
    """Many tasks and contexts: the errors on new tasks and on the pool become the same, the optimum's."""
    alpha, rho = 2.0, 0.1
    errors = limit(alpha, 1e6, 1e6, rho)
    x = (1 + rho) / alpha
    assert np.allclose(errors, x / (1 + x) + rho, atol=1e-4)
    with pytest.raises(InputError, match="infinite at tau = 1"):
        limit(1, 1, 1, 0.1)
