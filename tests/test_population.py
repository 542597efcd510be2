"""The exact loss of one layer against sampling, finite differences and the closed form of linear weights."""

import numpy as np
import pytest

from ridgeformer import Diag, Full, GDpp, Layout, LinearTransformer, Problem
from ridgeformer.models import Channels, LowRank, Preconditioned, Registers
from ridgeformer.population import Quadratic, check_population
from ridgeformer.theory import one_layer
from ridgeformer.training.job import Vector
from support import each, refusals, refused, slopes

MEAN = "gaussian(mean=[1,0,-1],covariance=[[1,0.2,0],[0.2,2,0],[0,0,1]])"
CASES = [
    (Problem(3, 7, "uniform(0,2)"), Layout()),
    (Problem(3, "5..9", 1, features="powerlaw(1)", tasks=MEAN), Layout("mean")),
    (Problem(3, 7, "categorical(0.5,2)", tasks="mixture(pool(3),0.4)", query="powerlaw(2)"), Layout("mean", "none", 2)),
    (Problem(3, "4,8", 0, tasks="pool(4)"), Layout()),
]


def random_model(layout, seed=0, scale=None):
    rng = np.random.default_rng(seed)
    scale = scale or (0.2 if layout.attention == "sum" else 0.6)
    P, Q = scale * rng.standard_normal((2, 1, 2, 4 + layout.extra, 4 + layout.extra))
    return LinearTransformer(Full(P, Q), 3, layout)


@each(*CASES)
def test_the_population_loss_is_what_sampling_finds_and_its_gradient_that_of_differences(problem, layout):
    """The loss is a polynomial of degree two in P and in Q: central differences are exact to rounding."""
    model, quadratic = random_model(layout), Quadratic.of_problem(problem, layout)
    loss, gradient = quadratic(model)
    draw = problem.moments(200_000, threads=1)
    losses = draw.losses(model.weights(draw.moments), draw.task)
    assert abs(loss - losses.mean()) < 4 * losses.std() / np.sqrt(len(losses))
    vector = Vector(model, None)
    expected = slopes(lambda point: quadratic(vector.model(point))[0], vector.pack(model), 1e-4)
    np.testing.assert_allclose(vector.slope(gradient), expected, atol=1e-7 * abs(loss))


@pytest.mark.parametrize("attention", ["sum", "mean"])
def test_lengths_that_vary_give_the_mean_over_lengths(attention):
    """Of the losses for each length alone, to rounding: E[1/n] is not 1 / E[n]."""
    layout, problem = Layout(attention), Problem(3, "2..12", 1, features="powerlaw(1)", tasks=MEAN)
    whole = Quadratic.of_problem(problem, layout)
    alone = [Quadratic.of_problem(problem.replace(context=n), layout) for n in range(2, 13)]
    np.testing.assert_allclose(whole.second, np.mean([one.second for one in alone], 0), rtol=1e-12)
    np.testing.assert_allclose(whole.first, np.mean([one.first for one in alone], 0), rtol=1e-12, atol=1e-14)


@each(*(problem for problem, _ in CASES))
def test_linear_weights_have_the_risk_of_the_closed_form(problem):
    W = 0.05 * np.random.default_rng(1).standard_normal((3, 3))
    found = Quadratic.of_problem(problem)(one_layer.model_of(W))[0]
    assert found == pytest.approx(one_layer.risk(problem, W), rel=1e-12)


@pytest.mark.parametrize("family", [Diag, GDpp, Channels(2, 2), LowRank(2), Preconditioned, Registers(1)])
def test_every_family_has_the_loss_of_its_dense_form(family):
    """Families with omegas or channels use shortcuts; their gradients are compared with differences."""
    problem = CASES[0][0]
    layout = family.layout_for(Layout(), 3)
    quadratic = Quadratic.of_problem(problem, layout)
    made = family.random(3 + layout.extra, 1, 1, 0.3, np.random.default_rng(2))
    loss, gradient = quadratic.of_family(made)
    assert loss == pytest.approx(quadratic.of_family(Full(*made.dense(3)))[0], rel=1e-12)
    for name, value in made.arrays.items():
        for index in np.ndindex(value.shape):
            e = np.zeros(value.shape)
            e[index] = 1e-5
            up, down = (quadratic.of_family(family(**{**made.arrays, name: value + s * e}))[0] for s in (1, -1))
            assert gradient[name][index] == pytest.approx((up - down) / 2e-5, abs=1e-8)


def test_a_sample_gives_the_mean_over_its_contexts():
    problem = Problem(3, 7, "uniform(0,2)", query="powerlaw(1)")
    model, draw = random_model(Layout()), problem.moments(50)
    quadratic = Quadratic.of_sample(np.asarray(draw.moments.gram), np.asarray(draw.ridge), np.asarray(draw.metric))
    loss, gradient = quadratic(model)
    found = model.evaluate(draw.moments, draw.ridge, metric=draw.metric, gradient=True)
    assert loss == pytest.approx(found.loss, rel=1e-12)
    for name, slope in model.family.pullback(found.gradient).items():
        np.testing.assert_allclose(gradient[name], slope, atol=1e-12 * np.abs(slope).max())


test_what_has_no_closed_form_is_refused = refusals(
    (CASES[0][0], 2, Layout(), "closed form for one layer; got 2 layers. Use a fixed sample"),
    (Problem(3, 7, 1, features="rotated(powerlaw(1))"), 1, Layout(), "one covariance for all sequences; got"),
    (Problem(3, 7, 1, features="factors(1)"), 1, Layout(), "one covariance ... ; got ... features=factors"),
    (CASES[0][0], 1, Layout("mean", "constant"), "for tokens (x, y); got tokens with the coordinate constant"),
    (Problem(65, 7, 1), 1, Layout(), "at most 64 dimensions; got 65"),
    by=lambda problem, layers, layout: check_population(problem, layers, layout),
)


def test_more_layers_are_refused_when_called():
    model = LinearTransformer.random("full", dim=3, layers=2)
    refused(lambda: Quadratic.of_problem(CASES[0][0])(model), "for one layer; got 2 layers")


@each(None, "gaussian(mean=[1,0,-1])")
def test_the_minimum_is_that_of_least_squares_over_contexts(tasks):
    """The entries of G regressed on the tasks, by another route: one least-squares problem with a row per context.

    Symmetric tasks need one head, others more.
    """
    problem = Problem(3, 8, 0.5, features=[1.5, 1.0, 0.5], tasks=tasks)
    assert (Quadratic.of_problem(problem).minimum().heads == 1) == (tasks is None)
    draw = problem.moments(300, seed=1)
    best = Quadratic.of_sample(np.asarray(draw.moments.gram), draw.task, problem.query_covariance).minimum()
    entries = draw.moments.gram[:, *np.triu_indices(4)]
    plain = np.linalg.lstsq(entries, draw.task, rcond=None)[0]
    assert np.allclose(best.model().weights(draw.moments), entries @ plain)
    assert best.certificate > 1e-6
    assert np.isclose(best.loss, draw.losses(entries @ plain, draw.task).mean())


def test_too_few_contexts_have_no_certificate():
    draw = Problem(3, 8, 0.5).moments(9, seed=1)  # G has ten different entries
    assert Quadratic.of_sample(np.asarray(draw.moments.gram), draw.task).minimum().certificate < 1e-12
