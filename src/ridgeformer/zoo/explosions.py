"""How often the shipped models explode on their own problems: stored numbers, and how they are measured.

Usage: python -m ridgeformer.zoo.explosions, which writes `explosions.json` beside the models, in about ten minutes.

>>> from ridgeformer.zoo.explosions import explosions
>>> explosions()["zoo:diag/3/uniform(0,5)"].probability < 1e-6
True
"""

from __future__ import annotations

import json
from functools import cache

from ridgeformer.evaluation import ExplosionProbability, explosion_probability
from ridgeformer.files import read_json, write_whole
from ridgeformer.problems import Problem
from ridgeformer.zoo import MODELS, PREFIX, shipped

__all__ = ["explosions", "measure"]

FILE = "explosions.json"
SEQUENCES = 20_000


@cache
def explosions() -> dict[str, ExplosionProbability]:
    """Return the probabilities of all shipped models by name, such as `zoo:diag/7/uniform(0,5)`."""
    stored = read_json(MODELS / FILE, "probabilities of explosions")
    return {name: ExplosionProbability(**numbers) for name, numbers in stored.items()}


def measure(sequences: int = SEQUENCES) -> dict[str, ExplosionProbability]:
    """Measure the probabilities of all shipped models.

    Args:
        sequences: How many sequences of wider laws each model is measured on. Default: 20,000.

    Returns:
        The probabilities by name.
    """
    zoo, rare = shipped(), {}
    for family, layers, noise in zoo.made:
        spec = zoo.record(family, layers, noise).spec
        problem, model = Problem(spec["dim"], spec["context"], noise), zoo.model(family, layers, noise)
        rare[f"{PREFIX}{family}/{layers}/{noise}"] = explosion_probability(problem, model, sequences=sequences)
    return rare


def text(rare: dict[str, ExplosionProbability]) -> str:
    """Return the content of the file, one model per line.

    Args:
        rare: The probabilities by name.

    Returns:
        The text in JSON.
    """
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one.numbers())}" for name, one in rare.items())
    return f"{{\n{rows}\n}}\n"


if __name__ == "__main__":
    write_whole(MODELS / FILE, text(measure()).encode())
