"""Training: a problem and a family in, a result out.

>>> from ridgeformer import Problem, train
>>> result = train(Problem(dim=3, context=6, noise="uniform(0,2)"), "gdpp", layers=2)
>>> result.status, result.model
('converged', LinearTransformer(gdpp, dim=3, layers=2, heads=1))
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ridgeformer import engine as engines
from ridgeformer.errors import InputError, refuse
from ridgeformer.evaluation import Result, evaluate
from ridgeformer.files import short
from ridgeformer.models.families import FAMILIES, Family, check_registered
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.noise import check_text, parse
from ridgeformer.predictors.ridge import check_problem
from ridgeformer.problems import Problem
from ridgeformer.training.job import Found, Task
from ridgeformer.training.journal import Journal
from ridgeformer.training.paper import train_as_the_paper
from ridgeformer.training.protocols import NAMES, Paper, Protocol, Search, as_protocol, describe
from ridgeformer.training.runs import AGAIN, FORMAT, VERSION, Folder, Memory, Runs, read_run
from ridgeformer.training.search import search
from ridgeformer.validation import integer
from ridgeformer.values import Value

__all__ = ["Progress", "Session", "Spec", "Training", "load_run", "make_spec", "parse_spec", "train", "train_many"]

Status = Literal["converged", "budget reached", "diverged"]
SEQUENCES = 100_000


@dataclass(frozen=True)
class Spec:
    """Everything that decides a run's bits."""

    problem: Problem
    family: type[Family]
    layers: int
    heads: int
    seed: int
    protocol: Protocol
    sequences: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "dim": self.problem.dim,
            "context": self.problem.context,
            "noise": check_text(self.problem.noise),
            "family": self.family.name,
            "layers": self.layers,
            "heads": self.heads,
            "seed": self.seed,
            "protocol": describe(self.protocol),
            "sequences": self.sequences,
        }

    @functools.cached_property
    def name(self) -> str:
        """A readable name with a hash: what the run's folder is called."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        noise = re.sub(r"[^a-z0-9.]+", "-", str(self.problem.noise).lower()).strip("-")[:40]
        size = f"d{self.problem.dim}n{self.problem.context}"
        parts = [self.family.name, f"{self.layers}x{self.heads}", noise, size, f"s{self.seed}"]
        return "-".join(parts) + "-" + hashlib.sha256(text.encode()).hexdigest()[:10]

    def describe(self) -> str:
        """In words."""
        heads = "" if self.heads == 1 else f", {self.heads} heads"
        return f"{self.family.name}, {self.layers} layer{'s' * (self.layers > 1)}{heads}, {self.problem}"


@dataclass(frozen=True)
class Progress:
    """What a callback is told.

    Attributes:
        run: what is being trained; a model is grown from shallower and poorer ones, which come first.
        phase: the part of it; fraction: of the whole call, from 0 to 1, as far as can be told.
        loss: the training loss now; seconds: since the call began; remaining: seconds to go, estimated.
    """

    run: str
    phase: str
    fraction: float
    loss: float
    seconds: float
    remaining: float


@dataclass(eq=False, repr=False)
class Training(Value):
    """What training gave.

    Attributes:
        model: the model; spec: what was asked for.
        status: `converged`, `budget reached` or `diverged`; message: why.
        result: the adjusted loss on fresh sequences that took no part in training or selection, its tail and the floor.
        history: (phase, sequences used so far, training loss) after every piece of work.
        seconds: for this model alone; total_seconds: with the shallower and poorer models it was grown from.
        made_with: versions, engine and threads.
        folder: where it is stored, if it is.
    """

    model: LinearTransformer
    spec: Spec
    status: Status
    message: str
    result: Result
    history: tuple[tuple[str, int, float], ...]
    seconds: float
    total_seconds: float
    made_with: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def loss(self) -> float:
        """Adjusted loss on fresh sequences."""
        return self.result.loss

    @property
    def floor(self) -> float:
        """The Bayes floor on the same sequences."""
        return self.result.floor

    def __repr__(self) -> str:
        ratio = f", {self.result.ratio:.3g} x the floor" if self.result.ratio < 1e6 else ""
        return (
            f"Training({self.spec.describe()}: {self.status}, loss {self.loss:.4g}{ratio}, {self.total_seconds:.1f} s)"
        )

    def record(self) -> dict[str, Any]:
        """As JSON: what the run's folder holds."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "spec": self.spec.as_dict(),
            "status": self.status,
            "message": self.message,
            "result": self.result.as_dict(),
            "history": [list(point) for point in self.history],
            "seconds": self.seconds,
            "total_seconds": self.total_seconds,
            "made_with": self.made_with,
        }


Callback = Callable[[Progress], None]


def train(
    problem: Problem,
    family: str | type[Family] = "diag",
    layers: int = 4,
    heads: int = 1,
    *,
    seed: int = 0,
    protocol: str | Protocol = "search",
    sequences: int = SEQUENCES,
    out: str | os.PathLike[str] | Runs | None = None,
    callback: Callback = lambda progress: None,
    threads: int | None = None,
) -> Training:
    """Find the best linear transformer of a family for a problem.

    The model is grown: the shallower models of the family and those of the poorer families (GD++ for Diag, Diag for
    Full) are trained first and are candidates to the end: on the sequences that select, one more layer or a richer
    family never comes out worse, unless what it is grown from explodes more often.
    With `out`, a folder, every one of them is a run that lasts: called again, this goes on where it was killed, or
    returns at once what is finished. `sequences` is how many fresh ones the reported loss is measured on.
    """
    spec = make_spec(problem, family, layers, heads, seed, protocol, sequences)
    runs = Memory() if out is None else out if isinstance(out, Memory | Folder) else Folder(out)
    return Session(runs, callback, threads, [spec]).train(spec)


def train_many(
    problem: Problem,
    families: Sequence[str | type[Family]] = ("gdpp", "diag", "full"),
    layers: Iterable[int] = range(1, 8),
    heads: int = 1,
    *,
    seeds: Iterable[int] = (0,),
    protocol: str | Protocol = "search",
    sequences: int = SEQUENCES,
    out: str | os.PathLike[str] | Runs | None = None,
    callback: Callback = lambda progress: None,
    threads: int | None = None,
) -> list[Training]:
    """Train several models on one problem, by seed, family and depth.

    All that one model needs of another is trained once: seven depths cost what the deepest does. Models of one seed see
    the same sequences.
    """
    if isinstance(families, str) or not isinstance(families, Iterable) or not isinstance(layers, Iterable):
        refuse("families and layers must be lists", f"{families!r} and {layers!r}", "Pass ['diag'] and range(1, 8).")
    depths = list(layers)
    specs = [
        make_spec(problem, family, depth, heads, seed, protocol, sequences)
        for seed in seeds
        for family in families
        for depth in depths
    ]
    if not specs:
        refuse("there must be something to train", "no family, depth or seed", "Pass at least one of each.")
    runs = Memory() if out is None else out if isinstance(out, Memory | Folder) else Folder(out)
    session = Session(runs, callback, threads, specs)
    return [session.train(spec) for spec in specs]


def load_run(folder: str | os.PathLike[str]) -> Training:
    """A finished run, from its folder."""
    model, record = read_run(folder)
    try:
        spec = parse_spec(record["spec"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = short(repr(error))
        raise InputError(f"a record must be complete; {folder} has a damaged one ({reason}). {AGAIN}") from error
    return _training(spec, model, record, Path(folder))


class Session:
    """One call: trains specs with what they need first, and reports how far it has come."""

    def __init__(self, runs: Runs, callback: Callback, threads: int | None, specs: Sequence[Spec]) -> None:
        self.runs, self.callback, self.threads = runs, callback, threads
        self.began = time.monotonic()
        needed: dict[str, Spec] = {}
        for spec in specs:
            for other in _needs(spec):
                needed[other.name] = other
        self.costs = {name: _cost(spec) for name, spec in needed.items()}
        self.finished: dict[str, Training] = {}
        self.lineages: dict[str, set[str]] = {}  # of a finished run: itself and all that it was grown from
        seconds = [s.protocol.seconds for s in specs if isinstance(s.protocol, Search) and s.protocol.seconds]
        self.deadline = self.began + seconds[0] if seconds else None

    def train(self, spec: Spec) -> Training:
        """The run, from the store or by training it, after all that it is grown from."""
        for other in _needs(spec):
            if other.name in self.finished:
                continue
            with engines.one_blas_thread():
                kept = self.runs.find(other.name, other.as_dict())
                before = [self.finished[parent.name] for parent in _parents(other)]
                stored = kept and _training(other, *kept, self.runs.where(other.name))
                self.finished[other.name] = stored or self._train(other, before)
                self.lineages[other.name] = {other.name}.union(*(self.lineages[t.spec.name] for t in before))
        return self.finished[spec.name]

    def _train(self, spec: Spec, before: list[Training]) -> Training:
        made_with = _made_with(self.threads)
        # Threads and versions of Python change no bits.
        writer = {name: made_with[name] for name in ("ridgeformer", "engine")}
        journal = self.runs.journal(spec.name, spec.as_dict(), writer)
        try:
            outcome = self._search(spec, before, journal)
            result = evaluate(outcome.model, spec.problem, sequences=spec.sequences)
        except KeyboardInterrupt:
            journal.write()
            raise
        status, message = _status(spec, outcome, result)
        ancestors = set[str]().union(*(self.lineages[other.spec.name] for other in before))
        training = Training(
            model=outcome.model,
            spec=spec,
            status=status,
            message=message,
            result=result,
            history=tuple(journal.history),
            seconds=journal.seconds,
            total_seconds=journal.seconds + sum(self.finished[name].seconds for name in ancestors),
            made_with=made_with,
            folder=self.runs.where(spec.name),
        )
        self.runs.store(spec.name, outcome.model, training.record(), journal)
        return training

    def _search(self, spec: Spec, before: list[Training], journal: Journal) -> Found:
        models = {(t.spec.family, t.spec.layers): t.model for t in before}
        poorer = spec.family.poorer
        protocol = spec.protocol if isinstance(spec.protocol, Search) else Search()
        task = Task(
            problem=spec.problem,
            family=spec.family,
            layers=spec.layers,
            heads=spec.heads,
            seed=spec.seed,
            effort=protocol.effort,
            caution=protocol.caution,
            precision=protocol.precision,
            shallower=models.get((spec.family, spec.layers - 1)),
            poorer=models.get((poorer, spec.layers)) if poorer else None,
            journal=journal,
            report=lambda phase, fraction, loss: self._report(spec, phase, fraction, loss),
            deadline=self._deadline(spec),
            threads=self.threads,
        )
        return train_as_the_paper(task, spec.protocol) if isinstance(spec.protocol, Paper) else search(task)

    def _deadline(self, spec: Spec) -> float | None:
        """A run's part of the time that is left: what it costs, of all that is still to be done."""
        if self.deadline is None:
            return None
        left = sum(cost for name, cost in self.costs.items() if name not in self.finished)
        now = time.monotonic()
        return now + max(self.deadline - now, 0.0) * self.costs[spec.name] / left

    def _report(self, spec: Spec, phase: str, fraction: float, loss: float) -> None:
        total = sum(self.costs.values())
        done = sum(self.costs[name] for name in self.finished) + fraction * self.costs[spec.name]
        seconds = time.monotonic() - self.began
        share = min(done / total, 1.0)
        remaining = seconds * (1 - share) / share if share else float("inf")
        self.callback(Progress(spec.describe(), phase, share, loss, seconds, remaining))


def make_spec(
    problem: Problem,
    family: str | type[Family],
    layers: int,
    heads: int,
    seed: int,
    protocol: str | Protocol,
    sequences: int,
) -> Spec:
    """A spec of checked values."""
    check_problem(problem)
    if isinstance(family, str) and family in FAMILIES:
        family = FAMILIES[family]
    if isinstance(family, str) or not (isinstance(family, type) and issubclass(family, Family)):
        refuse(f"the family must be one of {', '.join(FAMILIES)}", repr(family), "Name one, or pass a Family class.")
    check_registered(family)
    layers, heads = integer("layers", layers, 1, 1000), integer("heads", heads, 1, 64)
    seed, sequences = integer("seed", seed, 0, (1 << 63) - 1), integer("sequences", sequences, 2)
    return Spec(problem, family, layers, heads, seed, as_protocol(protocol), sequences)


def _parents(spec: Spec) -> list[Spec]:
    """The runs that a run is grown from: one layer less, and the poorer family."""
    if isinstance(spec.protocol, Paper):
        return []
    found = []
    if spec.family.poorer is not None:
        most = spec.family.poorer.most_heads
        heads = spec.heads if most is None else min(spec.heads, most)
        found.append(_replace(spec, family=spec.family.poorer, heads=heads))
    if spec.layers > 1:
        found.append(_replace(spec, layers=spec.layers - 1))
    return found


def _replace(spec: Spec, **changes: Any) -> Spec:
    return Spec(**{**{name: getattr(spec, name) for name in Spec.__dataclass_fields__}, **changes})


def _needs(spec: Spec) -> list[Spec]:
    """A run and all it is grown from, each once, each after what it is grown from itself."""
    found: dict[str, Spec] = {}
    waiting = [spec]
    while waiting:
        missing = [parent for parent in _parents(waiting[-1]) if parent.name not in found]
        if missing:
            waiting.append(missing[0])
        else:
            done = waiting.pop()
            found[done.name] = done
    return list(found.values())


def _cost(spec: Spec) -> float:
    """Roughly, the seconds a run takes: for progress only."""
    if isinstance(spec.protocol, Paper):
        return float(spec.protocol.steps * spec.protocol.batch)
    size = spec.problem.dim**2 / 100
    seconds = {"gdpp": 0.15, "diag": 0.85 * spec.layers * (0.6 + 0.4 * size)}
    return spec.protocol.effort * seconds.get(spec.family.name, 2 + 1.2 * spec.layers * spec.heads * (0.4 + 0.6 * size))


def _status(spec: Spec, found: Found, result: Result) -> tuple[Status, str]:
    nothing = spec.problem.dim / 2
    if not result.loss < nothing or not np.isfinite(result.loss):
        return "diverged", f"worse than predicting 0 for everything (a loss of {result.loss:.3g}): {found.message}"
    more = "" if found.converged or isinstance(spec.protocol, Paper) else "; more effort may gain more"
    tail = f"{more}; {result.exploded} of {result.sequences:,} fresh sequences explode" if result.exploded else more
    return "converged" if found.converged else "budget reached", found.message + tail


def _made_with(threads: int | None) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "ridgeformer": version("ridgeformer"),
        "engine": engines.current().name,
        "threads": threads or engines.default_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def parse_spec(spec: dict[str, Any]) -> Spec:
    """A spec from JSON."""
    protocol = dict(spec["protocol"])
    kind = NAMES[protocol.pop("name")]
    problem = Problem(spec["dim"], spec["context"], parse(spec["noise"]))
    rest = (spec["layers"], spec["heads"], spec["seed"], kind(**protocol), spec["sequences"])
    return make_spec(problem, spec["family"], *rest)


def _training(spec: Spec, model: LinearTransformer, record: dict[str, Any], folder: Path | None) -> Training:
    try:
        found = record["result"]
        kinds: dict[str, type] = {"name": str, "estimator": str, "exploded": int, "sequences": int}
        result = Result(**{f: kinds.get(f, float)(found[f]) for f in Result.__dataclass_fields__})
        return Training(
            model=model,
            spec=spec,
            status=record["status"],
            message=str(record["message"]),
            result=result,
            history=tuple((str(phase), int(work), float(loss)) for phase, work, loss in record["history"]),
            seconds=float(record["seconds"]),
            total_seconds=float(record["total_seconds"]),
            made_with=dict(record["made_with"]),
            folder=folder,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        where, reason = folder or "a record", short(repr(error))
        raise InputError(f"a record must be complete; {where} has a damaged one ({reason}). {AGAIN}") from error
