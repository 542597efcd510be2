"""`ridgeformer zoo`: the trained models that ship with the package."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.group import Group, cli
from ridgeformer.cli.options import AS_JSON
from ridgeformer.errors import InputError

if TYPE_CHECKING:
    from ridgeformer.zoo import Made


@cli.group(
    cls=Group,
    order=("list", "show"),
    epilog="Examples:\n\n\b\n  ridgeformer zoo list --noise 'uniform(0,5)'\n"
    "  ridgeformer zoo show 'full/7/categorical(1,3)'\n  ridgeformer eval 'zoo:full/7/categorical(1,3)'",
)
def zoo() -> None:
    """List and describe the trained models that ship with the package.

    The zoo holds a trained model for every cell of Table 1 of the paper: three families, one to seven layers, ten
    noise distributions. Other commands take a model of the zoo by its name, such as 'zoo:diag/7/uniform(0,5)'.
    """


@zoo.command(
    "list",
    epilog="Examples:\n\n\b\n  ridgeformer zoo list\n  ridgeformer zoo list --family full --noise 'uniform(0,5)'\n"
    "  ridgeformer zoo list --layers 7 --json",
)
@click.option("--family", type=click.Choice(["gdpp", "diag", "full"]), help="List only models of this family.")
@click.option("--layers", type=int, help="List only models with this number of layers.")
@click.option("--noise", help="List only models trained on this noise, such as 'uniform(0,5)'.")
@AS_JSON
def list_models(family: str | None, layers: int | None, noise: str | None, as_json: bool) -> None:
    """List the models: loss, floor, and the ratio of the two.

    For every family, number of layers and noise distribution, five models were trained from different seeds. The list
    has the best of the five. Losses are adjusted losses, measured when the model was trained.
    """
    from ridgeformer.noise import as_noise
    from ridgeformer.zoo import shipped

    wanted = family, layers, None if noise is None else str(as_noise(noise))
    made = shipped().made
    cells = [
        cell for cell in made if all(want is None or have == want for want, have in zip(wanted, cell, strict=True))
    ]
    if not cells:
        noises = ", ".join(dict.fromkeys(cell[2] for cell in made))
        raise InputError(
            f"the zoo has families gdpp, diag and full, 1 to 7 layers, and the noises {noises}; no model has what was "
            "asked for. Leave out an option, or train the model with `ridgeformer train`."
        )
    if as_json:
        click.echo(json.dumps([_facts(*cell) for cell in cells], indent=2))
        return
    wide = max(len(_name(*cell)) for cell in cells)
    click.echo(f"{'model':{wide}}      loss     floor    ratio  seed")
    for cell in cells:
        best = shipped().record(*cell)
        numbers = f"{best.loss:10.4g}{_floor(best):>10}{_ratio(best):>9}"
        click.echo(f"{_name(*cell):{wide}}{numbers}{best.spec['seed']:6}")
    click.echo(
        f"\n{len(cells)} models, for d = 10 and n = 20. The ratio is loss / floor. "
        f"For details: ridgeformer zoo show '{_name(*cells[0])}'"
    )


@zoo.command(
    epilog="Examples:\n\n\b\n  ridgeformer zoo show 'full/7/categorical(1,3)'\n"
    "  ridgeformer zoo show 'diag/7/uniform(0,5)/2' --json"
)
@click.argument("name")
@AS_JSON
def show(name: str, as_json: bool) -> None:
    """Describe a model: problem, family, layers, loss, floor, ratio, and how it was trained.

    NAME is FAMILY/LAYERS/NOISE, for the best of five seeds, or FAMILY/LAYERS/NOISE/SEED.
    """
    from ridgeformer.noise import as_noise
    from ridgeformer.zoo import place, shipped

    family, layers, noise, seed = place(name)
    found = _facts(family, layers, str(as_noise(noise)), seed)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    made = shipped().record(family, layers, noise, seed=seed)
    losses = ", ".join(f"{number}: {loss:.4g}" for number, loss in found["losses_by_seed"].items())
    kept = found["seeds_with_weights"]
    seeds = f"seed{'s' * (len(kept) > 1)} {', '.join(map(str, kept))}"
    protocol = ", ".join(f"{key} {value}" for key, value in made.spec["protocol"].items() if value is not None)
    rows = {
        "problem": f"d = {made.spec['dim']}, n = {made.spec['context']}, noise {made.spec['noise']}",
        "family": f"{family}, {found['parameters']} parameters",
        "layers": f"{layers}, {made.spec['heads']} head per layer",
        "loss": f"{made.loss:.5g} +- {made.error:.2g} on {made.sequences:,} sequences; {made.exploded} exploded",
        "floor": _floor(made),
        "ratio": _ratio(made),
        "training": f"{made.status}: {made.message}",
        "protocol": protocol,
        "time": f"{made.seconds:.1f} s, without the models that it was grown from",
        "made with": ", ".join(f"{key} {value}" for key, value in made.made_with.items()),
        "seed": f"{made.spec['seed']}; loss by seed: {losses}",
        "weights": f"shipped for {seeds}" if found["weights"] else f"not shipped for this seed; only for {seeds}",
    }
    click.echo(found["name"])
    for key, text in rows.items():
        click.echo(f"  {key:9}  {text}")


def _facts(family: str, layers: int, noise: str, seed: int | None = None) -> dict[str, Any]:
    """Everything that is known about a model of the zoo, as plain data."""
    from ridgeformer.zoo import shipped

    zoo_, cell = shipped(), (family, layers, noise)
    made = zoo_.record(*cell, seed=seed)
    number = made.spec["seed"]
    kept = sorted(other for known, other in zoo_.models if known == cell)
    arrays = zoo_.load(*cell).family.arrays
    return {
        "name": _name(family, layers, noise, seed),
        "problem": {key: made.spec[key] for key in ("dim", "context", "noise")},
        "family": family,
        "layers": layers,
        "heads": made.spec["heads"],
        "parameters": sum(int(values.size) for values in arrays.values()),
        "seed": number,
        "loss": made.loss,
        "error": made.error,
        "floor": made.floor,
        "ratio": made.loss / made.floor if _has_floor(made) else None,
        "exploded": made.exploded,
        "sequences": made.sequences,
        "status": made.status,
        "message": made.message,
        "protocol": dict(made.spec["protocol"]),
        "seconds": made.seconds,
        "made_with": dict(made.made_with),
        "losses_by_seed": {str(other): run.loss for other, run in sorted(zoo_.made[cell].items())},
        "seeds_with_weights": kept,
        "weights": number in kept,
    }


def _name(family: str, layers: int, noise: str, seed: int | None = None) -> str:
    from ridgeformer.zoo import PREFIX

    return f"{PREFIX}{family}/{layers}/{noise}" + ("" if seed is None else f"/{seed}")


def _has_floor(made: Made) -> bool:
    from ridgeformer.losses import ROUNDING

    return made.floor > ROUNDING


def _floor(made: Made) -> str:
    return f"{made.floor:.4g}" if _has_floor(made) else "0"


def _ratio(made: Made) -> str:
    return f"{made.loss / made.floor:.3f}" if _has_floor(made) else "-"
