"""Zhang, Singh, Latham and Saxe: plateaus of the loss while heads of low rank learn one direction after the other.

Training dynamics of in-context learning in linear attention
Yedi Zhang, Aaditya K. Singh, Peter E. Latham and Andrew Saxe, ICML 2025
https://arxiv.org/abs/2501.16265

From a small start, one layer of linear attention does not learn gradually: the loss rests on plateaus, and drops
suddenly. With separate keys and queries of rank one it learns one principal direction of the features after the other,
and the plateaus are known in closed form. With a larger rank it learns several at once.

Gradient flow on the exact population loss is followed from a small start, with separate keys and queries of every rank
and with enough heads to learn all directions. The closed form says at which squared errors the flow must rest: each
learned direction takes a known amount off. The figure shows the courses with these levels. With rank one the flow rests
at every level. With larger ranks it passes most of them, but when the smallest eigenvalues are learned much later than
the others it also rests between them, which is why the last claim is supported in part only.

Not checked here: Fixed tasks mixed with tasks in context, and softmax attention, which the paper also studies.
"""

from __future__ import annotations

import numpy as np

from ridgeformer.papers import Check, Paper, Part, Picture, Results, Rows, Work, agree
from ridgeformer.plotting.panels import Line, Panel
from ridgeformer.problems import Problem
from ridgeformer.training import GradientFlow
from ridgeformer.validation import Array

CONTEXT = 31
SPECTRA = {
    "proportional to 4, 3, 2, 1": (0.4, 0.3, 0.2, 0.1),
    "proportional to 8, 4, 2, 1": (8 / 15, 4 / 15, 2 / 15, 1 / 15),
    "proportional to 1, 1/2, 1/3, 1/4": (0.48, 0.24, 0.16, 0.12),
    "proportional to 8 to 1": tuple(i / 36 for i in range(8, 0, -1)),
}
FIRST, LONG = next(iter(SPECTRA)), list(SPECTRA)[-1]
KNOWN = (1.0, 0.641, 0.377, 0.210, 0.136)  # of the first spectrum, from our own gradient descent
RANKS = (1, 2, 4, 8)
AT = 0.01  # the loss is at a level if it is within this share of it


def _levels(spectrum: tuple[float, ...], context: int = CONTEXT) -> Array:
    """The squared errors after 0, 1, 2, ... directions: each takes n lambda^2 / ((n + 1) lambda + tr Lambda) off."""
    values = np.array(spectrum)
    gains = context * values**2 / ((context + 1) * values + values.sum())
    return np.asarray(values.sum() - np.append(0.0, np.cumsum(gains)))


def flows(work: Work, *, spectra: tuple[str, ...] = tuple(SPECTRA), time: float = 5000.0) -> Rows:
    """Follow gradient flow from a small start, with separate keys and queries of every rank.

    Args:
        work: The folder of runs and the progress.
        spectra: The names of the spectra.
        time: The time of the flow.

    Yields:
        For every spectrum and rank: times and squared errors.
    """
    protocol = GradientFlow(time=time, scale=0.01, record=300, snapshots=0, tolerance=1e-6)
    for name, rank in work.each([(name, rank) for name in spectra for rank in RANKS if rank <= len(SPECTRA[name])]):
        problem, heads = Problem(len(SPECTRA[name]), CONTEXT, 0, features=SPECTRA[name]), len(SPECTRA[name]) // rank + 1
        run = work.train(problem, f"lowrank({rank})", heads=heads, protocol=protocol, sequences=1000)
        label = f"{problem.dim} values {name.removeprefix('proportional to ')}"
        yield {"name": name, "label": label, "rank": rank, "time": run.history.time, "error": 2 * run.history.loss}


def _stays(course: Results, spectrum: tuple[float, ...]) -> Array:
    """How long a course stays at every level, relative to the time at which it leaves it; 0 where it passes by."""
    spreads = []
    for level in _levels(spectrum):
        at = course.time[np.abs(course.error - level) <= AT * level]
        spreads.append((at.max() - at.min()) / at.max() if len(at) and at.max() > 0 else 0.0)
    return np.array(spreads)


def rank_one(results: Results) -> Check:
    """Decide whether rank one pauses at every level, of every spectrum. See `Paper`.

    With keys and queries of rank one, the loss pauses after every direction; the plateaus are 1, .641, .377, .210, .136
    for eigenvalues .4, .3, .2, .1, and have a closed form for others.

    Reason: A plateau is left and reached slowly; 1 % is far below the distance of two levels.
    """
    names, seen, truth = [], [], []
    for course in results.flows.where(rank=1).rows:
        if course.name == LONG:  # neighbouring eigenvalues of this one are learned nearly at once
            continue
        for m, level in enumerate(_levels(SPECTRA[course.name])):
            near = course.error[
                np.argsort(np.abs(np.log(course.error / level)))[:3]
            ]  # three recorded times at a plateau
            names.append(f"{course.label}, {m} learned:")
            seen.append(near[-1])
            truth.append(level)
    return agree(
        seen,
        truth,
        AT * np.array(truth),
        unit="1 % of the level, at three recorded times or more",
        names=names,
        published="1, .641, .377, .210, .136",
    )


def formula(results: Results) -> Check:
    """Decide whether the closed form gives the levels that were known. See `Paper`.

    Learning direction i takes n lambda_i^2 / ((n + 1) lambda_i + tr Lambda) off the squared error.

    Reason: The known numbers have three digits.
    """
    return agree(_levels(SPECTRA[FIRST]), KNOWN, 0.0006, names=[f"{m} learned:" for m in range(5)])


def in_groups(results: Results) -> Check:
    """Decide whether heads of rank R learn R directions at once. See `Paper`.

    With keys and queries of rank R, the loss pauses only after every R-th direction.

    Expected: multiples of R
    Tolerance: a pause is a stay within 1 % of a level for at least a fifth of the time so far
    Reason: On passing by, the loss is within 1 % of a level for some percent of the time so far.
    Rule: rejected where it pauses elsewhere, or does not pause at a multiple of R
    """
    words, holds = [], []
    for course in results.flows.rows:
        if course.rank > 1:
            stay = _stays(course, SPECTRA[course.name])
            paused = [m for m in range(1, len(stay) - 1) if stay[m] > 0.2]
            words.append(f"{course.label}, rank {course.rank}: {paused}")
            holds.append(paused == [*range(course.rank, len(stay) - 1, course.rank)])
    return Check("numbers of directions after which it pauses: " + "; ".join(words), holds=holds)


def draw(results: Results) -> list[Panel]:
    """Draw the courses with the levels. See `Paper`.

    Squared error during gradient flow. Dashed: the levels of the closed form.
    """
    figure = []
    for name, table in results.flows.by("name"):
        shown = [Line(f"rank {run.rank}", run.time[1:], run.error[1:], i) for i, run in enumerate(table.rows)]
        ends = table.rows[0].time[[1, -1]]
        shown += [Line("", ends, [level, level], 6, True) for level in _levels(SPECTRA[name])]
        figure.append(Panel(name, "time", "squared error", shown, True, True))
    return figure


PAPER = Paper(
    id="yzhang2025",
    about=__doc__,
    problems={name: Problem(len(values), CONTEXT, 0, features=values) for name, values in SPECTRA.items()},
    parts=(Part(flows, {"spectra": (FIRST,), "time": 2000.0}),),
    checks=(rank_one, formula, in_groups),
    pictures={"courses": Picture(draw, columns=2)},
)
