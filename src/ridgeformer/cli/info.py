"""`ridgeformer info`, `play` and `models`: what this installation has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ridgeformer.cli.options import cli
from ridgeformer.cli.output import Answer, answers, table
from ridgeformer.errors import InputError, refuse
from ridgeformer.loading import with_record
from ridgeformer.losses import rounding
from ridgeformer.noise import as_noise
from ridgeformer.playground import write_page
from ridgeformer.training.job import Price
from ridgeformer.zoo import PREFIX, Zoo, find, further_models, name_of, shipped, single_file
from ridgeformer.zoo.explosions import explosions, nearest, prices


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
@click.option("--family", type=click.Choice(["gdpp", "diag", "full"]))
@click.option("--layers", type=int)
@click.option("--noise")
@click.option("--dim", type=click.Choice(["10", "1", "2"]), default="10")
@click.option("--nearest", is_flag=True)
@answers()
def models(
    name: str | None, family: str | None, layers: int | None, noise: str | None, dim: str, nearest: bool
) -> Answer:
    """List the trained models that ship with the package, or describe one of them.

    There is a trained model for every cell of Table 1 of the paper: three families, one to seven layers, ten noise
    distributions; each is the best of five seeds. Other commands take such a model by its name, for example
    'zoo:diag/7/uniform(0,5)'. NAME is FAMILY/LAYERS/NOISE, or FAMILY/LAYERS/NOISE/SEED for another seed. Losses are
    adjusted losses, measured when the model was trained. There are also small models for d = 1 and d = 2, for teaching;
    their names have the dimension in front, as in 'zoo:d=1/diag/3/uniform(0,2)'. For five cells, where not exploding
    costs more than the paper's number allows, a model of a search with less caution is named with it, as in
    'zoo:caution=0.01/diag/3/uniform(0,1)'. Models for every dimension have names such as 'zoo:universal/8'. One for
    every noise of the paper, such as 'zoo:channels(1,6)/8/uniform(0,5)', is nearer to the floor than those of the
    paper's families.

    Options:
        --family: List only models of this family.
        --layers: List only models with this number of layers.
        --noise: List only models trained on this noise, such as 'uniform(0,5)'.
        --dim: Dimension d.
        --nearest: List, for every noise of the paper, the model that is nearest to the floor.

    Examples:
        ridgeformer models --nearest
        ridgeformer models --noise 'uniform(0,5)'
        ridgeformer models --layers 7 --csv models.csv
        ridgeformer models 'full/7/categorical(1,3)'
        ridgeformer models 'diag/7/uniform(0,5)/2' --json
        ridgeformer models --dim 1
    """
    if nearest:
        if any(given is not None for given in (name, family, layers, noise)) or dim != "10":
            refuse("--nearest lists one model for every noise at d = 10", "a choice beside it", "Leave out the others.")
        return _nearest()
    if name is not None and single_file(alone := PREFIX + name.removeprefix(PREFIX)):
        model, record = with_record(alone)
        facts = {"name": alone, "family": model.family.name, "layers": model.layers, **record}
        return _one_by_one(facts, facts)
    if name is not None:
        zoo, (family, layers, noise, seed) = find(name)
        return _described(_facts(zoo, family, layers, str(as_noise(noise)), seed))
    zoo, wanted = shipped(int(dim)), (family, layers, None if noise is None else str(as_noise(noise)))
    cells = [cell for cell in zoo.records if all(w in (None, have) for w, have in zip(wanted, cell, strict=True))]
    if not cells:
        families, depths, noises = (list(dict.fromkeys(values)) for values in zip(*zoo.records, strict=True))
        raise InputError(
            f"for d = {dim} the zoo has the families {', '.join(families)}, {min(depths)} to {max(depths)} layers, and "
            f"the noises {', '.join(noises)}; no model has what was asked for. Leave out an option, or train the model "
            "with `ridgeformer train`."
        )
    return _listed([_facts(zoo, *cell) for cell in cells])


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
    problem, answer = facts[0]["problem"], table(rows, facts)
    text = (
        f"{answer.text}\n\n{len(rows)} models, for d = {problem['dim']} and n = {problem['context']}. The ratio is "
        "loss / floor. The price of caution is what the model gains by a short descent without regard to explosions; "
        "GD++ has none, because its search takes no account of explosions. "
        f"For details: ridgeformer models '{rows[0]['name']}'. Further models: {', '.join(further_models())}."
    )
    return Answer(text, facts, rows)


def _described(facts: dict[str, Any]) -> Answer:
    """The facts one by one, in words where they are several numbers."""
    ratio = "-" if facts["ratio"] is None else f"{facts['ratio']:.3f}"
    loss = f"{facts['loss']:.5g} +- {facts['error']:.2g} on {facts['sequences']:,} sequences; "
    words = {"loss": f"{loss}{facts['exploded']} exploded", "ratio": ratio, "floor": f"{facts['floor']:.4g}"}
    words["losses_by_seed"] = ", ".join(f"{seed}: {loss:.4g}" for seed, loss in facts["losses_by_seed"].items())
    if facts["explosion_probability"] is not None:
        least = "at least about " if facts["explosion_bound"] == "lower" else ""
        often = f"{facts['explosion_probability']:.2e} +- {facts['explosion_error']:.1e}"
        hits = f"{facts['explosion_hits']:.0f} effective hits"
        words["explosion_probability"] = f"{least}{often} ({hits})" if facts["explosion_hits"] else "none seen"
    if facts["price_of_caution"] is not None:
        words["price_of_caution"] = str(Price(**facts["price_of_caution"]))
    left_out = {"error", "exploded", "sequences", *(f"explosion_{one}" for one in RARE[1:])}
    return _one_by_one(facts, {key: words.get(key, value) for key, value in facts.items() if key not in left_out})


def _one_by_one(facts: dict[str, Any], shown: dict[str, Any]) -> Answer:
    lines = [f"  {key.replace('_', ' '):22} {_text(value)}" for key, value in shown.items() if key != "name"]
    return Answer("\n".join([facts["name"], *lines]), facts, [facts])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items() if one is not None)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(zoo: Zoo, family: str, layers: int, noise: str, seed: int | None = None) -> dict[str, Any]:
    """Everything that is known about a model of the zoo, as plain data."""
    cell = (family, layers, noise)
    made, best = zoo.record(*cell, seed=seed), seed in (None, zoo.best(*cell))
    dim, number = made.spec["dim"], made.spec["seed"]
    name = name_of(made.spec)
    rare, price = (explosions().get(name), prices().get(name)) if best else (None, None)
    seeds = sorted(other for known, other in zoo.models if known == cell)
    model = zoo.models.get((cell, number))
    s = "s" * (model is not None and model.working_layers > 1)
    has_floor = made.floor > rounding(dim)  # the signal, which is d in the paper
    return {
        "name": name if seed is None else f"{name}/{seed}",
        "problem": {key: made.spec[key] for key in ("dim", "context", "noise")},
        "family": family,
        "layers": layers,
        "heads": made.spec["heads"],
        "parameters": sum(int(values.size) for values in zoo.model(*cell).family.arrays.values()),
        "seed": number,
        **{field: getattr(made, field) for field in ("loss", "error", "floor")},
        "ratio": made.loss / made.floor if has_floor else None,
        "exploded": made.exploded,
        **{f"explosion_{name}": None if rare is None else getattr(rare, name) for name in RARE},
        "actual": None if model is None else f"{model.simplest_family}, {model.working_layers} layer{s}",
        "price_of_caution": None if price is None else price._asdict(),
        **{field: getattr(made, field) for field in ("sequences", "status", "message")},
        "protocol": dict(made.spec["protocol"]),
        "seconds": made.seconds,
        "made_with": dict(made.made_with),
        "losses_by_seed": {str(other): run.loss for other, run in sorted(zoo.records[cell].items())},
        "seeds_with_weights": seeds,
        "weights": number in seeds,
    }
