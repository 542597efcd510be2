"""Runs in processes of their own, which tests kill with -9 and start again."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ridgeformer import Problem, load, train
from ridgeformer.training import GradientDescent, PaperProtocol, Search
from ridgeformer.training.results import COLUMNS
from ridgeformer.training.store import Folder, read_course
from support import LONGEST, unmeasured


@dataclass(frozen=True)
class Kind:
    """What is trained: small enough for a few seconds, with every piece of work written down at once."""

    family: str
    layers: int
    dim: int
    context: int
    protocol: Search | PaperProtocol | GradientDescent

    def train(self, folder, **options):
        """Train it in this process."""
        problem, runs = Problem(self.dim, self.context, "uniform(0,3)"), Folder(folder, interval=0.0)
        return train(problem, self.family, self.layers, protocol=self.protocol, sequences=1000, out=runs, **options)


# Few parameters are found by BFGS, more than 256 by SOAP.
DIAG = Kind("diag", 2, 3, 6, Search(effort=0.2))
FULL_BY_BFGS = Kind("full", 1, 4, 8, Search(effort=0.1))
FULL_BY_SOAP = Kind("full", 1, 11, 14, Search(effort=0.1))
FULL = Kind("full", 2, 8, 12, Search(effort=0.1))
PAPER = Kind("diag", 2, 3, 6, PaperProtocol(steps=4000, batch=64))
GDPP = Kind("gdpp", 6, 5, 10, Search())
DESCENT = Kind("full", 1, 3, 6, GradientDescent(rate=1e-4, steps=20_000, momentum=0.5))
CODE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from ridgeformer.training import GradientDescent, PaperProtocol, Search
from killing import Kind
print("started", flush=True)
{before}
{kind}.train(Path(sys.argv[1]))
"""
# The process kills itself as soon as the journal of the run that was asked for has been written so many times.
DEATH = """
import os, signal
from ridgeformer.training.store import Journal
write, left = Journal.write, [{pieces}]
def write_and_die(journal):
    write(journal)
    left[0] -= journal.path.parent.name.startswith("{name}")
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Journal.write = write_and_die
"""


def start(folder, kind, before=""):
    """Train in another process, which runs some code before."""
    code = CODE.format(kind=kind, before=before)
    command = [sys.executable, "-c", code, str(folder), str(Path(__file__).parent)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unmeasured())


def finish(process):
    """Wait until a run is finished; it must not fail, nor warn of damage."""
    _, errors = process.communicate(timeout=LONGEST)
    assert (process.returncode, errors) == (0, "")


def content(folder):
    """All that must be equal: models and records without times."""
    found = {}
    for path in sorted(folder.glob("*/record.json")):
        record = json.loads(path.read_text())
        arrays = dict(load(path.parent / "model.safetensors").family.arrays)
        for name, value in read_course(path.parent, record).items():
            arrays[f"course/{name}"] = np.delete(value, COLUMNS.index("seconds"), 1) if name == "table" else value
        for name in ("seconds", "total_seconds", "checksum", "course"):
            record.pop(name, None)
        record["history"] = [point[:3] for point in record["history"]]  # without their seconds
        found[path.parent.name] = (record, {name: value.tobytes() for name, value in arrays.items()})
    return found


def compare(folder, kind, kills, seed):
    """Check that a run that is killed over and over ends with the bits of an undisturbed one, and leaves no journal."""
    began = time.monotonic()
    finish(start(folder / "whole", kind))
    assert kill_repeatedly(folder / "killed", kind, kills, time.monotonic() - began, seed)
    finish(start(folder / "killed", kind))
    assert content(folder / "whole") == content(folder / "killed")
    assert not list(folder.glob("*/*/journal*"))


def kill_repeatedly(folder, kind, kills, seconds, seed):
    """Start a run and kill it with -9, over and over.

    Args:
        folder: Where the run is stored.
        kind: What is trained.
        kills: How often. Two of four come at a random moment, one as soon as a journal is written, and one while a file
            is being written. Where that moment was missed, the next one is random.
        seconds: What the undisturbed run takes.
        seed: Of the random moments.

    Returns:
        How many of the kills came in the middle of a run, not between two.
    """
    rng = random.Random(seed)
    killed, middle, missed = 0, 0, False
    while killed < kills:
        victim = start(folder, kind)
        victim.stdout.readline()
        if killed % 4 == 1 and not missed:
            _wait_for(folder, "*/journal*", victim)
        elif killed % 4 == 3 and not missed:
            _wait_for(folder, "*/.*.tmp", victim)
        else:
            _sleep(rng.uniform(0, 0.6) * seconds, victim)
        victim.kill()
        _, errors = victim.communicate(timeout=LONGEST)
        assert errors == ""
        missed = not victim.returncode
        if victim.returncode:
            killed += 1
            middle += any(folder.glob("*/journal*"))
        else:  # it came to its end: the last run is taken away, so that there is something left to kill
            shutil.rmtree(max(folder.glob("*/record.json"), key=lambda path: path.stat().st_mtime_ns).parent)
    return middle


def kill_in_the_middle(folder, kind, pieces):
    """Kill a run with -9 when the journal of its last run, the one that was asked for, was written so many times."""
    victim = start(folder, kind, DEATH.format(pieces=pieces, name=f"{kind.family}-{kind.layers}x"))
    _, errors = victim.communicate(timeout=LONGEST)
    assert errors == ""
    assert victim.returncode == -signal.SIGKILL


def _wait_for(folder, pattern, process):
    """Wait until such a file appears or is replaced, or the process ends."""
    before = _times(folder, pattern)
    while not _times(folder, pattern) - before and process.poll() is None:
        time.sleep(0.001)


def _sleep(seconds, process):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.001)


def _times(folder, pattern):
    found = set()
    for path in folder.glob(pattern):
        try:
            found.add((path, path.stat().st_mtime_ns))
        except FileNotFoundError:
            continue
    return found
