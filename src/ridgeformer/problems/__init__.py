"""Problems: the distribution of sequences. Features, tasks, context lengths, noise and queries, and your own."""

from ridgeformer.problems.base import BaseProblem
from ridgeformer.problems.custom import CUSTOM, CustomProblem
from ridgeformer.problems.dataset import Dataset
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.features import (
    Covariance,
    Factors,
    Features,
    Isotropic,
    PowerLaw,
    Rotated,
    Scales,
    Spectrum,
    Standardised,
)
from ridgeformer.problems.lengths import Lengths
from ridgeformer.problems.prior import Prior
from ridgeformer.problems.problem import Problem
from ridgeformer.problems.reading import problem_from_dict
from ridgeformer.problems.tasks import Gaussian, LowRankTasks, Mixture, Pool, Sparse, Tasks
from ridgeformer.problems.varying import ByDimension, VaryingDimension

__all__ = [
    "CUSTOM",
    "BaseProblem",
    "ByDimension",
    "Covariance",
    "CustomProblem",
    "Dataset",
    "Draw",
    "Factors",
    "Features",
    "Gaussian",
    "Isotropic",
    "Lengths",
    "LowRankTasks",
    "Mixture",
    "Pool",
    "PowerLaw",
    "Prior",
    "Problem",
    "Rotated",
    "Scales",
    "Sequences",
    "Sparse",
    "Spectrum",
    "Standardised",
    "Tasks",
    "VaryingDimension",
    "problem_from_dict",
]
