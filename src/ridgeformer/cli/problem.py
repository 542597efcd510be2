"""`ridgeformer problem`: what a problem is, and how hard."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.measure import print_results
from ridgeformer.cli.options import plot_option, takes_a_problem

if TYPE_CHECKING:
    from ridgeformer.evaluation.oracle import OracleRisk
    from ridgeformer.problems import Problem

WIDTH = 100
INDENT = 12


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer problem --noise 'uniform(0,5)'\n"
    "  ridgeformer problem --noise 'uniform(0,2)' --features 'factors(2)' --plot problem.png\n"
    "  ridgeformer problem --noise 'fixed(0.5)' --tasks 'pool(64)' --json"
)
@plot_option("a picture of a few sequences")
@takes_a_problem(sequences=20_000)
def problem(problem: Problem, plot: Path | None, sequences: int, seed: int, as_json: bool) -> None:
    """Show a problem: what it is, and the losses of the oracle, of the baselines and of the best predictor.

    The signal is the mean square of what is to be predicted: predicting 0 has a loss of half the signal. The oracle is
    told the noise level. The best weights of the form W a, which one layer can compute, are known in closed form where
    all sequences have the same covariance of the features.
    """
    from ridgeformer.evaluation import compare, oracle_risk
    from ridgeformer.predictors import baselines
    from ridgeformer.problems.words import describe

    if plot is not None:
        from ridgeformer.plotting.problems import draw_problem

        draw_problem(plot, problem, seed=seed)
    chosen, left_out = baselines(problem)
    with progress_bar("measuring") as step:
        found = compare(problem, chosen, sequences=sequences, seed=seed, progress=step)
    oracle, words, one_layer = oracle_risk(problem, sequences=sequences, seed=seed), describe(problem), _one(problem)
    if as_json:
        facts: dict[str, Any] = {
            "problem": str(problem),
            "words": words,
            "signal": problem.signal,
            "oracle": oracle._asdict(),
            "one_layer": None if one_layer is None else {"unadjusted": one_layer},
            "results": [result.as_dict() for result in found.values()],
            "left_out": left_out,
        }
        click.echo(json.dumps(facts, indent=2))
        return
    _print_words({**words, **_hardness(problem, oracle, one_layer)})
    print_results(problem, [*found.values()], as_json=False)
    for sentence in left_out:
        click.echo(sentence)


def _one(problem: Problem) -> float | None:
    """The unadjusted loss of the best one-layer model; None where there is no closed form."""
    from ridgeformer.theory.one_layer import optimum, risk

    return risk(problem, optimum(problem)) if problem.features.fixed else None


def _hardness(problem: Problem, oracle: OracleRisk, one_layer: float | None) -> dict[str, str]:
    """The signal, the oracle and one layer, in words."""
    closed = "There is no closed form, because the covariance of the features varies from sequence to sequence."
    if one_layer is not None:
        closed = (
            f"The best weights W a, with a = sum y x and one matrix W, have an unadjusted loss of {one_layer:.4g} "
            f"(closed form), about {max(one_layer - oracle.loss, 0.0):.4g} more than the oracle."
        )
    return {
        "signal": f"{problem.signal:.4g}: predicting 0 has an unadjusted loss of {problem.signal / 2:.4g}.",
        "oracle": f"The oracle, which is told sigma, has an unadjusted loss of {oracle.loss:.4g} +- "
        f"{oracle.error:.2g}.",
        "one layer": closed,
    }


def _print_words(words: dict[str, str]) -> None:
    for name, sentence in words.items():
        lines = textwrap.fill(sentence, WIDTH - INDENT, break_long_words=False).splitlines()
        click.echo(f"{name:{INDENT}}" + ("\n" + " " * INDENT).join(lines))
    click.echo()
