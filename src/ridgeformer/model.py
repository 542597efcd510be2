"""Linear transformers: self-attention without softmax, MLP or LayerNorm, in token form and in moment form.

>>> from ridgeformer import Problem, Diag, LinearTransformer
>>> one_step = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)  # one step of gradient descent
>>> draw = Problem(dim=10, context=20, noise="fixed(1)").moments(10_000)
>>> round(one_step.evaluate(draw.moments, draw.ridge).loss, 1)
1.4
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Engine, Evaluation, Key, Target
from ridgeformer.errors import array, integer, number, refuse
from ridgeformer.families import FAMILIES, Diag, Family, Full, GDpp
from ridgeformer.moments import Moments
from ridgeformer.problem import Problem

__all__ = ["LinearTransformer", "States"]

Float = NDArray[np.floating[Any]]


class States(NamedTuple):
    """The linear model that every layer keeps, layer 0 (the input) included.

    A token starts as (x, y) and is (M x + y u, a y - <w, x>) at layer l; a query (x, 0) is (M x, -<w, x>).
    """

    M: Float  # [L+1, B, d, d]
    u: Float  # [L+1, B, d]
    a: Float  # [L+1, B]
    w: Float  # [L+1, B, d]


class LinearTransformer:
    """A stack of linear self-attention layers with the parameters of a family.

    `weights(moments)` is what every predictor has: the w_hat with which it predicts <w_hat, x> for a query x.
    """

    def __init__(self, family: Family, dim: int | None = None) -> None:
        if not isinstance(family, Family):
            refuse(
                "a model needs a parameter family", f"a {type(family).__name__}", "Pass Full, Diag or GDpp parameters."
            )
        if isinstance(family, Full):
            if dim is not None and dim != family.dim:
                refuse(f"dim must fit P and Q, which are for {family.dim}", dim, "Leave dim out.")
            dim = family.dim
        if dim is None:
            refuse("Diag and GD++ fit any dimension, so dim must be given", "none", "Pass dim=10, for example.")
        self.family = family
        self.dim = integer("dim", dim, 1, 4096)

    @classmethod
    def random(
        cls,
        family: str,
        *,
        dim: int,
        layers: int,
        heads: int = 1,
        scale: float = 0.05,
        context: int = 1,
        seed: int = 0,
    ) -> LinearTransformer:
        """Normal parameters of standard deviation scale / sqrt(context), as for a Gram matrix divided by n."""
        if not isinstance(family, str) or family not in FAMILIES:
            refuse(f"the family must be one of {', '.join(FAMILIES)}", repr(family), "Choose one of these.")
        dim, layers, heads = integer("dim", dim), integer("layers", layers), integer("heads", heads)
        rng = np.random.default_rng(integer("seed", seed, 0))
        spread = number("scale", scale) / np.sqrt(integer("context", context))
        return cls(FAMILIES[family].random(dim, layers, heads, spread, rng), dim)

    # ---- what it is -------------------------------------------------------------------------------------

    @property
    def layers(self) -> int:
        """L."""
        return self.family.layers

    @property
    def heads(self) -> int:
        """H."""
        return self.family.heads

    @property
    def P(self) -> Float:
        """Dense, [L, H, D, D], the paper's convention."""
        return self.family.dense(self.dim)[0]

    @property
    def Q(self) -> Float:
        """Dense, [L, H, D, D], the paper's convention."""
        return self.family.dense(self.dim)[1]

    def __repr__(self) -> str:
        return f"LinearTransformer({self.family.name}, dim={self.dim}, layers={self.layers}, heads={self.heads})"

    # ---- other models with the same function ------------------------------------------------------------

    def to_diag(self) -> LinearTransformer:
        """A GD++ model as Diag."""
        if isinstance(self.family, GDpp):
            return LinearTransformer(self.family.to_diag(), self.dim)
        if isinstance(self.family, Diag):
            return self
        refuse("only GD++ and Diag models are Diag models", repr(self), "Keep it Full.")

    def to_full(self) -> LinearTransformer:
        """Any model as Full."""
        return self if isinstance(self.family, Full) else LinearTransformer(Full(self.P, self.Q))

    def with_identity(self, at: int) -> LinearTransformer:
        """One layer more at position `at`, 0 to L, that changes nothing: the start for growing a model."""
        return LinearTransformer(self.family.with_identity(at), self.dim)

    def first(self, layers: int) -> LinearTransformer:
        """The model made of the first layers only."""
        return LinearTransformer(self.family.select(slice(0, integer("layers", layers, 1, self.layers))), self.dim)

    def astype(self, dtype: type) -> LinearTransformer:
        """The model in another precision."""
        return LinearTransformer(self.family.astype(dtype), self.dim)

    # ---- token form: the reference ----------------------------------------------------------------------

    def tokens(self, x: ArrayLike, y: ArrayLike, queries: ArrayLike) -> Float:
        """Every layer's tokens, [L+1, B, n+m, D], context first, then the queries (x, 0).

        x [B, n, d], y [B, n], queries [B, m, d]. Equation (3) of the paper as it stands:
        e_i <- e_i + sum_k sum_j (e_j' Q_k e_i) P_k e_j, with j over the n context tokens.
        """
        x_ = array("x", x, ("B", "n", self.dim))
        batch, n = x_.shape[:2]
        y_ = array("y", y, (batch, n))
        asked = array("queries", queries, (batch, "m", self.dim))
        context = np.concatenate([x_, y_[..., None]], axis=-1)
        e = np.concatenate([context, np.concatenate([asked, np.zeros_like(asked[..., :1])], axis=-1)], axis=1)
        trace = [e]
        for P, Q in zip(self.P, self.Q, strict=True):
            context = e[:, :n]
            scores = np.einsum("bjc,kcd,bid->bkij", context, Q, e, optimize=True)
            e = e + np.einsum("bkij,kcd,bjd->bic", scores, P, context, optimize=True)
            trace.append(e)
        return np.stack(trace)

    def predict(self, x: ArrayLike, y: ArrayLike, queries: ArrayLike) -> Float:
        """Predictions for the queries, [B, m]: minus the last coordinate of their tokens (the paper's readout)."""
        trace = self.tokens(x, y, queries)
        return -trace[-1, :, np.shape(x)[1] :, self.dim]

    # ---- moment form ------------------------------------------------------------------------------------

    def states(self, moments: Moments) -> States:
        """The linear model (M, u, a, w) that every layer keeps, from C_{l+1} = T_l C_l, C_0 = I."""
        self._check(moments)
        G = np.asarray(moments.gram, np.result_type(moments.dtype, self.family.dtype))
        eye = np.eye(self.dim + 1, dtype=G.dtype)
        C = [np.broadcast_to(eye, G.shape)]
        for P, Q in zip(self.P, self.Q, strict=True):
            T = eye + (P[None] @ G[:, None] @ Q[None]).sum(1)
            C.append(T @ C[-1])
            G = T @ G @ np.swapaxes(T, 1, 2)
        stack = np.stack(C)
        d = self.dim
        return States(stack[:, :, :d, :d], stack[:, :, :d, d], stack[:, :, d, d], -stack[:, :, d, :d])

    def weights_by_layer(self, moments: Moments) -> Float:
        """w after every layer, [L+1, B, d]; zero at layer 0. Those after l layers are the weights of the first l."""
        self._check(moments)
        found = [np.zeros((len(moments), self.dim), moments.dtype)]
        found += [self.first(layers).weights(moments) for layers in range(1, self.layers + 1)]
        return np.stack(found)

    def weights(self, moments: Moments, *, engine: Engine | str | None = None, threads: int | None = None) -> Float:
        """w_hat, [B, d]: the prediction for a query x is <w_hat, x>."""
        self._check(moments)
        engine = engines.resolve(engine)
        nothing = np.zeros((len(moments), self.dim), moments.dtype)
        found = engine.evaluate(
            self.family.kernel(), moments.gram, nothing, weights=True, gradient=False, threads=threads
        ).weights
        assert found is not None
        return found

    def evaluate(
        self,
        moments: Moments,
        target: ArrayLike,
        *,
        gradient: bool = False,
        ceiling: float = np.inf,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Evaluation:
        """Losses 1/2 |w_hat - target|^2 with target [B, d], and the gradient with respect to `family.kernel()`."""
        self._check(moments)
        goal = array("target", target, (len(moments), self.dim)).astype(moments.dtype, copy=False)
        engine, ceiling = engines.resolve(engine), number("ceiling", ceiling)
        kernel = self.family.kernel()
        return engine.evaluate(kernel, moments.gram, goal, ceiling=ceiling, gradient=gradient, threads=threads)

    def step(
        self,
        problem: Problem,
        sequences: int,
        *,
        seed: int = 0,
        stream: int = 0,
        step: int = 0,
        first: int = 0,
        target: Target = "ridge",
        ceiling: float = np.inf,
        gradient: bool = True,
        plain: bool = False,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Evaluation:
        """Losses and gradient on fresh sequences that are drawn, used and forgotten: one step of training.

        The same bits as `problem.moments` with the same key and then `evaluate`, in the model's own precision, but
        faster: use `model.astype(np.float32)` for the fastest. `target` is `ridge` (adjusted loss) or `task`; `plain`
        asks for the losses against the task as well.
        """
        if not isinstance(problem, Problem) or problem.dim != self.dim:
            refuse(f"a model for dimension {self.dim} needs a problem of that dimension", problem, "Make one.")
        if target not in ("ridge", "task"):
            refuse("target must be ridge or task", repr(target), "Choose one of these.")
        engine = engines.resolve(engine)
        sigma = problem.sigmas(sequences, seed=seed, stream=stream, step=step, first=first, engine=engine)
        return engine.step(
            self.family.kernel(),
            self.dim,
            problem.context,
            sigma,
            Key(seed, stream, step),
            target=target,
            ceiling=number("ceiling", ceiling),
            gradient=gradient,
            plain=plain,
            first=first,
            threads=threads,
        )

    def _check(self, moments: Moments) -> None:
        if not isinstance(moments, Moments):
            refuse("a model takes Moments", f"a {type(moments).__name__}", "Use draw.moments or Moments.from_tokens.")
        if moments.dim != self.dim:
            refuse(
                f"a model for dimension {self.dim} takes moments of dimension {self.dim}",
                f"dimension {moments.dim}",
                "Use a problem or a model of the same dimension.",
            )
