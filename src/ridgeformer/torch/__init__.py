"""Models and problems in PyTorch: `to_torch` and `from_torch`, a fast loss, and data sets.

>>> from ridgeformer import load
>>> model = load("zoo:diag/3/uniform(0,5)")
>>> module = to_torch(model)
>>> bool((from_torch(module).P == model.P).all())
True
"""

from ridgeformer.errors import optional

optional("ridgeformer.torch needs PyTorch", "torch")

from ridgeformer.torch.modules import TorchLayer, TorchModel, from_torch, to_torch  # noqa: E402
from ridgeformer.torch.training import MomentBatch, ProblemDataset, TokenBatch, moment_loss, token_loss  # noqa: E402

__all__ = [
    "MomentBatch",
    "ProblemDataset",
    "TokenBatch",
    "TorchLayer",
    "TorchModel",
    "from_torch",
    "moment_loss",
    "to_torch",
    "token_loss",
]
