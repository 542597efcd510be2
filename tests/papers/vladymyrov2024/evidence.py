"""Evidence with few sequences, measured once by whichever test process comes first."""

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ridgeformer import papers
from ridgeformer.papers import PaperOutcome
from ridgeformer.papers.vladymyrov2024 import PAPER
from ridgeformer.papers.vladymyrov2024.claims import CLAIMS

SEQUENCES = 400
# Without the theorems, which have tests of their own, and with a quick version of few sequences.
PARTS = tuple(
    replace(part, quick={"sequences": SEQUENCES} if "sequences" in part.settings() else {}) for part in PAPER.parts[:-1]
)
MEASURED = replace(PAPER, parts=PARTS, checks=PAPER.checks[: len(CLAIMS)])


def small_outcome(root: Path) -> PaperOutcome:
    """All parts, from a folder that the processes of a test run share; the others wait for the one that measures."""
    folder = root / "evidence"
    folder.mkdir(exist_ok=True)
    try:
        os.close(os.open(folder / "lock", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        while not (folder / "done").exists():
            time.sleep(0.1)
    try:
        return papers.run(MEASURED, quick=True, out=folder)
    finally:
        (folder / "done").touch()  # or has failed, as the tests of the other processes will then


def shared_root(factory) -> Path:
    """A temporary folder that is the same for all processes of a test run."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else Path(tempfile.mkdtemp(dir=base))
