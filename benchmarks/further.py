"""Train the shipped models that are not cells of Table 1: deeper ones, small ones for teaching, with less caution.

Usage: python -m benchmarks.further RUNS [PART ...]. The parts are those of `MODELS`, whose runs are stored in the
folder RUNS, and those of `DEEPER`. It goes on where it stopped. Of several seeds the best is shipped: that of least
loss among those that explode least often.

Models with eight to ten layers grow from shipped ones, layer by layer. Small random layers are put into the model with
one layer less, and these starts compete in a search; channels descend towards exact Bayes instead, as in
`benchmarks.discover`. Shipped is the result or a model that it is grown from: that of least loss on other sequences,
among those that explode with a probability of at most 10^-7.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cells import STRETCH, Objective
from benchmarks.discover import descend, grow
from benchmarks.shipped import measure_one
from ridgeformer.engine import Layout
from ridgeformer.evaluation import ExplosionProbability, evaluate
from ridgeformer.files import make_folder
from ridgeformer.loading import load
from ridgeformer.models import LinearTransformer
from ridgeformer.models.families import with_more_heads
from ridgeformer.models.file import save
from ridgeformer.papers.vladymyrov2024.paper import COLUMNS
from ridgeformer.problems import Problem
from ridgeformer.training import Search, train_many
from ridgeformer.training.job import Parent, follow
from ridgeformer.training.search.few_starts import descend_few_starts
from ridgeformer.training.search.many_starts import descend_many_starts
from ridgeformer.training.search.starts import SearchJob
from ridgeformer.training.spec import make_spec
from ridgeformer.zoo import PREFIX, TrainingRecord, name_of
from ridgeformer.zoo.shipped_models import END, MODELS as FOLDER

LEARNT = {"diag": range(1, 5), "gdpp": range(1, 4)}
THREE = {noise: {"diag": (3,), "full": (3,)} for noise in ("uniform(0,0)", "uniform(0,1)")}
NOISY = [noise for noise in COLUMNS if noise != "uniform(0,0)"]
Layers = Mapping[str, Mapping[str, Sequence[int]]]  # by noise and family
MODELS: dict[str, tuple[tuple[int, int], Layers, Search, Sequence[int], dict[str, Any]]] = {
    "d=1": ((1, 10), {"uniform(0,2)": LEARNT}, Search(), (0,), {}),
    "d=2": ((2, 10), {"uniform(0,2)": LEARNT}, Search(), (0,), {}),
    "caution=0.01": ((10, 20), THREE, Search(caution=0.01), (0, 1), {}),
    "caution=0.003": ((10, 20), {"uniform(0,0)": {"diag": (4,)}}, Search(caution=0.003), (0, 1), {}),
}
DEEPER: dict[str, tuple[str, Sequence[int], dict[str, Any], float]] = {  # family, layers, further arguments, effort
    "diag": ("diag", (8, 9, 10), {}, 1.0),
    "full": ("full", (8, 9, 10), {}, 0.25),
    "heads=2": ("diag", (8, 9, 10), {"heads": 2}, 1.0),
    "scratch=4": ("full", (8, 9, 10), {"layout": Layout(scratch=4)}, 0.25),
    "channels(1,6)": ("channels(1,6)", (9, 10), {}, 1.0),
}
TOLERATED, SEQUENCES = 1e-7, 100_000
STRETCHES = {"categorical(1,3)": 1.6, "categorical(1,3,5)": 1.4}  # where the usual one lets models explode too often


def ship(runs: Path, parts: Sequence[str] = (*MODELS, *DEEPER)) -> None:
    """Train the models, and write them into the package.

    Args:
        runs: Where the runs are stored.
        parts: Which ones. Default: all.

    Raises:
        StorageError: The folders cannot be written to.
    """
    for part in parts:
        if part in DEEPER:
            for noise in NOISY:
                deepen(part, noise)
            continue
        size, noises, protocol, seeds, options = MODELS[part]
        given = {"seeds": seeds, "protocol": protocol, "out": runs, "progress": False, **options}
        for noise, chosen in noises.items():
            problem = Problem(*size, noise)
            for family, layers in chosen.items():
                trained = train_many(problem, [family], layers, **given)
                for depth in layers:
                    same = [run for run in trained if run.spec.layers == depth]
                    best = min(same, key=lambda run: (run.exploded, run.loss))
                    made = asdict(TrainingRecord.of_run(best.record()))
                    _write(best.model, made.pop("spec"), made, measure_one(problem, best.model))


@dataclass(frozen=True, eq=False)
class Growth(SearchJob):
    """A search that starts from given models, and from the shallower one with small random layers.

    Attributes:
        given: The given models.
    """

    given: Sequence[LinearTransformer] = ()

    def starts(self, fresh: int, grown: int) -> list[LinearTransformer]:
        """See `SearchJob.starts`; no fresh models."""
        return [*self.given, *super().starts(fresh, grown)[self.times_effort(fresh) :]]


def deepen(part: str, noise: str) -> None:
    """Train the models of one part of `DEEPER` for one noise, and write them into the package.

    Args:
        part: The part.
        noise: The noise.
    """
    problem, (family, depths, options, effort) = Problem(10, 20, noise), DEEPER[part]
    model = _wider(_shipped(family, depths[0] - 1, noise), options)
    for layers in depths:
        search = Search(effort=effort)
        spec = make_spec(problem, family, layers=layers, protocol=search, sequences=SEQUENCES, **options)
        if (path := _path(spec.as_dict())).exists():
            model = load(path)
            continue
        began = time.monotonic()
        ancestors = [model.with_identity(layers - 1)]
        if options:
            ancestors.append(_wider(_shipped(family, layers, noise), options))
        if part.startswith("channels"):
            trained, message = [_towards_bayes(model, noise)], "steps of Gauss and Newton towards exact Bayes"
        else:
            job = Growth(spec, shallower=Parent(model, family), effort=effort, given=ancestors[1:])
            outcome = follow((descend_many_starts if family == "diag" else descend_few_starts)(job), job)
            trained = [one for one in (outcome.model, outcome.reckless) if one is not None]
            message = outcome.message
        seconds = time.monotonic() - began
        model, rare = _best(problem, [*ancestors, *trained])
        new = any(model is one for one in trained)
        kept = "" if new else "; a model it was grown from explodes less often or is as good, and was kept"
        found = evaluate(problem, model, sequences=SEQUENCES, seed=5)
        result = {name: getattr(found, name) for name in ("loss", "error", "floor", "largest", "exploded", "sequences")}
        facts = spec.as_dict()
        if part.startswith("channels"):  # which were not searched for
            facts = {name: facts[name] for name in ("dim", "context", "noise", "family", "layers", "heads")}
        _write(model, facts, {"message": message + kept, **result, "seconds": seconds}, rare)


def _shipped(family: str, layers: int, noise: str) -> LinearTransformer:
    """A shipped model, perhaps one that was written a moment ago."""
    path = FOLDER / family / str(layers) / f"{noise}{END}"
    return load(path if path.exists() else f"{PREFIX}{family}/{layers}/{noise}")


def _wider(model: LinearTransformer, options: Mapping[str, Any]) -> LinearTransformer:
    """The same function with more heads, or with scratch coordinates that are read but hold nothing."""
    arrays, layout = dict(model.family.arrays), options.get("layout", model.layout)
    if "heads" in options:
        fills = {"p": 0.0, "q": 0.1}
        arrays = {name: with_more_heads(value, options["heads"], fills[name]) for name, value in arrays.items()}
    elif "layout" in options:
        place = [model.dim] * layout.scratch
        arrays = {name: np.insert(np.insert(value, place, 0, -1), place, 0, -2) for name, value in arrays.items()}
        columns = arrays["Q"][..., model.dim : -1]
        columns[:] = 0.1 * np.random.default_rng(0).standard_normal(columns.shape)
    return LinearTransformer(type(model.family)(**arrays), model.dim, layout)


def _towards_bayes(model: LinearTransformer, noise: str) -> LinearTransformer:
    """The model with one more layer, after descents on few sequences and on more."""
    few, many = (
        Objective(model.layout, "10", "20", share, seed, noise=noise, stretch=STRETCHES.get(noise, STRETCH))
        for share, seed in ((1.0, 11), (4.0, 12))
    )
    grown = descend(few, grow(model, few, 6, 11), 10, 11)[0]
    return descend(many, grown, 10, 12)[0]


def _best(problem: Problem, models: Sequence[LinearTransformer]) -> tuple[LinearTransformer, ExplosionProbability]:
    """The model of least loss that explodes as rarely as tolerated, else the one that explodes least often."""
    losses = [evaluate(problem, one, sequences=SEQUENCES, seed=1, with_floor=False).loss for one in models]
    measured: list[tuple[LinearTransformer, ExplosionProbability]] = []
    for place in np.argsort(losses, kind="stable"):
        measured.append((models[place], measure_one(problem, models[place])))
        if measured[-1][1].probability <= TOLERATED:
            break
    return min(measured, key=lambda pair: max(pair[1].probability, TOLERATED))


def _path(spec: Mapping[str, Any]) -> Path:
    """The file of a shipped model."""
    return FOLDER / (name_of(spec).removeprefix(PREFIX) + END)


def _write(
    model: LinearTransformer, spec: Mapping[str, Any], result: Mapping[str, Any], rare: ExplosionProbability
) -> None:
    """Write a model as a file of the package."""
    path = _path(spec)
    make_folder(path.parent, "models")
    save(model, path, record={"spec": spec, "result": {**result, "explosions": asdict(rare)}})
    loss, floor = result["loss"], result["floor"]
    print(f"{path.relative_to(FOLDER)}: {loss:.4g}, {loss / floor:.4f} x the floor, {rare}", flush=True)


if __name__ == "__main__":
    ship(Path(sys.argv[1]), sys.argv[2:] or (*MODELS, *DEEPER))
