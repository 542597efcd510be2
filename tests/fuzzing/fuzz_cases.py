"""What all kinds of cases share: a case is made, its files are written into a folder of its own, judged and counted.

A kind is a module `fuzz_<kind>`. One of files has `make(rng)`, which gives a `Case`, and `judge(folder, case)`, which
reads it; one of calls has `judge(rng, folder)`. Both name the outcome, and whatever they raise is a violation.
"""

import importlib
import os
import random
import shutil
import signal
import tempfile
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_mutations import JSON, TENSORS, damaged

from ridgeformer import InputError
from ridgeformer.training.store import DamagedRunWarning

SAVED = Path(__file__).parents[2] / "build" / "fuzz"
HANG = 5.0  # seconds of computing that a case may take
LONGEST = 1000  # characters of a message


class Instead(Enum):
    """What may be there in place of a file."""

    NOTHING = "nothing"
    FOLDER = "a folder"
    PIPE = "a pipe"
    LOOP = "a link to itself"


Content = bytes | Instead


@dataclass(frozen=True)
class Truth:
    """Sound files by name, and what they hold, in a form that can be compared."""

    files: dict[str, bytes]
    content: Any


@dataclass(frozen=True)
class Case:
    """Files to be read.

    Attributes:
        what: The name of the damage.
        files: By name.
        truth: The undamaged files.
        sealed: Whether the checksums were made for the changed content, so that it may load as something else.
    """

    what: str
    files: dict[str, Content]
    truth: Any
    sealed: bool = False


def make_case(truths, rng, sealed, damages=None, strangers=()):
    """One damaged set of files: most often in one file, sometimes in two, or with a file of another set.

    Args:
        truths: Sound sets.
        rng: Where all choices come from.
        sealed: Gives changed files of a set with the right checksums.
        damages: The names of the files to damage together, of which one entry is chosen; None for each file alone.
        strangers: Sets of which a file may take the place of one of the same name.
    """
    truth, kind = rng.choice(truths), rng.random()
    files, others = dict(truth.files), [other for other in strangers if other is not truth]
    if kind < 0.04 and (others or kind < 0.01):
        name = rng.choice(sorted(files))
        files[name] = rng.choice([*Instead] if kind < 0.01 else [other.files[name] for other in others])
        return Case("another thing" if kind < 0.01 else "another set's", files, truth)
    if kind < 0.1:
        return Case("sealed", files | sealed(truth, rng), truth, sealed=True)
    names = rng.choice(damages or [[name] for name in files])
    for name in names:
        what, files[name] = damaged(truth.files[name], rng, TENSORS if name.endswith(".safetensors") else JSON)
    return Case(f"{what} in {' and '.join(names)}", files, truth)


class Hang(Exception):
    """A case took too long."""


def run(kind, count, seed):
    """Make and judge cases, each of which depends on the seed and its number only.

    Args:
        kind: The name of the module, without `fuzz_`.
        count: How many.
        seed: Of the cases.

    Returns:
        How often every outcome came, by damage and outcome.

    Raises:
        AssertionError: A case broke the law. The message says how to repeat it and where its files are.
    """
    module, outcomes = importlib.import_module(f"fuzz_{kind}"), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch, _alarm():
        for number in range(count):
            rng, folder = random.Random(f"{seed}/{number}"), Path(scratch, f"{kind}-{seed}-{number}")
            case = module.make(rng) if hasattr(module, "make") else None
            write(folder, case.files if case else {})
            try:
                outcome = f"{case.what}: {_judged(module.judge, folder, case)}" if case else module.judge(rng, folder)
            except Exception as error:
                where = f"fuzz_cases.run({kind!r}, {number + 1}, {seed}) breaks the law in its last case"
                if case:
                    write(SAVED / folder.name, case.files)
                    where += f", {case.what}, whose files are in {SAVED / folder.name}"
                raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
            shutil.rmtree(folder)
            outcomes[outcome] += 1
    return outcomes


def _judged(judge, folder, case):
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        signal.setitimer(signal.ITIMER_PROF, HANG)
        try:
            return judge(folder, case)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def attempt(read):
    """The outcome of reading something: what it returns, or "refused" if it raises an `InputError`."""
    try:
        return read() or "unchanged"
    except InputError as error:
        check_message(error)
        return "refused"


def with_damage_warnings(read):
    """What reading returns, and whether it warned of damage; any other warning is a violation."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read()
    for warning in caught:
        if warning.category is not DamagedRunWarning:
            raise AssertionError(f"it warns of something else: {warning.category.__name__}: {warning.message}")
        check_message(warning.message)
    return found, bool(caught)


def check_message(message):
    """A message must be one printable line that is not too long."""
    text = str(message)
    if len(text) > LONGEST or not text.isprintable():
        raise AssertionError(f"the message is not one short printable line: {text[:2000]!r}")


@contextmanager
def _alarm():
    def ring(*_):
        raise Hang(f"it took more than {HANG:g} seconds")

    before = signal.signal(signal.SIGPROF, ring)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)


def write(folder, files):
    """Write the files of a case."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is Instead.FOLDER:
            path.mkdir(exist_ok=True)
        elif content is Instead.PIPE:
            os.mkfifo(path)
        elif content is Instead.LOOP:
            path.symlink_to(path)
