"""The measurements that the figures, the claims and the report show, as parts of the paper that are stored.

`Evidence` gives the stored results their types; it measures nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, wraps
from itertools import chain, product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer import zoo as zoo_package
from ridgeformer.engine import default_threads
from ridgeformer.evaluation import compare, explosion_probability
from ridgeformer.papers.paper import Part
from ridgeformer.papers.results import Results, Rows
from ridgeformer.papers.running import Work
from ridgeformer.papers.vladymyrov2024 import paper
from ridgeformer.papers.vladymyrov2024.table import TableOne, baselines, measure
from ridgeformer.predictors import AdaRR, IterativeRR, Predictor, TunedRR
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.validation import Array, integer
from ridgeformer.zoo import PREFIX, Zoo, explosions as stored_explosions, prices
from ridgeformer.zoo.shipped_models import WIDER

Shown = TypeVar("Shown")
BAYES = "Bayes predictor"  # its profile is not a floor: it is the best on average, not at every noise level
SHOWN = "uniform(0,5)"  # the problem whose depths, layers and seeds are looked at
DEEP = (SHOWN, *paper.CATEGORICAL)  # profiles of all depths; elsewhere of seven layers
PRINTED = ("full", 4, "categorical(1,3)")  # the model whose weights the paper prints
SHIPPED = hashlib.sha256(Path(zoo_package.__file__).with_name("zoo.safetensors").read_bytes()).hexdigest()[:16]
Values = dict[str, Any]
Runs = str | None  # a folder of runs, or the shipped models


class Evidence(Results):
    """The results of the parts, with ways to read the table and the profiles."""

    @property
    def sequences(self) -> int:
        """The number of sequences of the table."""
        return int(self.table.sequences)

    @property
    def fewer(self) -> int:
        """The number of sequences of losses by layer and of every level of a profile: a fifth of the table's."""
        return fewer(self.sequences)

    @cached_property
    def table(self) -> TableOne:
        """Table 1."""
        return TableOne(self.stored["table"])

    def losses(
        self, methods: str | Iterable[str], layers: int | Iterable[int] | None, noises: str | Iterable[str]
    ) -> Any:
        """Return adjusted losses of the table.

        Args:
            methods: Families or baselines, or one of them.
            layers: Depths, or one; None for baselines.
            noises: The noise of columns, or of one.

        Returns:
            The losses, with an axis for each argument that has several values.
        """
        axes = [[value] if isinstance(value, str | int | None) else [*value] for value in (methods, layers, noises)]
        many = [len(axis) for axis, value in zip(axes, (methods, layers, noises), strict=True) if axis != [value]]
        return np.reshape([self.table[place].loss for place in product(*axes)], many)

    def curve(self, noise: str, method: str, layers: int | None = None) -> Array:
        """Return the mean loss of a method at every level of a profile of a problem, [K]. See `losses`."""
        return np.asarray(self.profiles[noise].losses[paper.name_of(method, layers)])

    def exploded(self, noise: str, method: str, layers: int | None = None) -> NDArray[np.int64]:
        """Return how many sequences exploded at every level; their losses dominate the mean there. See `losses`."""
        return np.asarray(self.profiles[noise].exploded[paper.name_of(method, layers)])

    def levels(self, noise: str) -> tuple[Array, NDArray[np.bool_]]:
        """Return the noise levels of the profiles of a problem and whether each can occur, [K] each. See `losses`."""
        return self.profiles[noise].sigmas, self.profiles[noise].inside


def of_evidence(read: Callable[[Evidence], Shown]) -> Callable[[Results], Shown]:
    """Make a function of the evidence one of the results, as a `Paper` takes it.

    Args:
        read: A function of the evidence.

    Returns:
        The function of the results, with the docstring of `read`.
    """

    @wraps(read)
    def from_results(results: Results) -> Shown:
        return read(Evidence(results.stored, results.parts))

    return from_results


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
    count = min(default_threads(), len(paper.COLUMNS))
    columns = [paper.COLUMNS[i::count] for i in range(count)]
    shares = [[paper.problem_of(noise) for noise in column] for column in columns]
    with ThreadPoolExecutor(count) as pool:
        tuned = chain(*pool.map(TunedRR.tune_all, shares))
    best = dict(zip(chain(*columns), tuned, strict=True))
    return {noise: [best[noise].factor, best[noise].ceiling] for noise in paper.COLUMNS}


def _tuned(work: Work) -> dict[str, TunedRR]:
    return {noise: TunedRR(*numbers) for noise, numbers in work.results["tuned"].stored.items()}


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
        trained = {paper.name_of(f, depth): zoo.model(f, depth, noise) for f in paper.FAMILIES for depth in depths}
        rows: dict[str, Predictor] = {**trained, **baselines(problem, rr[noise]), BAYES: BayesRR(problem.noise)}
        show = _part_of(work.progress, done, len(paper.COLUMNS))
        losses = compare(problem, rows, "sigma", sequences=fewer(sequences), seed=seed, progress=show)
        parts[noise] = {
            "sigmas": losses.axes["sigma"],
            "inside": losses.in_distribution["sigma"],
            "losses": dict(zip(losses, losses.loss, strict=True)),
            "exploded": dict(zip(losses, losses.exploded, strict=True)),
        }
    return parts


def layers(work: Work, sequences: int = 100_000, seed: int = 1, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Measure losses after every layer on `SHOWN`, of all seeds. See `table`."""
    zoo, losses, problem = _models(runs), {}, paper.problem_of(SHOWN)
    for row in work.each(paper.MODEL_ROWS):
        every = _every_seed(zoo, *row)
        by_seed = compare(problem, every, "layer", sequences=fewer(sequences), seed=seed, with_floor=False)
        losses[paper.name_of(*row)] = by_seed.loss
    return losses


def layer_profiles(
    work: Work, sequences: int = 100_000, seed: int = 1, runs: Runs = None, models: str = SHIPPED
) -> Values:
    """Measure losses after every layer at every noise level on `SHOWN`, of seven layers and all seeds. See `table`."""
    zoo, problem, losses, exploded = _models(runs), paper.problem_of(SHOWN), {}, {}
    sigmas = np.linspace(0, problem.noise.upper + 1, 21)  # half as many levels as the other profiles: 15 models
    over = {"layer": None, "sigma": np.union1d(sigmas, [problem.noise.upper])}
    for done, family in enumerate(paper.FAMILIES):
        show, every = _part_of(work.progress, done, len(paper.FAMILIES)), _every_seed(zoo, family, paper.DEPTHS[-1])
        curves = compare(problem, every, over, sequences=fewer(sequences), seed=seed, progress=show)
        losses[family], exploded[family] = curves.loss, curves.exploded
    return {"sigmas": over["sigma"], "inside": curves.in_distribution["sigma"], "losses": losses, "exploded": exploded}


def _part_of(progress: Callable[[int, int], None], done: int, total: int) -> Callable[[int, int], None]:
    """The progress of one of `total` equal pieces of work, of which `done` are done."""
    return lambda part, parts: progress(done * parts + part, total * parts)


def _every_seed(zoo: Zoo, family: str, layers: int) -> list[Any]:
    """The models of a row on `SHOWN`, one for each seed."""
    return [zoo.model(family, layers, SHOWN, seed=seed) for seed in paper.SEEDS]


def iterations(work: Work, sequences: int = 100_000, seed: int = 1) -> Rows:
    """Measure the loss of AdaRR without a matrix inverse after several numbers of iterations. See `Part`."""
    counts = (1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 100, 120, 150, 200, 500)
    rows: dict[str, Predictor] = {"0": AdaRR()} | {str(count): IterativeRR(count) for count in counts}
    for noise in work.each(DEEP[:2]):
        losses = compare(paper.problem_of(noise), rows, sequences=max(sequences // 10, 2), seed=seed, with_floor=False)
        yield from ({"noise": noise, "iterations": int(name), "loss": result.loss} for name, result in losses.items())


def weights(work: Work, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Read the parameters of the model that the paper prints. See `table`."""
    model = _models(runs).model(*PRINTED)
    return {name: matrices[:, 0].astype(float) for name, matrices in (("Q", model.Q), ("P", model.P))}


def explosions(work: Work, runs: Runs = None, models: str = SHIPPED) -> Rows:
    """Read or measure how often the models explode, what they really are, and what caution cost. See `table`.

    Probabilities and prices of shipped models are stored with them; those of `runs` are measured and read.
    """
    zoo, stored = _models(runs), stored_explosions() if runs is None else {}
    for family, layers, noise in work.each(zoo.records):
        name, model = f"{PREFIX}{family}/{layers}/{noise}", zoo.model(family, layers, noise)
        rare = stored.get(name) or explosion_probability(paper.problem_of(noise), model, sequences=WIDER)
        price = prices().get(name) if runs is None else None
        facts = {"actual": paper.name_of(model.simplest_family, model.working_layers), **rare.as_dict()}
        yield {"method": family, "layers": layers, "noise": noise, **facts, "price": price and price.worse}


def training(work: Work, runs: Runs = None, models: str = SHIPPED) -> Values:
    """Read how the models were trained. See `table`."""
    zoo = _models(runs)
    records = [run for cell in zoo.records.values() for run in cell.values()]
    facts = {"cells": len(zoo.records), "runs": len(records), "seconds": sum(run.seconds for run in records)}
    return {**facts, "protocol": dict(records[0].spec["protocol"]), "made_with": dict(records[0].made_with)}


QUICK: Mapping[str, Any] = {"sequences": 2000}
PARTS = (
    Part(tuned),
    Part(table, QUICK),
    Part(profiles, QUICK),
    Part(layers, QUICK),
    Part(layer_profiles, QUICK),
    Part(iterations, QUICK),
    Part(weights),
    Part(training),
    Part(explosions),
)
