"""Results as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def jsonable(value: Any) -> Any:
    """Turn a value into one that JSON can hold: no NumPy types, and None for numbers that are not finite.

    Args:
        value: Numbers, texts, NumPy arrays, and dicts, lists and tuples of these.

    Returns:
        The same with dicts, lists, numbers, texts and None.

    >>> jsonable({"loss": np.array([0.5, np.inf]), "layers": (1, 2)})
    {'loss': [0.5, None], 'layers': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(name): jsonable(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
