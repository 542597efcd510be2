"""The predictor for every dimension against the model itself, and the tokens that show 2 d / n in all their forms."""

import numpy as np
import pytest

from ridgeformer import LinearTransformer, Problem, compare, load, zoo
from ridgeformer.engine import Layout
from ridgeformer.evaluation import explosion_probability
from ridgeformer.export import export
from ridgeformer.moments import Moments
from ridgeformer.predictors import Universal
from support import each, refused

RNG = np.random.default_rng(3)
X, Y, QUERIES = RNG.normal(size=(5, 7, 3)), RNG.normal(size=(5, 7)), RNG.normal(size=(5, 2, 3))


@pytest.fixture(scope="module")
def model():
    return LinearTransformer.random("channels(1,4)", dim=3, layers=3, scale=0.4, layout=Layout("mean", "ratio"))


def test_one_more_token_in_every_form(model):
    """Token form, moment form, PyTorch, and the sources in NumPy and PyTorch, which work at any dimension."""
    torch = pytest.importorskip("torch")
    from ridgeformer.torch import to_torch

    found = model.predict(X, Y, QUERIES)
    weights = model.weights(Moments.from_tokens(X, Y))
    assert found == pytest.approx(np.einsum("bmd,bd->bm", QUERIES, weights), abs=1e-12)
    written: dict = {}
    exec(export(model, "python"), written)
    assert written["predict"](X, Y, QUERIES) == pytest.approx(found, abs=1e-12)
    small = model.at_dim(2).predict(X[..., :2], Y, QUERIES[..., :2])
    assert written["predict"](X[..., :2], Y, QUERIES[..., :2]) == pytest.approx(small, abs=1e-12)
    assert "\\sqrt{2 d}" in export(model, "latex")
    exec(export(model, "torch"), written)
    for predict in (written["LinearTransformer"](dtype=torch.float64).predict, to_torch(model)):
        ours = predict(*(torch.tensor(value) for value in (X, Y, QUERIES))).detach().numpy()
        assert ours == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"signal": 1.0}, {"own_scale": True}], ids=str)
def test_units_are_exported(model, options):
    """Sources of a model with its units, on contexts of usual and of large size, with a feature that is always 0.

    Estimates reach 6,000 here, as differences of larger numbers: hence nine digits.
    """
    torch = pytest.importorskip("torch")
    whole, x, y = Universal(model, **options), X.copy(), Y.copy()
    x[0], y[1], x[2, :, 1] = 5 * x[0], 9 * y[1], 0
    expected = np.einsum("bmd,bd->bm", QUERIES, whole.weights(Moments.from_tokens(x, y)))
    written: dict = {}
    exec(export(whole, "python"), written)
    assert written["predict"](x, y, QUERIES) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    exec(export(whole, "torch"), written)
    ours = written["LinearTransformer"](dtype=torch.float64).predict(*map(torch.tensor, (x, y, QUERIES)))
    assert ours.detach().numpy() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert "\\mathrm{tr}\\, \\Sigma^4" in export(whole, "latex")
    refused(lambda: export(whole, "python", context=20), "exported to python, torch and latex, for any n")


def test_by_hand():
    """One layer and one scalar beside y by the sum over tokens: the token of sqrt(2 d) writes to the queries' y."""
    P_s, Q_s = np.array([[[[0, 0], [0, -1.0]]]]), np.zeros((1, 1, 2, 2))
    from ridgeformer.models import Channels

    family = Channels(1, 2)(np.zeros((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), P_s, Q_s)
    model = LinearTransformer(family, 3, Layout("mean", "ratio"))
    assert model.weights(Moments.from_tokens(X, Y)) == pytest.approx(np.einsum("bnd,bn->bd", X, Y) / 7)
    gram = Moments.from_tokens(X, Y).gram_of(model.layout)
    assert gram[:, 3, 3] == pytest.approx(2 * 3 / 7)
    assert not gram[:, 3, [0, 1, 2, 4]].any()


@pytest.mark.parametrize("signal", [None, 1.0])
@pytest.mark.parametrize(("features", "labels"), [(0.5, 0.5), (3.0, 0.5), (0.5, 9.0), (3.0, 9.0)])
def test_units_are_those_of_tokens(model, features, labels, signal):
    """Weights are those of the model on tokens in its units: small contexts stay as they are, large ones do not."""
    x, y = features * X, labels * Y
    c = np.maximum(np.sqrt((x**2).mean((1, 2))), 1)
    first = np.sqrt(3 if signal is None else signal)
    unit = np.maximum(first, np.sqrt((y**2).mean(1)) / c / np.sqrt(Universal.LARGEST))
    expected = unit[:, None] * model.weights(Moments.from_tokens(x / c[:, None, None], y / (c * unit)[:, None]))
    expected *= np.minimum(1, 5 * first / np.linalg.norm(expected, axis=1, keepdims=True))
    assert Universal(model, signal=signal).weights(Moments.from_tokens(x, y)) == pytest.approx(expected)


def test_the_model_sees_no_large_eigenvalues():
    """One long direction whose trace is small: the noise level shrinks with the features, and the task stays."""
    x = RNG.normal(size=(4, 40, 20))
    x[:, :, 1:] *= 0.2
    x[:, :, 0] *= 3.0
    moments = Moments.from_tokens(x, x[:, :, 0])
    scaled, unit, _ = Universal(None, signal=1).in_units(moments)
    S = np.asarray(scaled.S) / 40
    assert (np.einsum("bii->b", np.asarray(moments.S)) < 40 * 20).all()  # the mean square is no reason to change units
    limit = Universal.WIDEST * (20 * (1 + 3 + 1.5 + 0.125)) ** 0.25  # r = d / n = 1 / 2
    assert np.trace(np.linalg.matrix_power(S, 4), axis1=1, axis2=2) ** 0.25 == pytest.approx(np.full(4, limit))
    assert np.linalg.solve(scaled.S, scaled.b[..., None])[..., 0] * unit[:, None] == pytest.approx(
        np.tile(np.eye(20)[0], (4, 1)), abs=1e-6
    )


@pytest.mark.parametrize(("d", "n"), [(1, 2), (2, 2), (5, 6)])
def test_no_context_makes_long_weights(d, n):
    """An attack on a shipped model: contexts are changed at random, and changes that make its weights longer stay."""
    whole, bare = (Universal(load("zoo:universal/8"), signal=1) for _ in range(2))
    bare.LENGTH = 1e9
    rng = np.random.default_rng(d)
    tokens = rng.normal(size=(256, n, d + 1))

    def lengths(predictor, tokens):
        return np.linalg.norm(predictor.weights(Moments.from_tokens(tokens[..., :-1], tokens[..., -1])), axis=1)

    for _ in range(200):
        changed = tokens * rng.uniform(0.8, 1.25, (256, 1, d + 1)) + 0.1 * rng.normal(size=tokens.shape)
        longer = lengths(bare, changed) > lengths(bare, tokens)
        tokens[longer] = changed[longer]
        assert (lengths(whole, tokens) <= 5 + 1e-9).all()
    assert lengths(bare, tokens).max() > 10  # the attack reaches contexts on which the limit acts


def test_weights_that_overflow_are_zero(model):
    large = {name: 1e60 * value for name, value in model.family.arrays.items()}
    whole = Universal(LinearTransformer(type(model.family)(**large), 3, model.layout))
    assert not whole.weights(Moments.from_tokens(X, Y)).any()


def test_explosions_are_excluded_by_the_length(model):
    """The bound by hand at d = 2: (sqrt(200) - 5)^2 = 83.58, and 83.58 exp(-82.58)."""
    problem = Problem(2, 3, "uniform(0,1.6)", tasks="gaussian(signal=1)")
    rare = explosion_probability(problem, Universal(model, signal=1))
    assert rare.upper == pytest.approx(83.5786 * np.exp(-82.5786), rel=1e-3)
    assert (rare.probability, rare.sequences, rare.bound) == (0.0, 0, "upper")
    assert "proven" in str(rare)
    assert explosion_probability(Problem(2, 3, "uniform(0,2.3)"), Universal(model)).upper == pytest.approx(rare.upper)


def test_bound_of_long_oracles():
    """P(|o|^2 > t signal) <= (t exp(1 - t))^(d / 2), counted for oracles of one example, with t = 2 and 4."""
    for d in (1, 2, 4):
        problem = Problem(d, 1, "uniform(0,0.1)", tasks="gaussian(signal=1)")
        square = np.square(problem.moments(100_000).ridge).sum(1)
        for t in (2, 4):
            assert (square > t).mean() <= (t * np.exp(1 - t)) ** (d / 2)


@each(
    (Problem(3, 6, 1), {"own_scale": True}),
    (Problem(3, 6, 1), {"signal": 900.0}),
    (Problem(3, 6, 1, features="scales(0.3)"), {}),
    (Problem(3, 6, 1, tasks="pool(4)"), {}),
    ids=str,
)
def test_where_the_length_proves_nothing(problem, options, model):
    """Explosions are sampled if the length has no limit, or one that is too large, or the law has directions."""
    assert explosion_probability(problem, Universal(model, **options), sequences=1_000).sequences > 0


def test_own_scale_is_an_exact_equivariance(model):
    predictor = Universal(model, own_scale=True)
    once, large = (predictor.weights(Moments.from_tokens(X, by * Y)) for by in (1.0, 1000.0))
    assert large == pytest.approx(1000 * once)


@pytest.mark.parametrize("layers", zoo.universal_layers())
def test_shipped_models(layers):
    """Shipped models are near the floor at dimensions of training and beyond, and as good as their records say."""
    from ridgeformer.loading import with_record

    model, record = with_record(f"zoo:universal/{layers}")
    assert model.layers == layers
    problem = Problem(**{name: record["spec"][name] for name in ("dim", "context", "noise", "tasks")})
    predictor = {"m": Universal(model, signal=1)}
    losses = compare(problem, predictor, over={"dim": [3, 10], "context": ["2d"]}, sequences=3_000)
    bound = record["result"]["largest_ratio"]
    assert (losses.ratio < 1.1 * bound).all()
    assert load(f"zoo:universal/{layers}/uniform(0,1.6)").layers == layers


def test_one_model_for_many_lengths():
    """n = 10 is the hardest length, with 1.05 times the floor; 13 and 40 are easier, and 13 is not one of training."""
    problem = Problem(10, "10..40", "uniform(0,5)")
    losses = compare(problem, {"m": Universal(load("zoo:lengths/8"))}, over={"context": [10, 13, 40]}, sequences=4_000)
    assert (losses.ratio < 1.08).all()


def test_noise_levels_are_in_the_units_of_the_scaled_contexts():
    """Scaled labels are scaled w'x + sigma xi: the residual of the task has the stated level."""
    problem = Problem(4, 4000, 3)
    draw = problem.moments(5)
    scaled, unit, _ = Universal(load("zoo:universal/5")).in_units(draw.moments)
    size = np.einsum("bii->b", draw.moments.S) / np.einsum("bii->b", scaled.S)
    w = draw.task / unit[:, None]
    residual = scaled.q - 2 * (scaled.b * w).sum(1) + np.einsum("bi,bij,bj->b", w, scaled.S, w)
    np.testing.assert_allclose(np.sqrt(residual / 4000), scaled.sigma, rtol=0.06)  # chance: 1 / sqrt(2 n) = .011
    assert (size >= 1).all()
