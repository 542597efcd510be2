"""How good a predictor is: exact losses on fresh sequences, beside the best loss that any predictor can have.

A predictor is any object with `weights(moments)`. All functions take the problem, then what is evaluated, then options
by keyword. All results use the same names for the same things (see `table`), print as a table, and convert with
`as_dict()` and, if pandas is installed, `to_pandas()`.

>>> from ridgeformer import AdaRR, Problem, evaluate
>>> result = evaluate(Problem(noise="uniform(0,5)"), AdaRR(), sequences=20_000)
>>> round(result.loss, 2), round(result.floor, 2)
(0.07, 0.04)
"""

from ridgeformer.evaluation.comparison import compare, evaluate, floor
from ridgeformer.evaluation.layers import LayerLosses, LayerProfile, by_layer, profile_by_layer
from ridgeformer.evaluation.noise_levels import Profile, Profiles, profile, profiles
from ridgeformer.evaluation.oracle import OracleRisk, oracle_risk
from ridgeformer.evaluation.prefixes import PrefixLosses, by_prefix
from ridgeformer.evaluation.results import Comparison, Result
from ridgeformer.evaluation.sequence_losses import EVALUATION
from ridgeformer.evaluation.shifts import Shifts, shifts
from ridgeformer.evaluation.table import Table

__all__ = [
    "EVALUATION",
    "Comparison",
    "LayerLosses",
    "LayerProfile",
    "OracleRisk",
    "PrefixLosses",
    "Profile",
    "Profiles",
    "Result",
    "Shifts",
    "Table",
    "by_layer",
    "by_prefix",
    "compare",
    "evaluate",
    "floor",
    "oracle_risk",
    "profile",
    "profile_by_layer",
    "profiles",
    "shifts",
]
