"""`ridgeformer info`, `play` and `models`: what this installation has."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ridgeformer import zoo
from ridgeformer.cli.options import cli
from ridgeformer.cli.output import Answer, answers, table
from ridgeformer.errors import refuse
from ridgeformer.losses import rounding
from ridgeformer.models import LinearTransformer
from ridgeformer.noise import as_noise
from ridgeformer.playground import write_page
from ridgeformer.training.job import Price


@cli.command()
@answers()
def info() -> Answer:
    """Print the version, the compute engine (CPU instruction set) in use and the number of threads.

    Examples:
        ridgeformer info
        RIDGEFORMER_THREADS=1 ridgeformer info --json
    """
    from ridgeformer.papers.running import facts

    details = facts()
    texts = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in details.items()}
    lines = [f"{name.replace('_', ' '):<18} {text}" for name, text in texts.items()]
    return Answer("\n".join(lines), details, [texts])


@cli.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("playground.html"))
@click.option("--open/--no-open", "opened", default=True)
def play(out: Path, opened: bool) -> None:
    """Write and open the playground: a page on which models are explored, trained and taught.

    The page is one file that needs no network. It runs the same core as this program, compiled to WebAssembly: set the
    parameters of a model, drag the examples of a context, train live, and follow ten guided chapters.

    Options:
        --out: Write the page to this file.
        --open: Open the page in a browser, which is the default.

    Examples:
        ridgeformer play
        ridgeformer play --out class.html --no-open
    """
    import webbrowser

    path = write_page(out).resolve()
    click.echo(f"The playground is in {out}.")
    if opened and not webbrowser.open(path.as_uri()):
        click.echo("No browser was found. Open the file yourself.")


RARE = ("probability", "error", "hits", "bound", "upper")  # what is known of explosions


@cli.command()
@click.argument("name", required=False)
@click.option("--family")
@click.option("--layers", type=int)
@click.option("--noise")
@click.option("--dim")
@click.option("--nearest", is_flag=True)
@answers()
def models(
    name: str | None, family: str | None, layers: int | None, noise: str | None, dim: str | None, nearest: bool
) -> Answer:
    """List the trained models that ship with the package, or describe one of them.

    There is a trained model for every cell of Table 1 of the paper: three families, one to seven layers, ten noise
    distributions; each is the best of five seeds. Other commands take such a model by its name, for example
    'zoo:diag/7/uniform(0,5)'. NAME is FAMILY/LAYERS/NOISE, or FAMILY/LAYERS/NOISE/SEED for another seed. Losses are
    adjusted losses, measured when the model was trained.

    There are further models, which have what is unusual in front of their names: Diag and Full with eight to ten
    layers; Diag with two heads, 'zoo:heads=2/diag/9/uniform(0,5)'; Full with scratch coordinates,
    'zoo:scratch=4/full/9/uniform(0,5)'; small ones for teaching, 'zoo:d=1/diag/3/uniform(0,2)'; five of a search with
    less caution, for cells where not exploding costs more than the paper's number allows,
    'zoo:caution=0.01/diag/3/uniform(0,1)'; those nearest to the floor, 'zoo:channels(1,6)/8/uniform(0,5)'; and those
    for every dimension, 'zoo:universal/8'.

    Options:
        --family: List only models of this family, such as 'diag' or 'channels(1,6)'.
        --layers: List only models with this number of layers.
        --noise: List only models trained on this noise, such as 'uniform(0,5)'.
        --dim: List only models for this dimension: 10, 1, 2, or '2..32' for those for every dimension.
        --nearest: List, for every noise of the paper, the model that is nearest to the floor.

    Examples:
        ridgeformer models --nearest
        ridgeformer models --noise 'uniform(0,5)'
        ridgeformer models --layers 7 --csv models.csv
        ridgeformer models 'full/7/categorical(1,3)'
        ridgeformer models 'diag/7/uniform(0,5)/2' --json
        ridgeformer models --dim 1
    """
    filters = {"family": family, "layers": layers, "noise": None if noise is None else str(as_noise(noise)), "dim": dim}
    if nearest:
        if any(value is not None for value in (name, *filters.values())):
            refuse("--nearest lists one model for every noise at d = 10", "a choice beside it", "Leave out the others.")
        return _nearest()
    if name is not None:
        return _described(_facts(name))
    everything = [_facts(shipped_name) for shipped_name in (*zoo.cells(), *zoo.further_models())]
    asked = {key: str(value) for key, value in filters.items() if value is not None}
    matching = [facts for facts in everything if all(str((facts["problem"] | facts)[k]) == asked[k] for k in asked)]
    if matching:
        return _listed(matching)
    values = {
        key: ", ".join(dict.fromkeys(str((facts["problem"] | facts)[key]) for facts in everything)) for key in asked
    }
    rule = "a shipped model has " + "; ".join(f"{key} {texts}" for key, texts in values.items())
    received = ", ".join(f"{key} {text}" for key, text in asked.items()) + ", which no model has together"
    refuse(rule, received, "Leave out an option, or train the model with `ridgeformer train`.")


def _nearest() -> Answer:
    rows = []
    for noise, best in zoo.nearest().items():
        rare = {f"explosion_{part}": getattr(best["explosions"], part) for part in RARE[:2]}
        rows.append({"noise": noise, "name": best["name"], "ratio": best["ratio"], **rare})
    return table(rows)


def _listed(models: list[dict[str, Any]]) -> Answer:
    rows = []
    for facts in models:
        seen = bool(facts["explosion_probability"])  # none seen is no probability of 0
        row = {
            **{name: facts[name] for name in ("name", "actual", "loss")},
            "floor": 0.0 if facts["ratio"] is None else facts["floor"],  # where the noise level is known
            "ratio": facts["ratio"],
            **{name: facts[name] if seen else None for name in ("explosion_probability", "explosion_error")},
            "price": facts["price_of_caution"] and facts["price_of_caution"]["worse"],
            "seed": facts["seed"],
        }
        rows.append(row)
    note = (
        f"\n\n{len(rows)} models, for d = 10 and n = 20 where the name says nothing else. The ratio is "
        "loss / floor. The price of caution is what the model gains by a short descent without regard to explosions; "
        "GD++ has none, because its search takes no account of explosions. "
        f"For details: ridgeformer models '{rows[0]['name']}'."
    )
    answer = table(rows, models)
    return Answer(answer.text + note, models, rows)


def _described(facts: dict[str, Any]) -> Answer:
    """The facts one by one, in words where they are several numbers."""
    words = dict(facts)
    if facts["loss"] is not None:
        loss = f"{facts['loss']:.5g} +- {facts['error']:.2g} on {facts['sequences']:,} sequences; "
        words |= {"loss": f"{loss}{facts['exploded']} exploded", "floor": f"{facts['floor']:.4g}"}
    words["ratio"] = "-" if facts["ratio"] is None else f"{facts['ratio']:.3f}"
    words["losses_by_seed"] = ", ".join(f"{seed}: {loss:.4g}" for seed, loss in facts["losses_by_seed"].items())
    if facts["explosion_probability"] is not None:
        least = "at least about " if facts["explosion_bound"] == "lower" else ""
        often = f"{facts['explosion_probability']:.2e} +- {facts['explosion_error']:.1e}"
        hits = f"{facts['explosion_hits']:.0f} effective hits"
        words["explosion_probability"] = f"{least}{often} ({hits})" if facts["explosion_hits"] else "none seen"
    if facts["price_of_caution"] is not None:
        words["price_of_caution"] = str(Price(**facts["price_of_caution"]))
    hidden = {"name", "error", "exploded", "sequences", *(f"explosion_{name}" for name in RARE[1:])}
    shown = {key: value for key, value in words.items() if key not in hidden and value not in (None, "", {}, [])}
    lines = [f"  {key.replace('_', ' '):22} {_text(value)}" for key, value in shown.items()]
    return Answer("\n".join([facts["name"], *lines]), facts, [facts])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items() if inner is not None)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(name: str) -> dict[str, Any]:
    """Everything that is known about a shipped model, as plain data."""
    name = zoo.PREFIX + name.removeprefix(zoo.PREFIX)
    model: LinearTransformer | None
    seeds: dict[int, float] = {}
    with_weights: list[int] = []  # seeds whose models ship
    if zoo.file_of(name) is not None:
        model, stored = zoo.read_model(name)
        spec, result, best, parameters = stored["spec"], stored["result"], name, model.family.arrays
    else:
        family, layers, noise, seed = zoo.place_of(name)
        shipped = zoo.shipped()
        record = shipped.record(family, layers, noise, seed)
        cell = (family, layers, record.spec["noise"])
        with_weights = sorted(number for shipped_cell, number in shipped.models if shipped_cell == cell)
        seeds = {number: run.loss for number, run in sorted(shipped.records[cell].items())}
        model = shipped.models.get((cell, record.spec["seed"]))
        spec, result, parameters = record.spec, asdict(record), shipped.model(*cell).family.arrays
        name = zoo.name_of(spec) + (f"/{seed}" if seed is not None else "")
        best = zoo.name_of(spec) if seed in (None, shipped.best(*cell)) else ""
    rare, price = zoo.explosions().get(best), zoo.prices().get(best)
    loss, floor, ratio = result.get("loss"), result.get("floor"), result.get("mean_ratio")
    if loss is not None and floor > rounding(spec["dim"]):  # the signal, which is d in the paper
        ratio = loss / floor
    actual = None
    if model is not None:
        actual = model.described(model.simplest_family)
    return {
        "name": name,
        "problem": {key: spec[key] for key in ("dim", "context", "noise", "tasks") if key in spec},
        **{key: spec[key] for key in ("family", "layers", "heads")},
        "parameters": sum(int(values.size) for values in parameters.values()),
        "seed": spec.get("seed"),
        "loss": loss,
        "error": result.get("error"),
        "floor": floor,
        "ratio": ratio,
        **{f"explosion_{part}": None if rare is None else getattr(rare, part) for part in RARE},
        "actual": actual,
        "price_of_caution": None if price is None else price._asdict(),
        **{key: result.get(key) for key in ("exploded", "sequences", "status", "message", "seconds", "made_with")},
        "protocol": dict(spec.get("protocol", {})),
        "losses_by_seed": {str(number): value for number, value in seeds.items()},
        "seeds_with_weights": with_weights,
        "weights": model is not None,
        **{key: result[key] for key in ("mean_ratio", "largest_ratio", "cells") if key in result},
    }
