"""How often the shipped models explode on their own problems, and what avoiding explosions costs: stored numbers.

Usage: python -m ridgeformer.zoo.explosions writes `explosions.json` beside the models, in about ten minutes. python -m
ridgeformer.zoo.explosions prices writes `prices.json`, in about five minutes.

>>> from ridgeformer.zoo.explosions import explosions
>>> explosions()["zoo:diag/3/uniform(0,5)"].probability < 1e-6
True
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.evaluation import ExplosionProbability, explosion_probability
from ridgeformer.files import read_json, write_whole
from ridgeformer.losses import rounding
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import Problem
from ridgeformer.training.job import SELECT, Price
from ridgeformer.training.search.few_starts import FURTHER, descend_without_caution
from ridgeformer.values import Array
from ridgeformer.zoo import MODELS, further_models, name_of, read_model, shipped

FILE, PRICES = "explosions.json", "prices.json"
SEQUENCES = 20_000
SEED, SELECTION = 11, 1 << 15  # of the descents that measure prices, and of the sequences that judge them
LIKELY, MORE = 1e-20, 3  # from this probability on, where hits are few, so many times as many sequences are drawn


@cache
def explosions() -> dict[str, ExplosionProbability]:
    """Return the probabilities of shipped models for one problem by name, such as `zoo:diag/7/uniform(0,5)`.

    Those of models in files of their own are in their records.
    """
    stored = read_json(MODELS / FILE, "probabilities of explosions")
    results = {name: read_model(name)[1]["result"] for name in further_models()}
    stored |= {name: result["explosions"] for name, result in results.items() if "explosions" in result}
    return {name: ExplosionProbability(**numbers) for name, numbers in stored.items()}


def measure(name: str, sequences: int = SEQUENCES) -> ExplosionProbability:
    """Measure the probability of one shipped model.

    Args:
        name: Its name, such as `zoo:diag/7/uniform(0,5)`.
        sequences: How many sequences of wider laws. Default: 20,000. Where fewer than ten effective hits show a
            probability above 10^-20, the model is measured again on three times as many.

    Returns:
        The probability.
    """
    return measure_one(*_asked(name), sequences)


def measure_one(problem: Problem, model: LinearTransformer, sequences: int = SEQUENCES) -> ExplosionProbability:
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


def cells() -> list[str]:
    """Return the names of the models of Table 1."""
    return [name_of(shipped().record(*cell).spec) for cell in shipped().records]


def nearest() -> dict[str, dict[str, Any]]:
    """Return, for every noise of the paper where the floor is above 0, the shipped model that is nearest to the floor.

    Returns:
        By noise: its `name`, its `ratio` = loss / floor when it was trained, and its explosions.
    """
    nearest: dict[str, dict[str, Any]] = {}
    for name, rare in explosions().items():
        record = read_model(name)[1]
        spec, loss, floor = record["spec"], record["result"]["loss"], record["result"]["floor"]
        usual = (spec["dim"], spec["context"]) == (10, 20) and floor > rounding(10)
        if usual and (spec["noise"] not in nearest or loss / floor < nearest[spec["noise"]]["ratio"]):
            nearest[spec["noise"]] = {"name": name, "ratio": loss / floor, "explosions": rare}
    return nearest


@cache
def prices() -> dict[str, Price]:
    """Return the price of caution of shipped models by name; see `measure_prices`."""
    return {name: Price(**numbers) for name, numbers in read_json(MODELS / PRICES, "prices of caution").items()}


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
            write_whole(MODELS / FILE, text({name: measure(name) for name in cells()}).encode())
        case ["prices"]:
            write_whole(MODELS / PRICES, text(measure_prices()).encode())
        case given:
            refuse("the only argument is prices", " ".join(given), "Leave it out to measure explosions.")
