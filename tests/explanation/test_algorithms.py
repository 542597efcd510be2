"""Layers beside classical algorithms: models that are these algorithms, and the algorithms written out."""

import json

import numpy as np
import pytest

from ridgeformer import Diag, LinearTransformer, Problem
from ridgeformer.evaluation import EVALUATION
from ridgeformer.explanation import compare_algorithms
from ridgeformer.explanation.algorithms import ALGORITHMS
from ridgeformer.predictors.ridge import TUNING
from support import tame_model

PROBLEM = Problem(3, 8, "uniform(0,1)", features="powerlaw(1)", query="powerlaw(0.5)")
FEW = {"iterations": 12, "sequences": 40, "seed": 3}


def gradient_descent(step, layers=5):
    """Every layer is a step of gradient descent."""
    return LinearTransformer(Diag(omega=np.broadcast_to([[0, 0], [-step, 0]], (layers, 2, 2))), 3)


def test_a_model_that_is_gradient_descent_is_found_to_be():
    step = compare_algorithms(PROBLEM, gradient_descent(0.01), **FEW).settings["gradient descent"]["step"]
    found = compare_algorithms(PROBLEM, gradient_descent(step), **FEW)
    assert found.closest("gradient descent").tolist() == [1, 2, 3, 4, 5]
    assert found.needed("gradient descent").tolist() == [1, 2, 3, 4, 5]
    for layer in range(5):
        assert found.relative_error["gradient descent"][layer, layer + 1] < 1e-12
        assert found.cosine["gradient descent"][layer, layer + 1] == pytest.approx(1, abs=1e-12)


def by_hand(name, found, S, a):
    """All iterates of an algorithm for one context, with the numbers that were tuned."""
    settings, count = found.settings[name], len(found.iteration[name])
    eye, before, w, iterates = np.eye(3), np.zeros(3), np.zeros(3), []
    if name == "ridge":
        return [np.linalg.solve(S + penalty * eye, a) for penalty in found.iteration[name]]
    if name == "newton":
        X = settings["scale"] * S
        for _ in range(count):
            iterates.append(X @ a)
            X = X @ (2 * eye - S @ X)
        return iterates
    P = eye
    if name == "preconditioned gd":
        P = np.linalg.inv(np.asarray(PROBLEM.moments(4096, seed=3, stream=TUNING).moments.S).mean(0))
    for _ in range(count):
        iterates.append(w)
        before, w = w, w + settings["step"] * P @ (a - S @ w) + settings.get("momentum", 0) * (w - before)
    return iterates


@pytest.mark.parametrize("name", ALGORITHMS)
def test_maps_are_those_of_the_algorithms_written_out(name):
    model = tame_model("diag", 3, 2, 2, 8, seed=5)
    found = compare_algorithms(PROBLEM, model, **FEW)
    draw = PROBLEM.moments(40, seed=3, stream=EVALUATION)
    iterates = np.array([by_hand(name, found, S, a) for S, a in zip(draw.moments.S, draw.moments.b, strict=True)])
    metric = np.asarray(draw.metric)
    for layer in (1, 2):
        w = model.truncate(layer).weights(draw.moments)[:, None]
        inner = lambda u, v: np.einsum("bki,ij,bkj->bk", u, metric, v)  # noqa: E731
        size = inner(w, w) * inner(iterates, iterates)
        cosine = (inner(np.broadcast_to(w, iterates.shape), iterates) / np.sqrt(np.where(size > 0, size, 1))).mean(0)
        error = np.sqrt(inner(w - iterates, w - iterates).mean(0) / inner(w, w).mean())
        np.testing.assert_allclose(found.cosine[name][layer - 1], cosine, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.relative_error[name][layer - 1], error, rtol=1e-6)
    goal = np.asarray(draw.ridge)[:, None]
    distance = np.sqrt(inner(iterates - goal, iterates - goal).mean(0) / inner(goal, goal).mean())
    np.testing.assert_allclose(found.distances[name], distance, rtol=1e-6, atol=1e-9)


def test_tuned_numbers_are_the_best():
    """Steps 20 % smaller or larger have larger errors to least squares, summed over iterations and contexts."""
    settings = compare_algorithms(PROBLEM, tame_model("diag", 3, 2, 1, 8), **FEW).settings
    draw = PROBLEM.moments(4096, seed=3, stream=TUNING)
    S, a = np.asarray(draw.moments.S), np.asarray(draw.moments.b)
    star = np.linalg.solve(S, a[..., None])[..., 0]

    def total(step, momentum):
        before, w, found = 0.0, np.zeros_like(a), 0.0
        for _ in range(13):
            found += np.einsum("bi,bij,bj->", w - star, S, w - star)
            before, w = w, w + step * (a - np.einsum("bij,bj->bi", S, w)) + momentum * (w - before)
        return found

    for name in ("gradient descent", "heavy ball"):
        step, momentum = settings[name]["step"], settings[name].get("momentum", 0.0)
        assert total(step, momentum) < min(total(0.8 * step, momentum), total(1.2 * step, momentum))


def test_the_result_is_a_table():
    found = compare_algorithms(PROBLEM, tame_model("gdpp", 3, 2, 1, 8), **FEW)
    assert tuple(found.iteration) == ALGORITHMS
    assert len(found.rows()) == 2 * (4 * 13 + 41)
    assert found.rows()[0].keys() == {"algorithm", "layer", "iteration", "cosine", "relative_error"}
    facts = json.loads(json.dumps(found.as_dict()))
    assert len(facts["closest"]["newton"]) == len(facts["needed"]["newton"]) == 2
    assert np.isnan(found.needed("ridge")).all()
    assert "Tuned on the problem: gradient descent: step" in str(found)
    assert "2 layers" in repr(found)
    assert len(found.to_pandas()) == len(found.rows())
    slow = compare_algorithms(Problem(3, 8, 0), tame_model("gdpp", 3, 1, 1, 8), iterations=1, sequences=20)
    assert set(slow.needed("newton")) <= {0.0, 1.0, np.inf}


def test_contexts_may_vary_and_be_short():
    found = compare_algorithms(Problem(3, "2..9", "uniform(0,1)"), tame_model("full", 3, 2, 1, 8), **FEW)
    assert all(np.isfinite(values).all() for values in found.relative_error.values())
