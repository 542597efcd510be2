"""In-context learning in linear transformers: state a problem, train a model, compare it with the best possible loss.

A problem draws sequences, or directly their moments; a model maps moments to weights; an evaluation compares these
with a target::

    from ridgeformer import LinearTransformer, Problem, evaluate, train

    problem = Problem(dim=10, context=20, noise="uniform(0,5)")
    model = train(problem, "diag", layers=3).model
    print(evaluate(problem, model))  # adjusted loss, floor, and the ratio of the two

Everything else is in named submodules: `ridgeformer.noise`, `problems`, `engine`, `models`, `predictors`, `evaluation`,
`training`, `sweeps`, `theory`, `explanation`, `plotting`, `export`, `zoo` and `papers`.
"""

from ridgeformer import export, zoo
from ridgeformer._version import __version__ as __version__
from ridgeformer.engine import Layout
from ridgeformer.errors import InputError
from ridgeformer.evaluation import Loss, Losses, compare, evaluate, explosion_probability, floor
from ridgeformer.explanation import explain
from ridgeformer.loading import load
from ridgeformer.models import Channels, Diag, Family, Full, GDpp, LinearTransformer, save
from ridgeformer.moments import Moments
from ridgeformer.predictors import AdaRR, BayesRR, ConstRR, LeastSquares, OracleRR, TunedRR
from ridgeformer.problems import CustomProblem, Problem
from ridgeformer.training import Runs, Training, train, train_many

__all__ = [  # noqa: RUF022 (in the order in which a reader meets them)
    # The problem
    "Problem",
    "CustomProblem",
    "Moments",
    # Models
    "LinearTransformer",
    "Family",
    "Full",
    "Diag",
    "Channels",
    "GDpp",
    "Layout",
    # Predictors to compare with
    "OracleRR",
    "BayesRR",
    "LeastSquares",
    "ConstRR",
    "AdaRR",
    "TunedRR",
    # Evaluation
    "evaluate",
    "compare",
    "floor",
    "Losses",
    "Loss",
    "explosion_probability",
    # Training
    "train",
    "train_many",
    # Files
    "save",
    "load",
    "Runs",
    "Training",
    "export",
    "zoo",
    # Explanation
    "explain",
    # Errors
    "InputError",
]
