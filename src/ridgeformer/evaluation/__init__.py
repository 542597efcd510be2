"""How good a predictor is: exact losses on fresh sequences, beside the best loss that any predictor can have.

A predictor is any object with `weights(moments)` or `predict(x, y, queries)`. `compare(problem, predictors, over=...)`
measures losses of one or several predictors, at one point or along axes, and always returns `Losses`: a table that
prints, shows in a notebook, converts with `to_pandas()` and `as_dict()`, and can be drawn with `plot()`. `evaluate`
gives its row for one predictor, a `Loss`.

>>> from ridgeformer import AdaRR, Problem, evaluate
>>> result = evaluate(Problem(noise="uniform(0,5)"), AdaRR(), sequences=20_000)
>>> round(result.loss, 2), round(result.floor, 2)
(0.07, 0.04)
"""

from ridgeformer.evaluation.comparison import compare, evaluate, floor
from ridgeformer.evaluation.explosions import ExplosionProbability, explosion_probability
from ridgeformer.evaluation.results import Loss, Losses
from ridgeformer.evaluation.sequence_losses import Oracle
from ridgeformer.evaluation.stretched import Stretched
from ridgeformer.evaluation.table import Table

__all__ = [
    "ExplosionProbability",
    "Loss",
    "Losses",
    "Oracle",
    "Stretched",
    "Table",
    "compare",
    "evaluate",
    "explosion_probability",
    "floor",
]
