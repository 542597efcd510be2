"""Sequences that a gradient cannot count in full: above the ceiling, overflowing, or not finite to begin with."""

import numpy as np
import pytest

from ridgeformer import LinearTransformer, Problem, engine
from ridgeformer.engine import Choices, Key, Law, Omegas, reference
from support import NATIVE, close, draw, tame_model

KINDS = pytest.mark.parametrize("kind", ["full", "diag", "channels(1,3)", "channels(2,2)"])
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@pytest.fixture(params=[*NATIVE, "numpy"])
def any_engine(request):
    """Without JAX, which would compile for minutes; see tests/frameworks/test_jax.py."""
    return engine.named(request.param)


def case(kind, dim, context, layers, count, dtype):
    """The kernel of a model, Gram matrices with room for it, targets, and the number of coordinates that count."""
    model = tame_model(kind, dim, layers, 1, context).astype(dtype)
    law, choices = Law(dim, context), Choices(np.linspace(0, 1, count))
    drawn = engine.named("numpy").sample(law, choices, Key(), layout=model.layout, dtype=dtype)
    return model.kernel, np.array(drawn.gram), np.array(model.layout.target(drawn.ridge)), {"counted": dim}


def check_others(chosen, result, left_out, kernel, gram, target, **options):
    """The gradient of a result is that of the other sequences, which are returned with their own evaluation."""
    others = np.delete(np.arange(len(gram)), left_out)
    alone = chosen.evaluate(kernel, gram[others], target[others], **options)
    mean = tuple(piece * len(gram) / len(others) for piece in result.gradient)
    close(mean, alone.gradient, gram.dtype.type)
    return others, alone


@DTYPES
@KINDS
def test_exploding_sequences_stay_out_of_the_gradient(any_engine, kind, dtype):
    """Contexts scaled up until the model overflows: infinite losses, counted; the gradient is that of the others."""
    kernel, gram, target, options = case(kind, 4, 8, 5, 100, dtype)
    wild = [3, 50, 99]
    gram[wild] *= 1e6
    result = any_engine.evaluate(kernel, gram, target, **options)
    assert np.isinf(result.losses[wild]).all()
    assert result.limited == 3
    assert np.isinf(result.loss)
    check_others(any_engine, result, wild, kernel, gram, target, **options)


@DTYPES
@KINDS
def test_above_the_ceiling_the_gradient_is_that_of_a_logarithm(any_engine, kind, dtype):
    """Of ceiling (1 + log(loss / ceiling)): every sequence's own gradient times ceiling / loss."""
    kernel, gram, target, options = case(kind, 4, 8, 5, 70, dtype)
    plain = any_engine.evaluate(kernel, gram, target, **options)
    ceiling = float(np.median(plain.losses))
    damped = any_engine.evaluate(kernel, gram, target, ceiling=ceiling, **options)
    assert damped.limited == (plain.losses > ceiling).sum() == 35
    assert (damped.losses == plain.losses).all()
    expected = [np.zeros_like(piece) for piece in plain.gradient]
    for i, loss in enumerate(plain.losses):
        alone = any_engine.evaluate(kernel, gram[i : i + 1], target[i : i + 1], **options)
        for total, piece in zip(expected, alone.gradient, strict=True):
            total += piece * min(1.0, ceiling / loss) / 70
    close(damped.gradient, tuple(expected), dtype)


@DTYPES
@pytest.mark.parametrize("kind", ["full", "diag", "gdpp"])
@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 1e100])
def test_the_gradient_is_finite_whatever_explodes(any_engine, kind, dtype, scale):
    """Losses may be finite where gradients are not, and parameters may overflow even on an empty context."""
    highest = 1e18 if dtype == np.float32 else 1e100
    model = LinearTransformer.random(kind, dim=5, layers=4, heads=2, scale=min(scale, highest))
    d = Problem(5, 8, "uniform(0,5)").moments(150, dtype=dtype)
    kernel = model.astype(dtype).kernel
    result = any_engine.evaluate(kernel, d.moments.gram, d.ridge)
    assert all(np.isfinite(piece).all() for piece in result.gradient)
    assert np.isinf(result.losses).sum() <= result.limited <= 150
    if scale > 1:
        assert result.limited == 150


def test_overflowing_gradients_leave_the_others_as_they_are(native):
    """One context scaled so that its loss is finite and its gradient is not."""
    kernel = tame_model("full", 4, 4, 1, 8).astype(np.float32).kernel
    d = draw(4, 8, 100, dtype=np.float32)
    for scale in np.geomspace(10, 1e6, 200):
        gram = np.array(d.moments.gram)
        gram[7] *= np.float32(scale)
        result = native.evaluate(kernel, gram, d.ridge)
        if result.limited == 1 and np.isfinite(result.losses).all():
            break
    else:
        pytest.fail("no scale makes the gradient overflow alone")
    check_others(native, result, [7], kernel, gram, d.ridge)


def one_layer(losses, slope, dtype=np.float64):
    """Contexts on which the Diag model with omega_yx = `slope` has these losses, d = 1 and target 0.

    w_hat = -slope a, so a = sqrt(2 loss) / slope; the gradient of a sequence is slope a^2 = 2 loss / slope.
    """
    gram = np.zeros((len(losses), 2, 2))
    gram[:, 0, 1] = gram[:, 1, 0] = np.sqrt(2) * np.sqrt(losses) / slope
    gram[:, 0, 0] = gram[:, 1, 1] = 1
    omega = np.array([[[0, 0], [slope, 0]]], dtype)
    return Omegas(omega), gram.astype(dtype), np.zeros((len(losses), 1), dtype)


@pytest.fixture
def short_chunks(monkeypatch):
    """The NumPy engine sums over chunks, too: several of them for a few hundred sequences."""
    monkeypatch.setattr(reference, "CHUNK", 100)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("count", [1, 64, 300, 5000])
@pytest.mark.parametrize("loss", [1e290, 1e296, 4e297, 6e297, 1e300, 1e304, 8e307])
def test_gradients_are_summed_up_to_1e298(any_engine, loss, count):
    """One sequence, one block of the core, several, and several waves of 64 blocks; 2 loss is a sequence's gradient."""
    count = min(count, 300) if any_engine.name == "numpy" else count
    result = any_engine.evaluate(*one_layer(np.full(count, loss), 1.0))
    np.testing.assert_allclose(result.losses, loss, rtol=1e-12)
    kept = 2 * loss <= 1e298
    assert result.limited == (0 if kept else count)
    assert result.gradient[0][0, 1, 0] == pytest.approx(2 * loss if kept else 0, rel=1e-12)
    assert np.isfinite(result.gradient[0]).all()


@pytest.mark.usefixtures("short_chunks")
def test_gradients_too_large_to_be_summed_leave_the_others_as_they_are(any_engine):
    """Half of 2 x 200 sequences are kept, each in its own block or not."""
    losses = np.tile([3.0, 1e300, 5.0, 1e306], 100)
    result = any_engine.evaluate(*one_layer(losses, 0.5))
    assert result.limited == 200
    assert result.gradient[0][0, 1, 0] == pytest.approx(200 * 4 * (3 + 5) / 2 / 400, rel=1e-12)


@DTYPES
@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("kind", ["full", "diag", "gdpp"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_gradient_is_finite_up_to_the_largest_losses(any_engine, kind, layers, dtype):
    """Contexts scaled up step by step until all of them overflow: losses from 1e290 (1e30 in float32) to infinity."""
    count = 150 if any_engine.name == "numpy" else 4500
    kernel = tame_model(kind, 2, layers, 1, 4).astype(dtype).kernel
    d = draw(2, 4, count)
    seen = []
    for scale in np.geomspace(1, 1e160 if dtype == np.float64 else 1e25, 120):
        with np.errstate(over="ignore"):
            gram = (d.moments.gram * scale).astype(dtype)
        losses = any_engine.evaluate(kernel, gram, d.ridge, gradient=False).losses
        largest = float(losses[np.isfinite(losses)].max(initial=0))
        if 0 < largest < (1e290 if dtype == np.float64 else 1e30):
            continue
        result = any_engine.evaluate(kernel, gram, d.ridge)
        assert all(np.isfinite(piece).all() for piece in result.gradient), scale
        assert np.isinf(losses).sum() <= result.limited <= count
        seen.append(largest)
        if largest == 0:
            break
    assert len(seen) > 2
    assert seen[-1] == 0


@DTYPES
@KINDS
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["S", "a", "l", "target"])
def test_input_that_is_not_finite_has_an_infinite_loss(any_engine, kind, layers, dtype, value, where):
    """In every engine, wherever it stands and however many layers would read it; the other sequences do not notice."""
    kernel, gram, target, options = case(kind, 3, 6, layers, 70, dtype)
    bad = [0, 33, 69]
    if where == "target":
        target[bad, 1] = value
    else:
        i, j = {"S": (2, 0), "a": (-1, 1), "l": (-1, -1)}[where]
        gram[bad, i, j] = gram[bad, j, i] = value
    for gradient in (True, False):
        result = any_engine.evaluate(kernel, gram, target, weights=True, gradient=gradient, **options)
        assert np.flatnonzero(np.isinf(result.losses)).tolist() == bad
        assert not np.isnan(result.losses).any()
        assert result.limited == 3
        assert np.isfinite(result.weights[bad]).any() == (where == "target")
    result = any_engine.evaluate(kernel, gram, target, **options)
    good, alone = check_others(any_engine, result, bad, kernel, gram, target, **options)
    # The native core gives the same bits; NumPy may sum a row in another order where it stands elsewhere in the batch.
    slack = 0.0 if any_engine.name != "numpy" else 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(result.losses[good], alone.losses, rtol=slack)


@pytest.mark.parametrize("gradient", [True, False])
def test_the_ceiling_is_not_rounded(any_engine, gradient):
    """The float32 loss 1/2 lies above a ceiling just below 1/2, though that rounds to 1/2 in float32."""
    kernel, gram, _ = one_layer(np.zeros(4), 1.0, np.float32)
    target = np.ones((4, 1), np.float32)
    for ceiling, limited in ((float(np.nextafter(0.5, 0)), 4), (0.5, 0)):
        result = any_engine.evaluate(kernel, gram, target, ceiling=ceiling, gradient=gradient)
        assert result.losses.tolist() == [0.5] * 4
        assert result.limited == limited


def test_what_is_limited_is_said(any_engine):
    result = any_engine.evaluate(*one_layer([1.0, 3.0, 1e300, np.inf], 1.0), ceiling=2.0)
    assert repr(result) == "Evaluation(4 sequences, loss inf, 3 limited)"
    huge = any_engine.evaluate(*one_layer([8e307] * 3, 1.0))
    assert np.isfinite(huge.losses).all()
    assert repr(huge) == "Evaluation(3 sequences, loss inf, 3 limited)"  # the sum overflows, without a warning
