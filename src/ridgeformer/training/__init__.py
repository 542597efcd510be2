"""From a problem to a linear transformer: `train`, `train_many`, protocols, callbacks, and runs that can be resumed."""

from ridgeformer.training.callbacks import Callback, TrainingProgress
from ridgeformer.training.history import History, Snapshot
from ridgeformer.training.loggers import CSVLogger, TensorBoardLogger, WandbLogger
from ridgeformer.training.protocols import SGD, Adam, GradientDescent, GradientFlow, Paper, Search
from ridgeformer.training.results import Training, load_run
from ridgeformer.training.spec import Spec
from ridgeformer.training.train import train, train_many

__all__ = [
    "SGD",
    "Adam",
    "CSVLogger",
    "Callback",
    "GradientDescent",
    "GradientFlow",
    "History",
    "Paper",
    "Search",
    "Snapshot",
    "Spec",
    "TensorBoardLogger",
    "Training",
    "TrainingProgress",
    "WandbLogger",
    "load_run",
    "train",
    "train_many",
]
