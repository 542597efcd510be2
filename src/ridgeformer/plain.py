"""Results as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """No NumPy, nothing that is not finite.

    >>> plain({"loss": np.array([0.5, np.inf]), "layers": (1, 2)})
    {'loss': [0.5, None], 'layers': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
