"""The moment form of a linear transformer: weights, losses and gradients from the moments of contexts, by an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Engine, Evaluation, Key, Target
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.stack import Stack
from ridgeformer.models.trace import Trace
from ridgeformer.moments import Moments
from ridgeformer.problems import BaseProblem, Draw, Sequences
from ridgeformer.validation import array, choice, number, real

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
        evaluation = engine.evaluate(
            self.kernel, self._gram(moments), nothing, counted=counted, weights=True, gradient=False, threads=threads
        ).weights
        assert evaluation is not None
        return evaluation

    def _gram(self, moments: Moments) -> Float:
        """The Gram matrices of this model's tokens."""
        return moments.gram_of(self.layout)

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
            weights=weights,
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
        faster: use `model.astype(np.float32)` for the fastest. Steps with gradients on a problem of your own share
        sequences: see docs/explanations/problems.md.

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
        return problem.step(
            self.kernel,
            sequences,
            Key(seed, stream, step),
            first=first,
            layout=self.layout,
            dtype=self.family.dtype,
            target=target,
            ceiling=number("ceiling", ceiling),
            gradient=gradient,
            unadjusted=unadjusted,
            engine=engine,
            threads=threads,
        )

    def _check(self, moments: Moments) -> None:
        if not isinstance(moments, Moments):
            refuse("a model takes Moments", kind_of(moments), "Use draw.moments or Moments.from_tokens.")
        if moments.dim != self.dim:
            refuse(
                f"a model for dimension {self.dim} takes moments of dimension {self.dim}",
                f"dimension {moments.dim}",
                "Use a problem or a model of the same dimension.",
            )
