"""`ridgeformer problem`: a problem in words, and the losses of the oracle and of the baselines."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.evaluate import answer_of
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import takes_a_problem
from ridgeformer.cli.output import Answer, answers

if TYPE_CHECKING:
    from ridgeformer.evaluation import Loss
    from ridgeformer.problems import Problem

WIDTH, INDENT = 100, 12
GAUSSIAN_ORACLE = "OracleRR (Gaussian prior)"  # see `ridgeformer.predictors.choice.oracle_label`


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer problem --noise 'uniform(0,5)'\n"
    "  ridgeformer problem --noise 'uniform(0,2)' --features 'factors(2)' --plot problem.png\n"
    "  ridgeformer problem --noise 'uniform(0,2)' --tasks 'pool(64)' --context 10..40 --csv a.csv"
)
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

    The signal is the mean square of the answers: predicting 0 has a loss of half the signal. The best weights of the
    form W a, which one layer can compute, are known in closed form where all sequences have the same covariance of the
    features.
    """
    from ridgeformer.evaluation import Oracle, compare
    from ridgeformer.plotting.problems import check_drawable, draw_problem
    from ridgeformer.predictors import baselines

    if click.get_current_context().params["plot"] is not None:
        check_drawable(problem)
    predictors, left_out = baselines(problem)
    with progress_bar("measuring") as step:
        losses = compare(problem, predictors, sequences=sequences, seed=seed, progress=step)
    oracle = compare(problem, {"oracle": Oracle(problem)}, sequences=sequences, seed=seed, with_floor=False)["oracle"]
    words, one_layer = problem.describe(), _one_layer(problem)
    if GAUSSIAN_ORACLE in predictors:
        left_out = [
            f"{GAUSSIAN_ORACLE} is told sigma but not the pool: it is ridge regression, not the oracle that losses are "
            "adjusted by, which knows both and has a loss of 0.",
            *left_out,
        ]
    facts: dict[str, Any] = {
        "problem": str(problem),
        "words": words,
        "signal": problem.signal,
        "oracle": {"loss": oracle.unadjusted, "error": oracle.unadjusted_error},
        "one_layer": None if one_layer is None else {"unadjusted": one_layer},
    }
    head = "\n".join(_line(*pair) for pair in (words | _hardness(problem, oracle, one_layer)).items())
    answer = answer_of(losses, f"{head}\n", left_out, facts)
    return Answer(answer.text, answer.record, answer.rows, lambda path: draw_problem(problem, path, seed=seed))


def _one_layer(problem: Problem) -> float | None:
    """The unadjusted loss of the best one-layer model; None where there is no closed form."""
    from ridgeformer.theory.one_layer import optimum, risk

    return risk(problem, optimum(problem)) if problem.one_covariance else None


def _hardness(problem: Problem, oracle: Loss, one_layer: float | None) -> dict[str, str]:
    """The signal, the oracle and one layer, in words."""
    closed = "There is no closed form, because the covariance of the features varies from sequence to sequence."
    if one_layer is not None:
        closed = (
            f"The best weights W a, with a = sum y x and one matrix W, have an unadjusted loss of {one_layer:.4g} "
            f"(closed form), about {max(one_layer - oracle.unadjusted, 0.0):.4g} more than the oracle."
        )
    return {
        "signal": f"{problem.signal:.4g}: predicting 0 has an unadjusted loss of {problem.signal / 2:.4g}.",
        "oracle": f"The oracle, which is told sigma, has an unadjusted loss of {oracle.unadjusted:.4g} +- "
        f"{oracle.unadjusted_error:.2g}.",
        "one layer": closed,
    }


def _line(name: str, sentence: str) -> str:
    lines = textwrap.fill(sentence, WIDTH - INDENT, break_long_words=False).splitlines()
    return f"{name:{INDENT}}" + ("\n" + " " * INDENT).join(lines)
