"""`ridgeformer eval`: losses of models and baselines, at one point or along an axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import PARTS, PLACE, model_problem_options
from ridgeformer.cli.output import Answer, answers
from ridgeformer.cli.subject import model_name, read_model_and_problem, trained_on
from ridgeformer.errors import refuse, shown

if TYPE_CHECKING:
    from ridgeformer.evaluation import Losses

NUMBERS = {"sigma": float, "layer": int}


@cli.command(
    "eval",
    epilog="Examples:\n\n\b\n  ridgeformer eval 'zoo:diag/7/uniform(0,5)' --baselines\n"
    "  ridgeformer eval 'zoo:diag/7/uniform(0,5)' 'zoo:full/7/uniform(0,5)' --csv losses.csv\n"
    "  ridgeformer eval 'zoo:full/7/uniform(0,5)' --over sigma --plot profile.png\n"
    "  ridgeformer eval 'zoo:diag/3/uniform(0,5)' --explosions\n"
    "  ridgeformer eval 'zoo:diag/7/uniform(0,5)' --over layer --over sigma=0,1,2\n"
    "  ridgeformer eval model.safetensors --noise 'uniform(0,5)' --over context=1..40\n"
    "  ridgeformer eval model.safetensors --over 'features=isotropic();powerlaw(0.5);powerlaw(1)'",
)
@click.argument("models", type=PLACE, nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--baselines", is_flag=True, help="Also evaluate ridge regression, the Bayes predictor and other baselines."
)
@click.option(
    "--over",
    "axes",
    multiple=True,
    metavar="AXIS[=VALUES]",
    help="Measure the losses along an axis: layer (the readout after each layer), sigma (noise levels), context "
    "(numbers of examples), noise, features, tasks or query (other problems). Values are separated by commas, or by "
    "semicolons; context takes a range such as 1..40; layer, sigma and context have default values. May be repeated.",
)
@click.option(
    "--estimator",
    type=click.Choice(["exact", "query"]),
    default="exact",
    show_default=True,
    help="How the loss is estimated. exact: without sampling queries. query: with one sampled query per sequence, as "
    "in the paper.",
)
@click.option(
    "--explosions",
    is_flag=True,
    help="Also measure the probability that a sequence explodes, by importance sampling; a few seconds per model.",
)
@answers(plot="the losses")
@model_problem_options(None)
def evaluate(
    models: tuple[Path, ...], baselines: bool, axes: tuple[str, ...], estimator: Any, explosions: bool, **given: Any
) -> Answer:
    """Measure the losses of models and compare them with the best achievable loss.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'. The
    problem is the one that the first model was trained on, unless options change it. The default number of sequences is
    100000, and 20000 with the axes sigma and context.
    """
    from ridgeformer.evaluation import compare
    from ridgeformer.loading import load
    from ridgeformer.predictors import baselines as baselines_of

    first, problem, record = read_model_and_problem(models[0], {name: given[name] for name in PARTS})
    names = [model_name(path) for path in models]
    names = names if len(set(names)) == len(names) else [str(path) for path in models]
    predictors: dict[str, Any] = dict(zip(names, [first, *map(load, models[1:])], strict=True))
    left_out: list[str] = []
    if baselines:
        others, left_out = baselines_of(problem)
        predictors |= others
    over = dict(map(axis, axes)) or None
    with progress_bar("evaluating") as step:
        losses = compare(
            problem,
            predictors,
            over,
            sequences=given["sequences"],
            seed=given["seed"],
            estimator=estimator,
            explosions=explosions,
            progress=step,
        )
    trained = trained_on(record)
    head = f"{problem}" if trained in (None, str(problem)) else f"{problem}; {names[0]} was trained for {trained}"
    return answer_of(losses, head, left_out, {"problem": str(problem), "trained": trained})


def answer_of(losses: Losses, head: str, left_out: list[str], facts: dict[str, Any]) -> Answer:
    """Answer with a table of losses.

    Args:
        losses: The losses.
        head: The line above the table.
        left_out: Sentences about predictors that could not be evaluated.
        facts: Further values for JSON.

    Returns:
        The answer.
    """
    text = "\n".join([head, f"{losses}", *left_out])
    record = {**facts, "axes": losses.axes, "adjusted": losses.adjusted, "estimator": losses.estimator}
    record |= {"sequences": losses.sequences, "results": losses.rows(), "left_out": left_out}
    return Answer(text, record, losses.rows(), losses.plot)


def axis(text: str) -> tuple[str, Any]:
    """Read an axis and its values.

    Args:
        text: Such as `sigma=0,1,2`, `context=1..40` or `layer`.

    Returns:
        The name, and the values; None for the default values.

    Raises:
        InputError: A value is not allowed.
    """
    name, equals, values = text.partition("=")
    if not equals:
        return name, None
    parts = [part.strip() for part in _split(values)]
    if not all(parts):
        refuse("--over takes AXIS=VALUE,VALUE,...", shown(text), "Write --over sigma=0,1,2, for example.")
    if name == "context":
        return name, parts[0] if len(parts) == 1 else [int(part) if part.isdecimal() else part for part in parts]
    if name in NUMBERS:
        try:
            return name, [NUMBERS[name](part) for part in parts]
        except ValueError:
            refuse(f"the values of {name} must be numbers", shown(values), f"Write --over {name}=0,1,2, for example.")
    return name, [None if (name, part) == ("query", "none") else part for part in parts]


def _split(text: str) -> list[str]:
    """Split at semicolons, or else at commas that are not inside brackets."""
    if ";" in text:
        return [part for part in text.split(";") if part.strip()]
    depth, parts = 0, [""]
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
