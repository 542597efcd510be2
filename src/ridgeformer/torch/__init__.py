"""Models and problems in PyTorch: `to_torch` and `from_torch`, a fast loss, and data sets.

>>> from ridgeformer import load
>>> model = load("zoo:diag/3/uniform(0,5)")
>>> module = to_torch(model)
>>> bool((from_torch(module).P == model.P).all())
True
"""

from ridgeformer.errors import optional

optional("ridgeformer.torch needs PyTorch", "torch")

from ridgeformer.torch.modules import (  # noqa: E402
    TorchLayer as TorchLayer,
    TorchModel as TorchModel,
    from_torch as from_torch,
    to_torch as to_torch,
)
from ridgeformer.torch.training import (  # noqa: E402
    MomentBatch as MomentBatch,
    ProblemDataset as ProblemDataset,
    TokenBatch as TokenBatch,
    moment_loss as moment_loss,
    token_loss as token_loss,
)
