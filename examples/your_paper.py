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

from ridgeformer import LeastSquares, Problem, papers
from ridgeformer.papers import Paper, Part, Picture, agree
from ridgeformer.plotting.panels import Line, Panel, Scatter

DIM, POINTS = 10, (2, 4, 6, 8)


def expected(n):
    """The closed form."""
    return (DIM - n) / 2


def losses(work, *, sequences=20_000):
    """Measure. The defaults are the settings of the full version; the rows are stored as JSON."""
    for n in work.each(POINTS):
        yield {"n": n, **work.loss(Problem(DIM, n, 0), LeastSquares(), sequences)}


def closed_form(results):
    """Decide a claim from what was stored. The next paragraph is the claim.

    The loss of least squares is (d - n) / 2.
    """
    rows = results.losses
    return agree(rows.loss, rows.compute(expected), error=rows.error, names=rows.names("n = {n}:"))


def draw(results):
    """Draw from what was stored. The next paragraph is the caption.

    Loss of least squares against the number of examples.
    """
    rows = results.losses
    shown = [Line.of("(d - n) / 2", expected, POINTS), Scatter("measured", rows.n, rows.loss, rows.error)]
    return [Panel("least squares", "examples n", "loss", shown)]


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
