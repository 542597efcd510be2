"""Names, files and records of the shipped models."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from ridgeformer.errors import DamageError, InputError, refuse, short, shown
from ridgeformer.evaluation import ExplosionProbability
from ridgeformer.files import CHECKSUM, DamagedFile, read_json, read_tensors
from ridgeformer.losses import rounding
from ridgeformer.models.family import family_named
from ridgeformer.models.file import read_file
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.noise import Noise, as_noise
from ridgeformer.training.job import Price
from ridgeformer.training.store import read_run
from ridgeformer.values import Value

FORMAT, VERSION = "ridgeformer-zoo", 2
MODELS = Path(__file__).parent
WIDER = 20_000  # sequences of wider laws that stored probabilities of explosions were measured on
UNIVERSAL_NOISE = "uniform(0,1.6)"  # of the models for every dimension
END = ".safetensors"
PREFIX = "zoo:"  # of names of shipped models, where a path may stand too
TableCell = tuple[str, int, str]


@dataclass(unsafe_hash=False)
class TrainingRecord(Value):
    """How a model was made with one seed.

    Attributes:
        spec: All that decides the bits of the run, as JSON.
        status: The status of its training.
        message: Why it has this status.
        loss: The adjusted loss, measured when it was trained.
        error: The standard error of the loss.
        floor: The floor on the same sequences.
        largest: The largest loss of a sequence.
        exploded: How many sequences exploded.
        sequences: How many sequences the loss was measured on.
        seconds: How long training took, without the models it was grown from.
        made_with: Versions, engine and number of threads.
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
    def of_run(cls, run: Mapping[str, Any]) -> TrainingRecord:
        """Make it from the record of a run.

        Args:
            run: The record.

        Returns:
            The part of it that the zoo keeps.
        """
        values = {**run["result"], **run}
        return cls(**{field.name: values[field.name] for field in fields(cls)})


@dataclass(eq=False)
class Zoo(Value):
    """Models by family, depth and noise.

    Attributes:
        records: For every cell, (family, layers, noise), how the models of all seeds were made, by seed.
        models: The models by cell and seed: those of the best seeds, and perhaps more.
    """

    records: dict[TableCell, dict[int, TrainingRecord]]
    models: dict[tuple[TableCell, int], LinearTransformer]

    def best(self, family: str, layers: int, noise: str | Noise) -> int:
        """Return the seed of the best model of a cell.

        Args:
            family: `gdpp`, `diag` or `full`.
            layers: Layers of the model.
            noise: The noise distribution it was trained on.

        Returns:
            The seed whose model exploded least often and, among those, has the least loss, both when it was trained.

        Raises:
            InputError: The zoo has no such model.
        """
        return self._chosen(family, layers, noise, None)[1]

    def model(self, family: str, layers: int, noise: str | Noise, seed: int | None = None) -> LinearTransformer:
        """Return a model.

        Args:
            family: `gdpp`, `diag` or `full`.
            layers: Layers of the model.
            noise: The noise distribution it was trained on.
            seed: The seed of its training; None for the best.

        Returns:
            The model.

        Raises:
            InputError: The zoo has no such model.
        """
        cell, chosen_seed = self._chosen(family, layers, noise, seed)
        if (cell, chosen_seed) not in self.models:
            seeds = ", ".join(str(stored_seed) for place, stored_seed in sorted(self.models) if place == cell)
            rule = f"the zoo has the weights of seed {seeds} of this model"
            refuse(rule, f"seed {seed!r}", "Leave out the seed for the best one.")
        return self.models[cell, chosen_seed]

    def record(self, family: str, layers: int, noise: str | Noise, seed: int | None = None) -> TrainingRecord:
        """Return how a model was made; that is known for all seeds, also for those whose models are not kept.

        Args:
            family: As for `model`.
            layers: As for `model`.
            noise: As for `model`.
            seed: As for `model`.

        Returns:
            How it was made.

        Raises:
            InputError: The zoo knows no such model.
        """
        cell, chosen_seed = self._chosen(family, layers, noise, seed)
        if chosen_seed not in (runs := self.records[cell]):
            refuse(f"the seed must be one of {', '.join(map(str, runs))}", shown(seed), "Choose one of these.")
        return runs[chosen_seed]

    def _chosen(self, family: str, layers: int, noise: str | Noise, seed: int | None) -> tuple[TableCell, int]:
        """The cell, and the seed or the best one."""
        cell = (family, layers, str(as_noise(noise)))
        if cell not in self.records:
            names = ("family", "layers", "noise")
            for asked, name, allowed in zip(cell, names, zip(*self.records, strict=True), strict=True):
                if asked not in allowed:
                    remedy = "Choose one of these, list all models with `ridgeformer models`, or train the model."
                    refuse(f"{name} must be one of {', '.join(map(str, dict.fromkeys(allowed)))}", shown(asked), remedy)
            refuse("a model must be in the zoo", f"{family}, {layers}, {noise}, which is not", "Train it with train.")
        runs = self.records[cell]
        best = min(runs, key=lambda number: (runs[number].exploded, runs[number].loss, number))
        return cell, best if seed is None else seed


def gather(runs: Iterable[str | os.PathLike[str]]) -> Zoo:
    """Make a zoo of finished runs.

    Args:
        runs: The folders of the runs.

    Returns:
        The zoo.

    Raises:
        InputError: A run is not finished.
        DamageError: A run is damaged.
    """
    records, models = [], {}
    for folder in runs:
        model, run = read_run(folder)
        try:
            records.append(TrainingRecord.of_run(run))
            models[_place(run["spec"])] = model
        except (KeyError, TypeError) as error:
            raise InputError(
                f"a record must be complete; {folder} has a damaged one ({error!r}). Move it away and train it again."
            ) from error
    return Zoo(_by_cell(records), models)


def read(folder: str | os.PathLike[str]) -> Zoo:
    """Read a zoo: `zoo.safetensors`, with the models of the best seeds, and `zoo.json`, with the records of all.

    Args:
        folder: Where it is.

    Returns:
        The zoo.

    Raises:
        InputError: A file is missing, damaged, or of another kind.
    """
    place = Path(folder)
    try:
        facts = read_json(place / "zoo.json", "a zoo")
        _check_header(facts)
        if facts.get(CHECKSUM) != checksum_of(facts["runs"]):
            raise DamagedFile("the checksum of zoo.json is not that of its content")

        def check(header: Mapping[str, str]) -> None:
            _check_header(header)
            if header[CHECKSUM] != facts.get("models"):
                raise DamagedFile("zoo.json belongs to other models than those of zoo.safetensors")

        _, arrays = read_tensors(place / "zoo.safetensors", "a zoo", check)
        return _zoo(facts["runs"], arrays)
    except (DamagedFile, LookupError, TypeError, ValueError, AttributeError) as error:
        state = f"{short(place)} is not: {short(error, 300)}"
        raise DamageError(
            f"a zoo is a folder with two files, zoo.json and zoo.safetensors; {state}. Write it again."
        ) from error


def _zoo(runs: list[dict[str, Any]], arrays: Mapping[str, Any]) -> Zoo:
    records = _by_cell(TrainingRecord(**run) for run in runs)
    parts: dict[tuple[TableCell, int], dict[str, Any]] = {}
    for name, value in arrays.items():
        family, layers, noise, number, parameter = name.split("/")
        parts.setdefault(((family, int(layers), noise), int(number)), {})[parameter] = value
    models = {
        (cell, seed): LinearTransformer(family_named(cell[0])(**values), records[cell][seed].spec["dim"])
        for (cell, seed), values in parts.items()
    }
    return Zoo(records, models)


def _check_header(header: Mapping[str, Any]) -> None:
    if header.get("format") != FORMAT or str(header.get("version")) != str(VERSION) or CHECKSUM not in header:
        raise DamagedFile("it is of another kind or version, or has no checksum")


def checksum_of(runs: list[dict[str, Any]]) -> str:
    """Compute the checksum of the records in `zoo.json`.

    Args:
        runs: The records as JSON.

    Returns:
        The checksum, in hexadecimal digits.
    """
    return hashlib.sha256(json.dumps(runs, sort_keys=True).encode()).hexdigest()


def _by_cell(records: Iterable[TrainingRecord]) -> dict[TableCell, dict[int, TrainingRecord]]:
    cells: dict[TableCell, dict[int, TrainingRecord]] = {}
    for entry in records:
        cell, seed = _place(entry.spec)
        cells.setdefault(cell, {})[seed] = entry
    return cells


def _place(spec: Mapping[str, Any]) -> tuple[TableCell, int]:
    """The cell and the seed of a run."""
    return (spec["family"], spec["layers"], spec["noise"]), spec["seed"]


@cache
def shipped() -> Zoo:
    """Return the models of Table 1, for d = 10 and n = 20."""
    return read(MODELS)


@cache
def further_models() -> dict[str, Path]:
    """Return the files of the shipped models that are not in Table 1, by name, such as `zoo:universal/8`."""
    names = {
        f"{PREFIX}{path.relative_to(MODELS).as_posix().removesuffix(END)}": path for path in MODELS.rglob(f"*/*{END}")
    }
    return dict(sorted(names.items(), key=lambda item: [part.zfill(2) for part in item[0].split("/")]))  # 8, 9, 10


def universal_layers() -> list[int]:
    """Return the depths of the shipped models for every dimension."""
    return sorted(int(name.rpartition("/")[2]) for name in further_models() if name.startswith(f"{PREFIX}universal/"))


def name_of(spec: Mapping[str, Any]) -> str:
    """Return the name of a shipped model, such as `zoo:d=1/diag/3/uniform(0,2)`.

    Args:
        spec: The spec of its training, as in its record.

    Returns:
        The name, without a seed. What is unusual is in front.
    """
    scratch = spec.get("layout", {}).get("scratch", 0)
    settings = {"d": (spec["dim"], 10), "caution": (spec.get("protocol", {}).get("caution", 1.0), 1.0)}
    settings |= {"heads": (spec["heads"], 1), "scratch": (scratch, 0)}
    part = "".join(f"{name}={value:g}/" for name, (value, usual) in settings.items() if value != usual)
    return f"{PREFIX}{part}{spec['family']}/{spec['layers']}/{spec['noise']}"


def place_of(name: str) -> tuple[str, int, str, int | None]:
    """Return the place of a model of Table 1, such as `zoo:diag/7/uniform(0,5)`.

    Args:
        name: The name, with or without the prefix `zoo:`.

    Returns:
        The family, the number of layers, the noise as text, and the seed, or None if the name has none.

    Raises:
        InputError: The name does not have this form. Whether the zoo has such a model is not checked.
    """
    family, *parts = name.removeprefix(PREFIX).split("/")
    if len(parts) not in (2, 3) or not all(re.fullmatch("[0-9]{1,9}", part) for part in (parts[0], *parts[2:])):
        raise InputError(
            f"a model of the zoo is named zoo:FAMILY/LAYERS/NOISE or zoo:FAMILY/LAYERS/NOISE/SEED; got {shown(name)}. "
            "Write zoo:full/7/categorical(1,3), for example, or list all models with `ridgeformer models`."
        )
    layers, noise, *seed = parts
    return family, int(layers), noise, int(seed[0]) if seed else None


def file_of(name: str) -> Path | None:
    """Return the file of a shipped model that is not in Table 1.

    Args:
        name: Such as `zoo:universal/8`, with or without the prefix; models for every dimension with or without the
            noise, `zoo:universal/8/uniform(0,1.6)`.

    Returns:
        The file; None for names of other models.

    Raises:
        InputError: There is no such model, but there are others of its kind.
    """
    files, name = further_models(), PREFIX + name.removeprefix(PREFIX).replace(" ", "")
    short_name = name.removesuffix(f"/{UNIVERSAL_NOISE}")
    if short_name in files:
        return files[short_name]
    first, *parts = short_name.split("/")  # what is unusual, or the family
    in_table = first.removeprefix(PREFIX) in {family for family, *_ in shipped().records}
    folder = "/".join([first, *parts[:1]]) if in_table else first
    if similar := [file for file in files if file.startswith(f"{folder}/")]:
        names = ", ".join(similar[:9]) + f" and {len(similar) - 9} more" * (len(similar) > 9)
        rule = f"models of the kind {first.removeprefix(PREFIX)} are named {names}"
        refuse(rule, shown(name), "Choose one of these.")
    return None


def read_model(name: str) -> tuple[LinearTransformer, dict[str, Any]]:
    """Read a shipped model and its record.

    Args:
        name: As for `load`, with or without the prefix `zoo:`.

    Returns:
        The model, and how it was made: its `spec` and its `result`.

    Raises:
        InputError: The zoo has no such model.
    """
    if (path := file_of(name)) is not None:
        return read_file(path)
    place = place_of(name)
    record = shipped().record(*place)
    return shipped().model(*place), {"spec": record.spec, "result": asdict(record)}


def record(name: str) -> TrainingRecord:
    """Return how a model of Table 1 was made.

    Args:
        name: As for `load`, such as `zoo:full/7/categorical(1,3)/3`; with any seed from 0 to 4.

    Returns:
        How it was made.

    Raises:
        InputError: The zoo has no such model.
    """
    return shipped().record(*place_of(name))


@cache
def explosions() -> dict[str, ExplosionProbability]:
    """Return the probabilities of shipped models for one problem by name, such as `zoo:diag/7/uniform(0,5)`.

    Those of models in files of their own are in their records.
    """
    stored = read_json(MODELS / "explosions.json", "probabilities of explosions")
    results = {name: read_model(name)[1]["result"] for name in further_models()}
    stored |= {name: result["explosions"] for name, result in results.items() if "explosions" in result}
    return {name: ExplosionProbability(**numbers) for name, numbers in stored.items()}


@cache
def prices() -> dict[str, Price]:
    """Return the price of caution of shipped models by name; GD++, whose search takes no account of it, has none."""
    return {name: Price(**numbers) for name, numbers in read_json(MODELS / "prices.json", "prices of caution").items()}


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
