"""Problems: the distribution of sequences. Features, tasks, context lengths, noise and queries, and your own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.problems.base import BaseProblem as BaseProblem
from ridgeformer.problems.custom import CUSTOM, CustomProblem as CustomProblem
from ridgeformer.problems.dataset import Dataset as Dataset
from ridgeformer.problems.draws import Draw as Draw, Sequences as Sequences
from ridgeformer.problems.features import (
    Covariance as Covariance,
    Factors as Factors,
    Features as Features,
    Isotropic as Isotropic,
    PowerLaw as PowerLaw,
    Rotated as Rotated,
    Scales as Scales,
    Spectrum as Spectrum,
    Standardised as Standardised,
)
from ridgeformer.problems.parts import Lengths as Lengths
from ridgeformer.problems.problem import Problem as Problem
from ridgeformer.problems.sparse import Sparse as Sparse
from ridgeformer.problems.tasks import (
    Gaussian as Gaussian,
    LowRankTasks as LowRankTasks,
    Mixture as Mixture,
    Pool as Pool,
    Prior as Prior,
    Tasks as Tasks,
)
from ridgeformer.problems.varying import ByDimension as ByDimension, VaryingDimension as VaryingDimension

ARGUMENTS = ("dim", "context", "noise", "features", "tasks", "query")


def problem_from_dict(stored: Mapping[str, Any]) -> BaseProblem:
    """Return the problem that `problem.as_dict()` described; other entries are ignored.

    Args:
        stored: The entries.

    Returns:
        A `Problem`, or a custom problem whose class is known by its name.

    Raises:
        InputError: The class of a custom problem is not known, or an argument is not allowed.
    """
    if not isinstance(stored, Mapping):
        refuse("a stored problem is a dict", kind_of(stored), "Pass what problem.as_dict() returned.")
    if "problem" not in stored:
        return Problem(**{name: stored[name] for name in ARGUMENTS if name in stored})
    kind = CUSTOM.get(stored["problem"]) if isinstance(stored["problem"], str) else None
    if kind is None:
        rule = f"a stored problem must be one of {', '.join(['the built-in one', *CUSTOM])}"
        refuse(rule, shown(stored["problem"]), "Import the module that defines its class first.")
    problem = kind(**stored["arguments"])
    if problem.as_dict().get("state") != stored.get("state"):
        rule = "a class must make the same problem from the same arguments"
        received = f"{shown(stored['problem'])}, whose attributes are not those of the stored one"
        refuse(rule, received, "Let its attributes depend on its arguments alone.")
    return problem
