"""`ridgeformer baselines`, `eval` and `profile`: how good a predictor is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.models import Subject, reads_a_model
from ridgeformer.cli.options import plot_option, takes_a_problem
from ridgeformer.errors import refuse, shown

if TYPE_CHECKING:
    from ridgeformer.evaluation.sequence_losses import Estimator
    from ridgeformer.problems import Problem

__all__ = ["print_results"]

COLUMNS = ("name", "loss", "error", "ratio", "unadjusted", "tail", "largest", "exploded")  # see `Result`
GAUSSIAN_ORACLE = "OracleRR (Gaussian prior)"  # see `ridgeformer.predictors.choice.oracle_label`


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer baselines --noise 'uniform(0,5)'\n"
    "  ridgeformer baselines --noise 'categorical(1,3)' --dim 5 --context 12 --json\n"
    "  ridgeformer baselines --noise 'uniform(0,2)' --tasks 'pool(64)' --context 10..40"
)
@takes_a_problem(sequences=100_000)
def baselines(problem: Problem, sequences: int, seed: int, as_json: bool) -> None:
    """Compare the classical baselines on a problem with the best achievable loss.

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

    Ridge regression assumes the mean and the covariance of the tasks. It does not know the tasks of a pool.
    """
    from ridgeformer.evaluation import compare
    from ridgeformer.predictors import baselines as choose

    chosen, left_out = choose(problem)
    with progress_bar("baselines") as step:
        found = compare(problem, chosen, sequences=sequences, seed=seed, progress=step)
    print_results(problem, [*found.values()], as_json)
    if not as_json:
        for sentence in left_out:
            click.echo(sentence)


@cli.command(
    "eval",
    epilog="Examples:\n\n\b\n  ridgeformer eval model.safetensors --noise 'uniform(0,5)'\n"
    "  ridgeformer eval 'zoo:diag/7/uniform(0,5)'\n  ridgeformer eval 'zoo:diag/7/uniform(0,5)' --noise 'uniform(0,3)'",
)
@click.option(
    "--estimator",
    type=click.Choice(["exact", "query"]),
    default="exact",
    show_default=True,
    help="How the loss is estimated. exact: without sampling queries. query: with one sampled query per sequence, as "
    "in the paper.",
)
@reads_a_model(sequences=100_000)
def evaluate_model(subject: Subject, estimator: Estimator) -> None:
    """Measure the adjusted loss of a model and compare it with the best achievable loss.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.evaluation import compare

    name, named, problem = subject.name, {subject.name: subject.model}, subject.problem
    with progress_bar("evaluating") as step:
        found = compare(problem, named, **subject.sample, estimator=estimator, progress=step)[name]
    print_results(problem, [found], subject.as_json)
    if estimator == "query" and not subject.as_json:
        exact = compare(problem, named, **subject.sample)[name]
        times = (found.error / exact.error) ** 2 if exact.error else float("inf")
        click.echo(
            f"\nThe exact estimator gives {exact.loss:.4g} +- {exact.error:.2g}. Its variance is {times:.0f} times "
            "smaller."
        )


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer profile 'zoo:full/7/uniform(0,5)'\n"
    "  ridgeformer profile model.safetensors --noise 'uniform(0,5)' --plot profile.png\n"
    "  ridgeformer profile 'zoo:diag/7/uniform(0,5)' --sigma '0.5;1;2'"
)
@click.option(
    "--sigma", help="Noise levels, such as '0.5;1;2' or '0.5,1,2' [default: about 40, from 0 to 1 above the largest]."
)
@plot_option("the profile")
@reads_a_model(sequences=20_000)
def profile(subject: Subject, sigma: str | None, plot: Path | None) -> None:
    """Measure the adjusted loss of a model at each noise level.

    Without --sigma, the levels go from 0 to 1 above the largest level of the problem, so that the profile also shows
    how the model extrapolates. MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as
    'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.evaluation import profiles
    from ridgeformer.evaluation.table import aligned, lines
    from ridgeformer.losses import threshold
    from ridgeformer.predictors import best_predictor

    problem = subject.problem
    label, column = ("DMMSE", "DMMSE") if problem.has_pool else ("Bayes predictor", "Bayes")
    chosen = {subject.name: subject.model, label: best_predictor(problem)}
    with progress_bar("profile") as step:
        found, best = profiles(problem, chosen, sigma=_levels(sigma), **subject.sample, progress=step).values()
    if plot is not None:
        from ridgeformer.plotting.profiles import draw_profile

        draw_profile(plot, str(problem), {subject.short_name: found, f"{label} (best on average)": best})
    if subject.as_json:
        columns = {"sigma": found.sigma, "loss": found.loss, "error": found.error, "bayes": best.loss}
        lists = {name: values.tolist() for name, values in {**columns, "exploded": found.exploded}.items()}
        facts = {"model": subject.name, "problem": str(problem), "sequences": found.sequences, "best": label}
        click.echo(json.dumps({**facts, **lists, "in_distribution": found.in_distribution.tolist()}, indent=2))
        return
    columns = {"sigma": found.sigma, "loss": found.loss, "error": found.error, column: best.loss}
    rows = lines({**columns, "exploded": found.exploded, "in_distribution": found.in_distribution})
    click.echo(f"{problem}: adjusted loss by noise level, {found.sequences:,} sequences each\n\n{aligned(rows)}")
    click.echo(
        "\nerror: standard error of the loss. in_distribution: whether the noise level can occur in the problem.\n"
        f"{'DMMSE' if problem.has_pool else 'The Bayes predictor'} has the smallest loss on average over the noise "
        "levels of the problem, but not at every single level."
    )
    if wild := int((found.exploded > 0).sum()):
        click.echo(
            f"At {wild} of {len(found.sigma)} noise levels at least one of {found.sequences:,} sequences exploded (a "
            f"loss above {threshold(problem.signal):g}). They raise the mean, and dominate it where the error is as "
            "large as the loss: it then says little about the other sequences."
        )


def _levels(text: str | None) -> list[float] | None:
    """The noise levels that a text names, separated by semicolons or commas; None for the default ones."""
    if text is None:
        return None
    try:
        return [float(part) for part in re.split("[;,]", text)]
    except ValueError:
        refuse("--sigma must be a list of numbers", shown(text), "Write --sigma '0.5;1;2', for example.")


def print_results(problem: object, results: list[Any], as_json: bool) -> None:
    """Print results as a table with the floor above it, or as JSON."""
    from ridgeformer.evaluation.table import aligned, without_rounding
    from ridgeformer.losses import CAP, ROUNDING

    if as_json:
        click.echo(json.dumps({"problem": str(problem), "results": [r.as_dict() for r in results]}, indent=2))
        return
    rows, first = [result.columns(COLUMNS) for result in results], results[0]
    click.echo(
        f"{problem}: adjusted loss on {first.sequences:,} sequences, floor {without_rounding(first.floor):.4g}\n"
    )
    click.echo(
        f"{aligned(rows)}\n\nerror: standard error of the loss. ratio: loss / floor.\n"
        "tail (99.99 % quantile) and largest: of the losses of single sequences."
    )
    if any(r.exploded for r in results):
        click.echo(
            "Where sequences exploded, they dominate the mean loss, in which a single loss counts at most "
            f"{CAP:g}. A ratio above a million is a dash."
        )
    if any(r.name == GAUSSIAN_ORACLE for r in results):
        click.echo(
            f"{GAUSSIAN_ORACLE} is told sigma but not the pool: it is ridge regression, not the oracle that losses are "
            "adjusted by, which knows both and has a loss of 0."
        )
    if results[0].floor <= ROUNDING:
        click.echo("The noise level is always the same, so the best predictor can know it: the floor is 0.")
