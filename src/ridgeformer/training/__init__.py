"""From a problem to a linear transformer: `train`, `train_many`, protocols, callbacks, and runs that can be resumed."""

from ridgeformer.training.callbacks import (
    CSVLogger as CSVLogger,
    TensorBoardLogger as TensorBoardLogger,
    WandbLogger as WandbLogger,
)
from ridgeformer.training.descent.averages import Fresh as Fresh, Population as Population, Sample as Sample
from ridgeformer.training.descent.flow import GradientFlow as GradientFlow
from ridgeformer.training.descent.protocols import SGD as SGD, Adam as Adam, GradientDescent as GradientDescent
from ridgeformer.training.job import Callback as Callback, TrainingProgress as TrainingProgress
from ridgeformer.training.paper import PaperProtocol as PaperProtocol
from ridgeformer.training.results import History as History, Snapshot as Snapshot, Training as Training
from ridgeformer.training.runs import Run as Run, Runs as Runs
from ridgeformer.training.search.protocol import Search as Search
from ridgeformer.training.session import train as train, train_many as train_many
from ridgeformer.training.spec import Spec as Spec
