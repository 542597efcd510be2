"""Problems as data sets of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from ridgeformer.engine.law import Layout
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.problems import BaseProblem
from ridgeformer.validation import choice, integer


class MomentBatch(NamedTuple):
    """A batch of contexts in moment form; `moment_loss(module, *batch[:2], metric=batch.metric)` is its loss.

    Attributes:
        gram: Gram matrices of the tokens, [B, D, D]. By default the tokens are (x, y), and D = d + 1.
        target: The weights of the oracle, which knows the noise level, [B, d]; the tasks where there is no oracle.
        metric: The covariance of the queries, [d, d] or [B, d, d]; None for the identity.
        task: The task vectors, [B, d].
    """

    gram: Tensor
    target: Tensor
    metric: Tensor | None
    task: Tensor


class TokenBatch(NamedTuple):
    """A batch of sequences token by token; `token_loss(module, *batch)` is its loss.

    Attributes:
        x: Features of the contexts, [B, n, d].
        y: Labels of the contexts, [B, n].
        queries: Features of the queries, [B, m, d].
        answers: Their labels without noise, [B, m].
    """

    x: Tensor
    y: Tensor
    queries: Tensor
    answers: Tensor


class ProblemDataset(IterableDataset):
    """Batches of fresh sequences of a problem; use `DataLoader(dataset, batch_size=None)`.

    Batch k depends on the seed and on k alone. With W workers, worker w draws the batches w, w + W, ..., so that a
    `DataLoader` gives the same batches in the same order for every number of workers.

    Args:
        problem: The distribution of sequences.
        batch: How many sequences a batch has.
        form: `moments` for `MomentBatch`, or `tokens` for `TokenBatch`.
        batches: How many batches there are; None for no end.
        first: The number of the first batch, with which an interrupted loop goes on.
        seed: The seed.
        stream: A number that tells independent streams of one seed apart, such as training and test.
        queries: How many queries a sequence has in token form.
        dtype: float32 or float64.
        layout: In moment form, the layout of the model that takes the batches, `model.layout`: models with attention by
            mean, or with tokens that hold more than (x, y), need it. None for sums over tokens (x, y).
    """

    def __init__(
        self,
        problem: BaseProblem,
        batch: int,
        *,
        form: Literal["moments", "tokens"] = "moments",
        batches: int | None = None,
        first: int = 0,
        seed: int = 0,
        stream: int = 0,
        queries: int = 1,
        dtype: torch.dtype = torch.float32,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(problem, BaseProblem):
            refuse("a data set needs a problem", kind_of(problem), 'Pass Problem(noise="uniform(0,5)").')
        choice("the form", form, ("moments", "tokens"))
        if dtype not in (torch.float32, torch.float64):
            refuse("the dtype must be torch.float32 or torch.float64", shown(dtype), "Choose one of these.")
        if form == "tokens" and not problem.lengths.fixed:
            refuse(
                "token form needs contexts of one length",
                f"n = {problem.lengths}, which would be filled up with tokens that count as examples",
                'Use form="moments", or a problem with one context length.',
            )
        if layout is not None and not isinstance(layout, Layout):
            refuse("the layout must be a Layout", shown(layout), "Pass model.layout.")
        self.problem, self.form, self.dtype = problem, form, dtype
        self.layout = Layout() if layout is None else layout
        self.batch = integer("batch", batch)
        self.batches = None if batches is None else integer("batches", batches)
        self.first, self.queries = integer("first", first, 0), integer("queries", queries)
        self.key: dict[str, Any] = {"seed": integer("seed", seed, 0), "stream": integer("stream", stream, 0)}

    def __iter__(self) -> Iterator[MomentBatch | TokenBatch]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        step = self.first + worker
        while self.batches is None or step < self.first + self.batches:
            yield self.at(step)
            step += workers

    def at(self, number: int) -> MomentBatch | TokenBatch:
        """Return one batch.

        Args:
            number: Its number.

        Returns:
            The batch.
        """
        if self.form == "tokens":
            tokens = self.problem.sequences(self.batch, step=number, queries=self.queries, **self.key)
            return TokenBatch(*map(self._tensor, (tokens.x, tokens.y, tokens.queries, tokens.answers)))
        dtype = np.float32 if self.dtype is torch.float32 else np.float64
        sums = self.layout.coordinate != "none"
        draw = self.problem.moments(self.batch, step=number, dtype=dtype, sums=sums, **self.key)
        metric = None if draw.metric is None else self._tensor(draw.metric)
        gram = draw.moments.gram_of(self.layout)
        return MomentBatch(self._tensor(gram), self._tensor(draw.ridge), metric, self._tensor(draw.task))

    def _tensor(self, value: Any) -> Tensor:
        """A copy, because what a problem draws is read-only; it keeps the order in memory."""
        return torch.from_numpy(np.array(value, subok=False, order="K")).to(self.dtype)
