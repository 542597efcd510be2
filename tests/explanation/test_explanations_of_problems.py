"""Explanations on problems that are not isotropic: what they measure, and what they refuse."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from own_problems import HeavyTails
from ridgeformer import BayesRR, Layout, LinearTransformer, Moments, Problem, evaluate, explain
from ridgeformer.evaluation.sequence_losses import draw_sequences
from ridgeformer.explanation import ablate
from ridgeformer.explanation.coefficients import diagonal_part
from ridgeformer.explanation.interventions import without_flow, without_layer
from ridgeformer.explanation.readings import _block, read
from ridgeformer.noise import as_noise
from ridgeformer.plotting.explanation import draw_explanation
from ridgeformer.problems import Dataset, Sequences
from support import each, tame_model

PROBLEM = Problem(3, 8, "uniform(0,2)", features="powerlaw(1)")


@each(
    ({"features": "powerlaw(1)"}, "ridge"),
    ({"features": "rotated(powerlaw(1))"}, "ridge"),
    ({"features": "factors(1)", "noise": "categorical(0.5,2)"}, "ridge"),
    ({"features": "standardised()"}, "ridge"),
    ({"query": "powerlaw(2)"}, "ridge"),
    ({"tasks": "pool(4)"}, "oracle"),
    ({"tasks": "mixture(pool(4),0.3)"}, "oracle"),
    ({"tasks": "lowrank(2)"}, "ridge"),
    ({"tasks": "gaussian(mean=[1,0,2])"}, "ridge"),
    ({"context": "2..8"}, "ridge"),
    ids=str,
)
@pytest.mark.parametrize(
    ("family", "layout"),
    [("diag", Layout()), ("full", Layout("mean", "length")), ("full", Layout("mean", "constant", 1))],
    ids=str,
)
def test_loss_and_floor_are_those_of_an_evaluation(change, goal, family, layout):
    """With the metric of the queries, whichever way these are drawn."""
    problem = Problem(3, 8, "uniform(0,2)").replace(**change)
    model = LinearTransformer.random(family, dim=3, layers=2, layout=layout, seed=1, scale=0.05)
    found = explain(problem, model, sequences=400, seed=2)
    result = evaluate(problem, model, sequences=400, seed=2)
    behaviour = found.behaviour
    assert behaviour.exploded == 0
    assert behaviour.loss[-1] == pytest.approx(result.loss, rel=1e-6)
    assert behaviour.floor == pytest.approx(result.floor, rel=1e-6)
    np.testing.assert_allclose(behaviour.direction + behaviour.shrinkage + behaviour.size, behaviour.loss, rtol=1e-6)
    assert found.goal == goal
    assert found.symmetry is None  # these problems do not treat all directions alike
    assert any("Rotations of x are left out" in line for line in found.left_out) == (family == "full")
    assert any("further coordinates" in line for line in found.left_out) == bool(layout.extra)
    assert ablate(problem, model, sequences=200)["nothing"].loss > 0
    json.dumps(found.as_dict(), allow_nan=False)


def test_attention_by_mean_is_explained_as_the_same_function():
    model = tame_model("diag", 3, 2, 1, 8, seed=1)
    by_sum, by_mean = (explain(PROBLEM, one, sequences=500) for one in (model, model.to_attention("mean", 8)))
    np.testing.assert_allclose(by_mean.behaviour.loss, by_sum.behaviour.loss, rtol=1e-9)
    assert by_mean.behaviour.loss[-1] == pytest.approx(
        evaluate(PROBLEM, model.to_attention("mean", 8), sequences=500).loss, rel=1e-6
    )
    assert [role.kind for role in by_mean.roles] == [role.kind for role in by_sum.roles]


@pytest.mark.parametrize("family", ["diag", "full"])
def test_ablations_keep_attention_by_mean(family):
    model = tame_model(family, 3, 2, 1, 8, seed=1)
    by_mean = model.to_attention("mean", 8)
    for change in (lambda one: without_layer(one, 0), lambda one: without_flow(one, 1, "yx"), diagonal_part):
        assert change(by_mean).layout == Layout("mean")
    expected, losses = (ablate(PROBLEM, one, sequences=300) for one in (model, by_mean))
    assert list(losses) == list(expected)
    for name in expected:
        assert losses[name].loss == pytest.approx(expected[name].loss, rel=1e-6)


def slopes(model, x, y):
    """Weights and intercepts by predictions at the unit vectors and at 0, from the tokens."""
    d = x.shape[2]
    queries = np.broadcast_to(np.vstack([np.eye(d), np.zeros(d)]), (len(x), d + 1, d))
    found = model.predict(x, y, queries)
    return found[:, :d] - found[:, d:], found[:, d]


LAYOUTS = [Layout(), Layout("mean"), Layout("mean", "length"), Layout("sum", "constant", 1)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_readings_of_every_layout_by_the_tokens(layout):
    """States, and the effect of residuals of another size, against predictions for whole sequences.

    Tokens with the same S and w*, and another residual, move w just as far, in all layers and in one.
    """
    problem = Problem(3, 8, "uniform(0.5,2)", tasks="gaussian(mean=[1,0,2])")
    model = LinearTransformer.random("full", dim=3, layers=3, layout=layout, seed=1, scale=0.05)
    s = problem.sequences(20, seed=3)
    star = np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in zip(s.x, s.y, strict=True)])
    fit = np.einsum("bni,bi->bn", s.x, star)
    residual = s.y - fit
    size = np.linalg.norm(residual, axis=1)
    draw = dataclasses.replace(
        problem.moments(20, sums=True), moments=s.moments, task=s.task, ridge=s.task, sigma=s.sigma
    )
    found = _block(model, dataclasses.replace(draw, moments=next(s.moments.by_length())[1]), BayesRR(1.0))
    other = fit + residual * (np.roll(size, 1) / size)[:, None]
    for state in range(1, 4):
        first = model.truncate(state)
        (w, bias), (moved, moved_bias) = slopes(first, s.x, s.y), slopes(first, s.x, other)
        np.testing.assert_allclose(found.own[state], np.square(w).sum(1) + bias**2, rtol=1e-8)
        np.testing.assert_allclose(found.to_goal[state], np.square(w - s.task).sum(1) + bias**2, rtol=1e-8)
        np.testing.assert_allclose(found.to_ols[state], np.square(w - star).sum(1) + bias**2, rtol=1e-8)
        np.testing.assert_allclose(
            found.moved[state], np.square(moved - w).sum(1) + (moved_bias - bias) ** 2, rtol=1e-5, atol=1e-14
        )
    here, there = model.trace(s.x, s.y), model.trace(s.x, other)
    for layer in range(3):
        T = [there.T[i] if i == layer else here.T[i] for i in range(3)]
        moved = -(T[2] @ T[1] @ T[0])[:, -1, : 3 + layout.counted] + here.C[-1][:, -1, : 3 + layout.counted]
        np.testing.assert_allclose(found.through[layer], np.square(moved).sum(-1), rtol=1e-6, atol=1e-18)
    np.testing.assert_allclose(found.residual[0], size**2, rtol=1e-9)
    np.testing.assert_allclose(found.goal_along.sum(-1)[0], (star * s.task).sum(1), rtol=1e-9)


def test_residuals_are_exchanged_between_contexts_of_one_length():
    problem = Problem(3, "4..6", "uniform(0.5,2)")
    model = tame_model("diag", 3, 2, 1, 8, seed=1).to_attention("mean", 8)
    found = read(problem, model, BayesRR(problem.noise), sequences=60, seed=0)
    assert set(found.count[0]) == {4, 5, 6}
    draw = draw_sequences(problem, 0, 0, 60)
    for n, part in zip((4, 5, 6), draw.by_length(), strict=True):
        rho = part.moments.spectrum.residual
        swapped = np.array(part.moments.gram)
        swapped[:, -1, -1] += np.roll(rho, 1) - rho
        moved = model.weights(Moments(swapped, n)) - model.weights(part.moments)
        np.testing.assert_allclose(found.moved[-1][found.count[0] == n], np.square(moved).sum(1), rtol=1e-6, atol=1e-14)


def test_short_contexts_have_fewer_eigenvalues():
    problem = Problem(4, "2..9", "uniform(0,2)")
    found = explain(problem, tame_model("diag", 4, 2, 1, 9, seed=1), sequences=300)
    assert np.isfinite(found.noise.filter).all()
    assert np.isfinite(found.noise.ideal).all()
    assert np.isfinite(found.behaviour.knowable)  # from the contexts with n > d


class Levelled(HeavyTails):
    """The same with Gaussian noise, and at single noise levels."""

    name = "levelled"
    noise = as_noise("categorical(0.5,2)")

    def __init__(self, dim=3, context=8, freedom=3.0, level=None):
        super().__init__(dim, context, freedom)
        self.level = level

    def draw(self, rng, count):
        sigma = rng.choice([0.5, 2.0], count) if self.level is None else np.full(count, self.level)
        found = super().draw(rng, count)
        noise = rng.standard_normal(found.y.shape)
        y = (found.x @ np.asarray(found.task)[..., None])[..., 0] + sigma[:, None] * noise
        return Sequences(found.x, y, found.queries, found.answers, found.task, sigma)

    def at_noise(self, sigma):
        return Levelled(self.dim, self.context, self.freedom, sigma)

    def best_predictor(self):
        return BayesRR(self.noise)


def nonlinear():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 12, 3))
    y = x[..., 0] ** 3 + x[..., 1]
    return Dataset(Sequences(x[:, :8], y[:, :8], x[:, 8:], y[:, 8:]))


@pytest.mark.parametrize("problem", [HeavyTails(), nonlinear(), Levelled()], ids=str)
def test_problems_of_ones_own_are_explained_as_far_as_they_are_known(problem, tmp_path):
    model = tame_model("diag", 3, 2, 1, 8, seed=1)
    found = explain(problem, model, sequences=300, seed=2)
    result = evaluate(problem, model, sequences=300, seed=2)
    behaviour, levelled = found.behaviour, isinstance(problem, Levelled)
    assert behaviour.loss[-1] == pytest.approx(result.loss, rel=1e-9)
    np.testing.assert_allclose(behaviour.floor, result.floor, rtol=1e-9)
    assert found.goal == "task"
    said = str(found)
    assert "There is no oracle: losses are not adjusted" in said
    for words in ("The floor is left out", "Errors of shrinkage are left out", "fixed noise levels are left out"):
        assert (words in said) == (not levelled)
    assert np.isnan(found.noise.sigma).all() == (not levelled)
    assert np.isnan(behaviour.known).all() == (not levelled)
    shrinkage = np.nan_to_num(behaviour.shrinkage)
    parts = behaviour.direction + shrinkage + behaviour.size + behaviour.offset
    np.testing.assert_allclose(parts, behaviour.loss, rtol=1e-9)
    assert (behaviour.offset > 0) == isinstance(problem, Dataset)
    json.dumps(found.as_dict(), allow_nan=False)
    if not levelled:
        draw_explanation(found, tmp_path / "own.svg")


def test_a_best_predictor_may_only_have_predict():
    """Its floor is that of an evaluation: through the queries of the sequences."""

    class ByQueries(Levelled):
        name = None

        def best_predictor(self):
            best = BayesRR(self.noise)
            return SimpleNamespace(
                predict=lambda x, y, q: (q @ best.weights(Moments.from_tokens(x, y))[..., None])[..., 0]
            )

    problem, model = ByQueries(), tame_model("diag", 3, 2, 1, 8, seed=1)
    found = explain(problem, model, sequences=300, seed=2)
    floor = evaluate(problem, model, sequences=300, seed=2).floor
    assert floor > 0
    np.testing.assert_allclose(found.behaviour.floor, floor, rtol=1e-9)
