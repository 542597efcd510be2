"""`ridgeformer eval`: losses of models and baselines, at one point or along an axis."""

from __future__ import annotations

import functools
import math
import textwrap
from pathlib import Path
from typing import Any

import click

from ridgeformer.cli.options import (
    PARTS,
    PLACE,
    cli,
    measures_explosions,
    model_name,
    model_problem_options,
    read_model_and_problem,
    takes_a_problem,
    trained_on,
)
from ridgeformer.cli.output import Answer, answers, progress
from ridgeformer.errors import refuse, short, shown
from ridgeformer.evaluation import Loss, Losses, Oracle, compare
from ridgeformer.loading import load
from ridgeformer.plotting.problems import check_drawable, draw_problem
from ridgeformer.predictors import baselines as baselines_of
from ridgeformer.problems import Problem
from ridgeformer.theory.one_layer import optimum, risk
from ridgeformer.validation import integer

NUMBERS = {"sigma": float, "layer": int}


@cli.command("eval")
@click.argument("models", type=PLACE, nargs=-1, required=True, metavar="MODEL...")
@click.option("--baselines", is_flag=True)
@click.option("--over", "axes", multiple=True, metavar="AXIS[=VALUES]")
@click.option("--estimator", type=click.Choice(["exact", "query"]), default="exact")
@measures_explosions("Also")
@answers(plot="the losses")
@model_problem_options(None)
def evaluate(
    models: tuple[Path, ...], baselines: bool, axes: tuple[str, ...], estimator: Any, explosions: bool, **options: Any
) -> Answer:
    """Measure the losses of models and compare them with the best achievable loss.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'. The
    problem is the one that the first model was trained on, unless options change it. The default number of sequences is
    100000, and 20000 with the axes sigma and context.

    Options:
        --baselines: Also evaluate ridge regression, the Bayes predictor and other baselines.
        --over: Measure the losses along an axis: layer (the readout after each layer), sigma (noise levels), context
            (numbers of examples), noise, features, tasks or query (other problems). Values are separated by commas, or
            by semicolons; context takes a range such as 1..40; layer, sigma and context have default values. May be
            repeated.
        --estimator: How the loss is estimated. exact: without sampling queries. query: with one sampled query per
            sequence, as in the paper.

    Examples:
        ridgeformer eval 'zoo:diag/7/uniform(0,5)' --baselines
        ridgeformer eval 'zoo:diag/7/uniform(0,5)' 'zoo:full/7/uniform(0,5)' --csv losses.csv
        ridgeformer eval 'zoo:full/7/uniform(0,5)' --over sigma --plot profile.png
        ridgeformer eval 'zoo:diag/3/uniform(0,5)' --explosions
        ridgeformer eval 'zoo:diag/7/uniform(0,5)' --over layer --over sigma=0,1,2
        ridgeformer eval model.safetensors --noise 'uniform(0,5)' --over context=1..40
        ridgeformer eval model.safetensors --over 'features=isotropic();powerlaw(0.5);powerlaw(1)'
    """
    first, problem, record = read_model_and_problem(models[0], {name: options[name] for name in PARTS})
    names = [model_name(path) for path in models]
    names = names if len(set(names)) == len(names) else [str(path) for path in models]
    predictors: dict[str, Any] = dict(zip(names, [first, *map(load, models[1:])], strict=True))
    left_out: list[str] = []
    if baselines:
        classical, left_out = baselines_of(problem)
        predictors |= classical
    over = dict(map(axis, axes)) or None
    sample = {"sequences": options["sequences"], "seed": options["seed"], "estimator": estimator}
    with progress("evaluating") as step:
        losses = compare(problem, predictors, over, **sample, explosions=explosions, progress=step)
    trained = trained_on(record)
    remark = "" if trained in (None, str(problem)) else f"; {names[0]} was trained for {short(trained, 100)}"
    head = f"{problem.label}{remark}"
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


WIDTH, INDENT = 100, 12
GAUSSIAN_ORACLE = "OracleRR (Gaussian prior)"  # see `ridgeformer.predictors.best.oracle_label`


@cli.command()
@answers(plot="a picture of a few sequences")
@takes_a_problem(sequences=100_000)
def problem(problem: Problem, sequences: int, seed: int) -> Answer:
    """Describe a problem, with the losses of the oracle, of the baselines and of the best predictor.

    \b
    OracleRR      ridge regression that is told the noise level; its loss is 0 if tasks are Gaussian
                  (for tasks from a pool it assumes Gaussian ones, and is no oracle)
    ConstRR       ridge regression with one constant penalty, the best one
    LeastSquares  ordinary least squares
    AdaRR         ridge regression with the noise level estimated from the residuals
    TunedRR       AdaRR with the estimate scaled and capped, both tuned on the problem
    IterativeRR   AdaRR computed by 100 steps of gradient descent, without a matrix inverse
    Bayes floor   the Bayes predictor: the smallest expected loss that any predictor can have
    DMMSE         the same for tasks of a pool
    Gram bound    where noise differs from token to token: the best predictor that sees the Gram
                  matrix only, so the smallest loss that a linear transformer can have

    The signal is the mean square of the answers: predicting 0 has a loss of half the signal. The best weights of the
    form W b, which one layer can compute, are known in closed form where all sequences have the same covariance of the
    features.

    Examples:
        ridgeformer problem --noise 'uniform(0,5)'
        ridgeformer problem --noise 'uniform(0,2)' --features 'factors(2)' --plot problem.png
        ridgeformer problem --noise 'uniform(0,2)' --tasks 'pool(64)' --context 10..40 --csv a.csv
    """
    integer("sequences", sequences, 2)  # before baselines are tuned, which takes seconds
    if click.get_current_context().params["plot"] is not None:
        check_drawable(problem)
    predictors, left_out = baselines_of(problem)
    with progress("measuring") as step:
        losses = compare(problem, predictors, sequences=sequences, seed=seed, progress=step)
    oracle = compare(problem, {"oracle": Oracle(problem)}, sequences=sequences, seed=seed, with_floor=False)["oracle"]
    words, one_layer = problem.describe(), _one_layer(problem)
    if GAUSSIAN_ORACLE in predictors:
        left_out = [
            f"{GAUSSIAN_ORACLE} is told sigma but not the law of the tasks: it is ridge regression, not the oracle "
            "that losses are adjusted by, which knows both and has a loss of 0.",
            *left_out,
        ]
    facts: dict[str, Any] = {
        "problem": str(problem),
        "words": words,
        "signal": problem.signal,
        "oracle": {"loss": oracle.unadjusted, "error": oracle.unadjusted_error},
        "one_layer": None if one_layer is None else {"unadjusted": one_layer},
    }
    fill = functools.partial(textwrap.fill, width=WIDTH, subsequent_indent=" " * INDENT, break_long_words=False)
    texts = (words | _hardness(problem, oracle, one_layer)).items()
    head = "\n".join(fill(sentence, initial_indent=f"{name:{INDENT}}") for name, sentence in texts)
    answer = answer_of(losses, f"{head}\n", left_out, facts)
    return Answer(answer.text, answer.record, answer.rows, lambda path: draw_problem(problem, path, seed=seed))


def _one_layer(problem: Problem) -> float | None:
    """The unadjusted loss of the best one-layer model; None where there is no closed form."""
    if problem.noise.per_token:  # one layer is linear in the labels, so only the variance of the noise matters
        problem = problem.replace(noise=math.sqrt(problem.noise.second_moment))
    return risk(problem, optimum(problem)) if problem.one_covariance else None


def _hardness(problem: Problem, oracle: Loss, one_layer: float | None) -> dict[str, str]:
    """The signal, the oracle and one layer, in words."""
    closed = "There is no closed form, because the covariance of the features varies from sequence to sequence."
    if one_layer is not None:
        closed = (
            f"The best estimates W b, with b = sum y x and one matrix W, have an unadjusted loss of {one_layer:.4g} "
            f"(closed form), about {max(one_layer - oracle.unadjusted, 0.0):.4g} more than the oracle."
        )
    signal = f"{problem.signal:.4g}: predicting 0 has an unadjusted loss of {problem.signal / 2:.4g}."
    if problem.features.standardised and problem.lengths.least <= 3:
        signal = (
            f"{problem.signal:.4g}, where n = 4 takes the place of n <= 3: with 3 examples or fewer, standardised "
            "queries have an infinite mean square, and predicting 0 has an infinite unadjusted loss."
        )
    return {
        "signal": signal,
        "oracle": f"The oracle, which is told sigma, has an unadjusted loss of {oracle.unadjusted:.4g} +- "
        f"{oracle.unadjusted_error:.2g}.",
        "one layer": closed,
    }
