"""Channels: the kernels against the dense matrices they stand for, the NumPy twin, differences, and Diag."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ridgeformer import InputError, engine
from ridgeformer.engine import Choices, Key, Law, Layout, Mixings, Omegas
from support import NATIVE, check_slope, close, each, refused

TWIN = engine.named("numpy")
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
SHAPES = [(1, 1), (1, 2), (1, 3), (1, 5), (2, 1), (2, 3), (3, 2)]


def channels(v, s, dim, layers, heads, context=8, seed=0, dtype=np.float64):
    """Parameters whose layers change tokens by about a tenth; G has a norm of at most 4 (n + D) D."""
    rng = np.random.default_rng(seed)
    D = v * dim + s
    size = np.sqrt(0.5 / np.sqrt(heads * v * s) / (4 * (context + D) * D))
    return Mixings(*((size * rng.standard_normal((layers, heads, k, k))).astype(dtype) for k in (v, v, s, s)))


def layouts(v, s, dim):
    """All layouts with as many coordinates as the channels need."""
    for attention in ("sum", "mean"):
        for coordinate in ("none", "constant", "length")[: 3 if s > 1 else 1]:
            yield Layout(attention, coordinate, (v - 1) * dim + s - 1 - (coordinate != "none"))


def contexts(v, s, dim, count, dtype=np.float64, layout=None, seed=0):
    """Gram matrices and ridge solutions of tokens with room for the channels."""
    layout = layout or next(layouts(v, s, dim))
    drawn = TWIN.sample(Law(dim, 8), Choices(np.linspace(0.1, 1, count)), Key(seed), layout=layout, dtype=dtype)
    return drawn.gram, layout.target(drawn.ridge)


def same(mine, other, dtype=np.float64):
    close(mine.losses, other.losses, dtype)
    close(mine.weights, other.weights, dtype)
    assert mine.limited == other.limited
    close(mine.gradient, other.gradient, dtype)


@pytest.mark.parametrize(("v", "s"), SHAPES)
def test_the_dense_matrices_act_alike_on_all_vectors(v, s):
    """On a token in plain words: vector i becomes sum_j Pv[i, j] vector j, and scalars likewise."""
    d, (Pv, Qv, Ps, Qs) = 4, (p[0, 0] for p in channels(v, s, 4, 1, 1))
    rng = np.random.default_rng(1)
    vectors, scalars = rng.standard_normal((v, d)), rng.standard_normal(s)

    def token(vectors, scalars):
        return np.concatenate([vectors[0], scalars[:-1], vectors[1:].ravel(), scalars[-1:]])

    for dense, m, n in zip(Mixings(Pv, Qv, Ps, Qs).dense(d), (Pv, Qv), (Ps, Qs), strict=True):
        np.testing.assert_allclose(dense @ token(vectors, scalars), token(m @ vectors, n @ scalars), atol=1e-15)


def test_gathering_is_the_adjoint_of_making_dense():
    parameters = channels(2, 3, 4, 2, 2)
    dense = parameters.dense(4)
    other = np.random.default_rng(0).standard_normal((2, *dense[0].shape))
    gathered = parameters.gather(other, 4)
    forward = sum((a * b).sum() for a, b in zip(dense, other, strict=True))
    assert forward == pytest.approx(sum((a * b).sum() for a, b in zip(parameters, gathered, strict=True)))


@settings(max_examples=40)
@given(
    v=st.integers(1, 3),
    s=st.integers(1, 5),
    dim=st.integers(1, 11),
    layers=st.integers(1, 6),
    heads=st.integers(1, 3),
    count=st.integers(1, 80),
    seed=st.integers(0, 99),
    data=st.data(),
)
@pytest.mark.parametrize("name", NATIVE)
def test_native_is_dense_and_numpy(name, v, s, dim, layers, heads, count, seed, data):
    """With any layout, any number of counted coordinates, with and without a metric, on any Gram matrix."""
    native, parameters = engine.named(name), channels(v, s, dim, layers, heads, seed=seed)
    D, rng = v * dim + s, np.random.default_rng(seed)
    if data.draw(st.booleans()):
        gram, target = contexts(v, s, dim, count, layout=data.draw(st.sampled_from([*layouts(v, s, dim)])), seed=seed)
    else:
        half = rng.standard_normal((count, D, 8))
        gram, target = half @ half.swapaxes(1, 2), rng.standard_normal((count, data.draw(st.integers(1, D - 1))))
    c = target.shape[1]
    half = rng.standard_normal((count, c, c))
    metric = data.draw(st.sampled_from([None, np.diag(np.arange(1.0, c + 1)), half @ half.swapaxes(1, 2)]))
    options = {"metric": metric, "counted": c, "weights": True}
    mine = native.evaluate(parameters, gram, target, **options)
    same(mine, TWIN.evaluate(parameters, gram, target, **options))
    dense = native.evaluate(parameters.dense(dim), gram, target, **options)
    close(mine.losses, dense.losses)
    close(mine.gradient, parameters.gather(dense.gradient, dim))
    value = native.evaluate(parameters, gram, target, metric=metric, counted=c, gradient=False)
    np.testing.assert_array_equal(value.losses, mine.losses)


@DTYPES
@pytest.mark.parametrize("layers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("v", "s", "dim"), [(1, 2, 10), (1, 3, 10), (1, 4, 10), (1, 3, 9), (2, 3, 10)])
def test_the_sizes_of_the_paper(native, v, s, dim, layers, dtype):
    """d = 10, for which some kernels are compiled with sizes that the compiler knows."""
    for heads in (1, 2):
        parameters = channels(v, s, dim, layers, heads, dtype=dtype)
        gram, target = contexts(v, s, dim, 70, dtype)
        options = {"counted": target.shape[1], "weights": True}
        mine, twins = (e.evaluate(parameters, gram, target, **options) for e in (native, TWIN))
        same(mine, twins, dtype)


@pytest.mark.parametrize(("v", "s"), SHAPES)
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_the_gradient_is_the_slope_of_the_loss(native, v, s, layers):
    gram, target = contexts(v, s, 3, 30)

    def evaluate(kernel, gradient):
        return native.evaluate(kernel, gram, target, counted=3, gradient=gradient)

    check_slope(evaluate, channels(v, s, 3, layers, 2))


@DTYPES
@pytest.mark.parametrize("dim", [4, 10])
def test_one_vector_and_one_scalar_are_diag(any_engine, dim, dtype):
    """omega = sum_h (pv, ps)' (qv, qs), and the gradient follows by the chain rule."""
    parameters = channels(1, 1, dim, 5, 2, dtype=dtype)
    Pv, Qv, Ps, Qs = (p[..., 0, 0].astype(np.float64) for p in parameters)
    P, Q = np.stack([Pv, Ps], -1), np.stack([Qv, Qs], -1)
    omega = np.einsum("lhi,lhj->lij", P, Q).astype(dtype)
    gram, target = contexts(1, 1, dim, 100, dtype)
    mine = any_engine.evaluate(parameters, gram, target, weights=True)
    diag = any_engine.evaluate(Omegas(omega), gram, target, weights=True)
    close(mine.losses, diag.losses, dtype)
    close(mine.weights, diag.weights, dtype)
    P_bar, Q_bar = (np.einsum(by, diag.gradient[0], m) for by, m in (("lij,lhj->lhi", Q), ("lij,lhi->lhj", P)))
    expected = P_bar[..., 0], Q_bar[..., 0], P_bar[..., 1], Q_bar[..., 1]
    close(tuple(piece[..., 0, 0] for piece in mine.gradient), expected, dtype)


@DTYPES
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_sequences_with_other_channels_do_not_change_bits_of_their_neighbours(native, layers, dtype):
    """Not even where they share a vector of the processor, and the products are those of all channels."""
    parameters = channels(2, 3, 10, layers, 1, dtype=dtype)
    gram, target = contexts(2, 3, 10, 40, dtype)
    half = np.random.default_rng(1).standard_normal((23, 30)).astype(dtype)
    other = np.array(gram)
    other[7] = half @ half.T
    alone, beside = (native.evaluate(parameters, g, target, counted=10, weights=True) for g in (gram, other))
    rest = np.delete(np.arange(40), 7)
    np.testing.assert_array_equal(alone.losses[rest], beside.losses[rest])
    np.testing.assert_array_equal(alone.weights[rest], beside.weights[rest])
    assert alone.losses[7] != beside.losses[7]


VALID = Mixings(*(np.zeros((2, 1, 1, 1)),) * 2, *(np.zeros((2, 1, 3, 3)),) * 2)


@each(
    ((*VALID[:3], np.zeros((2, 1, 2, 2))), "Ps and Qs must have the same shape; got Ps (2, 1, 3, 3), Qs (2, 1, 2, 2)."),
    ((VALID[0], np.zeros((2, 1, 2, 2)), *VALID[2:]), "Pv and Qv must have the same shape; got Pv (2, 1, 1, 1), Qv"),
    ((*VALID[:2], *(np.zeros((3, 1, 3, 3)),) * 2), "and Ps and Qs shape (L, H, s, s); got Ps of shape (3, 1, 3, 3)"),
    ((*VALID[:2], *(np.zeros((2, 1, 3, 2)),) * 2), "got Ps of shape (2, 1, 3, 2)"),
    ((*VALID[:2], *(np.zeros((2, 1, 0, 0)),) * 2), "got Ps of shape (2, 1, 0, 0)"),
    ((np.zeros((2, 1)), *VALID[1:]), "Pv and Qv must have shape (L, H, v, v), and Ps and Qs shape (L, H, s, s); got"),
    ((*VALID[:3], VALID[3].astype(np.float32)), "Pv, Qv, Ps and Qs must have the same dtype; got Pv float64"),
    ((*VALID[:3], VALID[3] * np.nan), "Qs must be finite in float64; got NaN or infinity"),
    ((*(np.zeros((0, 1, 1, 1)),) * 2, *(np.zeros((0, 1, 3, 3)),) * 2), "the number of layers must be"),
    ((*(np.zeros((2, 0, 1, 1)),) * 2, *(np.zeros((2, 0, 3, 3)),) * 2), "the number of heads must be"),
    (VALID[:3], "a kernel must be Omegas(omega), Matrices(P, Q) or Mixings(Pv, Qv, Ps, Qs); got"),
    ((*(np.zeros((2, 1, 2, 2)),) * 2, *VALID[2:]), "tokens with v = 2 vectors of length d and s = 3 scalars must have"),
    ((*VALID[:2], *(np.zeros((2, 1, 6, 6)),) * 2), "v = 1 vectors of length d and s = 6 scalars must have v d + s"),
)
def test_wrong_channels_are_refused_in_words(parameters, words, any_engine):
    gram, target = np.zeros((4, 6, 6)), np.zeros((4, 3))
    any_engine.evaluate(VALID, gram, target, counted=3)
    kernel = Mixings(*parameters) if len(parameters) == 4 else parameters
    refused(lambda: any_engine.evaluate(kernel, gram, target, counted=3), words)


def test_a_layout_without_room_for_the_channels_is_refused(any_engine):
    """D = 12 would fit vectors of length 9, but x has 10 coordinates."""
    for layout, received in ((Layout(), "11 of them with d = 10"), (Layout(scratch=1), "12 of them with d = 10")):
        with pytest.raises(InputError) as caught:
            any_engine.step(VALID, Law(10, 20), Choices(np.ones(2)), Key(), layout=layout)
        rule = "tokens with v = 1 vectors of length d and s = 3 scalars must have 13 coordinates"
        assert f"{rule}; got {received}. Choose a layout with (v - 1) d + s - 1" in str(caught.value)
