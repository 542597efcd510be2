"""From a problem to its best linear transformer: `train`, `train_many`, and runs that last."""

from ridgeformer.training.protocols import Paper, Search
from ridgeformer.training.train import Progress, Spec, Training, load_run, train, train_many

__all__ = ["Paper", "Progress", "Search", "Spec", "Training", "load_run", "train", "train_many"]
