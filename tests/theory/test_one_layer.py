"""The best one-layer model in closed form, and the risk of any one-layer model under any shift."""

import numpy as np
import pytest

from ridgeformer import Full, LinearTransformer, Problem, evaluate, train
from ridgeformer.theory import one_layer
from ridgeformer.theory.one_layer import matrix_of, model_of, optimum, risk
from ridgeformer.theory.pretraining import fit, limit, sample
from support import refused

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
    refused(lambda: matrix_of(LinearTransformer(Full(*np.zeros((2, 2, 1, 4, 4))))), "that of one layer")


def test_the_matrix_of_several_heads_is_their_part_that_multiplies_a():
    moments = Problem(3, 6, 1).moments(50).moments
    P, Q = np.random.default_rng(1).standard_normal((2, 1, 2, 4, 4))
    model, p = LinearTransformer(Full(P, Q)), P[0, :, 3]
    rest = np.einsum("ha,hbi,nab->ni", p[:, :3], Q[0, :, :3, :3], moments.S)
    rest += np.einsum("h,hi,n->ni", p[:, 3], Q[0, :, 3, :3], moments.q)
    assert np.allclose(model.weights(moments), moments.b @ matrix_of(model).T - rest)


# ---- Pretraining on finitely many contexts: the law of the contexts, the regression, and the limit o


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
    refused(lambda: limit(1, 1, 1, 0.1), "infinite at tau = 1")
