"""The token form of a linear transformer: equation (3) of the paper as it stands, which is the reference."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import ExplosionWarning, refuse
from ridgeformer.models.stack import Stack
from ridgeformer.validation import array, real

Float = NDArray[np.floating[Any]]
ABSURD = 1000.0  # times the largest label: a prediction of that size is an explosion


class TokenForm(Stack):
    """Predicts from tokens, layer by layer. See `Stack` for the arguments."""

    def tokens(self, x: ArrayLike, y: ArrayLike, queries: ArrayLike) -> Float:
        """Compute the tokens of every layer by equation (3) of the paper as it stands.

        e_i <- e_i + sum_k sum_j (e_j' Q_k e_i) P_k e_j, with j over the n context tokens.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].
            queries: Features of the queries, [B, m, d].

        Returns:
            The tokens, [L+1, B, n+m, D]: the context first, then the queries (x, 0).
        """
        x_ = array("x", x, ("B", "n", self.dim))
        batch, n = x_.shape[:2]
        y_ = array("y", y, (batch, n))
        asked = array("queries", queries, (batch, "m", self.dim))
        context = self._tokens(x_, y_, self.layout.value(n))
        e = np.concatenate(
            [context, self._tokens(asked, np.zeros(asked.shape[:2]), float(self.layout.counted))], axis=1
        )
        trace = [e]
        share = 1 / n if self.layout.attention == "mean" else 1.0
        with np.errstate(all="ignore"):  # a model that explodes gives infinity; `predict` says so
            for P, Q in zip(self.P, self.Q, strict=True):
                context = e[:, :n]
                scores = np.einsum("bjc,kcd,bid->bkij", context, Q, e, optimize=True)
                e = e + share * np.einsum("bkij,kcd,bjd->bic", scores, P, context, optimize=True)
                trace.append(e)
        return np.stack(trace)

    def _tokens(self, x: Float, y: Float, coordinate: float) -> Float:
        """Tokens (x, further coordinates, y), [B, n, D]."""
        further = np.zeros((*y.shape, self.layout.extra), x.dtype)
        if self.layout.coordinate != "none":
            further[..., 0] = coordinate
        return np.concatenate([x, further, y[..., None].astype(x.dtype)], axis=-1)

    def predict(self, x: ArrayLike, y: ArrayLike, queries: ArrayLike) -> Float:
        """Predict the labels of queries: minus the last coordinate of their tokens, which is the paper's readout.

        Args:
            x: Features of the contexts, [B, n, d], or [n, d] for one context.
            y: Labels of the contexts, [B, n], or [n].
            queries: Features of the queries, [B, m, d], or [m, d].

        Returns:
            The predictions, [B, m], or [m] for one context.

        Warns:
            ExplosionWarning: A context is so far from what the model was trained on that its predictions overflow, or
                are more than 1,000 times larger than any label. The warning names these contexts.

        Raises:
            InputError: Shapes do not fit, or there are values that are not finite.
        """
        x_, y_, asked = real("x", x), real("y", y), real("queries", queries)
        single = x_.ndim == 2 and y_.ndim == 1
        if x_.ndim == 2 and asked.ndim == 1:
            refuse(
                f"queries of one context must have shape (m, {self.dim})",
                f"shape {asked.shape}",
                "For a single query, pass queries[None].",
            )
        if single:
            x_ = array("x", x_, ("n", self.dim))[None]
            y_ = array("y", y_, (x_.shape[1],))[None]
            asked = array("queries", asked, ("m", self.dim))[None]
        predictions = -self.tokens(x_, y_, asked)[-1, :, x_.shape[1] :, self.width]
        _warn_of_explosions(predictions, x_, y_, asked)
        return predictions[0] if single else predictions


def _warn_of_explosions(predictions: Float, x: Float, y: Float, queries: Float) -> None:
    """Warn of contexts whose predictions are not finite or absurdly large."""
    reach = np.abs(queries).max((1, 2)) / np.maximum(np.abs(x).max((1, 2)), np.finfo(x.dtype).tiny)
    limit = ABSURD * np.abs(y).max(1) * np.maximum(reach, 1.0)
    exploded = np.flatnonzero(~(np.abs(predictions).max(1) <= limit))
    if len(exploded) == 0:
        return
    which = ", ".join(map(str, exploded[:8])) + (", ..." if len(exploded) > 8 else "")
    warnings.warn(
        f"the model explodes on {len(exploded)} of {len(predictions)} contexts (numbers {which}): predictions "
        f"overflow, or are more than {ABSURD:g} times the largest label. A linear transformer is a polynomial in its "
        "input and only works on the scale it was trained on. Standardise every feature to mean 0 and standard "
        "deviation 1, and scale the labels to a standard deviation of about sqrt(d + sigma^2).",
        ExplosionWarning,
        stacklevel=3,
    )
