"""One call of `train` or `train_many`: runs after what they are grown from, progress reports, a time limit."""

from __future__ import annotations

import functools
import platform
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ridgeformer import engine as engines
from ridgeformer.evaluation import Result, evaluate
from ridgeformer.evaluation.comparison import floor_and_error
from ridgeformer.evaluation.table import ratio, without_rounding
from ridgeformer.exact import const_loss
from ridgeformer.predictors import ConstRR
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.training.callbacks import Callback, TrainingProgress
from ridgeformer.training.descent import descend_and_record
from ridgeformer.training.history import Point
from ridgeformer.training.job import Found, Job, Step
from ridgeformer.training.journal import Journal
from ridgeformer.training.paper import train_as_the_paper
from ridgeformer.training.protocols import Paper, Search
from ridgeformer.training.results import Status, Training, training_of_record
from ridgeformer.training.runs import Folder, Runs
from ridgeformer.training.search import search
from ridgeformer.training.spec import Spec, estimate_seconds, parents, with_ancestors

__all__ = ["Session"]

RARE = 0.01  # a share of sequences that explode, below which the others are worth a remark


class Session:
    """Trains specs with what they need first, and reports how far it has come.

    Args:
        runs: Where finished runs are found and stored.
        callbacks: Are told about every run and every piece of work.
        threads: Threads of the engine; None for all.
        specs: All that will be trained; what they need is added.
    """

    def __init__(self, runs: Runs, callbacks: Sequence[Callback], threads: int | None, specs: Sequence[Spec]) -> None:
        self.runs, self.callbacks, self.threads = runs, callbacks, threads
        if isinstance(runs, Folder):
            for spec in specs:
                spec.problem.check_named()
        self.began = time.monotonic()
        needed = {other.name: other for spec in specs for other in with_ancestors(spec)}
        self.costs = {name: estimate_seconds(spec) for name, spec in needed.items()}
        self.finished: dict[str, Training] = {}
        self.lineages: dict[str, set[str]] = {}  # of a finished run: itself and all that it was grown from
        seconds = [s.protocol.seconds for s in specs if isinstance(s.protocol, Search) and s.protocol.seconds]
        self.deadline = self.began + seconds[0] if seconds else None

    def train(self, spec: Spec) -> Training:
        """Return a run, from the store or by training it after all that it is grown from.

        Args:
            spec: One of the specs that the session was made for.

        Returns:
            The finished run.
        """
        for other in with_ancestors(spec):
            if other.name in self.finished:
                continue
            with engines.one_blas_thread():
                kept = self.runs.find(other.name, other.as_dict())
                before = [self.finished[parent.name] for parent in parents(other)]
                stored = kept and training_of_record(
                    other, *kept, self.runs.where(other.name), self.runs.course(other.name, kept[1])
                )
                self.finished[other.name] = stored or self._train(other, before)
                self.lineages[other.name] = {other.name}.union(*(self.lineages[t.spec.name] for t in before))
        return self.finished[spec.name]

    def _train(self, spec: Spec, before: list[Training]) -> Training:
        made_with = _made_with(self.threads)
        # Threads and versions of Python change no bits.
        writer = {name: made_with[name] for name in ("ridgeformer", "engine")}
        journal = self.runs.journal(spec.name, spec.as_dict(), writer, spec.init)
        for callback in self.callbacks:
            callback.on_start(spec)
        try:
            found = self._search(spec, before, journal)
            result = evaluate(spec.problem, found.model, sequences=spec.sequences)
        except KeyboardInterrupt:
            journal.write()
            raise
        status, message = _status(spec, found, result)
        ancestors = set[str]().union(*(self.lineages[other.spec.name] for other in before))
        training = Training(
            model=found.model,
            spec=spec,
            status=status,
            message=message,
            result=result,
            points=tuple(map(Point._make, journal.history)),
            seconds=journal.seconds,
            total_seconds=journal.seconds + sum(self.finished[name].seconds for name in ancestors),
            made_with=made_with,
            folder=self.runs.where(spec.name),
            course=found.course,
        )
        self.runs.store(spec.name, found.model, training.record(), journal, found.course)
        for callback in self.callbacks:
            callback.on_end(training)
        return training

    def _search(self, spec: Spec, before: list[Training], journal: Journal) -> Found:
        models = {(t.spec.family, t.spec.layers): t.model for t in before}
        simpler = spec.family.contains
        protocol = spec.protocol if isinstance(spec.protocol, Search) else Search()
        job = Job(
            problem=spec.problem,
            family=spec.family,
            layers=spec.layers,
            heads=spec.heads,
            seed=spec.seed,
            effort=protocol.effort,
            caution=protocol.caution,
            precision=protocol.precision,
            shallower=models.get((spec.family, spec.layers - 1)),
            simpler=models.get((simpler, spec.layers)) if simpler else None,
            journal=journal,
            threads=self.threads,
            layout=spec.layout,
            init=spec.init,
        )

        def report(step: Step) -> None:
            self._report(spec, step)

        if isinstance(spec.protocol, Paper):
            return train_as_the_paper(job, spec.protocol, report)
        if not isinstance(spec.protocol, Search):
            return descend_and_record(job, spec.protocol, report)
        return search(job, report, self._deadline(spec))

    def _deadline(self, spec: Spec) -> float | None:
        """A run's part of the time that is left: what it costs, of all that is still to be done."""
        if self.deadline is None:
            return None
        left = sum(cost for name, cost in self.costs.items() if name not in self.finished)
        now = time.monotonic()
        return now + max(self.deadline - now, 0.0) * self.costs[spec.name] / left

    def _report(self, spec: Spec, step: Step) -> None:
        total = sum(self.costs.values())
        done = sum(self.costs[name] for name in self.finished) + step.fraction * self.costs[spec.name]
        seconds = time.monotonic() - self.began
        share = min(done / total, 1.0)
        remaining = seconds * (1 - share) / share if share else float("inf")
        rows: list[dict[str, float]] = [{"loss": step.loss}]
        if step.rows:
            floor, _ = floor_and_error(spec.problem, spec.sequences, 0)  # the one that the result will have
            rows = [{**row, "ratio": ratio(row["adjusted_loss"], floor)} for row in step.rows]
        for row in rows:
            now = TrainingProgress(spec, step.phase, share, row["loss"], seconds, remaining, row)
            for callback in self.callbacks:
                callback.on_step(now)


def _status(spec: Spec, found: Found, result: Result) -> tuple[Status, str]:
    # A model may be close to 0, whose loss on a sample is not exactly that of predicting 0.
    nothing, loss = spec.problem.signal / 2, result.unadjusted
    worse = not loss < 1.1 * nothing or not np.isfinite(loss)
    if found.lost or worse:
        above = f"its unadjusted loss of {loss:.3g} is above that of predicting 0 ({nothing:.4g}); " if worse else ""
        return "diverged", f"{above}{found.message}{_advice(spec, found, result)}"
    more = "; more effort may gain more" if isinstance(spec.protocol, Search) and not found.converged else ""
    tail = f"{more}; {result.exploded} of {result.sequences:,} fresh sequences explode" if result.exploded else more
    simple = _simple_loss(spec.problem)
    if result.loss - 2 * result.error > 1.01 * simple:
        tail += f"; ConstRR is better, with a loss of {without_rounding(simple):.4g}"
    return "converged" if found.converged else "budget reached", found.message + tail


def _advice(spec: Spec, found: Found, result: Result) -> str:
    """What may help a run that diverged."""
    rate, clip = (getattr(spec.protocol, name, None) for name in ("rate", "clip"))
    if rate is None:
        return ""
    if not found.lost and 0 < result.exploded < RARE * result.sequences:
        number = f"{result.exploded} of {result.sequences:,}"
        return f"; only {number} fresh sequences explode, which a search, the default protocol, avoids"
    return f"; a rate of {rate / 10:.3g}{'' if clip is None else f' with a clip of {clip:.3g}'} may help"


@functools.lru_cache(maxsize=16)
def _simple_loss(problem: BaseProblem) -> float:
    """The loss of ConstRR, which needs no training: exact on isotropic problems, elsewhere from few sequences."""
    if isinstance(problem, Problem) and problem.is_isotropic:
        return const_loss(problem)
    return evaluate(problem, ConstRR.tune(problem, sequences=2000), sequences=5000, with_floor=False).loss


def _made_with(threads: int | None) -> dict[str, Any]:
    from ridgeformer import __version__  # known by now, whether or not the package is installed

    return {
        "ridgeformer": __version__,
        "engine": engines.current().name,
        "threads": threads or engines.default_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
