"""The public names: the table in reference/api/index.md says which names of a module its page shows."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any


def public_names(index: Path) -> dict[str, list[str]]:
    """Return the names in the table of a page, by module."""
    rows = re.findall(r"^\| `(ridgeformer[\w.]*)` \| (.*) \|$", index.read_text(encoding="utf-8"), re.M)
    return {module: re.findall(r"`(\w+)`", names) for module, names in rows}


def setup(app: Any) -> dict[str, bool]:
    """Tell autodoc, which reads `__all__`, the public names."""
    for module, names in public_names(Path(app.srcdir) / "reference" / "api" / "index.md").items():
        importlib.import_module(module).__all__ = names  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
