"""The moment form of a linear transformer: weights, losses and gradients from the moments of contexts, by an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import PAPER_LAYOUT, Engine, Evaluation, Key, Layout, Target
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.stack import Stack
from ridgeformer.models.trace import Trace
from ridgeformer.moments import Moments
from ridgeformer.problems import BaseProblem, Draw, Sequences
from ridgeformer.validation import array, choice, number, real

__all__ = ["MomentForm", "gram_of"]

Float = NDArray[np.floating[Any]]


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
            refuse(
                "a trace is of a draw, moments, sequences, or features x with labels y",
                kind_of(contexts) + ("" if np.ndim(contexts) == 0 else " without labels"),
                "Write model.trace(problem.moments(100)) or model.trace(x, y), for example.",
            )
        draw, moments = (contexts, contexts.moments) if isinstance(contexts, Draw) else (None, contexts)
        self._check(moments)
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
            refuse(
                f"a model for dimension {self.dim} needs a problem of that dimension",
                problem,
                f"Pass Problem(dim={self.dim}, ...).",
            )
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
            refuse("a model takes Moments", kind_of(moments), "Use draw.moments or Moments.from_tokens.")
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
    if layout == PAPER_LAYOUT:
        return moments.gram
    if layout.coordinate != "none" and moments.sums is None:
        refuse(
            "tokens with a further coordinate need the sums of the tokens",
            "moments without them",
            "Use Moments.from_tokens, or problem.moments(..., sums=True).",
        )
    return layout.gram(np.asarray(moments.gram), moments.context, moments.sums)
