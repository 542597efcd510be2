"""From a problem to its best linear transformer: `train`, `train_many`, and runs that can be resumed."""

from ridgeformer.training.protocols import Paper, Search
from ridgeformer.training.results import Training, load_run
from ridgeformer.training.session import TrainingProgress
from ridgeformer.training.spec import Spec
from ridgeformer.training.train import train, train_many

__all__ = ["Paper", "Search", "Spec", "Training", "TrainingProgress", "load_run", "train", "train_many"]
