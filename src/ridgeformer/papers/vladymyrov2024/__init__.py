"""The seed paper: Table 1, the figures, the claims and the theorems, measured again.

Linear transformers are versatile in-context learners
Max Vladymyrov, Johannes von Oswald, Mark Sandler and Rong Ge, 2024
https://arxiv.org/abs/2402.14180

Every layer of a linear transformer maintains an implicit linear model and can be read as a step of preconditioned
gradient descent. On regression with noise of unknown strength, trained models adapt to the noise level of each context
and match or beat ridge regression that is tuned for the problem; diagonal layers are nearly as good as full ones.
"""

from __future__ import annotations

from collections.abc import Callable

from ridgeformer.papers.paper import Check, Paper, Part, Results
from ridgeformer.papers.results import Rows
from ridgeformer.papers.running import Work
from ridgeformer.papers.vladymyrov2024.claims import CLAIMS
from ridgeformer.papers.vladymyrov2024.evidence import PARTS
from ridgeformer.papers.vladymyrov2024.figures import FIGURES
from ridgeformer.papers.vladymyrov2024.paper import COLUMNS, problem_of
from ridgeformer.papers.vladymyrov2024.report.writing import write_page
from ridgeformer.papers.vladymyrov2024.theory.verification import STATEMENTS, verify


def theorems(work: Work, seed: int = 0) -> Rows:
    """Check the theorems and lemmas of the paper. See `Part`."""
    yield from (check.as_dict() for check in verify(seed=seed, progress=lambda name, *done: work.progress(*done)))


def _theorem(name: str) -> Callable[[Results], Check]:
    """The check of a statement."""

    def check(results: Results) -> Check:
        """Decide whether each error of the statement keeps its bound. See `Paper`.

        Tolerance: none
        Reason: Bounds are rounding errors, or standard errors where a statement is about averages; see the module.
        Rule: rejected where an error exceeds its bound
        """
        errors = results.theorems.where(statement=name)
        return Check(
            "; ".join(errors.names("{what}: {error:.2g}")),
            "errors of at most " + ", ".join(errors.names("{bound:.2g}")),
            holds=errors.passed,
            where=f"theory.{name}",
            brief=f"{sum(errors.passed)} of {len(errors.passed)} errors keep their bounds",
            claim=f"{STATEMENTS[name]}.",
        )

    check.__name__ = name
    return check


PAPER = Paper(
    id="vladymyrov2024",
    about=__doc__,
    problems={noise: problem_of(noise) for noise in COLUMNS},
    parts=(*PARTS, Part(theorems)),
    checks=(*CLAIMS, *map(_theorem, STATEMENTS)),
    pictures=FIGURES,
    page=write_page,
)
