"""From a problem to a linear transformer: `train`, `train_many`, protocols, callbacks, and runs that can be resumed."""

from ridgeformer.training.callbacks import CSVLogger, TensorBoardLogger, WandbLogger
from ridgeformer.training.descent import SGD, Adam, Fresh, GradientDescent, GradientFlow, Population, Sample
from ridgeformer.training.job import Callback, TrainingProgress
from ridgeformer.training.paper import PaperProtocol
from ridgeformer.training.results import History, Snapshot, Training
from ridgeformer.training.runs import Run, Runs
from ridgeformer.training.search import Search
from ridgeformer.training.spec import Spec
from ridgeformer.training.train import train, train_many

__all__ = [
    "SGD",
    "Adam",
    "CSVLogger",
    "Callback",
    "Fresh",
    "GradientDescent",
    "GradientFlow",
    "History",
    "PaperProtocol",
    "Population",
    "Run",
    "Runs",
    "Sample",
    "Search",
    "Snapshot",
    "Spec",
    "TensorBoardLogger",
    "Training",
    "TrainingProgress",
    "WandbLogger",
    "train",
    "train_many",
]
