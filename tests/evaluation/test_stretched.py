"""Problems whose rare contexts are drawn often, against exact losses of one layer and of GD++."""

import numpy as np
import pytest

from ridgeformer import LinearTransformer, Problem, train
from ridgeformer.evaluation import Stretched
from ridgeformer.exact import exact_loss, least_excess_loss
from ridgeformer.problems import problem_from_dict
from ridgeformer.theory import one_layer
from ridgeformer.theory.gradient_steps import whitened
from ridgeformer.training import Adam
from support import refused

SKEWED = [[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.3]]
PROBLEM = Problem(3, 8, "uniform(0,3)", features=SKEWED, query="powerlaw(1)")


def mean_loss(problem, model, count, target="task"):
    """The mean loss of a model and its standard error."""
    draw = problem.moments(count, seed=1)
    losses = draw.losses(model.weights(draw.moments), getattr(draw, target))
    return losses.mean(), losses.std() / np.sqrt(count)


def test_weighted_losses_of_one_layer_are_the_closed_form():
    """Within 4 standard errors, on a problem with noise, a covariance and other queries; weights are 1 on average."""
    W = one_layer.optimum(PROBLEM)
    loss, error = mean_loss(Stretched(PROBLEM), one_layer.model_of(W), 20_000)
    assert abs(loss - one_layer.risk(PROBLEM, W)) < 4 * error
    draw = Stretched(PROBLEM).moments(20_000, seed=2)
    weights = np.trace(draw.metric, axis1=1, axis2=2) / np.trace(PROBLEM.law.metric)
    assert abs(weights.mean() - 1) < 4 * weights.std() / np.sqrt(20_000)
    assert weights.max() <= 5  # at most one over the share of plain contexts


def test_the_oracle_is_that_of_the_problem():
    """It has a smaller loss than ridge regression with another penalty, and its own loss is that of plain sequences."""
    draw, plain = (problem.moments(20_000, seed=3) for problem in (Stretched(PROBLEM), PROBLEM))
    losses, others = (one.losses(one.ridge, one.task) for one in (draw, plain))
    assert abs(losses.mean() - others.mean()) < 4 * np.hypot(losses.std(), others.std()) / np.sqrt(20_000)
    assert losses.mean() < draw.losses(0.9 * draw.ridge, draw.task).mean()


@pytest.mark.parametrize(("context", "layers"), [(4, 2), (6, 2), (20, 3)])
def test_losses_that_rare_contexts_decide_are_found(context, layers):
    """Those of the best GD++ model, in coordinates of a covariance: an integral over eigenvalues, within 4 errors."""
    problem, Lambda = Problem(3, context, 0), np.array(SKEWED)
    model = LinearTransformer(least_excess_loss(problem, layers), 3)
    here = problem.replace(features=Lambda, tasks=f"gaussian(covariance={np.linalg.inv(Lambda).tolist()})")
    loss, error = mean_loss(Stretched(here), whitened(model, Lambda), 20_000, "ridge")
    assert abs(loss - exact_loss(problem, model)) < 4 * error
    assert error < 0.06 * loss


def test_a_rarer_limit_lets_more_contexts_count():
    """One context in 100 exceeds the limit with the share 0.01."""
    share = np.mean([(np.trace(Stretched(PROBLEM, 0.01).moments(20_000, seed=s).metric, 0, 1, 2) == 0) for s in (1, 2)])
    less = np.mean(np.trace(Stretched(PROBLEM).moments(20_000, seed=1).metric, 0, 1, 2) == 0)
    assert share > less
    draw = Stretched(PROBLEM, 0.01).moments(20_000, seed=4)
    weights = np.trace(draw.metric, axis1=1, axis2=2) / np.trace(PROBLEM.law.metric)
    assert abs(weights.mean() - 0.99) < 4 * weights.std() / np.sqrt(20_000) + 0.001  # the largest of three eigenvalues


def test_it_is_a_problem_that_is_trained_on_and_stored(tmp_path):
    problem = Stretched(PROBLEM)
    assert problem_from_dict(problem.as_dict()) == problem == Stretched(str(PROBLEM))
    assert problem != Stretched(PROBLEM, 1e-6)
    assert problem.at_noise(1).noise == Problem(noise=1).noise
    assert type(problem.best_predictor()) is type(PROBLEM.best_predictor())
    start = one_layer.model_of(one_layer.optimum(PROBLEM))
    run = train(problem, "full", 1, protocol=Adam(steps=20), init=start, sequences=500, out=tmp_path, progress=False)
    assert run.spec.problem == problem


def test_what_cannot_be_stretched_is_refused():
    for text in ("d=3 n=5 fixed(1) features=rotated(powerlaw(1))", "d=3 n=5..9 fixed(1)", "d=3 n=5 student(3,1)"):
        refused(lambda text=text: Stretched(text), "contexts are stretched where features have one covariance")
    refused(lambda: Stretched(PROBLEM, 0), "must be above 0, and at most 0.01; got 0. Pass 1e-8")
