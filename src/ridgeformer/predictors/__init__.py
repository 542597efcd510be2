"""Classical predictors: ridge regression in several forms, and the Bayes predictor, which no other can beat."""

from ridgeformer.predictors.base import Predictor
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.predictors.choice import baselines, best_label
from ridgeformer.predictors.gibbs import TokenBayes
from ridgeformer.predictors.guarded import Guarded, Guarding
from ridgeformer.predictors.iterative import IterativeRR
from ridgeformer.predictors.pools import DMMSE
from ridgeformer.predictors.ridge import AdaRR, ConstRR, LeastSquares, OracleRR, TunedRR
from ridgeformer.predictors.sparse import SparseBayes, SparseOracle
from ridgeformer.predictors.universal import Universal

__all__ = [
    "DMMSE",
    "AdaRR",
    "BayesRR",
    "ConstRR",
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
]
