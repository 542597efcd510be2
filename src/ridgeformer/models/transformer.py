"""Linear transformers: self-attention without softmax, MLP or LayerNorm, in token form and in moment form.

>>> from ridgeformer import Problem, Diag, LinearTransformer
>>> one_step = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)  # one step of gradient descent
>>> draw = Problem(dim=10, context=20, noise="fixed(1)").moments(10_000)
>>> round(one_step.evaluate(draw.moments, draw.ridge).loss, 1)
1.4
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import PLAIN, Engine, Evaluation, Key, Layout, Target
from ridgeformer.errors import ExplosionWarning, refuse
from ridgeformer.models.check import check_family
from ridgeformer.models.editing import edited, joined
from ridgeformer.models.families import Diag, Full, GDpp
from ridgeformer.models.family import EDIT, Family, family_named
from ridgeformer.models.trace import Trace
from ridgeformer.moments import Moments
from ridgeformer.problems import BaseProblem, Draw, Sequences
from ridgeformer.validation import array, choice, integer, layer_number, number, real
from ridgeformer.values import Value, read_only

__all__ = ["LinearTransformer", "gram_of"]

Float = NDArray[np.floating[Any]]
ABSURD = 1000.0  # times the largest label: a prediction of that size is an explosion


class LinearTransformer(Value):
    """A stack of linear self-attention layers with the parameters of a family.

    `weights(moments)` is what every predictor has: the w_hat with which it predicts <w_hat, x> for a query x.
    A model never changes: `edit` makes a new one with other parameters.

    Args:
        family: The parameters, such as `Full(P, Q)` or `Diag(p, q)`.
        dim: The dimension d of the features; not needed where the parameters are for one dimension, as those of Full.
        layout: What tokens hold beside (x, y), and whether attention sums over tokens or takes their mean. Families
            with further scalars or vectors, such as `Channels(1, 3)`, add the coordinates that they need.

    Raises:
        InputError: The arguments do not fit together.
    """

    _remedy = EDIT

    def __init__(self, family: Family, dim: int | None = None, layout: Layout = PLAIN) -> None:
        if not isinstance(layout, Layout):
            refuse("the layout of tokens must be a Layout", f"a {type(layout).__name__}", 'Pass Layout("mean").')
        if not isinstance(family, Family):
            refuse(
                "a model needs a parameter family",
                f"a {type(family).__name__}",
                "Pass Full or Diag parameters, for example.",
            )
        if family.width is not None:
            fitting = family.width - layout.extra
            if dim is not None and dim != fitting:
                refuse(f"dim must fit the parameters, which are for {fitting}", dim, "Leave dim out.")
            dim = fitting
        if dim is None:
            refuse(
                f"parameters of the family {family.name} fit any dimension, so dim must be given",
                "none",
                "Pass dim=10, for example.",
            )
        check_family(type(family))
        self.family = family
        self.dim = integer("dim", dim, 1, 4096)
        self.layout = family.fitted(layout, self.dim)

    @classmethod
    def random(
        cls,
        family: str | type[Family],
        *,
        dim: int,
        layers: int,
        heads: int = 1,
        scale: float = 0.05,
        context: int = 1,
        seed: int = 0,
        layout: Layout = PLAIN,
    ) -> LinearTransformer:
        """Make a model with random parameters.

        Args:
            family: A family or its name, such as `full`, `diag` or `channels(1,3)`.
            dim: The dimension d of the features.
            layers: How many layers.
            heads: How many heads per layer.
            scale: Parameters are normal with the standard deviation scale / sqrt(context).
            context: The number of examples for which parameters are meant.
            seed: Seed of the random numbers.
            layout: See `LinearTransformer`.
        """
        kind = family_named(family)
        dim, layers, heads = integer("dim", dim), integer("layers", layers), integer("heads", heads)
        rng = np.random.default_rng(integer("seed", seed, 0))
        spread = number("scale", scale) / np.sqrt(integer("context", context))
        layout = kind.fitted(layout, dim)
        return cls(kind.random(dim + layout.extra, layers, heads, spread, rng), dim, layout)

    def _with(self, family: Family) -> LinearTransformer:
        """The model with other parameters and the same tokens."""
        return LinearTransformer(family, self.dim, self.layout)

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

    @property
    def kernel(self) -> tuple[Float, ...]:
        """The parameters as an engine takes them; see `Family.kernel`."""
        return self.family.kernel(self.dim)

    @property
    def width(self) -> int:
        """How many coordinates a token has beside y: d and the further ones of the layout."""
        return self.dim + self.layout.extra

    def __repr__(self) -> str:
        usual = type(self.family).fitted(Layout(), self.dim)  # with the room that the family always needs
        more = "" if self.layout == usual else f", {self.layout}"
        return f"LinearTransformer({self.family.name}, dim={self.dim}, layers={self.layers}, heads={self.heads}{more})"

    # ---- other models with the same function ------------------------------------------------------------

    def to_diag(self) -> LinearTransformer:
        """A GD++ model as Diag."""
        if isinstance(self.family, GDpp):
            return self._with(self.family.to_diag())
        if isinstance(self.family, Diag):
            return self
        refuse("only GD++ and Diag models are Diag models", repr(self), "Keep it Full.")

    def to_full(self) -> LinearTransformer:
        """Any model as Full."""
        return self if isinstance(self.family, Full) else self._with(Full(self.P, self.Q))

    def to_attention(self, attention: Literal["sum", "mean"], context: int) -> LinearTransformer:
        """Make a model with attention by sum or by mean that is the same function on contexts of one length.

        Args:
            attention: `sum` or `mean`.
            context: The number of examples n at which the function stays the same.

        Returns:
            The other model; this one if nothing changes.

        >>> model = LinearTransformer.random("diag", dim=3, layers=2, context=10)
        >>> model.to_attention("mean", context=10).layout.attention
        'mean'
        """
        n, layout = integer("context", context), replace(self.layout, attention=attention)
        if layout == self.layout:
            return self
        return LinearTransformer(self.family.scaled(n if attention == "mean" else 1 / n), self.dim, layout)

    def in_basis(self, C: ArrayLike) -> LinearTransformer:
        """Make the Full model that does on features z what this one does on x = C z.

        P becomes D^-1 P D and Q becomes D'Q D, with D = diag(C, 1). Predictions for a query z are those of this model
        for the query C z.

        Args:
            C: An invertible matrix, [d, d].

        Returns:
            The Full model.
        """
        matrix = array("C", C, (self.dim, self.dim)).astype(np.float64)
        if np.linalg.matrix_rank(matrix) < self.dim:
            refuse("C must be invertible", "a singular matrix", "Pass the Cholesky factor of a covariance.")
        D = np.eye(self.width + 1)
        D[: self.dim, : self.dim] = matrix
        return self._with(Full(np.linalg.inv(D) @ self.P @ D, D.T @ self.Q @ D))

    def edit(self, layer: int, **parameters: ArrayLike) -> LinearTransformer:
        """Make a new model in which the parameters of one layer are replaced; this one stays as it is.

        The new model has the same family and heads wherever these can hold the new values. Otherwise it becomes the
        next larger one: one head of a Diag model holds omegas of rank one only, so that other omegas give a model with
        two heads; a GD++ model becomes Diag with an omega_xy or omega_yy other than 0; and any model becomes Full with
        a dense P or Q. A looped model is unrolled, because only one repetition changes.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.
            **parameters: New values by name: `P` and `Q` [H, D, D] (or [D, D] if there is one head) of any model; of a
                Diag or GD++ model one or more of `omega_xx`, `omega_xy`, `omega_yx` and `omega_yy`, or the whole
                `omega` [2, 2], or `p` and `q`; those of `family.arrays` in general. A single number fills the whole
                parameter.

        Returns:
            The new model.

        Raises:
            InputError: There is no such layer or parameter, or the values do not fit.

        >>> model = LinearTransformer.random("diag", dim=10, layers=3)
        >>> model.edit(2, omega=[[0, 0], [-0.03, 0]]).family.omega[2].tolist()
        [[0.0, 0.0], [-0.03, 0.0]]
        >>> model.edit(layer=1, omega_yy=0).family.omega[1, 1, 1].item()
        0.0
        """
        return self._with(edited(self, layer, parameters))

    def without(self, layer: int) -> LinearTransformer:
        """Make a new model without one layer: the layers before and after it follow each other directly.

        It predicts what the model predicts in which this layer is an identity layer, such as `edit(layer, P=0)`, but it
        has one layer less: later layers have other numbers, and a trace or the losses by layer have one state less.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.

        Returns:
            The model with L - 1 layers.

        Raises:
            InputError: There is no such layer, or it is the only one.
        """
        layer = layer_number(layer, self.layers)
        if self.layers == 1:
            refuse("a model needs at least one layer", "the only layer to remove", "Edit it: model.edit(0, P=0).")
        parts = [part for part in (slice(0, layer), slice(layer + 1, self.layers)) if part.start < part.stop]
        return self._with(joined([self._with(self.family.select(part)) for part in parts]))

    def stack(self, other: LinearTransformer) -> LinearTransformer:
        """Make a new model that continues with the layers of another one.

        Args:
            other: A model for the same dimension and layout.

        Returns:
            The model with the layers of both. It has their family if they have the same one (looped models are
            unrolled), it is Diag if both are Diag or GD++, and otherwise Full.

        Raises:
            InputError: The other model has another dimension or layout.
        """
        if not isinstance(other, LinearTransformer):
            refuse("a model is stacked on a model", f"a {type(other).__name__}", "Pass a LinearTransformer.")
        if (other.dim, other.layout) != (self.dim, self.layout):
            refuse(
                f"stacked models must have the same tokens: dimension {self.dim} and {self.layout}",
                f"dimension {other.dim} and {other.layout}",
                "Use models of one dimension and layout; see to_attention.",
            )
        return self._with(joined([self, other]))

    def with_identity(self, at: int) -> LinearTransformer:
        """Insert one layer that changes nothing: the start for growing a model.

        Args:
            at: The position of the new layer, from 0 to L.

        Returns:
            The model with L + 1 layers.
        """
        return self._with(self.family.inserted(at, self.family.identity_layer()))

    def truncate(self, layers: int) -> LinearTransformer:
        """Return the model made of the first layers only.

        Args:
            layers: How many layers, from 1 to L.

        Returns:
            The shorter model.
        """
        return self._with(self.family.select(slice(0, integer("layers", layers, 1, self.layers))))

    def astype(self, dtype: type) -> LinearTransformer:
        """Return the model in another precision.

        Args:
            dtype: float32 or float64.

        Returns:
            The model.
        """
        return self._with(self.family.astype(dtype))

    # ---- token form: the reference ----------------------------------------------------------------------

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
        single = x_.ndim == 2 and y_.ndim == 1 and asked.ndim == 2
        if x_.ndim == 2 and asked.ndim == 1:
            refuse(
                f"queries of one context must have shape (m, {self.dim})",
                f"shape {asked.shape}",
                "For a single query, pass queries[None].",
            )
        if single:
            x_, y_, asked = x_[None], y_[None], asked[None]
        found = -self.tokens(x_, y_, asked)[-1, :, x_.shape[1] :, self.width]
        _warn_of_explosions(found, x_, y_, asked)
        return found[0] if single else found

    # ---- moment form ------------------------------------------------------------------------------------

    def trace(self, contexts: Moments | Draw | Sequences | ArrayLike, labels: ArrayLike | None = None) -> Trace:
        """Follow contexts through all layers: Gram matrix, map, linear model, readout and loss of every layer.

        Args:
            contexts: A draw, whose losses can then be asked for; moments; sequences; or the features of contexts,
                [B, n, d], or [n, d] for one context.
            labels: The labels [B, n], or [n], if `contexts` are features.

        Returns:
            The trace, which computes what it is asked for when it is asked.

        Raises:
            InputError: The contexts have another dimension, or lack the sums that a further coordinate needs.
        """
        if labels is not None:
            contexts = Moments.from_tokens(contexts, labels)  # type: ignore[arg-type]
        if isinstance(contexts, Sequences):
            contexts = Draw.from_sequences(contexts)
        draw, moments = (contexts, contexts.moments) if isinstance(contexts, Draw) else (None, contexts)
        self._check(moments)  # type: ignore[arg-type]
        return Trace(self, self._gram(moments), draw)  # type: ignore[arg-type]

    def weights(self, moments: Moments, *, engine: Engine | str | None = None, threads: int | None = None) -> Float:
        """Compute w_hat: the prediction for a query x is <w_hat, x>, plus the intercept if there is one.

        Args:
            moments: The contexts.
            engine: Where it is computed; None for the current engine.
            threads: How many threads; None for the default.

        Returns:
            The weights, [B, d].
        """
        return self._weights(moments, engine, threads)[:, : self.dim]

    def intercepts(self, moments: Moments, *, engine: Engine | str | None = None, threads: int | None = None) -> Float:
        """Compute what predictions contain beside <w_hat, x>: 0 unless the tokens have a constant coordinate.

        Args:
            moments: The contexts.
            engine: Where it is computed; None for the current engine.
            threads: How many threads; None for the default.

        Returns:
            The intercepts, [B].
        """
        if not self.layout.counted:
            self._check(moments)
            return np.zeros(len(moments), moments.dtype)
        return self._weights(moments, engine, threads)[:, self.dim]

    def _weights(self, moments: Moments, engine: Engine | str | None, threads: int | None) -> Float:
        self._check(moments)
        engine = engines.resolve(engine)
        counted = self.dim + self.layout.counted
        nothing = np.zeros((len(moments), counted), moments.dtype)
        found = engine.evaluate(
            self.kernel,
            self._gram(moments),
            nothing,
            counted=counted,
            weights=True,
            gradient=False,
            threads=threads,
        ).weights
        assert found is not None
        return found

    def _gram(self, moments: Moments) -> Float:
        """The Gram matrices of this model's tokens."""
        return gram_of(self.layout, moments)

    def evaluate(
        self,
        moments: Moments,
        target: ArrayLike,
        *,
        metric: ArrayLike | None = None,
        gradient: bool = False,
        ceiling: float = np.inf,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Evaluation:
        """Return the losses 1/2 (w_hat - target)' metric (w_hat - target) of contexts.

        Args:
            moments: The contexts.
            target: What w_hat is compared with, [B, d]; for tokens with a constant also [B, d + 1], with intercepts.
            metric: The covariance of the queries, [d, d] or [B, d, d]; None for the identity. For targets with
                intercepts it has d + 1 coordinates.
            gradient: Whether to compute the gradient with respect to `kernel` too.
            ceiling: Losses above it enter the gradient by their logarithm.
            engine: Where it is computed; None for the current engine.
            threads: How many threads; None for the default.

        Returns:
            Losses, and the gradient if asked for.
        """
        self._check(moments)
        counted = self.dim + self.layout.counted
        whole = np.ndim(target) == 2 and np.shape(target)[1] == counted
        goal = array("target", target, (len(moments), counted if whole else self.dim))
        goal = goal.astype(moments.dtype, copy=False)
        weight = None if metric is None else np.asarray(real("metric", metric), moments.dtype)
        engine, ceiling = engines.resolve(engine), number("ceiling", ceiling)
        return engine.evaluate(
            self.kernel,
            self._gram(moments),
            np.asarray(goal) if whole else self.layout.target(np.asarray(goal)),
            metric=weight if whole else self.layout.metric(weight),
            counted=counted,
            ceiling=ceiling,
            gradient=gradient,
            threads=threads,
        )

    def step(
        self,
        problem: BaseProblem,
        sequences: int,
        *,
        seed: int = 0,
        stream: int = 0,
        step: int = 0,
        first: int = 0,
        target: Target | None = None,
        ceiling: float = np.inf,
        gradient: bool = True,
        unadjusted: bool = False,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Evaluation:
        """Losses and gradient on fresh sequences that are drawn, used and forgotten: one step of training.

        The same bits as `problem.moments` with the same key and then `evaluate`, in the model's own precision, but
        faster: use `model.astype(np.float32)` for the fastest.

        Args:
            problem: The distribution of sequences.
            sequences: How many.
            seed: The seed.
            stream: A number that tells independent streams of one seed apart.
            step: A further such number.
            first: The number of the first sequence in its stream.
            target: What w_hat is compared with: `ridge`, the oracle's weights (adjusted loss), or `task`, the task
                vectors. None for `ridge`, or `task` where the engine cannot compute the oracle: for tasks of a pool,
                whose losses then contain the oracle's.
            ceiling: Losses above it enter the gradient by their logarithm.
            gradient: Whether to compute the gradient.
            unadjusted: Whether to return the losses against the tasks as well.
            engine: Where it is computed; None for the current engine.
            threads: How many threads; None for the default.

        Returns:
            Losses and what else was asked for.
        """
        if not isinstance(problem, BaseProblem) or problem.dim != self.dim:
            refuse(f"a model for dimension {self.dim} needs a problem of that dimension", problem, "Make one.")
        if target is not None:
            choice("target", target, ("ridge", "task"))
        engine, ceiling = engines.resolve(engine), number("ceiling", ceiling)
        key = {"seed": seed, "stream": stream, "step": step, "first": first}
        goal: Target = target or ("task" if problem.has_pool else "ridge")
        if problem.law is None or (problem.has_pool and goal == "ridge"):
            sums = self.layout.coordinate != "none"
            draw = problem.moments(sequences, dtype=self.family.dtype, sums=sums, engine=engine, threads=threads, **key)
            return self._step_on(draw, goal, ceiling, gradient, unadjusted, engine, threads)
        choices = problem.choices(sequences, engine=engine, **key)  # type: ignore[attr-defined]
        options: dict[str, Any] = {"ceiling": ceiling, "gradient": gradient, "unadjusted": unadjusted}
        options |= {"layout": self.layout, "target": goal, "first": first, "threads": threads}
        return engine.step(self.kernel, problem.law, choices, Key(seed, stream, step), **options)

    def _step_on(
        self,
        draw: Draw,
        target: Target,
        ceiling: float,
        gradient: bool,
        unadjusted: bool,
        engine: Engine,
        threads: int | None,
    ) -> Evaluation:
        """The same on sequences that are drawn already."""
        draw = draw.with_intercept() if self.layout.counted else draw
        how: dict[str, Any] = {"metric": draw.metric, "engine": engine, "threads": threads}
        goal = draw.ridge if target == "ridge" else draw.task
        found = self.evaluate(draw.moments, goal, ceiling=ceiling, gradient=gradient, **how)
        if not unadjusted:
            return found
        other = found if goal is draw.task else self.evaluate(draw.moments, draw.task, **how)
        losses = other.losses if draw.offset is None else other.losses + draw.offset.astype(other.losses.dtype)
        return replace(found, unadjusted=losses)

    def _check(self, moments: Moments) -> None:
        if not isinstance(moments, Moments):
            refuse("a model takes Moments", f"a {type(moments).__name__}", "Use draw.moments or Moments.from_tokens.")
        if moments.dim != self.dim:
            refuse(
                f"a model for dimension {self.dim} takes moments of dimension {self.dim}",
                f"dimension {moments.dim}",
                "Use a problem or a model of the same dimension.",
            )


def gram_of(layout: Layout, moments: Moments) -> Float:
    """Return the Gram matrices of a model's tokens.

    Args:
        layout: The layout of the tokens.
        moments: The contexts.

    Returns:
        Gram matrices, [B, D, D].

    Raises:
        InputError: The tokens have a further coordinate, and the moments no sums.
    """
    if layout.is_plain:
        return moments.gram
    if layout.coordinate != "none" and moments.sums is None:
        refuse(
            "tokens with a further coordinate need the sums of the tokens",
            "moments without them",
            "Use Moments.from_tokens, or problem.moments(..., sums=True).",
        )
    return layout.gram(np.asarray(moments.gram), moments.context, moments.sums)


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
