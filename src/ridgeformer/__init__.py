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

from ridgeformer import export as export, zoo as zoo
from ridgeformer._version import __version__ as __version__
from ridgeformer.engine import Layout as Layout
from ridgeformer.errors import InputError as InputError
from ridgeformer.evaluation import (
    Loss as Loss,
    Losses as Losses,
    compare as compare,
    evaluate as evaluate,
    explosion_probability as explosion_probability,
    floor as floor,
)
from ridgeformer.explanation import explain as explain
from ridgeformer.loading import load as load
from ridgeformer.models import (
    Channels as Channels,
    Diag as Diag,
    Family as Family,
    Full as Full,
    GDpp as GDpp,
    LinearTransformer as LinearTransformer,
    save as save,
)
from ridgeformer.moments import Moments as Moments
from ridgeformer.predictors import (
    AdaRR as AdaRR,
    BayesRR as BayesRR,
    ConstRR as ConstRR,
    LeastSquares as LeastSquares,
    OracleRR as OracleRR,
    TunedRR as TunedRR,
)
from ridgeformer.problems import CustomProblem as CustomProblem, Problem as Problem
from ridgeformer.training import Runs as Runs, Training as Training, train as train, train_many as train_many
