"""Gradient descent with a constant rate: exact losses against measured ones, and the model that makes the steps."""

import numpy as np
import pytest

from ridgeformer import Problem, evaluate
from ridgeformer.models import LinearTransformer, Preconditioned
from ridgeformer.theory.gradient_steps import best_rate, distances, expected_loss, model_of, power, whitened


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


LAMBDA = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.5]])


def test_a_power_of_a_covariance_is_one_of_its_eigenvalues():
    assert np.allclose(power(LAMBDA, -0.5) @ LAMBDA @ power(LAMBDA, -0.5), np.eye(3))


def test_a_whitened_model_predicts_for_x_what_the_isotropic_one_predicts_for_whitened_features():
    model = LinearTransformer.random("gdpp", dim=3, layers=3, scale=0.3, context=30, seed=1)
    x = np.random.default_rng(0).normal(size=(20, 8, 3)) @ power(LAMBDA, 0.5)
    y = np.random.default_rng(1).normal(size=(20, 8))
    queries, white = x[:, :2], power(LAMBDA, -0.5)
    theirs = model.predict(x @ white, y, queries @ white)
    assert np.allclose(whitened(model, LAMBDA).predict(x, y, queries), theirs, rtol=1e-6)
    assert np.abs(distances(whitened(model, LAMBDA), LAMBDA)).max() < 1e-6


def test_distances_are_those_to_the_nearest_multiple():
    A, B = np.random.default_rng(0).normal(size=(2, 2, 1, 3, 3))
    model = LinearTransformer(Preconditioned(A, B))
    root = power(LAMBDA, 0.5)
    for layer in range(2):
        M = root @ A[layer, 0] @ root
        nearest = min(np.linalg.norm(M - c * np.eye(3)) for c in np.linspace(-9, 9, 20_001)) / np.linalg.norm(M)
        assert np.isclose(distances(model, LAMBDA)[layer, 0], nearest, atol=1e-5)
