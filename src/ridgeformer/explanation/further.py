"""Contents of the further coordinates of tokens: channels, scratch coordinates, and those of a layout.

After every layer a further scalar of a token (x, y) is c y - <v, x>, with c and v that depend on the context alone: it
holds the labels, or the residuals of a second linear model with weights v / c, beside the one that y holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.kernels import channel_places
from ridgeformer.explanation.behaviour import rank_correlation
from ridgeformer.losses import capped
from ridgeformer.models.trace import Trace
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.values import Array

EMPTY = 1e-9  # of the size of y: below that, a channel holds nothing but rounding errors


@dataclass(frozen=True, eq=False)
class Channel:
    """Content of one further scalar or vector of the tokens after every layer, layer 0 (the input) included.

    Attributes:
        kind: `scalar` or `vector`.
        number: Which of its kind; 1 is the first scalar, and the vectors begin at 2, after x.
        size: The root mean square of its entries over that of the labels y at the input, [L+1].
        label: The mean of c, what it keeps of y, [L+1]; of a vector the length of what y adds to it.
        cosine: The mean cosine between v and the weights of the oracle, [L+1]; of a vector the share of its square that
            is a multiple of x.
        error: The median of |v / c - w|^2 / |w|^2 with the oracle's weights w, [L+1]; NaN for vectors.
        noise: The rank correlation between its mean square in a context and sigma, [L+1]; NaN where noise levels are
            not known.
        erased: The loss of the model over its own if the channel is set to zero after that layer, [L+1].
    """

    kind: str
    number: int
    size: Array
    label: Array
    cosine: Array
    error: Array
    noise: Array
    erased: Array

    @property
    def name(self) -> str:
        """Kind and number, such as `scalar 1`."""
        return f"{self.kind} {self.number}"

    @property
    def sentence(self) -> str:
        """Its content where it matters most, in words."""
        used = np.where(self.size > EMPTY, self.erased, 1.0)
        if not np.any(np.abs(used - 1) > 0.01):
            return f"Further {self.name}: the model hardly uses it; erasing it changes the loss by less than 1 %."
        layer = int(np.argmax(np.abs(used - 1)))
        where = "at the input" if layer == 0 else f"after layer {layer}"
        effect = f"Erasing it there multiplies the loss by {used[layer]:.3g}"
        return f"Further {self.name}: it matters most {where}, where it holds {self._content(layer)}. {effect}."

    def _content(self, layer: int) -> str:
        if self.kind == "vector":
            return f"a copy of x to {self.cosine[layer]:.0%} of its square"
        correlation = f"; its mean square has a rank correlation of {self.noise[layer]:.2f} with sigma"
        tail = "" if np.isnan(self.noise[layer]) else correlation
        if self.error[layer] < 0.5:
            what = f"{self.label[layer]:.2g} times the residuals of weights that are those of the oracle"
            return f"{what} but for a relative error of {self.error[layer]:.2g}{tail}"
        if abs(self.cosine[layer]) > 0.5:
            return f"predictions along the oracle's weights (cosine {self.cosine[layer]:.2f}){tail}"
        return f"{self.label[layer]:.2g} y and little of what predicts it (cosine {self.cosine[layer]:.2f}){tail}"


def channels(problem: BaseProblem, model: LinearTransformer, sequences: int, seed: int = 0) -> list[Channel]:
    """Read what the further coordinates of a model's tokens hold on fresh sequences.

    Args:
        problem: The problem.
        model: The model.
        sequences: How many sequences.
        seed: Seed of the sequences.

    Returns:
        One entry per further scalar, then one per further vector; none where tokens are (x, y).
    """
    if not model.layout.extra:
        return []
    draw = problem.moments(sequences, seed=seed, stream=12, sums=model.layout.coordinate != "none")
    trace = model.trace(draw).compute("G", "C")
    return [_channel(trace, draw, problem.signal, *which, places) for which, places in _places(model).items()]


def _places(model: LinearTransformer) -> dict[tuple[str, int], NDArray[np.intp]]:
    """The coordinates of each further scalar and vector."""
    vectors = model.family.further_vectors + 1
    at, single = channel_places(vectors, model.width + 1 - vectors * model.dim, model.dim)
    scalars = {("scalar", k + 1): single[k : k + 1] for k in range(len(single) - 1)}
    return scalars | {("vector", k + 1): at[k] for k in range(1, vectors)}


def _channel(trace: Trace, draw: Draw, signal: float, kind: str, number: int, places: NDArray[np.intp]) -> Channel:
    model, d = trace.model, trace.model.dim
    squares = np.stack([np.einsum("bii->b", G[:, places[:, None], places]) for G in trace.G]) / len(places)  # [L+1, B]
    labels = np.sqrt(trace.G[0][:, -1, -1].mean())
    rows = trace.C[:, :, places]  # [L+1, B, places, D]
    if kind == "scalar":
        label, cosine, error = _scalar(rows[:, :, 0], draw.ridge, d)
    else:
        label, cosine, error = _vector(rows, d)
    loss = float(capped(trace.losses[-1], signal).mean())
    states = zip(trace.G[:-1], trace.C[:-1], range(model.layers), strict=True)
    erased = [capped(_erased(model, draw, G, C, places, layer), signal).mean() for G, C, layer in states]
    return Channel(
        kind=kind,
        number=number,
        size=np.sqrt(squares.mean(1)) / labels,
        label=label,
        cosine=cosine,
        error=error,
        noise=np.array([rank_correlation(square, draw.sigma) for square in squares]),
        erased=np.array([*erased, loss]) / loss if loss > 0 else np.full(model.layers + 1, np.nan),
    )


def _scalar(rows: Array, oracle: Any, d: int) -> tuple[Array, Array, Array]:
    """The coefficient of y, the cosine with the oracle's weights, and the error as a linear model."""
    label, v = rows[..., -1], -rows[..., :d]
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(v, axis=2) * np.linalg.norm(oracle, axis=1)
        cosine = np.where(norms > 0, (v * oracle).sum(2) / norms, 0.0)
        error = np.square(v / label[..., None] - oracle).sum(2) / np.square(oracle).sum(1)
    return label.mean(1), cosine.mean(1), np.nan_to_num(np.median(error, axis=1), nan=np.inf)


def _vector(rows: Array, d: int) -> tuple[Array, Array, Array]:
    """The length of what y adds, and the share that is a multiple of x."""
    M = rows[..., :d]
    along = np.einsum("lbii->lb", M) ** 2 / d
    total = np.square(M).sum((2, 3))
    share = np.divide(along, total, out=np.zeros_like(along), where=total > 0)
    return np.linalg.norm(rows[..., -1], axis=2).mean(1), share.mean(1), np.full(len(rows), np.nan)


def _erased(model: LinearTransformer, draw: Draw, G: Array, C: Array, places: NDArray[np.intp], layer: int) -> Array:
    """The losses if some coordinates of all tokens are set to zero before a layer."""
    G, C = np.array(G), np.array(C)
    G[:, places], G[:, :, places], C[:, places] = 0, 0, 0
    later = LinearTransformer(model.family.select(slice(layer, None)), model.dim, model.layout)
    row = Trace(later, G).C[-1][:, -1]
    w = -np.einsum("bi,bij->bj", row, C)
    return draw.both_losses(w[:, : model.dim], w[:, model.dim] if model.layout.counted else None)[0]
