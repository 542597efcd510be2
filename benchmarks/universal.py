"""One algorithm for every dimension: shipped models over (d, n), beside what is usually done instead.

The cells are those of the problem that the models were trained on, tasks N(0, I / d) and noise levels from 0 to 1.6 of
the signal. Losses are adjusted, so that the floor is the excess of exact Bayes over an oracle that is told the noise
level: a ratio of 1.1 is an excess that is a tenth larger.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.rivals import RIVALS
from benchmarks.speed import Measurement, Setup
from ridgeformer import zoo
from ridgeformer.evaluation import compare
from ridgeformer.evaluation.explosions import explosion_probability
from ridgeformer.loading import load
from ridgeformer.losses import EXPLODES, exploded as exploded_of
from ridgeformer.models import LinearTransformer
from ridgeformer.predictors import Universal
from ridgeformer.problems import Problem
from ridgeformer.zoo.shipped_models import UNIVERSAL_NOISE

Array = NDArray[np.float64]
PROBLEM = {"noise": UNIVERSAL_NOISE, "tasks": "gaussian(signal=1)"}
DIMS = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
SEEN = ("1.25d", "1.5d", "2d", "3d", "4d")
CLOSE = ("d", "d+2")
FAR = (40, 50)
CORNERS = ((2, 2), (2, 4), (2, 8), (3, 3), (3, 12), (4, 4), (6, 6), (6, 24), (12, 12), (32, 32), (32, 128))
DEPTH = 8  # layers of the model that is read closely


def cell(dim: int, context: object) -> Problem:
    """Return the problem at one dimension and number of examples."""
    problem: Problem = Problem(dim, context, **PROBLEM)
    return problem


def measurements(setup: Setup) -> list[Measurement]:
    """The largest loss / floor of every shipped model, rivals at a few cells, and explosion probabilities."""
    depths = zoo.universal_layers()
    models, few = [load(f"zoo:universal/{layers}") for layers in depths], 8 if setup.quick else 1
    found = []
    for title, dims, contexts, limit in (
        ("d = 2..32, n = 1.25d..4d", DIMS, SEEN, 1.12),
        ("d = 2..32, n = d, d+2", DIMS, CLOSE, 1.3),
        ("unseen d = 40, 50, n = 2d", FAR, ("2d",), 1.25),
    ):
        dims = dims[:: 3 if setup.quick else 1]
        for layers, ratio, error, exploded in zip(depths, *ratios(models, dims, contexts, few), strict=True):
            at = np.unravel_index(ratio.argmax(), ratio.shape)
            where = f"largest at d = {dims[at[0]]}, n = {contexts[at[1]]}, error {error[at]:.3f}"
            text = f"mean {ratio.mean():.3f}, {where}, {int(exploded.sum())} exploded"
            required = limit if layers == DEPTH else None
            name = f"{layers} layers: {title}"
            found.append(Measurement(name, float(ratio.max()), "x floor", required, False, text))
    best = models[depths.index(DEPTH)]
    found += _rivals(best, 200 if setup.quick else 1_500)
    found += _tables(5 if setup.quick else 40)
    return found if setup.quick else found + _lengths(best) + _reading(best) + _explosions(best) + _description(best)


def ratios(
    models: list[LinearTransformer], dims: Sequence[int], contexts: Sequence[str], few: int = 1, seed: int = 7
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Loss / floor, its standard error, and how many sequences exploded, [models, dims, contexts].

    The loss is the floor plus the mean of 1/2 |w - w_Bayes|^2, which has less chance in it than the mean loss: the
    difference of the two has the expectation 0.
    """
    shape = (len(models), len(dims), len(contexts))
    found, errors, exploded = np.empty(shape), np.empty(shape), np.empty(shape, np.int64)
    for row, d in enumerate(dims):
        for column, n in enumerate(contexts):
            problem = cell(d, n)
            draw = problem.moments(round((700 + 40_000 / d**1.2) / few), seed=seed)
            best = problem.best_predictor().weights(draw.moments)
            floor = draw.losses(best, draw.ridge)
            for k, model in enumerate(models):
                w, place = Universal(model, signal=1).weights(draw.moments), (k, row, column)
                excess = draw.losses(w, best)
                share = excess.mean() / floor.mean()
                found[place], spread = 1 + share, (excess - share * floor).std()
                errors[place] = spread / (np.sqrt(len(floor)) * floor.mean())
                exploded[place] = exploded_of(draw.losses(w, draw.ridge), problem.signal).sum()
    return found, errors, exploded


def _lengths(model: LinearTransformer) -> list[Measurement]:
    """One model for every n from 10 to 40 at d = 10, and the model for every dimension there."""
    lengths, own, found = tuple(map(str, range(10, 41))), load("zoo:lengths/8"), []
    for name, (ratio,), limit in zip(
        ("lengths", "universal"), ratios([own, model], (10,), lengths)[0], (1.08, None), strict=True
    ):
        text = ", ".join(f"{n}: {value:.3f}" for n, value in zip(lengths, ratio, strict=True))
        title = f"{name}, {model.layers} layers: d = 10, n = 10..40"
        found.append(Measurement(title, float(ratio.max()), "x floor", limit, False, text))
    return found


def _rivals(model: LinearTransformer, sequences: int) -> list[Measurement]:
    """The mean loss / floor of rivals over a few cells, beside that of the model on the same sequences."""
    cells = [cell(d, n) for d in (3, 8, 24) for n in ("1.5d", "2d", "4d")]
    names, ratios = [f"universal, {model.layers} layers", *RIVALS], []
    for one in cells:
        predictors = {names[0]: Universal(model, signal=1), **{name: make(one) for name, make in RIVALS.items()}}
        ratios.append(compare(one, predictors, sequences=sequences, seed=7).ratio)
    values = np.array(ratios)
    return [
        Measurement(
            f"{name}: mean over 9 cells",
            float(column.mean()),
            "x floor",
            detail=f"{column.min():.2f} to {column.max():.2f}",
        )
        for name, column in zip(names, values.T, strict=True)
    ]


def _tables(repetitions: int) -> list[Measurement]:
    """Errors on random splits of the 22 tables of `examples/real_data.py`, as they are, and how often the guard acts.

    20 rows are the context, or three quarters of the rows where there are fewer. The error of a method on a table is
    the median of all squared errors, or their mean; the mean over tables is geometric.
    """
    from examples.real_data import tables
    from sklearn.linear_model import BayesianRidge, LinearRegression, RidgeCV

    from ridgeformer.sklearn import FallbackWarning, InContextRegressor

    methods = {"universal": InContextRegressor("universal"), "exact Bayes": InContextRegressor()}
    methods |= {"BayesianRidge": BayesianRidge(), "least squares": LinearRegression()}
    methods["RidgeCV"] = RidgeCV(np.logspace(-2, 3, 16))
    sizes, fell_back = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for _, x, y in tables():
            rng, n, errors = np.random.default_rng(0), min(20, 3 * len(x) // 4), []
            while len(errors) < repetitions:
                rows = rng.permutation(len(x))
                train, test = rows[:n], rows[n : n + 200]
                if np.ptp(y[train]) == 0:
                    continue
                centre, scale = x[train].mean(0), np.where(np.ptp(x[train], axis=0) > 0, x[train].std(0), np.inf)
                old, new = (x[train] - centre) / scale, (x[test] - centre) / scale
                errors.append([(one.fit(old, y[train]).predict(new) - y[test]) ** 2 for one in methods.values()])
                fell_back.append(methods["universal"].fell_back_)
            joined = np.concatenate(errors, 1)
            sizes.append([np.median(joined, 1), joined.mean(1)])
    ratios = np.array(sizes) / np.array(sizes)[..., -1:]
    text = f"; {len(ratios)} tables, {repetitions} splits each; better than RidgeCV on "
    found = []
    for name, (median, mean) in zip(methods, np.exp(np.log(ratios).mean(0)).T, strict=True):
        detail = f"by mean squared errors {mean:.3f}"
        found.append(Measurement(f"{name} on real tables: median squared error", median, "x RidgeCV", detail=detail))
    found[0] = replace(found[0], detail=f"{found[0].detail}{text}{(ratios[:, 0, 0] < 1).sum()}")
    share = Measurement(
        "the guard fell back to exact Bayes on real tables", 100 * float(np.mean(fell_back)), "% of fits"
    )
    return [*found, share]


def _explosions(model: LinearTransformer) -> list[Measurement]:
    found = []
    for d, n in CORNERS:
        rare = explosion_probability(cell(d, n), Universal(model, signal=1))
        name = f"{model.layers} layers: bound of the explosion probability at d = {d}, n = {n}"
        found.append(Measurement(name, rare.upper, "", 1e-7, False, str(rare)))
        most, longest, count = _largest_loss(model, d, n)
        name = f"{model.layers} layers: largest loss at d = {d}, n = {n}"
        text = f"{count:,} sequences, longest estimate {longest:.2f} without the limit of {Universal.LENGTH:g}"
        found.append(Measurement(name, most, "x signal", EXPLODES, False, text))
    return found


def _largest_loss(model: LinearTransformer, d: int, n: int) -> tuple[float, float, int]:
    """The largest loss over the signal and the longest estimate, without a limit, of sequences that no choice has seen.

    Also the number of these sequences.
    """
    problem, whole, count, block = cell(d, n), Universal(model, signal=1), 400_000 // d, 10_000
    whole.LENGTH = 1e9
    most = longest = 0.0
    for first in range(0, count, block):
        draw = problem.moments(min(block, count - first), seed=977, first=first)
        w = whole.weights(draw.moments)
        most = max(most, float(draw.losses(w, draw.ridge).max()))
        longest = max(longest, float(np.linalg.norm(w, axis=1).max()))
    return most / problem.signal, longest, count


def _reading(model: LinearTransformer) -> list[Measurement]:
    """What the layers do at d = 10, n = 20: losses by layer and noise level, and the noise level that is implied.

    The implied level is that of the ridge regression that is closest to the model's weights, context by context.
    """
    problem, ours = cell(10, 20), Universal(model, signal=1)
    losses = compare(problem, model.at_dim(10), over={"layer": None, "sigma": [0.1, 0.5, 1.5]}, sequences=4_000)
    found = []
    for level, column in zip(losses.axes["sigma"], losses.loss[0].T, strict=True):
        text = "after each layer " + ", ".join(f"{value:.2g}" for value in column)
        found.append(Measurement(f"loss at noise level {level}, d = 10, n = 20", float(column[-1]), "", detail=text))
    for level in (0.1, 0.5, 1.0, 1.5):
        moments = problem.at_noise(level).moments(2_000).moments
        w, Sw = ours.weights(moments), np.einsum("bij,bj->bi", moments.S, ours.weights(moments))
        implied = np.sqrt(np.maximum((w * (moments.b - Sw)).sum(1) / (10 * (w**2).sum(1)), 0))
        quartiles = np.quantile(implied, [0.25, 0.5, 0.75])
        text = f"quartiles {quartiles[0]:.2f} and {quartiles[2]:.2f}"
        found.append(Measurement(f"implied noise level at {level}", float(quartiles[1]), "", detail=text))
    return found


def _description(model: LinearTransformer) -> list[Measurement]:
    """How short the numbers of a model can be written: digits, and numbers that may be 0.

    P_v = 1 in every layer: a factor may move from P_v and P_s to Q_v and Q_s. Prices are on the mean of loss / floor.
    """
    price, arrays = _Price(), {name: np.array(value, np.float64) for name, value in model.family.arrays.items()}
    size = arrays["P_v"][:, :, 0, 0, None, None].copy()
    arrays |= {name: value / size if name[0] == "P" else value * size for name, value in arrays.items()}
    base, names = price(model, arrays), ("Q_v", "P_s", "Q_s")
    count, title = sum(arrays[name].size for name in names), f"{model.layers} layers"
    found = [Measurement(f"{title}: mean over 4 cells, all {count} numbers", base, "x floor")]
    for digits in (2, 3, 4):
        rounded = {name: np.vectorize(lambda x, k=digits: float(f"{x:.{k - 1}e}"))(v) for name, v in arrays.items()}
        found.append(Measurement(f"{title}: rounded to {digits} digits", price(model, rounded), "x floor"))
    prices = []
    for name in names:
        for place in np.ndindex(arrays[name].shape):
            prices.append((price(model, _without(arrays, [(name, place)])) / base - 1, name, place))
    prices.sort(key=lambda one: one[0])
    cheap = sum(one[0] <= 0.01 for one in prices)
    found.append(Measurement(f"{title}: numbers that cost at most 1 % each when they are 0", cheap, f"of {count}"))
    for limit in (0.01, 0.05):
        low, high = 0, len(prices)
        while low < high:  # the most numbers, the cheapest first, that can be 0 together
            middle = (low + high + 1) // 2
            value = price(model, _without(arrays, [one[1:] for one in prices[:middle]]))
            low, high = (middle, high) if value <= (1 + limit) * base else (low, middle - 1)
        found.append(Measurement(f"{title}: numbers that can be 0 together at {limit:.0%}", low, f"of {count}"))
    return found


def _without(arrays: dict[str, Array], places: list[tuple[str, tuple[int, ...]]]) -> dict[str, Array]:
    changed = {name: value.copy() for name, value in arrays.items()}
    for name, place in places:
        changed[name][place] = 0.0
    return changed


class _Price:
    """The mean of loss / floor over four cells, on 400 sequences of each."""

    def __init__(self) -> None:
        self.draws, self.floors = [], []
        for d, n in ((3, 6), (8, 12), (8, 32), (20, 40)):
            problem = cell(d, n)
            draw = problem.moments(400, seed=5)
            self.draws.append(draw)
            self.floors.append(draw.losses(problem.best_predictor().weights(draw.moments), draw.ridge).mean())

    def __call__(self, model: LinearTransformer, arrays: dict[str, Array]) -> float:
        changed = LinearTransformer(type(model.family)(**arrays), model.dim, model.layout)
        ratios = []
        for draw, floor in zip(self.draws, self.floors, strict=True):
            losses = draw.losses(Universal(changed, signal=1).weights(draw.moments), draw.ridge)
            ratios.append(np.minimum(losses, 1e6).mean() / floor)
        return float(np.mean(ratios))
