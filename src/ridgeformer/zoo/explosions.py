"""How often the shipped models explode on their own problems, and what avoiding explosions costs: stored numbers.

Usage: python -m ridgeformer.zoo.explosions writes `explosions.json` beside the models, in about ten minutes. python -m
ridgeformer.zoo.explosions prices writes `prices.json`, in about half an hour: it trains all GD++ and Diag models again.

>>> from ridgeformer.zoo.explosions import explosions
>>> explosions()["zoo:diag/3/uniform(0,5)"].probability < 1e-6
True
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache

from ridgeformer.evaluation import ExplosionProbability, explosion_probability
from ridgeformer.files import read_json, write_whole
from ridgeformer.problems import Problem
from ridgeformer.training import train_many
from ridgeformer.training.job import Price
from ridgeformer.zoo import MODELS, PREFIX, shipped

__all__ = ["explosions", "measure", "measure_prices", "prices"]

FILE, PRICES = "explosions.json", "prices.json"
SEQUENCES = 20_000
LIKELY, MORE = 1e-20, 10  # from this probability on, where hits are few, so many times as many sequences are drawn


@cache
def explosions() -> dict[str, ExplosionProbability]:
    """Return the probabilities of all shipped models by name, such as `zoo:diag/7/uniform(0,5)`."""
    stored = read_json(MODELS / FILE, "probabilities of explosions")
    return {name: ExplosionProbability(**numbers) for name, numbers in stored.items()}


def measure(sequences: int = SEQUENCES) -> dict[str, ExplosionProbability]:
    """Measure the probabilities of all shipped models.

    Args:
        sequences: How many sequences of wider laws each model is measured on. Default: 20,000. Where fewer than ten
            effective hits show a probability above 10^-20, the model is measured again on ten times as many.

    Returns:
        The probabilities by name.
    """
    return {
        f"{PREFIX}{family}/{layers}/{noise}": measure_one(family, layers, noise, sequences)
        for family, layers, noise in shipped().made
    }


def measure_one(family: str, layers: int, noise: str, sequences: int = SEQUENCES) -> ExplosionProbability:
    """Measure the probability of one shipped model; see `measure`.

    Args:
        family: Its family.
        layers: Its depth.
        noise: The noise of its problem, as text.
        sequences: How many sequences of wider laws.

    Returns:
        The probability.
    """
    spec, model = shipped().record(family, layers, noise).spec, shipped().model(family, layers, noise)
    problem = Problem(spec["dim"], spec["context"], noise)
    rare = explosion_probability(problem, model, sequences=sequences)
    if rare.bound == "lower" and rare.probability > LIKELY:
        return explosion_probability(problem, model, sequences=MORE * sequences)
    return rare


@cache
def prices() -> dict[str, Price]:
    """Return the price of caution by name, of the models whose search states one: Diag.

    The shipped runs do not store it. It is that of a run with seed 0, trained again; the shipped model is the best of
    five seeds. The search for GD++ takes no account of explosions, so that caution costs nothing there. That for Full
    takes account of them from its first round on, so that there is no model without caution to compare with.
    """
    return {name: Price(**numbers) for name, numbers in read_json(MODELS / PRICES, "prices of caution").items()}


def measure_prices(noises: Iterable[str] | None = None, depths: Iterable[int] | None = None) -> dict[str, Price]:
    """Train the Diag models of the zoo again, with seed 0, for the prices of caution.

    Args:
        noises: The noises, as text; None for all of the zoo.
        depths: The numbers of layers; None for all of the zoo.

    Returns:
        The prices by name, of the runs that state one.
    """
    prices, cells = {}, list(shipped().made)
    for noise in dict.fromkeys(cell[2] for cell in cells) if noises is None else noises:
        layers = sorted({cell[1] for cell in cells}) if depths is None else depths
        for run in train_many(Problem(noise=noise), ["diag"], layers, sequences=1000, progress=False):
            if run.price is not None:
                prices[f"{PREFIX}diag/{run.spec.layers}/{noise}"] = run.price
    return prices


def text(rare: Mapping[str, ExplosionProbability | Price]) -> str:
    """Return the content of the file, one model per line.

    Args:
        rare: The probabilities or prices by name.

    Returns:
        The text in JSON.
    """
    numbers = {name: one._asdict() if isinstance(one, Price) else one.numbers() for name, one in rare.items()}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in numbers.items())
    return f"{{\n{rows}\n}}\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["prices"]:
        write_whole(MODELS / PRICES, text(measure_prices()).encode())
    else:
        write_whole(MODELS / FILE, text(measure()).encode())
