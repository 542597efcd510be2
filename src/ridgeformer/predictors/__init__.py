"""Classical predictors: ridge regression in several forms, and the Bayes predictor, which no other can beat."""

from ridgeformer.predictors.base import (
    Fitted as Fitted,
    Predictor as Predictor,
    huber as huber,
    lasso as lasso,
    matching_pursuit as matching_pursuit,
)
from ridgeformer.predictors.bayes import BayesRR as BayesRR
from ridgeformer.predictors.best import baselines as baselines, best_label as best_label
from ridgeformer.predictors.discrete import DMMSE as DMMSE, SparseBayes as SparseBayes, SparseOracle as SparseOracle
from ridgeformer.predictors.gibbs import TokenBayes as TokenBayes
from ridgeformer.predictors.guarded import Guarded as Guarded, Guarding as Guarding, Universal as Universal
from ridgeformer.predictors.iterative import IterativeRR as IterativeRR
from ridgeformer.predictors.ridge import (
    AdaRR as AdaRR,
    ConstRR as ConstRR,
    LeastSquares as LeastSquares,
    OracleRR as OracleRR,
    TunedRR as TunedRR,
)
