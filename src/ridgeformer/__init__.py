"""In-context learning in linear transformers: right, fast, and a pleasure to read.

A problem draws sequences, or directly their moments; a model maps moments to weights; an evaluation compares these
with a target::

    from ridgeformer import Problem, LinearTransformer

    problem = Problem(dim=10, context=20, noise="uniform(0,5)")
    draw = problem.moments(100_000, seed=1)
    model = LinearTransformer.random("diag", dim=10, layers=3, context=20)
    print(model.evaluate(draw.moments, draw.ridge).loss)     # adjusted loss: how far from knowing sigma
"""

from ridgeformer import export, zoo
from ridgeformer.engine import Evaluation, Key
from ridgeformer.errors import InputError
from ridgeformer.evaluation import (
    Comparison,
    LayerLosses,
    LayerProfile,
    Profile,
    Profiles,
    Result,
    by_layer,
    compare,
    evaluate,
    floor,
    profile,
    profile_by_layer,
    profiles,
)
from ridgeformer.explanation import Ablation, Explanation, ablate, explain
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.models.families import Diag, Family, Full, GDpp
from ridgeformer.models.file import load, save
from ridgeformer.models.transformer import LinearTransformer, States
from ridgeformer.moments import Moments
from ridgeformer.noise import Categorical, Fixed, Frozen, Noise, Uniform
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.predictors.ridge import AdaRR, ConstRR, IterativeRR, LeastSquares, OracleRR, Predictor, TunedRR
from ridgeformer.problem import Draw, Problem, Sequences
from ridgeformer.training import Paper, Search, Spec, Training, TrainingProgress, load_run, train, train_many

__version__ = "0.2.0.dev0"

__all__ = [
    "Ablation",
    "AdaRR",
    "BayesRR",
    "BelowFloorWarning",
    "Categorical",
    "Comparison",
    "ConstRR",
    "Diag",
    "Draw",
    "Evaluation",
    "Explanation",
    "Family",
    "Fixed",
    "Frozen",
    "Full",
    "GDpp",
    "InputError",
    "IterativeRR",
    "Key",
    "LayerLosses",
    "LayerProfile",
    "LeastSquares",
    "LinearTransformer",
    "Moments",
    "Noise",
    "OracleRR",
    "Paper",
    "Predictor",
    "Problem",
    "Profile",
    "Profiles",
    "Result",
    "Search",
    "Sequences",
    "Spec",
    "States",
    "Training",
    "TrainingProgress",
    "TunedRR",
    "Uniform",
    "ablate",
    "by_layer",
    "compare",
    "evaluate",
    "explain",
    "export",
    "floor",
    "load",
    "load_run",
    "profile",
    "profile_by_layer",
    "profiles",
    "save",
    "train",
    "train_many",
    "zoo",
]
