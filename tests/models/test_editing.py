"""Edited, shortened and stacked models against the token form of the matrices that they should have."""

import numpy as np
import pytest

from ridgeformer import Diag, Full, GDpp, Layout, LinearTransformer, Problem
from ridgeformer.models.family import family_named, known_families
from ridgeformer.models.transformer import OMEGAS
from support import draw, refusals, refused, repeated, tame_model
from token_form import predictions

BUILT_IN = [n for n in known_families() if family_named(n).built_in]


def model_of(family, heads=1, seed=1, layers=4):
    return repeated(family, layers, heads=heads, scale=0.15, context=8, seed=seed)


def sequences():
    return Problem(3, 7, "uniform(0,2)").sequences(5, seed=1, queries=2)


def check(model, layers):
    s = sequences()
    expected = [predictions(model, *one, layers) for one in zip(s.x, s.y, s.queries, strict=True)]
    np.testing.assert_allclose(model.predict(s.x, s.y, s.queries), expected, rtol=1e-10, atol=1e-12)
    weights = model.weights(s.moments)
    np.testing.assert_allclose(np.einsum("bd,bmd->bm", weights, s.queries), expected, rtol=1e-10, atol=1e-12)


def layers_of(model):
    return list(zip(np.asarray(model.P), np.asarray(model.Q), strict=True))


def diagonal(omega):
    """A layer of two heads with these omegas."""
    spread = [np.diag([*[first] * 3, second]) for first, second in omega]
    return np.stack([np.diag([1.0, 1, 1, 0]), np.diag([0.0, 0, 0, 1])]), np.stack(spread)


@pytest.mark.parametrize("name", OMEGAS)
@pytest.mark.parametrize(("family", "heads"), [("diag", 1), ("diag", 2), ("diag", 3), ("gdpp", 1), ("gdpp", 2)])
@pytest.mark.parametrize("value", [0, 0.02])
def test_one_omega_is_edited_by_name(family, heads, name, value):
    model = model_of(family, heads)
    before = {key: array.copy() for key, array in model.family.arrays.items()}
    new = model.edit(layer=3, **{name: value})
    omega = model.family.omega.copy()
    omega[3][OMEGAS[name]] = value
    np.testing.assert_allclose(new.family.omega, omega, rtol=1e-14, atol=1e-17)
    check(new, [*layers_of(model)[:3], diagonal(omega[3])])
    assert all(np.array_equal(before[key], array) for key, array in model.family.arrays.items())
    stays = family == "gdpp" and (value == 0 or name.endswith("x"))
    assert new.family.name == ("gdpp" if stays else "diag")


def test_heads_stay_where_they_can_hold_the_omegas():
    """One head holds omegas of rank one, two heads all of them."""
    one, two = model_of("diag", 1), model_of("diag", 2)
    outer = np.outer([0.3, 0.7], [0.1, -0.2])
    for omega in (outer, np.zeros((2, 2)), [[0, 0.3], [0, 0]], 0, 0.1):
        new = one.edit(1, omega=omega)
        assert (new.heads, set(new.family.arrays)) == (1, {"p", "q"})
        np.testing.assert_allclose(new.family.omega[1], np.broadcast_to(omega, (2, 2)), rtol=1e-14)
        for name in "pq":
            assert np.array_equal(new.family.arrays[name][[0, 2, 3]], one.family.arrays[name][[0, 2, 3]])
    new = one.edit(1, omega=np.eye(2))
    assert (new.heads, set(new.family.arrays)) == (2, {"omega"})
    new = two.edit(1, omega=[[0.1, 0.2], [0.3, 0.4]])
    assert set(new.family.arrays) == {"p", "q"}
    assert np.array_equal(new.family.omega[1], [[0.1, 0.2], [0.3, 0.4]])
    assert model_of("diag", 1).edit(1, omega_xx=0, omega_xy=0).heads == 1
    several = two.edit(-1, omega_xx=1, omega_yy=2).family.omega[3]
    assert (several[0, 0], several[1, 1]) == (1, 2)


@pytest.mark.parametrize("family", ["diag", "gdpp"])
def test_omega_form_stays_omega_form(family):
    made = model_of(family).family
    model = LinearTransformer(Diag(omega=made.omega) if family == "diag" else GDpp(omega=made.omega[:, :, 0]), 3)
    new = model.edit(2, omega_yx=0.5, omega_xx=0.25)
    assert set(new.family.arrays) == {"omega"}
    assert new.family.omega[2, :, 0].tolist() == [0.25, 0.5]
    assert np.array_equal(new.family.omega[[0, 1, 3]], model.family.omega[[0, 1, 3]])
    assert model.edit(0, omega=[[1, 2], [3, 4]]).family.omega[0].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("family", "name", "size"), [("channels(1,3)", "P_s", (3, 3)), ("preconditioned", "A", (3, 3)), ("diag", "p", (2,))]
)
def test_one_head_needs_no_axis_for_heads(family, name, size):
    model, new = model_of(family), np.arange(np.prod(size), dtype=float).reshape(size)
    found = model.edit(1, **{name: new})
    np.testing.assert_array_equal(found.family.arrays[name][1, 0], new)
    assert found.family.arrays[name].shape == model.family.arrays[name].shape
    refused(lambda: model_of(family, heads=2).edit(1, **{name: new}), f"{name} must have shape")


@pytest.mark.parametrize("family", BUILT_IN)
def test_any_model_takes_a_dense_matrix_and_becomes_full(family):
    model = model_of(family)
    matrix = np.random.default_rng(0).normal(size=model.P.shape[1:]) * 0.05
    new = model.edit(2, P=matrix)
    layers = layers_of(model)
    layers[2] = matrix, layers[2][1]
    assert isinstance(new.family, Full) or family.startswith("lowrank")  # whose P is dense
    assert np.array_equal(new.P[2], matrix)
    if model.width == 3:
        check(new, layers)
        if model.heads == 1:
            assert np.array_equal(model.edit(2, P=matrix[0]).P, new.P)
    assert not model.edit(0, P=0, Q=0).Q[0].any()


test_bad_edits_are_refused_in_words = refusals(
    (lambda: model_of("diag").edit(1, omega_zz=0), "layer are p, q, omega, omega_xx, omega_xy, omega_yx,"),
    (lambda: model_of("full").edit(1, omega_yy=0), "the parameters of a full layer are P, Q; got omega_yy"),
    (lambda: model_of("diag").edit(1), "got no name"),
    (lambda: model_of("diag").edit(1, omega_yy=np.nan), "omega_yy must be finite"),
    (lambda: model_of("gdpp").edit(1, omega=[1, 2, 3]), "omega must have shape (2); got shape (3,)"),
    (lambda: model_of("diag").edit(1, omega_yy=0, p=0), "Make one edit after the other"),
    (lambda: model_of("diag").edit(1, omega=0, P=0), "an edit is of the omegas, of P and Q, or of other"),
    (lambda: model_of("diag").edit(1, P=np.zeros((3, 3))), "P must have shape (4, 4); got shape (3, 3)"),
    (lambda: model_of("diag").without(4), "layer must be at most 3; got 4. Layers are counted from 0"),
    (lambda: model_of("diag", layers=1).without(0), "a model needs at least one layer; got a request to remove"),
    (lambda: model_of("diag").truncate(0), "layers must be at least 1; got 0"),
    (lambda: model_of("diag").stack(model_of("diag").family), "a model is stacked on a model; got a Diag"),
    (lambda: model_of("diag").stack(tame_model("diag", 4, 1, 1, 7)), "the same tokens: dimension 3 and"),
    (
        lambda: model_of("diag").stack(LinearTransformer(model_of("diag").family, 3, Layout("mean"))),
        "got dimension 3 and Layout(attention='mean'",
    ),
)


@pytest.mark.parametrize("family", BUILT_IN)
def test_a_model_without_a_layer_is_that_of_the_other_layers(family):
    model = model_of(family)
    moments = draw(3, 7).moments
    for layer in (0, 1, 3, -2):
        new = model.without(layer)
        assert new.layers == 3
        dense = model.to_full()
        expected = LinearTransformer(Full(*(np.delete(m, layer, 0) for m in (dense.P, dense.Q))), layout=model.layout)
        np.testing.assert_allclose(new.weights(moments), expected.weights(moments), rtol=1e-10, atol=1e-12)
        identity = model.edit(layer, P=0)
        assert identity.layers == 4
        np.testing.assert_allclose(new.weights(moments), identity.weights(moments), rtol=1e-10, atol=1e-12)
        if model.width == 3:
            check(new, [one for at, one in enumerate(layers_of(model)) if at != layer % 4])
    assert model.layers == 4


@pytest.mark.parametrize("second", BUILT_IN)
@pytest.mark.parametrize("first", BUILT_IN)
def test_stacked_models_follow_each_other(first, second):
    one, two = model_of(first, heads=1, seed=1), model_of(second, heads=2, seed=2, layers=2)
    if one.width != two.width or one.layout != two.layout:
        refused(lambda: one.stack(two), "the same tokens")
        return
    new = one.stack(two)
    assert (new.layers, new.dim) == (4 + two.layers, 3)
    if one.width == 3:
        check(new, [*layers_of(one), *layers_of(two)])
    # The other way round: the trace of the second goes on where that of the first ends.
    moments = draw(3, 7).moments
    end = one.trace(moments).G[-1]
    np.testing.assert_allclose(new.trace(moments).G[4], end, rtol=1e-10, atol=1e-12)


def test_what_stacked_models_are():
    pq, omega = model_of("diag", 1), LinearTransformer(Diag(omega=model_of("diag", 2).family.omega), 3)
    assert set(pq.stack(pq).family.arrays) == {"p", "q"}
    assert set(pq.stack(omega).family.arrays) == {"omega"}
    assert pq.stack(model_of("gdpp", 1)).family.name == "diag"
    assert pq.stack(model_of("gdpp", 1)).heads == 1
    assert model_of("gdpp", 1).stack(model_of("gdpp", 3)).family.name == "gdpp"
    assert pq.stack(model_of("full", 3)).heads == 3
