"""Random models for the checks: every layer changes tokens visibly, and nothing explodes."""

from __future__ import annotations

import numpy as np

from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.validation import integer

__all__ = ["random_model"]


def random_model(
    family: str, *, dim: int, context: int, layers: int, heads: int = 1, seed: int = 0
) -> LinearTransformer:
    """Make a random model whose layers move tokens by up to some tenths of their size.

    The Gram matrix has a norm of about n d or more, and Full matrices one of 2 sqrt(D) times their entries' spread.
    Flows out of y feed on themselves, so Diag takes smaller parameters than GD++.

    Args:
        family: The name of a family.
        dim: The dimension d.
        context: The number n of context tokens that it will see.
        layers: Layers of the model.
        heads: Heads per layer.
        seed: Seed of the parameters.

    Returns:
        The model.

    >>> random_model("diag", dim=3, context=9, layers=2)
    LinearTransformer(diag, dim=3, layers=2, heads=1)
    """
    dim, context, heads = integer("dim", dim), integer("context", context), integer("heads", heads)
    size = {"full": 0.7 / np.sqrt(dim + 1), "diag": 0.6}.get(family, 1.2)
    return LinearTransformer.random(
        family,
        dim=dim,
        layers=layers,
        heads=heads,
        scale=size / np.sqrt(heads),
        context=2 * (context + dim + 1) * (dim + 1),
        seed=seed,
    )
