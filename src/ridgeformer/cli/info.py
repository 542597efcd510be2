"""`ridgeformer info`, `play` and `models`: what this installation has."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ridgeformer.cli.options import cli
from ridgeformer.cli.output import Answer, answers, table
from ridgeformer.errors import refuse
from ridgeformer.losses import rounding
from ridgeformer.models import LinearTransformer
from ridgeformer.noise import as_noise
from ridgeformer.playground import write_page
from ridgeformer.training.job import Price
from ridgeformer.zoo import PREFIX, file_of, further_models, name_of, place_of, read_model, shipped
from ridgeformer.zoo.explosions import cells, explosions, nearest, prices


@cli.command()
@answers()
def info() -> Answer:
    """Print the version, the compute engine (CPU instruction set) in use and the number of threads.

    Examples:
        ridgeformer info
        RIDGEFORMER_THREADS=1 ridgeformer info --json
    """
    from ridgeformer.papers.running import facts

    known = facts()
    texts = {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in known.items()}
    lines = [f"{name.replace('_', ' '):<18} {text}" for name, text in texts.items()]
    return Answer("\n".join(lines), known, [texts])


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
    wanted = {"family": family, "layers": layers, "noise": None if noise is None else str(as_noise(noise)), "dim": dim}
    if nearest:
        if any(given is not None for given in (name, *wanted.values())):
            refuse("--nearest lists one model for every noise at d = 10", "a choice beside it", "Leave out the others.")
        return _nearest()
    if name is not None:
        return _described(_facts(name))
    everything = [_facts(one) for one in (*cells(), *further_models())]
    known = [one["problem"] | one for one in everything]
    asked = {key: str(value) for key, value in wanted.items() if value is not None}
    chosen = [one for one, own in zip(everything, known, strict=True) if all(str(own[k]) == asked[k] for k in asked)]
    if chosen:
        return _listed(chosen)
    values = {key: ", ".join(dict.fromkeys(str(one[key]) for one in known)) for key in asked}
    rule = "a shipped model has " + "; ".join(f"{key} {texts}" for key, texts in values.items())
    received = ", ".join(f"{key} {text}" for key, text in asked.items()) + ", which no model has together"
    refuse(rule, received, "Leave out an option, or train the model with `ridgeformer train`.")


def _nearest() -> Answer:
    rows = []
    for noise, one in nearest().items():
        rare = {f"explosion_{name}": getattr(one["explosions"], name) for name in RARE[:2]}
        rows.append({"noise": noise, "name": one["name"], "ratio": one["ratio"], **rare})
    return table(rows)


def _listed(facts: list[dict[str, Any]]) -> Answer:
    columns = ("name", "actual", "loss", "floor", "ratio", "explosion_probability", "explosion_error", "price", "seed")
    prices = [one["price_of_caution"] and one["price_of_caution"]["worse"] for one in facts]
    nothing = {"explosion_probability": None, "explosion_error": None}  # none seen, which is no probability of 0
    without_floor = {"floor": 0.0}  # where the noise level is known
    rows = [
        {name: (one | {"price": price})[name] for name in columns}
        | (without_floor if one["ratio"] is None else {})
        | ({} if one["explosion_probability"] else nothing)
        for one, price in zip(facts, prices, strict=True)
    ]
    answer = table(rows, facts)
    text = (
        f"{answer.text}\n\n{len(rows)} models, for d = 10 and n = 20 where the name says nothing else. The ratio is "
        "loss / floor. The price of caution is what the model gains by a short descent without regard to explosions; "
        "GD++ has none, because its search takes no account of explosions. "
        f"For details: ridgeformer models '{rows[0]['name']}'."
    )
    return Answer(text, facts, rows)


def _described(facts: dict[str, Any]) -> Answer:
    """The facts one by one, in words where they are several numbers."""
    words = {}
    if facts["loss"] is not None:
        loss = f"{facts['loss']:.5g} +- {facts['error']:.2g} on {facts['sequences']:,} sequences; "
        words = {"loss": f"{loss}{facts['exploded']} exploded", "floor": f"{facts['floor']:.4g}"}
    words["ratio"] = "-" if facts["ratio"] is None else f"{facts['ratio']:.3f}"
    words["losses_by_seed"] = ", ".join(f"{seed}: {loss:.4g}" for seed, loss in facts["losses_by_seed"].items())
    if facts["explosion_probability"] is not None:
        least = "at least about " if facts["explosion_bound"] == "lower" else ""
        often = f"{facts['explosion_probability']:.2e} +- {facts['explosion_error']:.1e}"
        hits = f"{facts['explosion_hits']:.0f} effective hits"
        words["explosion_probability"] = f"{least}{often} ({hits})" if facts["explosion_hits"] else "none seen"
    if facts["price_of_caution"] is not None:
        words["price_of_caution"] = str(Price(**facts["price_of_caution"]))
    left_out = {"error", "exploded", "sequences", *(f"explosion_{one}" for one in RARE[1:])}
    told = {key: words.get(key, value) for key, value in facts.items() if key not in left_out}
    return _one_by_one(facts, {key: value for key, value in told.items() if value not in (None, "", {}, [])})


def _one_by_one(facts: dict[str, Any], shown: dict[str, Any]) -> Answer:
    lines = [f"  {key.replace('_', ' '):22} {_text(value)}" for key, value in shown.items() if key != "name"]
    return Answer("\n".join([facts["name"], *lines]), facts, [facts])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items() if one is not None)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(name: str) -> dict[str, Any]:
    """Everything that is known about a shipped model, as plain data."""
    zoo, name = shipped(), PREFIX + name.removeprefix(PREFIX)
    model: LinearTransformer | None
    seeds: dict[int, float] = {}
    with_weights: list[int] = []
    if file_of(name) is not None:
        model, stored = read_model(name)
        spec, result, best, arrays = stored["spec"], stored["result"], name, model.family.arrays
    else:
        family, layers, noise, seed = place_of(name)
        made = zoo.record(family, layers, noise, seed)
        spec, result, best = made.spec, asdict(made), name_of(made.spec)
        name = best if seed is None else f"{best}/{seed}"
        key = (family, layers, spec["noise"])
        best = best if seed in (None, zoo.best(*key)) else ""
        model, arrays = zoo.models.get((key, spec["seed"])), zoo.model(*key).family.arrays
        seeds = {number: run.loss for number, run in sorted(zoo.records[key].items())}
        with_weights = sorted(number for cell, number in zoo.models if cell == key)
    rare, price = explosions().get(best), prices().get(best)
    loss, floor, dim = result.get("loss"), result.get("floor"), spec["dim"]
    ratio = result.get("mean_ratio")
    if loss is not None and floor > rounding(dim):  # the signal, which is d in the paper
        ratio = loss / floor
    actual = None
    if model is not None:
        actual = f"{model.simplest_family}, {model.working_layers} layer{'s' * (model.working_layers > 1)}"
    measured = ("exploded", "sequences", "status", "message", "seconds", "made_with")
    return {
        "name": name,
        "problem": {key: spec[key] for key in ("dim", "context", "noise", "tasks") if key in spec},
        **{key: spec[key] for key in ("family", "layers", "heads")},
        "parameters": sum(int(values.size) for values in arrays.values()),
        "seed": spec.get("seed"),
        "loss": loss,
        "error": result.get("error"),
        "floor": floor,
        "ratio": ratio,
        **{f"explosion_{one}": None if rare is None else getattr(rare, one) for one in RARE},
        "actual": actual,
        "price_of_caution": None if price is None else price._asdict(),
        **{one: result.get(one) for one in measured},
        "protocol": dict(spec.get("protocol", {})),
        "losses_by_seed": {str(number): value for number, value in seeds.items()},
        "seeds_with_weights": with_weights,
        "weights": model is not None,
        **{one: result[one] for one in ("mean_ratio", "largest_ratio", "cells") if one in result},
    }
