"""`ridgeformer baselines`, `eval` and `profile`: how good a predictor is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.models import read_model
from ridgeformer.cli.options import plot_option, problem_options


@cli.command(epilog="Example:\n\n\b\n  ridgeformer baselines --noise 'uniform(0,5)'")
@problem_options
def baselines(noise: str, dim: int, context: int, sequences: int, seed: int, as_json: bool) -> None:
    """Print every baseline's adjusted loss on a problem, and the Bayes floor."""
    from ridgeformer import baselines as classical
    from ridgeformer.bayes import BayesRR
    from ridgeformer.evaluation import compare
    from ridgeformer.problem import Problem

    problem = Problem(dim, context, noise)
    chosen: dict[str, classical.Predictor] = {
        "OracleRR": classical.OracleRR(),
        "ConstRR": classical.ConstRR.tune(problem),
        "LeastSquares": classical.LeastSquares(),
    }
    if context > dim:
        chosen |= {
            "AdaRR": classical.AdaRR(),
            "TunedRR": classical.TunedRR.tune(problem),
            "IterativeRR(100)": classical.IterativeRR(100),
        }
    chosen["Bayes floor"] = BayesRR(problem.noise)
    with progress_bar("baselines") as step:
        found = compare(chosen, problem, sequences=sequences, seed=seed, progress=step)
    _print_results(problem, [*found.values()], as_json)
    if context <= dim and not as_json:
        click.echo("AdaRR, TunedRR and IterativeRR need n > d to estimate the noise, so they are left out.")


@cli.command(
    "eval",
    epilog="Examples:\n\n\b\n  ridgeformer eval model.safetensors --noise 'uniform(0,5)'\n"
    "  ridgeformer eval 'zoo:diag/7/uniform(0,5)' --noise 'uniform(0,3)'",
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--estimator", type=click.Choice(["exact", "query"]), default="exact", show_default=True)
@problem_options
def evaluate_model(
    model: Path, estimator: Any, noise: str, dim: int, context: int, sequences: int, seed: int, as_json: bool
) -> None:
    """Print a model's adjusted loss on a problem, beside the floor.

    MODEL is a .safetensors file, a run's folder, or a shipped model such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.evaluation import evaluate
    from ridgeformer.problem import Problem

    problem = Problem(dim, context, noise)
    with progress_bar("evaluating") as step:
        loaded, _ = read_model(model)
        found = evaluate(loaded, problem, sequences=sequences, seed=seed, estimator=estimator, progress=step)
    _print_results(problem, [replace(found, name=model.name)], as_json)
    if estimator == "query" and not as_json:
        exact = evaluate(loaded, problem, sequences=sequences, seed=seed)
        ratio = (found.error / exact.error) ** 2 if exact.error else float("inf")
        click.echo(f"exact: {exact.loss:.5f} +- {exact.error:.5f}, a variance {ratio:.0f} times smaller")


@cli.command(epilog="Example:\n\n\b\n  ridgeformer profile model.safetensors --noise 'uniform(0,5)' --plot profile.png")
@click.argument("model", type=click.Path(path_type=Path))
@plot_option("it")
@problem_options
def profile(
    model: Path, plot: Path | None, noise: str, dim: int, context: int, sequences: int, seed: int, as_json: bool
) -> None:
    """Print a model's adjusted loss at every noise level, from 0 to one past the range it is for.

    MODEL is a .safetensors file, a run's folder, or a shipped model such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.bayes import BayesRR
    from ridgeformer.evaluation import profile as measure
    from ridgeformer.problem import Problem

    problem = Problem(dim, context, noise)
    loaded, _ = read_model(model)
    if plot is not None:
        from ridgeformer.plots import check_plot

        check_plot(plot)
    with progress_bar("profile") as step:
        found = measure(loaded, problem, sequences=sequences, seed=seed, progress=step)
        best = measure(BayesRR(problem.noise), problem, sequences=min(sequences, 20_000), seed=seed, progress=step)
    if plot is not None:
        from ridgeformer.plots import draw_profile

        draw_profile(plot, str(problem), {"model": found, "Bayes": best})
    if as_json:
        columns = {"sigma": found.sigmas, "loss": found.losses, "error": found.errors, "bayes": best.losses}
        record = {name: values.tolist() for name, values in columns.items()}
        click.echo(json.dumps({"problem": str(problem), **record, "in": found.in_distribution.tolist()}, indent=2))
        return
    click.echo(f"{problem}\n\n sigma      loss    +-          Bayes")
    for row in zip(found.sigmas, found.losses, found.errors, best.losses, found.in_distribution, strict=True):
        click.echo(f"{row[0]:6.3f} {row[1]:10.5f} {row[2]:8.5f} {row[3]:10.5f}{'' if row[4] else '   outside'}")


def _print_results(problem: object, results: list[Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"problem": str(problem), "results": [r.as_dict() for r in results]}, indent=2))
        return
    wide = max(10, *(len(r.name) for r in results))
    click.echo(f"{problem}: adjusted loss on {results[0].sequences:,} sequences, floor {results[0].floor:.5f}\n")
    click.echo(f"{'':{wide}}     loss       +- x floor unadjusted 99.99 %     max exploded")
    for r in results:
        ratio = f"{r.ratio:.2f}" if r.ratio < 1e6 else "-"
        losses = f"{r.loss:9.5f}{r.error:9.5f}{ratio:>8}{r.unadjusted:11.4f}{r.tail:8.2g}{r.largest:8.2g}"
        click.echo(f"{r.name:{wide}}{losses}{r.exploded:9}")
