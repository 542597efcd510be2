"""Train a model, or many: the runs that are needed first, one after another, stored if there is a folder.

>>> from ridgeformer import Problem, train
>>> result = train(Problem(dim=3, context=6, noise="uniform(0,2)"), "gdpp", layers=2)
>>> result.status, result.model
('converged', LinearTransformer(gdpp, dim=3, layers=2, heads=1))
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer import engine as engines
from ridgeformer._version import __version__
from ridgeformer.engine import Layout
from ridgeformer.errors import refuse, shown
from ridgeformer.evaluation import Loss, compare, evaluate, floor
from ridgeformer.evaluation.explosions import why_unknown
from ridgeformer.exact import const_loss
from ridgeformer.losses import ratio, without_rounding
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import ConstRR
from ridgeformer.problems import BaseProblem, ByDimension
from ridgeformer.training.callbacks import Display
from ridgeformer.training.job import AnyCallback, Callback, Job, Outcome, Parent, Step, TrainingProgress, as_callbacks
from ridgeformer.training.results import Training, TrainingPoint, TrainingStatus, training_of_record
from ridgeformer.training.runs import Runs
from ridgeformer.training.spec import Protocol, Spec, make_spec, with_ancestors
from ridgeformer.training.store import Folder, Journal
from ridgeformer.validation import integer, keywords, listed

Out = str | os.PathLike[str] | Folder | None
COMPARED = 5000  # sequences on which the loss of ConstRR is measured
RARE = 0.01  # a share of sequences that explode, below which the others are worth a remark


class Session:
    """Trains specs with what they need first, and reports how far it has come.

    Args:
        out: The store of finished runs, or its folder; None to store nothing.
        callbacks: Are called for every run and every piece of work.
        threads: Threads of the engine; None for all.
        specs: All that will be trained; what they need is added.
    """

    def __init__(self, out: Out, callbacks: Sequence[Callback], threads: int | None, specs: Sequence[Spec]) -> None:
        self.store = out if out is None or isinstance(out, Folder) else Folder(out)
        self.callbacks, self.threads = callbacks, None if threads is None else integer("threads", threads, 1, 1024)
        for spec in specs if self.store else ():
            spec.problem.check_named()  # one without a name could not be read back
        self.began = time.monotonic()
        needed = {run_spec.name: run_spec for spec in specs for run_spec in with_ancestors(spec)}
        self.costs = {name: spec.protocol.cost(spec) for name, spec in needed.items()}
        self.finished: dict[str, Training] = {}
        self.lineages: dict[str, set[str]] = {}  # of a finished run: itself and all that it was grown from
        limits = [limit for spec in specs if (limit := spec.protocol.time_limit) is not None]
        self.deadline = self.began + limits[0] if limits else None

    def train(self, spec: Spec) -> Training:
        """Return a run, from the store or by training it after all that it is grown from.

        Args:
            spec: One of the specs that the session was made for.

        Returns:
            The finished run.
        """
        for needed in with_ancestors(spec):
            if needed.name not in self.finished:
                parents = [self.finished[parent.name] for parent in needed.protocol.needs(needed)]
                lineages = (self.lineages[parent.spec.name] for parent in parents)
                self.lineages[needed.name] = {needed.name}.union(*lineages)
                with engines.one_blas_thread():
                    stored = self.store.find(needed) if self.store else None
                    folder = self.store.place(needed) if self.store else None
                    loaded = stored and training_of_record(needed, *stored, folder)
                    self.finished[needed.name] = loaded or self._train(needed, parents, folder)
        return self.finished[spec.name]

    def _train(self, spec: Spec, parents: list[Training], folder: Path | None) -> Training:
        made_with = {
            "ridgeformer": __version__,
            "engine": engines.current().name,
            "threads": self.threads or engines.default_threads(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        # Threads and versions of Python change no bits.
        writer = {name: made_with[name] for name in ("ridgeformer", "engine")}
        journal = self.store.journal(spec, writer) if self.store else Journal()
        for callback in self.callbacks:
            callback.on_start(spec)
        try:
            outcome = spec.protocol.run(self._job(spec, parents, journal))
            result = evaluate(spec.problem, outcome.model, sequences=spec.sequences)
        except KeyboardInterrupt:
            journal.write()
            raise
        status, message = _status(spec, outcome, result)
        ancestors = self.lineages[spec.name] - {spec.name}
        training = Training(
            model=outcome.model,
            spec=spec,
            status=status,
            message=message,
            result=result,
            points=tuple(map(TrainingPoint._make, journal.history)),
            seconds=journal.seconds,
            total_seconds=journal.seconds + sum(self.finished[name].seconds for name in ancestors),
            made_with=made_with,
            folder=folder,
            course=outcome.course,
            actual_family=outcome.family or spec.family.name,
            price=outcome.price,
        )
        if self.store:
            self.store.store(training)
        for callback in self.callbacks:
            callback.on_end(training)
        return training

    def _job(self, spec: Spec, parents: list[Training], journal: Journal) -> Job:
        """The job of a run; it gets a share of the remaining time in proportion to its estimated cost."""
        models = {(run.spec.family, run.spec.layers): Parent(run.model, run.actual_family) for run in parents}
        shallower = models.get((spec.family, spec.layers - 1))
        simpler = None if spec.family.contains is None else models.get((spec.family.contains, spec.layers))
        deadline = None
        if self.deadline is not None:
            left = sum(cost for name, cost in self.costs.items() if name not in self.finished)
            now = time.monotonic()
            deadline = now + max(self.deadline - now, 0.0) * self.costs[spec.name] / left
        report = functools.partial(self._report, spec)
        return Job(spec, journal, self.threads, report, deadline, shallower, simpler)

    def _report(self, spec: Spec, step: Step) -> None:
        if not self.callbacks:
            return
        total = sum(self.costs.values())
        done = sum(self.costs[name] for name in self.finished) + step.fraction * self.costs[spec.name]
        seconds = time.monotonic() - self.began
        share = min(done / total, 1.0)
        remaining = seconds * (1 - share) / share if share else float("inf")
        has_floor, signal = spec.problem.best_predictor() is not None, spec.problem.signal
        least = floor(spec.problem, sequences=spec.sequences).loss if has_floor else math.nan  # that of the result
        for row in step.rows or [{"loss": step.loss}]:
            adjusted = row.get("adjusted_loss", step.loss if spec.protocol.adjusted else math.nan)
            record = {**row, "ratio": ratio(adjusted, least, signal)}
            now = TrainingProgress(spec, step.phase, share, row["loss"], seconds, remaining, record)
            for callback in self.callbacks:
                callback.on_step(now)


def _status(spec: Spec, outcome: Outcome, result: Loss) -> tuple[TrainingStatus, str]:
    # A model may be close to 0, whose loss on a sample is not exactly that of predicting 0.
    nothing, loss = spec.problem.signal / 2, result.unadjusted
    worse = not loss < 1.1 * nothing or not np.isfinite(loss)
    if outcome.lost or worse:
        above = f"its unadjusted loss of {loss:.3g} is above that of predicting 0 ({nothing:.4g}); " if worse else ""
        return "diverged", f"{above}{outcome.message}{_advice(spec, outcome, result)}"
    more = "" if outcome.converged else spec.protocol.remedy
    tail = f"{more}; {result.exploded} of {result.sequences:,} fresh sequences explode" if result.exploded else more
    tail += _better_baseline(spec.problem, outcome.model, result)
    if spec.problem.noise is not None and spec.problem.noise.per_token:
        tail += f"; its explosion probability is {why_unknown(spec.problem)}"
    return "converged" if outcome.converged else "budget reached", outcome.message + tail


def _advice(spec: Spec, outcome: Outcome, result: Loss) -> str:
    """Return what may help a run that diverged."""
    advice = spec.protocol.advice()
    if outcome.lost or not 0 < result.exploded < RARE * result.sequences:
        return advice
    rare = f"; only {result.exploded} of {result.sequences:,} fresh sequences explode, and the others have a loss of "
    rare += f"{result.unexploded:.4g}"
    if advice:
        return rare + ": a search, the default protocol, avoids that"
    return rare + ": very large labels do that to any model that is not linear in y; predictors.Guarded protects it"


def _better_baseline(problem: BaseProblem, model: LinearTransformer, result: Loss) -> str:
    """Return a remark where ConstRR, which needs no training, is better; else nothing.

    Unadjusted losses hold much chance that both share, so they are compared on the same sequences.
    """
    if result.adjusted:
        simple = _const_loss(problem)
        better = result.loss - 2 * result.error > 1.01 * simple
        is_clear = better and without_rounding(simple, problem.signal)  # ConstRR is the oracle where its loss is 0
        return f"; ConstRR is better, with a loss of {simple:.4g}" if is_clear else ""
    pair = compare(problem, {"model": model, "ConstRR": _tuned(problem)}, sequences=COMPARED, with_floor=False)
    difference, error = pair.difference("model", "ConstRR")
    if not difference > 2 * error:
        return ""
    losses = [f"{pair[name].loss:.4g}" for name in ("ConstRR", "model")]
    return f"; ConstRR is better: its unadjusted loss is {losses[0]} where that of the model is {losses[1]}"


@functools.lru_cache(maxsize=16)
def _tuned(problem: BaseProblem) -> ConstRR | ByDimension:
    """ConstRR for a problem, from few sequences where it is not known."""
    tuned = {d: ConstRR.tune(cell, sequences=2000) for d, cell in problem.by_dimension().items()}
    return ByDimension({d: ridge.weights for d, ridge in tuned.items()}) if len(tuned) > 1 else tuned[problem.dim]


@functools.lru_cache(maxsize=16)
def _const_loss(problem: BaseProblem) -> float:
    """The adjusted loss of ConstRR: exact on isotropic problems, elsewhere from few sequences."""
    if problem.is_isotropic:
        return const_loss(problem)
    return evaluate(problem, _tuned(problem), sequences=COMPARED, with_floor=False).loss


SEQUENCES = 100_000
ELSEWHERE = dict.fromkeys(("rate", "steps", "batch"), "protocol=GradientDescent(rate=..., steps=..., batch=...)")


@keywords(**ELSEWHERE)
def train(
    problem: BaseProblem,
    family: str | type[Family] = "diag",
    layers: int = 4,
    heads: int = 1,
    *,
    seed: int = 0,
    protocol: str | Protocol = "search",
    sequences: int = SEQUENCES,
    layout: Layout | Mapping[str, Any] | None = None,
    init: LinearTransformer | None = None,
    out: Out = None,
    callbacks: Sequence[AnyCallback] = (),
    progress: bool = True,
    threads: int | None = None,
) -> Training:
    """Train a linear transformer of a family on a problem: by default, find the best one.

    The search grows a model from shallower ones and from simpler families (Full contains Diag, Diag contains GD++),
    which are trained first and stay candidates to the end: one more layer or a larger family is never worse.

    Args:
        problem: What to train on.
        family: `gdpp`, `diag`, `full`, the name of a family of your own, or a `Family` class.
        layers: Layers of the model, from 1 to 1000; of a looped family those of one repetition, where `model.layers`
            counts all.
        heads: Heads per layer, from 1 to 64.
        seed: Seed of the starts and of the sequences. Runs with the same arguments have the same bits.
        protocol: How to train. `search`, the default, finds the best model; `paper` does what the paper did. To watch
            how a model learns: `GradientDescent`, `SGD`, `Adam` or `GradientFlow`, or by name, with their default
            settings, `descent`, `sgd`, `adam` or `flow`.
        sequences: How many fresh sequences the reported loss is measured on.
        layout: What the model's tokens hold beside (x, y), and whether its attention is a sum or a mean: a `Layout`, or
            some of its attributes, such as `{"attention": "mean"}`. What is not given follows from the problem: sums
            where all contexts have the same length; otherwise means, and where the family has room for it, a further
            coordinate that shows the length.
        init: A model to start from, of the same family, layers, heads and layout. A search takes it as a further start.
            None for random starts.
        out: Folder for runs; every model, also those it is grown from, becomes a run in it. Finished runs are reused;
            interrupted runs resume. None keeps everything in memory.
        callbacks: `Callback` objects, such as `CSVLogger("history.csv")`, or functions that are called with a
            `TrainingProgress` after every piece of work. If one raises an error, training stops.
        progress: Whether to show a progress line on stderr. It appears after two seconds, where stderr is a terminal or
            a notebook.
        threads: Threads of the engine; None for all cores. They change no bits.

    Returns:
        The model, its loss, the floor, and how training went.

    Raises:
        InputError: An argument is not allowed.
        StorageError: The folder cannot be written to.
    """
    make = functools.partial(make_spec, problem, family, protocol=protocol, sequences=sequences, layout=layout)
    spec = make(layers=layers, heads=heads, seed=seed, init=init)
    with _listening(callbacks, progress) as listeners:
        return Session(out, listeners, threads, [spec]).train(spec)


@keywords(**ELSEWHERE)
def train_many(
    problem: BaseProblem,
    families: Sequence[str | type[Family]] = ("gdpp", "diag", "full"),
    layers: Iterable[int] = range(1, 8),
    heads: int = 1,
    *,
    seeds: Iterable[int] = (0,),
    protocol: str | Protocol = "search",
    sequences: int = SEQUENCES,
    layout: Layout | Mapping[str, Any] | None = None,
    out: Out = None,
    callbacks: Sequence[AnyCallback] = (),
    progress: bool = True,
    threads: int | None = None,
) -> Runs:
    """Train several models on one problem.

    What one model needs of another is trained once: seven depths cost what the deepest does. Models of one seed see
    the same sequences.

    Args:
        problem: What to train on.
        families: Families, by name or class.
        layers: Depths.
        heads: Heads per layer, from 1 to 64.
        seeds: Seeds; every family and depth is trained with each of them.
        protocol: As for `train`.
        sequences: As for `train`.
        layout: As for `train`.
        out: As for `train`.
        callbacks: As for `train`; fractions and seconds are those of the whole call.
        progress: As for `train`.
        threads: As for `train`.

    Returns:
        A table, and a sequence of one training for each seed, family and depth, in this order: all depths of the first
        family and seed first.

    Raises:
        InputError: An argument is not allowed, or there is nothing to train.
        StorageError: The folder cannot be written to.
    """
    names, depths = listed("families", families, "['diag']"), listed("layers", layers, "range(1, 8)")
    numbers = listed("seeds", seeds, "[0, 1]")
    make = functools.partial(make_spec, problem, heads=heads, protocol=protocol, sequences=sequences, layout=layout)
    specs = [make(family, layers=depth, seed=seed) for seed in numbers for family in names for depth in depths]
    if not specs:
        refuse("there must be something to train", "no family, depth or seed", "Pass at least one of each.")
    with _listening(callbacks, progress) as listeners:
        session = Session(out, listeners, threads, specs)
        return Runs.of(session.train(spec) for spec in specs)


@contextlib.contextmanager
def _listening(callbacks: Sequence[AnyCallback], progress: bool) -> Iterator[list[Callback]]:
    """All callbacks; the progress line is closed at the end, however training ends."""
    if not isinstance(progress, bool):
        refuse("progress must be True or False", shown(progress), "Pass functions as callbacks=[...].")
    listeners = as_callbacks(callbacks)
    if not progress:
        yield listeners
        return
    with contextlib.closing(Display()) as line:
        yield [*listeners, line]
