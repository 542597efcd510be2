"""`ridgeformer shifts` and `prefixes`: a model on other problems than its own, and with fewer or more examples."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.models import Subject, reads_a_model, trained_lengths, trained_on
from ridgeformer.cli.options import Command, plot_option
from ridgeformer.errors import InputError, shown

if TYPE_CHECKING:
    from ridgeformer.predictors import Predictor

KINDS = {
    "noise": "Noise of another problem to evaluate on: a distribution, or a number for one level.",
    "context": "Context length of another problem: a number, a range such as '10..40', or a list such as '10,20,40'.",
    "features": "Law of the features of another problem.",
    "tasks": "Law of the tasks of another problem.",
    "query": "Covariance of the queries of another problem; 'none' for that of the features.",
}


def _shift_options(command: Command) -> Command:
    """One option for every kind of shift; each may be repeated, and separates several values by semicolons."""
    for kind, text in reversed(KINDS.items()):
        command = click.option(f"--to-{kind}", f"to_{kind}", multiple=True, metavar="VALUE[;VALUE...]", help=text)(
            command
        )
    return command


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer shifts 'zoo:diag/7/uniform(0,5)' --to-noise '0.5;1;2;4;6' --plot noise.png\n"
    "  ridgeformer shifts 'zoo:full/7/uniform(0,5)' --to-context '10;15;20;30;40'\n"
    "  ridgeformer shifts model.safetensors --to-features 'isotropic();powerlaw(0.5);powerlaw(1)'\n"
    "  ridgeformer shifts model.safetensors --to-tasks 'pool(4)' --to-tasks 'pool(64)' --json"
)
@_shift_options
@plot_option("the losses")
@reads_a_model(sequences=100_000)
def shifts(subject: Subject, plot: Path | None, **given: tuple[str, ...]) -> None:
    """Evaluate a model on problems that differ from its own in one respect.

    Exactly one of the options --to-... says in which respect, and names the values. Repeat it, or separate values by
    semicolons. Every problem has its own oracle and its own floor. The best predictor for the problem of the model is
    shown too: it does not know of the shift either.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.evaluation import shifts as measure
    from ridgeformer.predictors import best_predictor

    what, values = _shift(given)
    problem, short, trained = subject.problem, subject.short_name, trained_on(subject.record)
    chosen = {subject.name: subject.model, "best for the original problem": best_predictor(problem)}
    with progress_bar("shifts") as step:
        found = measure(problem, chosen, progress=step, **{**subject.sample, what: values})
    shown = dataclasses.replace(found, name=(short, *found.name[1:]))
    if plot is not None:
        from ridgeformer.plotting.shifts import draw_shifts

        title = f"{short}, shifted from {problem}" if trained is None else f"{short}, trained for {trained}"
        draw_shifts(plot, title, shown)
    head = [] if trained == str(problem) else [f"The original problem is {problem}."]
    note = "The floor is that of the shifted problem. ratio: loss / floor."
    _print(subject, head, found if subject.as_json else shown, note)


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer prefixes 'zoo:diag/7/uniform(0,5)' --context 1..40 --plot prefixes.png\n"
    "  ridgeformer prefixes model.safetensors --noise 'uniform(0,2)' --context 5,10,20,40 --json"
)
@plot_option("the losses")
@reads_a_model(sequences=20_000)
def prefixes(subject: Subject, plot: Path | None) -> None:
    """Measure the loss of a model after each number of examples, on prefixes of the same sequences.

    --context names the numbers of examples: a range or a list, or a single number n for all from 1 to n.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.evaluation import by_prefix
    from ridgeformer.predictors import ConstRR

    problem, short = subject.problem, subject.short_name
    context: Any = None if problem.lengths.fixed else problem.lengths
    chosen: dict[str, Predictor] = {subject.name: subject.model, "ConstRR": ConstRR.tune(problem)}
    with progress_bar("prefixes") as step:
        found = by_prefix(problem, chosen, context=context, **subject.sample, progress=step)
    evaluated = problem.replace(context=found.context.tolist())
    shown = dataclasses.replace(found, name=(short, *found.name[1:]))
    if plot is not None:
        from ridgeformer.plotting.shifts import draw_prefixes

        draw_prefixes(plot, f"{short} on {evaluated}", shown, trained_lengths(subject.record))
    note = "The floor is the loss of the best predictor with as many examples."
    _print(subject, [f"Evaluated on {evaluated}."], found if subject.as_json else shown, note)


def _shift(given: dict[str, tuple[str, ...]]) -> tuple[str, list[Any]]:
    """What is shifted, and to which values."""
    used = [kind for kind in KINDS if given[f"to_{kind}"]]
    if len(used) != 1:
        names = " and ".join(f"--to-{kind}" for kind in used) or "none"
        remedy = "Keep one of them, and remove the others." if used else "Add --to-noise '1;2;3', for example."
        raise InputError(f"choose exactly one of --to-{', --to-'.join(KINDS)}; got {names}. {remedy}")
    (kind,) = used
    texts = [text.strip() for value in given[f"to_{kind}"] for text in value.split(";") if text.strip()]
    if not texts:
        raise InputError(f"a shift needs at least one value; --to-{kind} names none. Separate values by semicolons.")
    for text in texts if kind != "context" else []:
        outer = text
        while (shorter := re.sub(r"\([^()]*\)|\[[^][]*\]", "", outer)) != outer:
            outer = shorter
        if "," in outer:
            raise InputError(f"values are separated by semicolons; got --to-{kind} {shown(text)}. Write '1;2;3'.")
    return kind, [None if (kind, text) == ("query", "none") else text for text in texts]


def _print(subject: Subject, head: list[str], found: Any, note: str) -> None:
    """Print losses; what the model was trained for is said only where its record says it."""
    from ridgeformer.losses import CAP

    trained = trained_on(subject.record)
    if subject.as_json:
        from ridgeformer.jsonable import jsonable

        facts = {"problem": str(subject.problem), "trained": trained, **found.as_dict(), "ratio": jsonable(found.ratio)}
        click.echo(json.dumps(facts, indent=2))
        return
    if found.exploded.any():
        note += (
            "\nWhere sequences exploded, they dominate the mean loss, in which a single loss counts at most "
            f"{CAP:g}.\nunexploded: the mean loss of the other sequences."
        )
    lines = [*([] if trained is None else [f"Trained for {trained}."]), *head]
    click.echo("\n".join([*lines, f"{found}\n\n{note}"]))
