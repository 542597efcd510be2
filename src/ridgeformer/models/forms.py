"""A stack of layers in its two forms: on the moments of contexts, by an engine, and token by token, the reference."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer import engine as engines
from ridgeformer.engine import PAPER_LAYOUT, Engine, Evaluation, Kernel, Layout, Target
from ridgeformer.engine.interface import check_sequences, make_key
from ridgeformer.errors import ExplosionWarning, kind_of, refuse
from ridgeformer.models.family import EDIT, Family
from ridgeformer.models.trace import Trace
from ridgeformer.moments import Moments
from ridgeformer.problems import BaseProblem, Draw, Sequences
from ridgeformer.problems.base import Ask
from ridgeformer.validation import Float, array, axes, choice, integer, number, precision, real
from ridgeformer.values import Value, read_only


class Stack(Value):
    """A stack of linear self-attention layers; see `LinearTransformer`.

    Args:
        family: The parameters.
        dim: The dimension d of the features; not needed where the parameters are for one dimension.
        layout: What tokens hold beside (x, y), and whether attention sums over tokens or takes their mean.

    Raises:
        InputError: The arguments do not fit together.
    """

    _remedy = EDIT

    def __init__(self, family: Family, dim: int | None = None, layout: Layout = PAPER_LAYOUT) -> None:
        if not isinstance(layout, Layout):
            refuse("the layout of tokens must be a Layout", kind_of(layout), 'Pass Layout("mean").')
        if not isinstance(family, Family):
            refuse("a model needs a parameter family", kind_of(family), "Pass Full or Diag parameters, for example.")
        if family.width is not None:
            fitting = family.width - layout.extra
            if dim is not None and dim != fitting:
                refuse(f"dim must fit the parameters, which are for {fitting}", dim, "Leave dim out.")
            dim = fitting
        if dim is None:
            rule = f"parameters of the family {family.name} fit any dimension, so dim must be given"
            refuse(rule, "none", "Pass dim=10, for example.")
        if not family.built_in:
            from ridgeformer.models.check import check_family

            check_family(type(family))
        self.family = family
        self.dim = integer("dim", dim, 1, 4096)
        self.layout = family.layout_for(layout, self.dim)

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
        return read_only(self.family.dense(self.dim)[0])

    @property
    def Q(self) -> Float:
        """Dense, [L, H, D, D], the paper's convention."""
        return read_only(self.family.dense(self.dim)[1])

    @property
    def kernel(self) -> Kernel:
        """The parameters as an engine takes them; see `Family.kernel`."""
        return self.family.kernel(self.dim)

    @property
    def width(self) -> int:
        """How many coordinates a token has beside y: d and the further ones of the layout."""
        return self.dim + self.layout.extra


class MomentForm(Stack):
    """Computes from moments what the token form computes from tokens. See `Stack` for the arguments."""

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
        if not isinstance(contexts, Draw | Moments):
            rule = "a trace is of a draw, moments, sequences, or features x with labels y"
            received = kind_of(contexts) + ("" if axes(contexts) == 0 else " without labels")
            refuse(rule, received, "Write model.trace(problem.moments(100)) or model.trace(x, y), for example.")
        draw, moments = (contexts, contexts.moments) if isinstance(contexts, Draw) else (None, contexts)
        self._check(moments)
        return Trace(self, moments.gram_of(self.layout), draw)  # type: ignore[arg-type]

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
        counted = self.dim + self.layout.counted
        gram, nothing = moments.gram_of(self.layout), np.zeros((len(moments), counted), moments.dtype)
        evaluation = engines.resolve(engine).evaluate(
            self.kernel, gram, nothing, counted=counted, weights=True, gradient=False, threads=threads
        )
        assert evaluation.weights is not None
        return evaluation.weights

    def evaluate(
        self,
        moments: Moments,
        target: ArrayLike,
        *,
        metric: ArrayLike | None = None,
        weights: bool = False,
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
            weights: Whether to return w_hat too, [B, d], or [B, d + 1] for tokens with a constant.
            gradient: Whether to compute the gradient with respect to `kernel` too.
            ceiling: Losses above it enter the gradient by their logarithm.
            engine: Where it is computed; None for the current engine.
            threads: How many threads; None for the default.

        Returns:
            Losses, and the weights and the gradient if asked for.
        """
        self._check(moments)
        counted = self.dim + self.layout.counted
        full = np.ndim(target) == 2 and np.shape(target)[1] == counted
        goal = array("target", target, (len(moments), counted if full else self.dim)).astype(moments.dtype, copy=False)
        weight = None if metric is None else np.asarray(real("metric", metric), moments.dtype)
        if not full:
            goal, weight = self.layout.target(goal), self.layout.metric(weight)
        return engines.resolve(engine).evaluate(
            self.kernel,
            moments.gram_of(self.layout),
            goal,
            metric=weight,
            counted=counted,
            weights=weights,
            ceiling=number("ceiling", ceiling),
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
        faster: use `model.astype(np.float32)` for the fastest. Steps with gradients on a problem of your own share
        sequences: see docs/explanations/own-problems.md.

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
            rule = f"a model for dimension {self.dim} needs a problem of that dimension"
            refuse(rule, problem, f"Pass Problem(dim={self.dim}, ...).")
        target = None if target is None else choice("target", target, ("ridge", "task"))
        key, (count, first), dtype = make_key(seed, stream, step), check_sequences(sequences, first), self.family.dtype
        ceiling, engine = number("ceiling", ceiling), engines.resolve(engine)
        ask = Ask(self.layout, precision(dtype), target, ceiling, gradient, unadjusted, engine, threads)
        return problem.step(self.kernel, key, count, first, ask)

    def _check(self, moments: Moments) -> None:
        if not isinstance(moments, Moments):
            refuse("a model takes Moments", kind_of(moments), "Use draw.moments or Moments.from_tokens.")
        if moments.dim != self.dim:
            rule = f"a model for dimension {self.dim} takes moments of dimension {self.dim}"
            refuse(rule, f"dimension {moments.dim}", "Use a problem or a model of the same dimension.")


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
            The tokens, [L+1, B, n+m, D]: the context first, then the queries (x, 0). A layout with the coordinate
            `ratio` has one more context token after the n examples.
        """
        x_ = array("x", x, ("B", "n", self.dim))
        batch, n = x_.shape[:2]
        y_ = array("y", y, (batch, n))
        asked = array("queries", queries, (batch, "m", self.dim))
        context = self.layout.context_tokens(x_, y_.astype(x_.dtype, copy=False))
        none = np.zeros(asked.shape[:2], asked.dtype)
        e = np.concatenate([context, self.layout.tokens(asked, none, float(self.layout.counted))], axis=1)
        trace = [e]
        share = 1 / n if self.layout.attention == "mean" else 1.0
        with np.errstate(all="ignore"):  # a model that explodes gives infinity; `predict` says so
            for P, Q in zip(self.P, self.Q, strict=True):
                context = e[:, : n + self.layout.opening]
                scores = np.einsum("bjc,kcd,bid->bkij", context, Q, e, optimize=True)
                e = e + share * np.einsum("bkij,kcd,bjd->bic", scores, P, context, optimize=True)
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
        single = x_.ndim == 2 and y_.ndim == 1
        if x_.ndim == 2 and asked.ndim == 1:
            rule = f"queries of one context must have shape (m, {self.dim})"
            refuse(rule, f"shape {asked.shape}", "For a single query, pass queries[None].")
        if single:
            x_ = array("x", x_, ("n", self.dim))[None]
            y_ = array("y", y_, (x_.shape[1],))[None]
            asked = array("queries", asked, ("m", self.dim))[None]
        predictions = -self.tokens(x_, y_, asked)[-1, :, x_.shape[1] + self.layout.opening :, self.width]
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
