"""Models and problems in PyTorch: `to_torch` and `from_torch`, a fast loss, data sets, and transformers with softmax.

>>> from ridgeformer import zoo
>>> model = zoo.load("diag", layers=3, noise="uniform(0,5)")
>>> module = to_torch(model)
>>> bool((from_torch(module).P == model.P).all())
True
"""

from ridgeformer.errors import MissingPackageError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingPackageError(
        "ridgeformer.torch needs PyTorch, which is not installed. Run pip install 'ridgeformer[torch]'."
    ) from error

from ridgeformer.torch.data import MomentBatch, ProblemDataset, TokenBatch
from ridgeformer.torch.fitting import Fitted, fit
from ridgeformer.torch.loss import moment_loss, token_loss
from ridgeformer.torch.modules import TorchLayer, TorchModel, from_torch, to_torch
from ridgeformer.torch.transformers import Architecture, Transformer

__all__ = [
    "Architecture",
    "Fitted",
    "MomentBatch",
    "ProblemDataset",
    "TokenBatch",
    "TorchLayer",
    "TorchModel",
    "Transformer",
    "fit",
    "from_torch",
    "moment_loss",
    "to_torch",
    "token_loss",
]
