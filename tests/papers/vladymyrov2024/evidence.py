"""Evidence with few sequences, measured once by whichever test process comes first."""

import os
import tempfile
import time
from pathlib import Path

from ridgeformer import zoo
from ridgeformer.papers.vladymyrov2024.evidence import Evidence

SEQUENCES = 400


def small_evidence(root: Path) -> Evidence:
    """All parts, from a folder that the processes of a test run share; the others wait for the one that measures."""
    folder = root / "evidence" / "measured"
    evidence = Evidence(zoo.shipped(), folder, SEQUENCES)
    folder.parent.mkdir(exist_ok=True)
    lock = folder.parent / "lock"
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        while not (folder.parent / "done").exists():
            time.sleep(0.1)
    else:
        try:
            evidence.measure()
        finally:
            (folder.parent / "done").touch()  # or has failed, as the tests of the other processes will then
    return evidence


def shared_root(factory) -> Path:
    """A temporary folder that is the same for all processes of a test run."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else Path(tempfile.mkdtemp(dir=base))
