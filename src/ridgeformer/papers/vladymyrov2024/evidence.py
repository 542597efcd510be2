"""The measurements that the figures, the claims and the report show, as parts of the paper that are stored.

`Evidence` gives the stored results their types; it measures nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer import zoo as zoo_package
from ridgeformer.evaluation import compare, explosion_probability
from ridgeformer.files import make_folder
from ridgeformer.papers.paper import Part, Results
from ridgeformer.papers.running import Work
from ridgeformer.papers.vladymyrov2024 import paper
from ridgeformer.papers.vladymyrov2024.table import TableOne, baselines, measure
from ridgeformer.predictors import AdaRR, IterativeRR, Predictor, TunedRR
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.validation import Array, integer
from ridgeformer.zoo import MODELS, PREFIX, Zoo
from ridgeformer.zoo.explosions import SEQUENCES as STORED_WITH, explosions as stored_explosions, prices

BAYES = "Bayes predictor"  # its profile is not a floor: it is the best on average, not at every noise level
SHOWN = "uniform(0,5)"  # the problem whose depths, layers and seeds are looked at
DEEP = (SHOWN, *paper.CATEGORICAL)  # profiles of all depths; elsewhere of seven layers
PRINTED = ("full", 4, "categorical(1,3)")  # the model whose weights the paper prints
SHIPPED = hashlib.sha256(Path(zoo_package.__file__).with_name("zoo.safetensors").read_bytes()).hexdigest()[:16]
Values = dict[str, Any]
Runs = str | None  # a folder of runs, or the shipped models


@dataclass(frozen=True, eq=False)
class Evidence:
    """The results of the parts, with their types.

    Attributes:
        results: The results as they are stored, by the name of the part.
    """

    results: Results

    @property
    def sequences(self) -> int:
        """The number of sequences of the table."""
        return self.table.sequences

    @property
    def fewer(self) -> int:
        """The number of sequences of losses by layer and of every level of a profile: a fifth of the table's."""
        return fewer(self.sequences)

    @cached_property
    def table(self) -> TableOne:
        """Table 1."""
        return TableOne.from_dict(self.results["table"])

    @property
    def profiles(self) -> Values:
        """By noise: sigmas and inside, [K]; and by row (`Full 7`, `TunedRR`, `Bayes predictor`) losses and exploded."""
        return dict(self.results["profiles"])

    def ratio(self, over: tuple[str, int | None], under: tuple[str, int | None], noise: str) -> float:
        """Return the ratio of the adjusted losses of two cells of a column of the table.

        Args:
            over: A family and its depth, or a baseline and None.
            under: The same of the loss that is divided by.
            noise: The noise of the column.

        Returns:
            The ratio.
        """
        return self.table[(*over, noise)].loss / self.table[(*under, noise)].loss

    def curve(self, noise: str, method: str, layers: int | None = None) -> Array:
        """Return the mean loss of a method at every level of a profile, [K]. See `ratio`."""
        return np.array(self.profiles[noise]["losses"][paper.Row(method, layers).name])

    def exploded(self, noise: str, method: str, layers: int | None = None) -> NDArray[np.int64]:
        """Return how many sequences exploded at every level; their losses dominate the mean there. See `ratio`."""
        return np.array(self.profiles[noise]["exploded"][paper.Row(method, layers).name])

    def levels(self, noise: str) -> tuple[Array, NDArray[np.bool_]]:
        """Return the noise levels of the profiles of a problem and whether each can occur, [K] each. See `ratio`."""
        return np.array(self.profiles[noise]["sigmas"]), np.array(self.profiles[noise]["inside"])

    @cached_property
    def layers(self) -> dict[str, Any]:
        """On `SHOWN`, by row: the loss after every layer, [seeds, L+1]."""
        return {row: np.array(losses) for row, losses in self.results["layers"].items()}

    @cached_property
    def layer_profiles(self) -> Values:
        """On `SHOWN`: sigmas [K], inside [K]; by family, of seven layers, losses and exploded, [seeds, L+1, K] each."""
        part = self.results["layer_profiles"]
        arrays = {
            name: {family: np.array(values) for family, values in part[name].items()} for name in ("losses", "exploded")
        }
        return {**part, **arrays}

    @cached_property
    def iterations(self) -> dict[str, dict[int, float]]:
        """By noise: the loss of the iterative AdaRR after a number of iterations; 0 stands for AdaRR itself."""
        return {noise: {int(k): v for k, v in part.items()} for noise, part in self.results["iterations"].items()}

    @cached_property
    def explosions(self) -> list[Values]:
        """One row for every model: what it really is, how often it explodes, and what caution cost."""
        return list(self.results["explosions"])

    @cached_property
    def weights(self) -> dict[str, Any]:
        """Q and P of every layer of the four-layer Full model on categorical(1,3), [4, 11, 11] each."""
        return {name: np.array(values) for name, values in self.results["weights"].items()}


def fewer(sequences: int) -> int:
    """Return the number of sequences of losses by layer and of every level of a profile.

    Args:
        sequences: The number of sequences of the table.

    Returns:
        A fifth of them, at least 2.
    """
    return max(sequences // 5, 2)


@cache
def fingerprint(runs: str) -> str:
    """Compute a fingerprint of models: stored results of other models are measured again.

    Args:
        runs: The folder of runs that the models are from.

    Returns:
        Sixteen hexadecimal digits.
    """
    digest = hashlib.sha256()
    for (cell, seed), model in sorted(_models(runs).models.items(), key=str):
        digest.update(f"{cell} {seed}".encode())
        for name, value in model.family.arrays.items():
            digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()[:16]


def _models(runs: str | None) -> Zoo:
    return paper.models_of(None if runs is None else Path(runs))


def tuned(work: Work) -> Values:
    """Tune TunedRR on every problem. See `Part`."""
    from concurrent.futures import ThreadPoolExecutor

    from ridgeformer.engine import default_threads

    shares = [paper.COLUMNS[i :: default_threads()] for i in range(min(default_threads(), len(paper.COLUMNS)))]
    with ThreadPoolExecutor(len(shares)) as pool:
        many = pool.map(lambda share: TunedRR.tune_all([paper.problem_of(noise) for noise in share]), shares)
        best = {
            noise: rr for share, rrs in zip(shares, many, strict=True) for noise, rr in zip(share, rrs, strict=True)
        }
    return {noise: [best[noise].factor, best[noise].ceiling] for noise in paper.COLUMNS}


def _tuned(work: Work) -> dict[str, TunedRR]:
    return {noise: TunedRR(*numbers) for noise, numbers in work.results["tuned"].items()}


def table(work: Work, sequences: int = 100_000, seed: int = 1, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Measure Table 1. See `Part`; `models` is the fingerprint of the models of `runs`."""
    sequences, seed = integer("sequences", sequences, 20), integer("seed", seed, 0)
    zoo = _models(runs)
    return measure(zoo, sequences=sequences, seed=seed, tuned=_tuned(work), progress=work.progress).as_dict()


def profiles(work: Work, sequences: int = 100_000, seed: int = 1, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Measure losses by noise level, of all methods on all problems. See `table`."""
    zoo, rr, parts = _models(runs), _tuned(work), {}
    for done, noise in enumerate(paper.COLUMNS):
        problem = paper.problem_of(noise)
        depths = paper.DEPTHS if noise in DEEP else paper.DEPTHS[-1:]
        trained = {paper.Row(f, depth).name: zoo.model(f, depth, noise) for f in paper.FAMILIES for depth in depths}
        rows: dict[str, Predictor] = {**trained, **baselines(problem, rr[noise]), BAYES: BayesRR(problem.noise)}
        show = _part_of(work.progress, done, len(paper.COLUMNS))
        losses = compare(problem, rows, "sigma", sequences=fewer(sequences), seed=seed, progress=show)
        parts[noise] = {
            "sigmas": list(losses.axes["sigma"]),
            "inside": list(losses.in_distribution["sigma"]),
            "losses": dict(zip(losses, losses.loss.tolist(), strict=True)),
            "exploded": dict(zip(losses, losses.exploded.tolist(), strict=True)),
        }
    return parts


def layers(work: Work, sequences: int = 100_000, seed: int = 1, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Measure losses after every layer on `SHOWN`, of all seeds. See `table`."""
    zoo, losses, problem = _models(runs), {}, paper.problem_of(SHOWN)
    for done, row in enumerate(paper.MODEL_ROWS):
        work.progress(done, len(paper.MODEL_ROWS))
        seeds = _every_seed(zoo, row)
        by_seed = compare(problem, seeds, "layer", sequences=fewer(sequences), seed=seed, with_floor=False)
        losses[row.name] = by_seed.loss.tolist()
    return losses


def layer_profiles(
    work: Work, sequences: int = 100_000, seed: int = 1, runs: Runs = None, models: str = SHIPPED
) -> Values:
    """Measure losses after every layer at every noise level on `SHOWN`, of seven layers and all seeds. See `table`."""
    facts: dict[str, Any] = {}
    losses: dict[str, list[Any]] = {family: [] for family in paper.FAMILIES}
    exploded: dict[str, list[Any]] = {family: [] for family in paper.FAMILIES}
    zoo = _models(runs)
    pairs = [(f, model) for f in paper.FAMILIES for model in _every_seed(zoo, paper.Row(f, paper.DEPTHS[-1]))]
    end = paper.problem_of(SHOWN).noise.upper
    sigmas = np.union1d(np.linspace(0, end + 1, 21), [end])  # half as many levels as the other profiles: 15 models
    for done, (family, model) in enumerate(pairs):
        show = _part_of(work.progress, done, len(pairs))
        over = {"layer": None, "sigma": sigmas}
        curve = compare(paper.problem_of(SHOWN), model, over, sequences=fewer(sequences), seed=seed, progress=show)
        losses[family].append(curve.loss[0].tolist())
        exploded[family].append(curve.exploded[0].tolist())
        facts = {"sigmas": sigmas.tolist(), "inside": list(curve.in_distribution["sigma"])}
    return {**facts, "losses": losses, "exploded": exploded}


def _part_of(progress: Callable[[int, int], None], done: int, total: int) -> Callable[[int, int], None]:
    """The progress of one of `total` equal pieces of work, of which `done` are done."""
    return lambda part, whole: progress(done * whole + part, total * whole)


def _every_seed(zoo: Zoo, row: paper.Row) -> list[Any]:
    """The models of a row on `SHOWN`, one for each seed."""
    return [zoo.model(row.method, int(row.layers or 0), SHOWN, seed=seed) for seed in paper.SEEDS]


def iterations(work: Work, sequences: int = 100_000, seed: int = 1) -> Values:
    """Measure the loss of AdaRR without a matrix inverse after several numbers of iterations. See `Part`."""
    losses = {}
    counts = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 100, 120, 150, 200, 500)
    for done, noise in enumerate(DEEP[:2]):
        work.progress(done, 2)
        rows: Mapping[str, Predictor] = {"0": AdaRR()} | {str(count): IterativeRR(count) for count in counts}
        results = compare(paper.problem_of(noise), rows, sequences=max(sequences // 10, 2), seed=seed, with_floor=False)
        losses[noise] = {name: result.loss for name, result in results.items()}
    return losses


def weights(work: Work, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Read the parameters of the model that the paper prints. See `table`."""
    model = _models(runs).model(*PRINTED)
    return {name: matrices[:, 0].astype(float).tolist() for name, matrices in (("Q", model.Q), ("P", model.P))}


def explosions(work: Work, runs: Runs = None, models: str = SHIPPED) -> list[Values]:
    """Read or measure how often the models explode, what they really are, and what caution cost. See `table`.

    Probabilities and prices of shipped models are stored with them; those of `runs` are measured and read.
    """
    zoo, known = _models(runs), stored_explosions() if runs is None else {}
    rows = []
    for done, (family, layers, noise) in enumerate(zoo.records):
        work.progress(done, len(zoo.records))
        name, model = f"{PREFIX}{family}/{layers}/{noise}", zoo.model(family, layers, noise)
        rare = known.get(name) or explosion_probability(paper.problem_of(noise), model, sequences=STORED_WITH)
        price = prices().get(name) if runs is None else None
        facts = {"actual": f"{paper.LABELS[model.simplest_family]} {model.working_layers}", **rare.as_dict()}
        rows.append({"method": family, "layers": layers, "noise": noise, **facts, "price": price and price.worse})
    return rows


def training(work: Work, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Read how the models were trained. See `table`."""
    zoo = _models(runs)
    records = [run for cell in zoo.records.values() for run in cell.values()]
    facts = {"cells": len(zoo.records), "runs": len(records), "seconds": sum(run.seconds for run in records)}
    return {**facts, "protocol": dict(records[0].spec["protocol"]), "made_with": dict(records[0].made_with)}


QUICK: Mapping[str, Any] = {"sequences": 2000}
PARTS = (
    Part(tuned),
    Part(table, QUICK, needs=("tuned",)),
    Part(profiles, QUICK, needs=("tuned",)),
    Part(layers, QUICK),
    Part(layer_profiles, QUICK),
    Part(iterations, QUICK),
    Part(weights),
    Part(training),
    Part(explosions),
)


def ship(runs: Path | str) -> None:
    """Write the best models of all cells, and all seeds where figures show their spread, into the package.

    Args:
        runs: The folder with all runs of the table.

    Raises:
        InputError: A run is missing.
        StorageError: The folder cannot be written to.
    """
    make_folder(MODELS, "models")
    paper.models_of(Path(runs)).write(MODELS, every_seed=[SHOWN])
