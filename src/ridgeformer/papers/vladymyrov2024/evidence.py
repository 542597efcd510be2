"""All that the figures and the report show, measured once and stored: they are functions of this, never of live runs.

The parts are `tuned` (what TunedRR was tuned to), `table` (Table 1), `profiles` (loss against the noise level),
`layers` (loss after every layer, all seeds), `layer_profiles` (both) and `iterations` (of AdaRR without a matrix
inverse). Each is a JSON file of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer.evaluation import by_layer, compare, profile_by_layer, profiles
from ridgeformer.files import make_folder, write_whole
from ridgeformer.papers.vladymyrov2024.paper import (
    CATEGORICAL,
    COLUMNS,
    DEPTHS,
    FAMILIES,
    MODEL_ROWS,
    SEEDS,
    Row,
    column,
    problem_of,
)
from ridgeformer.papers.vladymyrov2024.table import Table, baselines, measure
from ridgeformer.predictors import AdaRR, IterativeRR, Predictor, TunedRR
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.zoo import Zoo

__all__ = ["BAYES", "DEEP", "PARTS", "SHOWN", "Curve", "Evidence"]

BAYES = "Bayes predictor"  # its profile is not a floor: it is the best on average, not at every noise level
SHOWN = "uniform(0,5)"  # the problem whose depths, layers and seeds are looked at
DEEP = (SHOWN, *CATEGORICAL)  # profiles of all depths; elsewhere of seven layers
VERSION = 3  # of what is stored: measured again where it is another one
Part = dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """A profile: mean losses by noise level.

    Attributes:
        sigmas: Noise levels, [K].
        losses: Mean losses, [K].
        inside: Whether each level can occur in training, [K].
        exploded: How many sequences exploded, [K].
    """

    sigmas: list[float]
    losses: list[float]
    inside: list[bool]
    exploded: list[int]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Parts that are measured when they are first asked for, and kept in a folder if there is one.

    Attributes:
        zoo: The models.
        folder: Where measurements are kept; None to keep none.
        sequences: How many sequences for the table. Losses by layer and every level of a profile use a fifth of them.
        seed: Seed of the sequences; other than that of the evaluation by which the models were chosen.
        progress: Is called with the name of a part, the number of pieces of work done and that of all.
        again: Parts to be measured even if they are stored.
    """

    zoo: Zoo
    folder: Path | None = None
    sequences: int = 100_000
    seed: int = 1
    progress: Callable[[str, int, int], None] = lambda part, done, total: None
    again: frozenset[str] = frozenset()

    @property
    def fewer(self) -> int:
        """Sequences for losses by layer and for every level of a profile: 20,000 if nothing else was asked for."""
        return max(self.sequences // 5, 2)

    @cached_property
    def tuned(self) -> dict[str, TunedRR]:
        """By noise."""
        return {noise: TunedRR(*numbers) for noise, numbers in self._part("tuned").items()}

    @cached_property
    def table(self) -> Table:
        """Table 1."""
        return Table.from_dict(self._part("table"))

    @cached_property
    def profiles(self) -> dict[str, dict[str, Curve]]:
        """By noise and row (`Full 7`, `TunedRR`, `Bayes predictor`)."""
        return {
            noise: {
                row: Curve(part["sigmas"], losses, part["inside"], part["exploded"][row])
                for row, losses in part["losses"].items()
            }
            for noise, part in self._part("profiles").items()
        }

    @cached_property
    def layers(self) -> dict[str, Any]:
        """On `SHOWN`, by row: the loss after every layer, [seeds, L+1]."""
        return {row: np.array(losses) for row, losses in self._part("layers").items()}

    @cached_property
    def layer_profiles(self) -> Part:
        """On `SHOWN`: sigmas [K], inside [K]; by family, of seven layers, losses and exploded, [seeds, L+1, K] each."""
        found = self._part("layer_profiles")
        arrays = {
            name: {family: np.array(values) for family, values in found[name].items()}
            for name in ("losses", "exploded")
        }
        return {**found, **arrays}

    @cached_property
    def iterations(self) -> dict[str, dict[int, float]]:
        """By noise: the loss of the iterative AdaRR after so many iterations; 0 stands for AdaRR itself."""
        return {noise: {int(k): v for k, v in part.items()} for noise, part in self._part("iterations").items()}

    def column(self, noise: str) -> Table:
        """Measure one column of the table by itself, without storing it.

        Args:
            noise: The noise of the column, in any spelling.

        Returns:
            The column, as a table.

        Raises:
            InputError: The table has no such column.
        """
        columns, show = (column(noise),), partial(self.progress, "column")
        return measure(self.zoo, columns=columns, sequences=self.sequences, seed=self.seed, progress=show)

    def measure(self, parts: tuple[str, ...] | None = None) -> None:
        """Measure parts, or find them stored.

        Args:
            parts: Names of parts; None for all.
        """
        for part in tuple(PARTS) if parts is None else parts:
            getattr(self, part)

    @cached_property
    def fingerprint(self) -> str:
        """Of the models and of how they are measured: stored parts with another one are measured again."""
        digest = hashlib.sha256(f"{VERSION} {self.sequences} {self.seed}".encode())
        for (cell, seed), model in sorted(self.zoo.models.items(), key=str):
            digest.update(f"{cell} {seed}".encode())
            for name, value in model.family.arrays.items():
                digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def _part(self, name: str) -> Part:
        place = None if self.folder is None else self.folder / f"{name}.json"
        kept = _read(place) if place is not None and name not in self.again else None
        if kept is not None and kept.get("fingerprint") == self.fingerprint:
            found: Part = kept["found"]
            return found
        if place is not None:
            make_folder(place.parent, "measurements")
        self.progress(name, 0, 1)
        found = PARTS[name](self, lambda done, total: self.progress(name, done, total))
        if place is not None:
            write_whole(place, json.dumps({"fingerprint": self.fingerprint, "found": found}).encode())
        return found


def _read(place: Path) -> Part | None:
    """A stored part; one that is damaged is measured again."""
    try:
        found = json.loads(place.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "found" in found else None


def _tuned(evidence: Evidence, progress: Callable[[int, int], None]) -> Part:
    from concurrent.futures import ThreadPoolExecutor

    from ridgeformer.engine import default_threads

    shares = [COLUMNS[i :: default_threads()] for i in range(min(default_threads(), len(COLUMNS)))]
    with ThreadPoolExecutor(len(shares)) as pool:
        tuned = pool.map(lambda share: TunedRR.tune_all([problem_of(noise) for noise in share]), shares)
        found = {
            noise: best
            for share, many in zip(shares, tuned, strict=True)
            for noise, best in zip(share, many, strict=True)
        }
    return {noise: [found[noise].factor, found[noise].ceiling] for noise in COLUMNS}


def _table(evidence: Evidence, progress: Callable[[int, int], None]) -> Part:
    found = measure(
        evidence.zoo, sequences=evidence.sequences, seed=evidence.seed, tuned=evidence.tuned, progress=progress
    )
    return found.as_dict()


def _profiles(evidence: Evidence, progress: Callable[[int, int], None]) -> Part:
    found = {}
    for done, noise in enumerate(COLUMNS):
        problem = problem_of(noise)
        depths = DEPTHS if noise in DEEP else DEPTHS[-1:]
        rows: dict[str, Predictor] = {
            Row(family, depth).name: evidence.zoo.load(family, depth, noise) for family in FAMILIES for depth in depths
        }
        rows |= {**baselines(problem, evidence.tuned[noise]), BAYES: BayesRR(problem.noise)}
        show = _part_of(progress, done, len(COLUMNS))
        curves = profiles(problem, rows, sequences=evidence.fewer, seed=evidence.seed, progress=show)
        first = next(iter(curves.values()))
        found[noise] = {
            "sigmas": first.sigma.tolist(),
            "inside": first.in_distribution.tolist(),
            "losses": {row: curve.loss.tolist() for row, curve in curves.items()},
            "exploded": {row: curve.exploded.tolist() for row, curve in curves.items()},
        }
    return found


def _layers(evidence: Evidence, progress: Callable[[int, int], None]) -> Part:
    found = {}
    for done, row in enumerate(MODEL_ROWS):
        progress(done, len(MODEL_ROWS))
        found[row.name] = [
            by_layer(
                problem_of(SHOWN), model, sequences=evidence.fewer, seed=evidence.seed, with_floor=False
            ).loss.tolist()
            for model in _every_seed(evidence.zoo, row)
        ]
    return found


def _layer_profiles(evidence: Evidence, progress: Callable[[int, int], None]) -> Part:
    facts: dict[str, Any] = {}
    losses: dict[str, list[Any]] = {family: [] for family in FAMILIES}
    exploded: dict[str, list[Any]] = {family: [] for family in FAMILIES}
    models = [(family, model) for family in FAMILIES for model in _every_seed(evidence.zoo, Row(family, DEPTHS[-1]))]
    end = problem_of(SHOWN).noise.upper
    sigmas = np.union1d(np.linspace(0, end + 1, 21), [end])  # half as many levels as the other profiles: 15 models
    for done, (family, model) in enumerate(models):
        show = _part_of(progress, done, len(models))
        curve = profile_by_layer(
            problem_of(SHOWN), model, sigma=sigmas, sequences=evidence.fewer, seed=evidence.seed, progress=show
        )
        losses[family].append(curve.loss.tolist())
        exploded[family].append(curve.exploded.tolist())
        facts = {"sigmas": curve.sigma.tolist(), "inside": curve.in_distribution.tolist()}
    return {**facts, "losses": losses, "exploded": exploded}


def _part_of(progress: Callable[[int, int], None], done: int, total: int) -> Callable[[int, int], None]:
    """The progress of one of `total` equal pieces of work, of which `done` are done."""
    return lambda part, whole: progress(done * whole + part, total * whole)


def _every_seed(zoo: Zoo, row: Row) -> list[Any]:
    """The models of a row on `SHOWN`, one for each seed."""
    return [zoo.load(row.method, int(row.layers or 0), SHOWN, seed=seed) for seed in SEEDS]


def _iterations(evidence: Evidence, progress: Callable[[int, int], None]) -> Part:
    found = {}
    counts = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 100, 120, 150, 200, 500)
    for done, noise in enumerate(DEEP[:2]):
        progress(done, 2)
        rows: Mapping[str, Predictor] = {"0": AdaRR()} | {str(count): IterativeRR(count) for count in counts}
        count = max(evidence.sequences // 10, 2)
        results = compare(problem_of(noise), rows, sequences=count, seed=evidence.seed, with_floor=False)
        found[noise] = {name: result.loss for name, result in results.items()}
    return found


PARTS: dict[str, Callable[[Evidence, Callable[[int, int], None]], Part]] = {
    "tuned": _tuned,
    "table": _table,
    "profiles": _profiles,
    "layers": _layers,
    "layer_profiles": _layer_profiles,
    "iterations": _iterations,
}
