"""In-context learning in linear transformers: state a problem, train a model, compare it with the best possible loss.

A problem draws sequences, or directly their moments; a model computes an estimate of the task from these; `evaluate`
measures how good the estimates are::

    from ridgeformer import Problem, evaluate, train

    problem = Problem(dim=10, context=20, noise="uniform(0,5)")
    model = train(problem, "diag", layers=3).model
    print(evaluate(problem, model))  # adjusted loss, floor, and the ratio of the two

Everything else is in submodules, which are imported when they are first used, such as `ridgeformer.noise` or
`ridgeformer.papers`; `dir(ridgeformer)` lists them.
"""

import importlib
from typing import Any

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

__all__ = [
    "AdaRR",
    "BayesRR",
    "Channels",
    "ConstRR",
    "CustomProblem",
    "Diag",
    "Family",
    "Full",
    "GDpp",
    "InputError",
    "Layout",
    "LeastSquares",
    "LinearTransformer",
    "Loss",
    "Losses",
    "Moments",
    "OracleRR",
    "Problem",
    "Runs",
    "Training",
    "TunedRR",
    "compare",
    "evaluate",
    "explain",
    "explosion_probability",
    "floor",
    "load",
    "save",
    "train",
    "train_many",
]
_SUBMODULES = (
    *("engine", "errors", "evaluation", "exact", "explanation", "export", "jax", "models", "moments", "noise"),
    *("papers", "playground", "plotting", "population", "predictors", "problems", "sklearn", "sweeps", "theory"),
    *("torch", "training", "zoo"),
)


def __getattr__(name: str) -> Any:
    """Import a submodule when it is first used."""
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return sorted([*__all__, *_SUBMODULES, "__version__"])
