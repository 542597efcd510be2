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

from ridgeformer.evaluation.comparison import compare as compare, evaluate as evaluate, floor as floor
from ridgeformer.evaluation.explosions import (
    ExplosionProbability as ExplosionProbability,
    explosion_probability as explosion_probability,
)
from ridgeformer.evaluation.results import Loss as Loss, Losses as Losses
from ridgeformer.evaluation.sequence_losses import Oracle as Oracle
from ridgeformer.evaluation.stretched import Stretched as Stretched
from ridgeformer.evaluation.table import Table as Table
