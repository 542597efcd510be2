"""How good a predictor is: exact losses on fresh sequences, beside the best loss that any predictor can have.

A predictor is any object with `weights(moments)`. All functions take what is evaluated, then the problem, then options
by keyword. All results use the same names for the same things (see `table`), print as a table, and convert with
`as_dict()` and, if pandas is installed, `to_pandas()`.

>>> from ridgeformer import AdaRR, Problem, evaluate
>>> result = evaluate(AdaRR(), Problem(noise="uniform(0,5)"), sequences=20_000)
>>> round(result.loss, 2), round(result.floor, 2)
(0.07, 0.04)
"""

from ridgeformer.evaluation.comparison import compare, evaluate, floor
from ridgeformer.evaluation.layers import LayerLosses, LayerProfile, by_layer, profile_by_layer
from ridgeformer.evaluation.noise_levels import Profile, Profiles, profile, profiles
from ridgeformer.evaluation.results import Comparison, Result
from ridgeformer.evaluation.sequence_losses import EVALUATION
from ridgeformer.evaluation.table import Table

__all__ = [
    "EVALUATION",
    "Comparison",
    "LayerLosses",
    "LayerProfile",
    "Profile",
    "Profiles",
    "Result",
    "Table",
    "by_layer",
    "compare",
    "evaluate",
    "floor",
    "profile",
    "profile_by_layer",
    "profiles",
]
