"""The best one-layer model in closed form, and the risk of any one-layer model under any shift."""

import numpy as np
import pytest

from ridgeformer import Full, InputError, LinearTransformer, Problem, evaluate, train
from ridgeformer.theory.one_layer import matrix_of, model_of, optimum, risk

MATRIX = [[2.0, 0.6, 0.0], [0.6, 1.0, 0.3], [0.0, 0.3, 0.5]]
GAMMA = [[1.0, 0.5, 0.2], [0.5, 2.0, 0.0], [0.2, 0.0, 0.4]]
PRIOR = "gaussian(mean=[1,-0.5,0.3])"
BASE = Problem(3, 6, "uniform(0,2)", features=MATRIX, tasks=PRIOR)
SHIFTS = {
    "no shift": {},
    "less noise": {"noise": "fixed(0.3)"},
    "more noise": {"noise": "categorical(2,4)"},
    "more examples": {"context": 15},
    "fewer examples than dimensions": {"context": 2},
    "a range of lengths": {"context": "2..12"},
    "isotropic features": {"features": None},
    "a power law": {"features": "powerlaw(2)"},
    "other queries": {"query": [3.0, 0.1, 1.0]},
    "other tasks": {"tasks": f"gaussian(mean=[0,0,2],covariance={GAMMA})".replace(" ", "")},
    "a pool": {"tasks": "pool(5,seed=2)"},
    "low rank": {"tasks": "lowrank(1)"},
}


@pytest.mark.parametrize("change", SHIFTS.values(), ids=SHIFTS)
def test_the_shift_formula_is_what_an_evaluation_measures(change):
    """A fixed W, the best one of the first problem, on another problem; 4 standard errors."""
    W, other = optimum(BASE), BASE.replace(**change)
    found = evaluate(other, model_of(W), sequences=40_000, seed=3, with_floor=False)
    assert found.unadjusted == pytest.approx(risk(other, W), abs=4 * found.unadjusted_error)
    assert found.unadjusted_error < 0.05 * found.unadjusted  # so that the comparison says something


@pytest.mark.parametrize("change", [{}, {"context": 2}, {"context": "2..12"}, {"tasks": "lowrank(1)"}])
def test_the_optimum_is_least_squares_over_sampled_sequences(change):
    """The W that minimises the mean squared error over tokens that NumPy draws, by the normal equations."""
    problem = BASE.replace(**change)
    drawn = problem.sequences(200_000, seed=1)
    a = np.einsum("bnd,bn->bd", drawn.x, drawn.y)
    W = np.linalg.lstsq(a, drawn.task, rcond=None)[0].T
    expected = optimum(problem)
    assert np.abs(W - expected).max() < 0.03 * np.abs(expected).max()
    error = drawn.task - a @ expected.T
    losses = 0.5 * np.einsum("bi,ij,bj->b", error, problem.query_covariance, error)
    assert losses.mean() == pytest.approx(risk(problem, expected), abs=4 * losses.std() / np.sqrt(len(losses)))


@pytest.mark.parametrize("change", [{}, {"context": 2, "noise": "categorical(1,2)"}, {"context": "2..12"}])
def test_the_risk_of_matrices_for_a_and_l_is_what_sampling_finds(change):
    """w_hat = W (a, l) on tokens that NumPy draws; the part of l is the larger one."""
    problem = BASE.replace(**change)
    drawn = problem.sequences(200_000, seed=1)
    seen = np.column_stack([np.einsum("bnd,bn->bd", drawn.x, drawn.y), np.square(drawn.y).sum(1)])
    sizes = np.sqrt(np.square(seen).mean(0))
    W = np.column_stack([0.3 * np.random.default_rng(0).standard_normal((3, 3)), [1.0, -1.0, 1.0]]) / sizes
    error = drawn.task - seen @ W.T
    losses = 0.5 * np.einsum("bi,ij,bj->b", error, problem.query_covariance, error)
    assert losses.mean() == pytest.approx(risk(problem, W), abs=4 * losses.std() / np.sqrt(len(losses)))


def test_the_optimum_is_the_minimum():
    """No random change makes it better, and it does not depend on the covariance of the queries."""
    rng = np.random.default_rng(0)
    W = optimum(BASE)
    least = risk(BASE, W)
    for _ in range(200):
        change = rng.standard_normal((3, 3)) * rng.choice([1e-3, 1e-2, 0.1]) * np.abs(W).max()
        assert risk(BASE, W + change) > least
    np.testing.assert_allclose(optimum(BASE.replace(query=[3.0, 0.1, 1.0])), W, rtol=1e-12)


def test_isotropic_problems_have_a_multiple_of_the_identity():
    problem = Problem(4, 9, 1.5)
    np.testing.assert_allclose(optimum(problem), np.eye(4) / (9 + 4 + 1 + 1.5**2), rtol=1e-12)
    zero = risk(problem, np.zeros((4, 4)))
    assert zero == pytest.approx(2.0)  # half the signal


TRAINED = {
    "anisotropic": Problem(4, 10, 1, features="powerlaw(1.5)"),
    "a prior with a mean": Problem(3, 8, 0.5, features=MATRIX, tasks=PRIOR),
    "a mixture of noise levels": Problem(4, 10, "categorical(0.5,3)", features="powerlaw(1)"),
    "fewer examples than dimensions": Problem(5, 3, "uniform(0,1)", features="spectrum(2,1,1,0.5,0.25)"),
    "other queries": Problem(3, 7, 1, features=MATRIX, query=[1.0, 2.0, 0.5]),
    "low rank": Problem(4, 8, "uniform(0,2)", tasks="lowrank(2)", features="powerlaw(0.5)"),
}


@pytest.mark.long
@pytest.mark.parametrize("problem", TRAINED.values(), ids=TRAINED)
def test_trained_one_layer_models_reach_the_closed_form(problem):
    """To .5 % of the loss on the same sequences.

    A Full layer can do more than W a: where tasks have a mean, weights S v help, so that it may be better than W a.
    """
    model = train(problem, "full", 1, sequences=2000).model
    found = evaluate(problem, model, sequences=400_000, seed=5, with_floor=False)
    least = evaluate(problem, model_of(optimum(problem)), sequences=400_000, seed=5, with_floor=False)
    exact = risk(problem, optimum(problem))
    assert least.unadjusted == pytest.approx(exact, abs=4 * least.unadjusted_error)
    print(f"{problem}: trained {found.unadjusted:.5f}, W a {least.unadjusted:.5f}, closed form {exact:.5f}")
    assert found.unadjusted < 1.005 * least.unadjusted
    if problem.prior.mean is None:
        assert found.unadjusted > 0.995 * least.unadjusted


def test_the_matrix_of_a_model_is_the_one_it_was_made_of():
    W = np.random.default_rng(0).standard_normal((3, 3))
    assert np.allclose(matrix_of(model_of(W)), W)
    with pytest.raises(InputError, match="that of one layer"):
        matrix_of(LinearTransformer(Full(*np.zeros((2, 2, 1, 4, 4)))))


def test_the_matrix_of_several_heads_is_their_part_that_multiplies_a():
    moments = Problem(3, 6, 1).moments(50).moments
    P, Q = np.random.default_rng(1).standard_normal((2, 1, 2, 4, 4))
    model, p = LinearTransformer(Full(P, Q)), P[0, :, 3]
    rest = np.einsum("ha,hbi,nab->ni", p[:, :3], Q[0, :, :3, :3], moments.S)
    rest += np.einsum("h,hi,n->ni", p[:, 3], Q[0, :, 3, :3], moments.q)
    assert np.allclose(model.weights(moments), moments.b @ matrix_of(model).T - rest)
