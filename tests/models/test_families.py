"""Every family: token form, moment form, engines, derivative, file, and its place among the others."""

import pickle
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

from ridgeformer import Diag, Full, LinearTransformer, engine, load, save
from ridgeformer.engine import Layout
from ridgeformer.models import FAMILIES, Channels, Looped, Preconditioned, family_named
from ridgeformer.moments import Moments
from support import check_slope, refusals
from token_form import predictions

SHIPPED = ("full", "diag", "gdpp", "preconditioned")
SIZED = ("channels(1,1)", "channels(1,3)", "channels(2,2)", "lowrank(1)", "lowrank(3)", "registers(0)", "registers(2)")
LOOPED = ("looped(diag,3)", "looped(full,2)", "looped(channels(1,2),2)", "looped(lowrank(2),2)")
EVERY = (*SHIPPED, *SIZED, *LOOPED)
DIM, CONTEXT, BATCH = 3, 7, 5


def model_of(name, layers=2, heads=1, layout=None, seed=0, scale=0.25):
    """A random model that changes tokens by about a tenth in every layer."""
    chosen = Layout("mean") if layout is None else layout
    return LinearTransformer.random(name, dim=DIM, layers=layers, heads=heads, scale=scale, seed=seed, layout=chosen)


def tokens(seed=0, queries=4):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((BATCH, CONTEXT, DIM)), rng.standard_normal((BATCH, CONTEXT))
    return x, y, rng.standard_normal((BATCH, queries, DIM))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", EVERY)
def test_token_form_is_moment_form_is_every_engine(name, heads):
    model = model_of(name, heads=heads)
    x, y, queries = tokens()
    truth = np.array([predictions(model, *one) for one in zip(x, y, queries, strict=True)])
    assert np.abs(truth).max() > 1e-3
    moments = Moments.from_tokens(x, y)
    np.testing.assert_allclose(model.predict(x, y, queries), truth, atol=1e-10)
    for one in engine.available():
        weights = model.weights(moments, engine=one)
        np.testing.assert_allclose(np.einsum("bi,bmi->bm", weights, queries), truth, atol=1e-10)


@pytest.mark.parametrize("name", EVERY)
def test_pullback_is_the_derivative(name):
    model = model_of(name, heads=2)
    x, y, _ = tokens()
    moments, target = Moments.from_tokens(x, y), np.random.default_rng(1).standard_normal((BATCH, DIM))
    Arrays = namedtuple("Arrays", model.family.arrays)

    def evaluate(arrays, gradient):
        family = type(model.family)(**arrays._asdict())
        result = LinearTransformer(family, DIM, model.layout).evaluate(moments, target, gradient=gradient)
        slope = Arrays(**family.pullback(result.gradient)) if gradient else None
        return SimpleNamespace(loss=result.loss, gradient=slope)

    check_slope(evaluate, Arrays(**model.family.arrays))


@pytest.mark.parametrize("name", EVERY)
def test_saved_loaded_pickled_and_embedded(name, tmp_path):
    model = model_of(name, heads=2)
    save(model, tmp_path / "model.safetensors")
    x, y, queries = tokens()
    for other in (load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert type(other.family) is type(model.family) is family_named(name)
        assert other.layout == model.layout
        assert all(np.array_equal(other.family.arrays[key], value) for key, value in model.family.arrays.items())
    full = model.to_full()
    assert isinstance(full.family, Full)
    np.testing.assert_array_equal(full.predict(x, y, queries), model.predict(x, y, queries))


@pytest.mark.parametrize("name", EVERY)
def test_growing_truncating_and_rescaling_keep_the_function(name):
    model = model_of(name, heads=2)
    x, y, queries = tokens()
    moments = Moments.from_tokens(x, y)
    once = model.family.once.layers if name in LOOPED else model.layers
    for at in range(once + 1):
        grown = model.with_identity(at)
        assert grown.layers > model.layers
        np.testing.assert_allclose(grown.weights(moments), model.weights(moments), atol=1e-12)
    shorter = LinearTransformer(model.family.select(slice(0, 1)), DIM, model.layout)
    np.testing.assert_array_equal(shorter.P, model.P[:1])
    other = model.to_attention("sum", CONTEXT)
    np.testing.assert_allclose(other.predict(x, y, queries), model.predict(x, y, queries), atol=1e-12)


@pytest.mark.parametrize("name", [name for name in EVERY if family_named(name).contains is not None])
def test_a_family_holds_what_it_contains(name):
    family = family_named(name)
    heads = min(2, family.contains.useful_heads or 2)
    simpler = model_of(family.contains, heads=heads)
    embedded = LinearTransformer(family.embed(simpler.family, DIM, 2), DIM, Layout("mean"))
    x, y, queries = tokens()
    np.testing.assert_allclose(embedded.predict(x, y, queries), simpler.predict(x, y, queries), atol=1e-12)


def test_factors_follow_the_sizes_of_features_and_labels():
    """On features 2 x and labels 3 y, parameters times their factors do what they did on x and y, to the scale of y."""
    x, y, queries = tokens()
    for name in EVERY:
        model = model_of(name)
        factors = model.family.natural_sizes(DIM, 1.0, 2.0, 3.0)
        arrays = {key: value * factors.get(key, np.ones(())) for key, value in model.family.arrays.items()}
        other = LinearTransformer(type(model.family)(**arrays), DIM, model.layout)
        found = other.predict(2 * x, 3 * y, 2 * queries)
        np.testing.assert_allclose(found, 3 * model.predict(x, y, queries), atol=1e-10, err_msg=name)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "registers(0)"])
def test_isotropic_families_turn_with_the_features(name):
    """If x turns by an orthogonal matrix U, so do the weights."""
    model = model_of(name)
    x, y, _ = tokens()
    U = np.linalg.qr(np.random.default_rng(3).standard_normal((DIM, DIM)))[0]
    turned = model.weights(Moments.from_tokens(x @ U.T, y))
    difference = np.abs(turned - model.weights(Moments.from_tokens(x, y)) @ U.T).max()
    assert (difference < 1e-12) == model.family.isotropic


def test_a_coordinate_of_the_layout_is_the_first_further_scalar():
    """With a constant in every token, a channel model with P_s reading it and moving y has an intercept."""
    family = Channels(1, 2)
    zero = np.zeros((1, 1, 1, 1))
    P_s, Q_s = np.zeros((2, 1, 1, 2, 2))
    P_s[..., 1, 1] = Q_s[..., 0, 0] = 1.0  # y moves by sum_j y_j * 1 * 1
    model = LinearTransformer(family(zero, zero, P_s, Q_s), DIM, Layout("mean", "constant"))
    x, y, queries = tokens()
    np.testing.assert_allclose(model.predict(x, y, queries), -np.repeat(y.mean(1)[:, None], 4, 1), atol=1e-14)


def test_a_loop_repeats_its_layers():
    once, thrice = model_of("diag", layers=2), None
    thrice = LinearTransformer(Looped("diag", 3)(**once.family.arrays), DIM, once.layout)
    assert thrice.layers == 6
    np.testing.assert_array_equal(thrice.P, np.concatenate([once.P] * 3))
    edited = thrice.edit(3, p=0.0)
    assert edited.family.name == "diag"
    np.testing.assert_array_equal(edited.P[[0, 1, 2, 4, 5]], thrice.P[[0, 1, 2, 4, 5]])
    assert not edited.P[3].any()


def test_preconditioned_is_gradient_descent_with_a_matrix():
    """With B = 0, one layer predicts -sum_j y_j <x_j, A x> / n: a step of gradient descent that is preconditioned."""
    x, y, queries = tokens()
    A = np.random.default_rng(2).standard_normal((DIM, DIM))
    model = LinearTransformer(Preconditioned(A[None, None], np.zeros((1, 1, DIM, DIM))), layout=Layout("mean"))
    expected = -np.einsum("bn,bni,ij,bmj->bm", y, x, A, queries) / CONTEXT
    np.testing.assert_allclose(model.predict(x, y, queries), expected, atol=1e-12)


def test_names_lead_to_one_class():
    assert family_named(" channels( 1, 3 ) ") is Channels(1, 3) is Channels(vectors=1, scalars=3)
    assert family_named("looped(channels(1,3),2)") is Looped(Channels(1, 3), 2)
    assert family_named(Diag) is Diag
    own = {name: family for name, family in FAMILIES.items() if family.built_in}  # other tests define incomplete ones
    assert own
    assert all(family_named(name) is family for name, family in own.items())


test_bad_input = refusals(
    (lambda: Channels(0, 3), "vectors must be at least 1; got 0"),
    (lambda: Looped(Looped("diag", 2), 2), "must not be looped itself; got looped(diag,2)"),
    (lambda: model_of("lowrank(5)"), "keys and queries must be at most 4, the coordinates of a token; got 5"),
    (lambda: model_of("registers(4)"), "registers are coordinates of x, of which there are 3; got 4 registers"),
    (lambda: family_named("channels(1,2,3)"), "channels must be given as in channels(1,3)"),
    (lambda: family_named("mlp"), "the family must be one of"),
    (lambda: family_named("channels"), "channels needs its sizes; got 'channels'. Write channels(1,3)"),
    (lambda: family_named(Channels), "channels needs its sizes; got Channels. Write Channels(1,3)"),
    (lambda: model_of("diag", layout=Layout(scratch=2)), "the family diag has room for no further coordinates"),
    (lambda: Channels(1, 2)(*np.zeros((4, 1, 1, 1, 1))), "P_s must have shape (1, 1, 2, 2)"),
    (lambda: LinearTransformer(model_of("channels(1,2)").family), "fit any dimension, so dim must be given"),
    (lambda: Channels(1, 2).embed(model_of("full").family, 3, 1), "channels contain Diag models"),
)  # fmt: skip
