"""Write the table of public names in docs/reference/api/index.md. Usage: python docs/scripts/public_names.py."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference" / "api"


def names_of(module: str) -> list[str]:
    """The list `__all__` of a module, which need not be importable here."""
    path = (ROOT / "src" / "ridgeformer").joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    (written,) = (n.value for n in ast.parse(path.read_text()).body if ast.unparse(n).startswith("__all__ ="))
    return sorted(ast.literal_eval(written), key=str.lower)


def main() -> None:
    """Replace the rows of the table: one for each module that a page documents."""
    page = PAGES / "index.md"
    head, _ = page.read_text().split("|---|---|\n")
    written = "".join(path.read_text() for path in sorted(PAGES.glob("*.md")))
    modules = sorted({"ridgeformer", *re.findall(r"^.. automodule:: (\S+)", written, re.M)})
    lines = [f"| `{module}` | {', '.join(f'`{name}`' for name in names_of(module))} |\n" for module in modules]
    page.write_text(head + "|---|---|\n" + "".join(lines))


if __name__ == "__main__":
    main()
