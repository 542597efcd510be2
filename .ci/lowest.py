"""Print the lowest versions that pyproject.toml allows, as constraints for pip; `make test-lowest` installs them.

Usage: python .ci/lowest.py [EXTRA ...]
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def lowest(requirement: str) -> str:
    """The lowest version of one requirement: `numpy>=2.0` becomes `numpy==2.0`."""
    found = re.fullmatch(r"([\w.-]+)(?:>=|==)([\w.]+)", requirement)
    if found is None:
        raise SystemExit(f"a requirement must read name>=version; got {requirement!r}. Give it a lower bound.")
    return f"{found[1]}=={found[2]}"


def main(extras: list[str]) -> None:
    """Print one constraint per line, for the core dependencies and those of the given extras."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    for requirement in project["dependencies"]:
        print(lowest(requirement))
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            print(lowest(requirement))


if __name__ == "__main__":
    main(sys.argv[1:])
