"""Classical predictors: ridge regression in several forms, and the Bayes predictor, which no other can beat."""

from ridgeformer.predictors.base import Fitted, Predictor, huber, lasso, matching_pursuit
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.predictors.best import baselines, best_label
from ridgeformer.predictors.gibbs import TokenBayes
from ridgeformer.predictors.guarded import Guarded, Guarding, Universal
from ridgeformer.predictors.iterative import IterativeRR
from ridgeformer.predictors.pools import DMMSE
from ridgeformer.predictors.ridge import AdaRR, ConstRR, LeastSquares, OracleRR, TunedRR
from ridgeformer.predictors.sparse import SparseBayes, SparseOracle

__all__ = [
    "DMMSE",
    "AdaRR",
    "BayesRR",
    "ConstRR",
    "Fitted",
    "Guarded",
    "Guarding",
    "IterativeRR",
    "LeastSquares",
    "OracleRR",
    "Predictor",
    "SparseBayes",
    "SparseOracle",
    "TokenBayes",
    "TunedRR",
    "Universal",
    "baselines",
    "best_label",
    "huber",
    "lasso",
    "matching_pursuit",
]
