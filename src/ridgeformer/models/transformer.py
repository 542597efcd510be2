"""Linear transformers: self-attention without softmax, MLP or LayerNorm, in token form and in moment form.

>>> from ridgeformer import Problem, Diag, LinearTransformer
>>> one_step = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)  # one step of gradient descent
>>> draw = Problem(dim=10, context=20, noise="fixed(1)").moments(10_000)
>>> round(one_step.evaluate(draw.moments, draw.ridge).loss, 1)
1.4
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Engine, Evaluation, Key, Target
from ridgeformer.errors import ExplosionWarning, refuse
from ridgeformer.models.check import check_family
from ridgeformer.models.families import EDIT, FAMILIES, Diag, Family, Full, GDpp
from ridgeformer.models.trace import trace
from ridgeformer.moments import Moments
from ridgeformer.problem import Problem
from ridgeformer.validation import array, integer, number, real
from ridgeformer.values import Value, read_only

__all__ = ["LinearTransformer", "States"]

Float = NDArray[np.floating[Any]]
ABSURD = 1000.0  # times the largest label: a prediction of that size is an explosion


class States(NamedTuple):
    """The linear model that every layer keeps, layer 0 (the input) included.

    A token starts as (x, y) and is (M x + y u, a y - <w, x>) at layer l; a query (x, 0) is (M x, -<w, x>).
    """

    M: Float  # [L+1, B, d, d]
    u: Float  # [L+1, B, d]
    a: Float  # [L+1, B]
    w: Float  # [L+1, B, d]


class LinearTransformer(Value):
    """A stack of linear self-attention layers with the parameters of a family.

    `weights(moments)` is what every predictor has: the w_hat with which it predicts <w_hat, x> for a query x.
    A model never changes: `edit` makes a new one with other parameters.
    """

    _remedy = EDIT

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
        check_family(type(family))
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
        return read_only(self.family.dense(self.dim)[0], EDIT)

    @property
    def Q(self) -> Float:
        """Dense, [L, H, D, D], the paper's convention."""
        return read_only(self.family.dense(self.dim)[1], EDIT)

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

    def edit(self, layer: int, **parameters: ArrayLike) -> LinearTransformer:
        """Make a new model in which the parameters of one layer are replaced; this one stays as it is.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.
            **parameters: New values by name: `P` and `Q` [H, D, D] of a Full model; `p` [H, 2] and `q` [H, 2] of a Diag
                model, or its `omega` [2, 2]; those of `family.arrays` in general. A single number fills the whole
                parameter.

        Raises:
            InputError: There is no such layer or parameter, or the values do not fit.

        >>> model = LinearTransformer.random("diag", dim=10, layers=3)
        >>> model.edit(2, omega=[[0, 0], [-0.03, 0]]).family.omega[2].tolist()
        [[0.0, 0.0], [-0.03, 0.0]]
        """
        return LinearTransformer(self.family.edit(layer, **parameters), self.dim)

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
        with np.errstate(all="ignore"):  # a model that explodes gives infinity; `predict` says so
            for P, Q in zip(self.P, self.Q, strict=True):
                context = e[:, :n]
                scores = np.einsum("bjc,kcd,bid->bkij", context, Q, e, optimize=True)
                e = e + np.einsum("bkij,kcd,bjd->bic", scores, P, context, optimize=True)
                trace.append(e)
        return np.stack(trace)

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
        single = x_.ndim == 2 and y_.ndim == 1 and asked.ndim == 2
        if single:
            x_, y_, asked = x_[None], y_[None], asked[None]
        found = -self.tokens(x_, y_, asked)[-1, :, x_.shape[1] :, self.dim]
        _warn_of_explosions(found, x_, y_, asked)
        return found[0] if single else found

    # ---- moment form ------------------------------------------------------------------------------------

    def states(self, moments: Moments) -> States:
        """The linear model (M, u, a, w) that every layer keeps, from C_{l+1} = T_l C_l, C_0 = I."""
        self._check(moments)
        G = np.asarray(moments.gram, np.result_type(moments.dtype, self.family.dtype))
        C, d = trace(self.P, self.Q, G).C, self.dim
        return States(C[:, :, :d, :d], C[:, :, :d, d], C[:, :, d, d], -C[:, :, d, :d])

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
        unadjusted: bool = False,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Evaluation:
        """Losses and gradient on fresh sequences that are drawn, used and forgotten: one step of training.

        The same bits as `problem.moments` with the same key and then `evaluate`, in the model's own precision, but
        faster: use `model.astype(np.float32)` for the fastest. `target` is `ridge` (adjusted loss) or `task`;
        `unadjusted` asks for the losses against the task as well.
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
            unadjusted=unadjusted,
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


def _warn_of_explosions(found: Float, x: Float, y: Float, queries: Float) -> None:
    """Warn of contexts whose predictions are not finite or absurdly large."""
    reach = np.abs(queries).max((1, 2)) / np.maximum(np.abs(x).max((1, 2)), np.finfo(x.dtype).tiny)
    limit = ABSURD * np.abs(y).max(1) * np.maximum(reach, 1.0)
    exploded = np.flatnonzero(~(np.abs(found).max(1) <= limit))
    if len(exploded) == 0:
        return
    which = ", ".join(map(str, exploded[:8])) + (", ..." if len(exploded) > 8 else "")
    warnings.warn(
        f"the model explodes on {len(exploded)} of {len(found)} contexts (numbers {which}): predictions overflow, or "
        f"are more than {ABSURD:g} times the largest label. A linear transformer is a polynomial in its input and only "
        "works on the scale it was trained on. Standardise every feature to mean 0 and standard deviation 1, and scale "
        "the labels to a standard deviation of about sqrt(d + sigma^2).",
        ExplosionWarning,
        stacklevel=3,
    )
