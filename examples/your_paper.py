"""A paper of your own, in the shape that all papers have: a template to copy.

Least squares with too few examples
You, 2026
https://example.org

Least squares of least norm finds the part of the task that lies in the span of the examples: without noise its loss is
(d - n) / 2 while there are fewer examples than dimensions.

The loss is measured for several numbers of examples, and held against this closed form.

Not checked here: Least squares with noise.
"""

from pathlib import Path

from ridgeformer import LeastSquares, Problem, evaluate, papers
from ridgeformer.papers import Paper, Part, Picture, agree
from ridgeformer.plotting.panels import Line, Panel, Scatter, draw_panels

DIM, POINTS = 10, (2, 4, 6, 8)


def expected(examples):
    """The closed form."""
    return (DIM - examples) / 2


def losses(work, *, sequences=20_000):
    """Measure. The defaults are the settings of the full version; what is returned is stored as JSON."""
    rows = [evaluate(Problem(DIM, n, 0), LeastSquares(), sequences=sequences, with_floor=False) for n in POINTS]
    return {"loss": [row.unadjusted for row in rows], "error": [row.unadjusted_error for row in rows]}


def closed_form(results):
    """Decide a claim from what was stored. The next paragraph is the claim, then follow texts about its decision.

    The loss of least squares is (d - n) / 2.

    Reason: Chance: 4 standard errors.
    """
    within = [4 * error for error in results["losses"]["error"]]
    return agree(results["losses"]["loss"], list(map(expected, POINTS)), within, unit="4 standard errors")


def draw(results):
    """Draw from what was stored. The next paragraph is the caption.

    Loss of least squares against the number of examples.
    """
    part = results["losses"]
    shown = [Line("", POINTS, list(map(expected, POINTS))), Scatter("measured", POINTS, part["loss"], part["error"])]
    return draw_panels([Panel("least squares", "examples n", "loss", shown)])


PAPER = Paper(
    id="yours2026",
    about=__doc__,
    problems={"problem": Problem(DIM, 4, 0)},
    parts=(Part(losses, quick={"sequences": 2000}),),
    checks=(closed_form,),
    pictures={"losses": Picture(draw)},
)

outcome = papers.run(PAPER, quick=True, out="papers")
for check in outcome.checks:
    print(f"{check.verdict}: {check.claim} Measured {check.measured}.")
print(papers.report_page([outcome], Path("papers")))
