"""Trained models that ship with the package: the best of five seeds for every cell of the paper's Table 1.

>>> from ridgeformer import zoo
>>> zoo.load("full", layers=7, noise="categorical(1,3)")
LinearTransformer(full, dim=10, layers=7, heads=1)
>>> zoo.record("full", layers=7, noise="categorical(1,3)").status
'budget reached'
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ridgeformer.errors import DamageError, InputError, refuse
from ridgeformer.files import read_json, short, write_whole
from ridgeformer.models.families import FAMILIES
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.noise import Noise, as_noise
from ridgeformer.tensors import CHECKSUM, DamagedFile, checksum, pack, read_tensors
from ridgeformer.training.runs import read_run
from ridgeformer.values import Value

__all__ = ["MODELS", "Made", "Zoo", "gather", "load", "read", "record", "shipped"]

FORMAT, VERSION = "ridgeformer-zoo", 2
MODELS = Path(__file__).parent
Cell = tuple[str, int, str]


@dataclass(unsafe_hash=False)
class Made(Value):
    """How a model was made, of one seed: its spec, what came of it, and with what.

    Attributes:
        spec: all that decides the run's bits; status and message: of its training.
        loss, error, floor, largest, exploded, sequences: of its evaluation when it was trained.
        seconds: it took, without the models it was grown from; made_with: versions, engine, threads.
    """

    spec: dict[str, Any]
    status: str
    message: str
    loss: float
    error: float
    floor: float
    largest: float
    exploded: int
    sequences: int
    seconds: float
    made_with: dict[str, Any]

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> Made:
        """From a run's record."""
        measured = ("loss", "error", "floor", "largest", "exploded", "sequences")
        rest = ("spec", "status", "message", "seconds", "made_with")
        return cls(**{name: run["result"][name] for name in measured}, **{name: run[name] for name in rest})


@dataclass(eq=False)
class Zoo(Value):
    """Models by family, depth and noise: how those of all seeds were made, and the weights of the best, or of more.

    Attributes:
        made: for every cell, by seed; models: by cell and seed.
    """

    made: dict[Cell, dict[int, Made]]
    models: dict[tuple[Cell, int], LinearTransformer]

    def best(self, family: str, layers: int, noise: str | Noise) -> int:
        """The seed whose model explodes least often and, among those, has the least loss, both when it was trained."""
        runs = self.made[self._cell(family, layers, noise)]
        return min(runs, key=lambda seed: (runs[seed].exploded, runs[seed].loss, seed))

    def load(self, family: str, layers: int, noise: str | Noise, seed: int | None = None) -> LinearTransformer:
        """A model: the best seed's, or that of `seed` where it is kept."""
        cell = self._cell(family, layers, noise)
        chosen = self.best(*cell) if seed is None else seed
        if (cell, chosen) not in self.models:
            kept = sorted(other for known, other in self.models if known == cell)
            known = ", ".join(map(str, kept))
            refuse(f"the zoo has the weights of seed {known} of this model", f"seed {seed!r}", "Leave out the seed.")
        return self.models[cell, chosen]

    def record(self, family: str, layers: int, noise: str | Noise, seed: int | None = None) -> Made:
        """How a model was made; of all seeds, those too whose weights are not kept."""
        cell = self._cell(family, layers, noise)
        runs = self.made[cell]
        chosen = self.best(*cell) if seed is None else seed
        if chosen not in runs:
            refuse(f"the seed must be one of {', '.join(map(str, runs))}", repr(seed), "Choose one of these.")
        return runs[chosen]

    def _cell(self, family: str, layers: int, noise: str | Noise) -> Cell:
        cell = (family, layers, str(as_noise(noise)))
        if cell not in self.made:
            for place, name in enumerate(("family", "layers", "noise")):
                known = list(dict.fromkeys(other[place] for other in self.made))
                if cell[place] not in known:
                    names = ", ".join(map(str, known))
                    refuse(
                        f"{name} must be one of {names}", repr(cell[place]), "Choose one of these, or train the model."
                    )
            refuse("a model must be in the zoo", f"{family}, {layers}, {noise}, which is not", "Train it.")
        return cell

    def write(self, folder: str | os.PathLike[str], every_seed: Iterable[str] = ()) -> None:
        """To `zoo.safetensors` and `zoo.json`: the best models, and those of all seeds for some noise distributions."""
        whole = {str(as_noise(noise)) for noise in every_seed}
        arrays = {
            f"{'/'.join(map(str, cell))}/{seed}/{name}": value
            for (cell, seed), model in self.models.items()
            if cell[2] in whole or seed == self.best(*cell)
            for name, value in model.family.arrays.items()
        }
        made = [asdict(run) for runs in self.made.values() for run in runs.values()]
        header = {"format": FORMAT, "version": str(VERSION)}
        write_whole(Path(folder) / "zoo.safetensors", pack(arrays, header))
        lines = ",\n".join(json.dumps(run) for run in made)
        seals = f'"{CHECKSUM}": "{_checksum(made)}", "models": "{checksum(arrays, header)}"'
        facts = f'"format": "{FORMAT}", "version": {VERSION}, {seals}'
        write_whole(Path(folder) / "zoo.json", f'{{{facts}, "runs": [\n{lines}\n]}}\n'.encode())


def gather(runs: Iterable[str | os.PathLike[str]]) -> Zoo:
    """A zoo of finished runs, from their folders."""
    made: dict[Cell, dict[int, Made]] = {}
    models = {}
    for folder in runs:
        model, run = read_run(folder)
        try:
            cell, seed = _place(run["spec"])
            made.setdefault(cell, {})[seed] = Made.of_run(run)
        except (KeyError, TypeError) as error:
            raise InputError(
                f"a record must be complete; {folder} has a damaged one ({error!r}). Move it away and train it again."
            ) from error
        models[cell, seed] = model
    return Zoo(made, models)


def read(folder: str | os.PathLike[str]) -> Zoo:
    """A zoo that `Zoo.write` wrote.

    Raises:
        InputError: A file is missing, damaged, or of another kind.
    """
    place = Path(folder)
    try:
        facts = read_json(place / "zoo.json", "a zoo")
        _check_header(facts)
        if facts.get(CHECKSUM) != _checksum(facts["runs"]):
            raise DamagedFile("the checksum of zoo.json is not that of its content")

        def check(header: Mapping[str, str]) -> None:
            _check_header(header)
            if header[CHECKSUM] != facts.get("models"):
                raise DamagedFile("zoo.json belongs to other models than those of zoo.safetensors")

        _, arrays = read_tensors(place / "zoo.safetensors", "a zoo", check)
        return _zoo(facts["runs"], arrays)
    except (DamagedFile, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = short(error, 300)
        raise DamageError(
            f"a zoo is a folder with two files that Zoo.write wrote; {short(place)} is not: {reason}. Write it again."
        ) from error


def _zoo(runs: list[dict[str, Any]], arrays: Mapping[str, Any]) -> Zoo:
    made: dict[Cell, dict[int, Made]] = {}
    for run in runs:
        cell, seed = _place(run["spec"])
        made.setdefault(cell, {})[seed] = Made(**run)
    parts: dict[tuple[Cell, int], dict[str, Any]] = {}
    for name, value in arrays.items():
        family, layers, noise, number, parameter = name.split("/")
        parts.setdefault(((family, int(layers), noise), int(number)), {})[parameter] = value
    models = {
        (cell, seed): LinearTransformer(FAMILIES[cell[0]](**values), made[cell][seed].spec["dim"])
        for (cell, seed), values in parts.items()
    }
    return Zoo(made, models)


def _check_header(header: Mapping[str, Any]) -> None:
    if header.get("format") != FORMAT or str(header.get("version")) != str(VERSION) or CHECKSUM not in header:
        raise DamagedFile("it is of another kind or version, or has no checksum")


def _checksum(runs: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(runs, sort_keys=True).encode()).hexdigest()


def _place(spec: Mapping[str, Any]) -> tuple[Cell, int]:
    return (spec["family"], spec["layers"], spec["noise"]), spec["seed"]


@cache
def shipped() -> Zoo:
    """The zoo of this package; d = 10, n = 20."""
    return read(MODELS)


def load(family: str, layers: int, noise: str | Noise, seed: int | None = None) -> LinearTransformer:
    """A model of this package's zoo: the best of five seeds, or that of `seed` where it is kept."""
    return shipped().load(family, layers, noise, seed)


def record(family: str, layers: int, noise: str | Noise, seed: int | None = None) -> Made:
    """How a model of this package's zoo was made."""
    return shipped().record(family, layers, noise, seed)
