"""What the package ships of Table 1: the models, how often they explode, and what avoiding explosions cost.

Usage: python -m benchmarks.shipped models RUNS copies the models from the folder RUNS, which `make
reproduce-from-scratch` filled, into the package. python -m benchmarks.shipped writes `explosions.json` beside the
models, in about ten minutes; python -m benchmarks.shipped prices writes `prices.json`, in about five minutes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.evaluation import ExplosionProbability, explosion_probability
from ridgeformer.files import CHECKSUM, checksum, make_folder, pack, write_whole
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.noise import as_noise
from ridgeformer.papers.vladymyrov2024 import paper
from ridgeformer.papers.vladymyrov2024.evidence import SHOWN
from ridgeformer.problems import Problem
from ridgeformer.training.job import SELECT, Price
from ridgeformer.training.search.few_starts import FURTHER, descend_without_caution
from ridgeformer.values import Array
from ridgeformer.zoo import Zoo, cells, read_model
from ridgeformer.zoo.shipped_models import FORMAT, MODELS, VERSION, WIDER, checksum_of

SEED, SELECTION = 11, 1 << 15  # of the descents that measure prices, and of the sequences that judge them
LIKELY, MORE = 1e-20, 3  # from this probability on, where hits are few, so many times as many sequences are drawn


def ship(runs: Path) -> None:
    """Write the best models of all cells, and all seeds where figures show their spread, into the package.

    Args:
        runs: The folder with all runs of the table.

    Raises:
        InputError: A run is missing.
        StorageError: The folder cannot be written to.
    """
    make_folder(MODELS, "models")
    write(paper.models_of(runs), MODELS, every_seed=[SHOWN])


def write(zoo: Zoo, folder: Path, every_seed: Iterable[str] = ()) -> None:
    """Write a zoo to `zoo.safetensors` and `zoo.json`.

    Args:
        zoo: The models and their records.
        folder: Where to write; it must exist.
        every_seed: Noise distributions of which the models of all seeds are kept, not only those of the best.

    Raises:
        StorageError: The files cannot be written.
    """
    whole = {str(as_noise(noise)) for noise in every_seed}
    arrays = {
        f"{'/'.join(map(str, cell))}/{seed}/{name}": value
        for (cell, seed), model in zoo.models.items()
        if cell[2] in whole or seed == zoo.best(*cell)
        for name, value in model.family.arrays.items()
    }
    records = [asdict(record) for by_seed in zoo.records.values() for record in by_seed.values()]
    header = {"format": FORMAT, "version": str(VERSION)}
    write_whole(folder / "zoo.safetensors", pack(arrays, header))
    lines = ",\n".join(json.dumps(record) for record in records)
    seals = f'"{CHECKSUM}": "{checksum_of(records)}", "models": "{checksum(arrays, header)}"'
    facts = f'"format": "{FORMAT}", "version": {VERSION}, {seals}'
    write_whole(folder / "zoo.json", f'{{{facts}, "runs": [\n{lines}\n]}}\n'.encode())


def measure(name: str, sequences: int = WIDER) -> ExplosionProbability:
    """Measure the probability of one shipped model.

    Args:
        name: Its name, such as `zoo:diag/7/uniform(0,5)`.
        sequences: How many sequences of wider laws. Default: 20,000. Where fewer than ten effective hits show a
            probability above 10^-20, the model is measured again on three times as many.

    Returns:
        The probability.
    """
    return measure_one(*_asked(name), sequences)


def measure_one(problem: Problem, model: LinearTransformer, sequences: int = WIDER) -> ExplosionProbability:
    """Measure the probability of a model that is to be shipped; see `measure`.

    Args:
        problem: The problem that it was trained on.
        model: The model.
        sequences: How many sequences of wider laws.

    Returns:
        The probability.
    """
    rare = explosion_probability(problem, model, sequences=sequences)
    if rare.bound == "lower" and rare.probability > LIKELY:
        return explosion_probability(problem, model, sequences=MORE * sequences)
    return rare


def _asked(name: str) -> tuple[Problem, LinearTransformer]:
    """A shipped model and its problem."""
    model, record = read_model(name)
    return Problem(*(record["spec"][part] for part in ("dim", "context", "noise"))), model


def measure_prices() -> dict[str, Price]:
    """Measure what avoiding explosions cost each shipped model of Diag and Full; see `measure_price`.

    GD++ models have no price: they minimise the exact expected loss, without caution.

    Returns:
        The prices by name.
    """
    return {name: measure_price(name) for name in cells() if "gdpp" not in name}


def measure_price(name: str, steps: int = FURTHER) -> Price:
    """Let a shipped model descend without regard to explosions, and say how much it gains.

    See `descend_without_caution`. The price is what it gains on other sequences, without those that explode.

    Args:
        name: The name of the model, such as `zoo:diag/7/uniform(0,5)`.
        steps: How many steps. Default: 300, as in a search.

    Returns:
        The price.
    """
    problem, model = _asked(name)
    model = model.astype(np.float64)

    def losses(judged: LinearTransformer) -> Array:
        drawn = judged.step(problem, SELECTION, seed=SEED, stream=SELECT, gradient=False)
        return np.asarray(drawn.losses, np.float64)

    ours = losses(model)
    dtype = np.float64 if ours.mean() < 1e-5 * problem.signal else np.float32
    theirs = losses(descend_without_caution(problem, model, dtype, SEED, steps))
    return Price.between(theirs, ours, problem.signal)


def text(rare: Mapping[str, ExplosionProbability | Price]) -> str:
    """Return the content of the file, one model per line.

    Args:
        rare: The probabilities or prices by name.

    Returns:
        The text in JSON.
    """
    numbers = {name: one._asdict() if isinstance(one, Price) else asdict(one) for name, one in rare.items()}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in numbers.items())
    return f"{{\n{rows}\n}}\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            write_whole(MODELS / "explosions.json", text({name: measure(name) for name in cells()}).encode())
        case ["models", runs]:
            ship(Path(runs))
        case ["prices"]:
            write_whole(MODELS / "prices.json", text(measure_prices()).encode())
        case given:
            refuse("the arguments are models RUNS or prices", " ".join(given), "Write none to measure explosions.")
