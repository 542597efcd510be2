"""Token form = moment form, and the laws that linear transformers obey."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ridgeformer import Diag, Full, GDpp, LinearTransformer, Moments, Problem, load
from ridgeformer.errors import ExplosionWarning
from support import draw, refusals, refused, tame_model
from token_form import through

KINDS = st.sampled_from(["full", "diag", "gdpp"])
SHAPE = {
    "dim": st.integers(1, 6),
    "context": st.integers(1, 9),
    "layers": st.integers(1, 8),
    "heads": st.integers(1, 4),
}


def sequences(dim, context, seed, queries=1):
    return Problem(dim, context, "uniform(0,1)").sequences(5, seed=seed, queries=queries)


@given(kind=KINDS, seed=st.integers(0, 99), **SHAPE)
def test_token_form_is_the_equation_of_the_paper(kind, dim, context, layers, heads, seed):
    model = tame_model(kind, dim, min(layers, 3), heads, context, seed)
    s = sequences(dim, context, seed)
    trace = model.tokens(s.x, s.y, s.queries)
    assert trace.shape == (model.layers + 1, 5, context + 1, dim + 1)
    tokens = np.concatenate([s.x[0], s.y[0][:, None]], 1), np.append(s.queries[0], [[0.0]], 1)
    plain = np.concatenate(through(zip(model.P, model.Q, strict=True), *tokens))
    np.testing.assert_allclose(trace[-1, 0], plain, rtol=1e-10, atol=1e-12)
    weights = model.weights(Moments.from_tokens(s.x, s.y))
    np.testing.assert_allclose(s.queries[0] @ weights[0], -plain[-1:, -1], rtol=1e-9, atol=1e-11)


@given(seed=st.integers(0, 99), c=st.floats(0.1, 10), **SHAPE)
def test_gdpp_is_linear_in_y(dim, context, layers, heads, seed, c):
    model = tame_model("gdpp", dim, layers, heads, context, seed)
    s = sequences(dim, context, seed)
    plain = model.weights(Moments.from_tokens(s.x, s.y))
    np.testing.assert_allclose(model.weights(Moments.from_tokens(s.x, c * s.y)), c * plain, rtol=1e-9, atol=1e-12)


def test_identity_layers_can_learn():
    """The gradient of a new layer is not zero, so that growing a model does not start at a stationary point."""
    d = draw(4, 8, 100)
    for kind in ("full", "diag", "gdpp"):
        model = tame_model(kind, 4, 2, 1, 8).with_identity(1)
        gradient = model.evaluate(d.moments, d.ridge, gradient=True).gradient
        assert max(np.abs(g[1]).max() for g in model.family.pullback(gradient).values()) > 1e-6


def test_step_is_moments_then_evaluate():
    problem = Problem(4, 8, "uniform(0,1)")
    model = tame_model("diag", 4, 3, 1, 8)
    fused = model.step(problem, 100, seed=3, stream=1, step=7, unadjusted=True)
    d = problem.moments(100, seed=3, stream=1, step=7)
    apart = model.evaluate(d.moments, d.ridge, gradient=True)
    np.testing.assert_array_equal(fused.losses, apart.losses)
    np.testing.assert_array_equal(fused.gradient[0], apart.gradient[0])
    np.testing.assert_array_equal(fused.unadjusted, model.evaluate(d.moments, d.task).losses)
    assert model.step(problem, 100, gradient=False).gradient is None
    twin = model.step(problem, 100, seed=3, stream=1, step=7, unadjusted=True, engine="numpy")
    np.testing.assert_allclose(twin.unadjusted, fused.unadjusted, rtol=1e-9)


def diag(**options):
    return LinearTransformer(Diag(omega=[[[0, 0], [-0.1, 0]]]), **options)


test_bad_models_are_refused_in_words = refusals(
    (lambda: Full(np.zeros((0, 1, 3, 3)), np.zeros((0, 1, 3, 3))), "P must not be empty; got shape (0, 1, 3, 3)"),
    (lambda: Full(np.zeros((1, 1, 3, 3)), np.zeros((1, 1, 4, 4))), "Q must have shape (1, 1, 3, 3); got shape"),
    (lambda: Full(np.zeros((1, 1, 3, 2)), np.zeros((1, 1, 3, 2))), "P must have shape (L, H, 2, 2)"),
    (lambda: Diag(np.zeros((2, 1, 2)), np.zeros((3, 1, 2))), "q must have shape (2, 1, 2); got shape (3, 1, 2)"),
    (lambda: Diag(np.zeros((2, 1, 2))), "both p and q, or omega"),
    (lambda: Diag(np.zeros((2, 1, 2)), np.zeros((2, 1, 2)), omega=np.zeros((2, 2, 2))), "not both"),
    (lambda: GDpp(np.zeros((2, 1, 2)), np.zeros((2, 1, 2))), "q must have shape (2, 1); got shape (2, 1, 2)"),
    (lambda: GDpp(omega=np.zeros((2, 2, 2))), "omega must have shape (L, 2)"),
    (lambda: diag(), "dim must be given"),
    (lambda: LinearTransformer(tame_model("full", 2, 1, 1, 3).family, dim=5), "dim must fit the parameters"),
    (lambda: LinearTransformer(np.zeros(3), 2), "parameter family; got an ndarray"),
    (lambda: diag(dim=3).weights(draw(4, 5).moments), "dimension 3 takes moments of dimension 3; got dimension 4"),
    (lambda: diag(dim=3).weights(np.zeros((3, 4, 4))), "takes Moments; got an ndarray"),
    (lambda: diag(dim=4).evaluate(draw(4, 5).moments, np.zeros((3, 4))), "target must have shape (9, 4)"),
    (lambda: diag(dim=4).tokens(np.ones((2, 3, 5)), np.ones((2, 3)), np.ones((2, 1, 5))), "x must have shape (B, n,"),
    (lambda: diag(dim=4).with_identity(2), "position of a new layer must be at most 1"),
    (lambda: tame_model("full", 2, 1, 1, 3).to_diag(), "only GD++ and Diag"),
    (lambda: diag(dim=4).astype(int), "dtype must be float32 or float64; got <class 'int'>"),
    (lambda: diag(dim=4).family.pullback(None), "Evaluate with gradient=True"),
    (lambda: diag(dim=4).family.pullback((np.zeros((2, 2, 2)),)), "a gradient must have the shapes [(1, 2, 2)]"),
    (lambda: diag(dim=4).step(Problem(3, 5, "fixed(1)"), 5), "needs a problem of that dimension"),
    (lambda: diag(dim=4).step(Problem(4, 5, "fixed(1)"), 5, target="x"), "target must be ridge or task"),
    (lambda: LinearTransformer.random(["diag"], dim=2, layers=1), "the family must be one of"),
    (lambda: LinearTransformer.random("diag", dim=2, layers=1, scale="big"), "scale must be a number; got 'big'"),
    (lambda: Diag([[[1, 2]]], [[[1, 2], [3]]]), "rectangular"),
)


def test_predict_takes_one_sequence_without_a_batch_axis():
    model = tame_model("full", 3, 2, 1, 6)
    data = Problem(3, 6, "fixed(1)").sequences(4, queries=5)
    whole = model.predict(data.x, data.y, data.queries)
    assert whole.shape == (4, 5)
    one = model.predict(data.x[2], data.y[2], data.queries[2])
    assert one.shape == (5,)
    np.testing.assert_allclose(one, whole[2], rtol=1e-12)
    assert model.predict(data.x[2].tolist(), data.y[2].tolist(), data.queries[2].tolist()).shape == (5,)
    refused(lambda: model.predict(data.x, data.y, data.queries[0]), "queries must have shape")
    refused(lambda: model.predict(data.x[2], data.y[2], data.queries[2, 0]), "queries of one context must have shape")


def test_predict_says_which_contexts_explode_and_why():
    """Unscaled real data gave NaN and two NumPy warnings in 0.1."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    model = load("zoo:full/7/uniform(0,5)")
    with pytest.warns(ExplosionWarning, match=r"1 of 1 contexts .numbers 0.*Standardise every feature") as seen:
        found = model.predict(x[:20], y[:20], x[20:25])
    assert len(seen) == 1
    assert found.shape == (5,)
    tame = Problem(10, 20, "uniform(0,5)").sequences(3)
    features, labels = np.array(tame.x), np.array(tame.y)
    features[1] *= 1e4
    with pytest.warns(ExplosionWarning, match=r"explodes on 1 of 3 contexts .numbers 1."):
        mixed = model.predict(features, labels, tame.queries)
    np.testing.assert_allclose(mixed[[0, 2]], model.predict(tame.x, tame.y, tame.queries)[[0, 2]], rtol=1e-9)


def test_predict_calls_absurd_numbers_an_explosion_but_not_far_away_queries():
    wild, tame = (LinearTransformer(Diag(omega=[[[0, 0], [-step, 0]]]), 2) for step in (1e9, 0.1))
    with pytest.warns(ExplosionWarning, match="more than 1000 times the largest label"):
        assert np.isfinite(wild.predict(np.ones((3, 2)), np.ones(3), np.ones((1, 2)))).all()
    tame.predict(np.ones((3, 2)), np.ones(3), np.full((1, 2), 1e6))


@given(kind=KINDS, seed=st.integers(0, 99), **SHAPE)
def test_the_simplest_family_is_that_of_the_function(kind, dim, context, layers, heads, seed):
    """Also as a Full model, and with layers that do nothing."""
    model = tame_model(kind, dim, layers, heads, context, seed)
    for same in (model, model.to_full(), model.with_identity(0), model.to_full().with_identity(layers)):
        assert (same.simplest_family, same.working_layers) == (kind, layers)
    channels = LinearTransformer.random("channels(1,3)", dim=dim, layers=1)
    assert channels.simplest_family == "channels(1,3)"
