"""Runs that are killed and files that are damaged: the same bits or a clear message, and nothing finished is lost."""

import random
import shutil
import warnings

import fuzz_mutations
import pytest

import killing
from killing import DESCENT, DIAG, FULL, FULL_BY_BFGS, FULL_BY_SOAP, GDPP, PAPER
from ridgeformer.training import Search
from ridgeformer.training.store import DamagedRunWarning
from support import each

pytestmark = pytest.mark.long
SMALL = killing.Kind("diag", 1, 2, 5, Search(effort=0.2))


def files(folder):
    """Every file below a folder, with its bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def train_again(kind, folder):
    """Train in this process; gives the damage that was reported and the descriptions of the runs that were trained."""
    worked = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind.train(folder, callbacks=[lambda progress: worked.append(progress.spec.describe())])
    assert all(warning.category is DamagedRunWarning for warning in caught), [str(w.message) for w in caught]
    return [str(warning.message) for warning in caught], set(worked)


@each((DIAG, 14), (FULL_BY_BFGS, 10), (FULL_BY_SOAP, 6), (FULL, 8), (PAPER, 10), (GDPP, 10), (DESCENT, 6))
def test_a_killed_run_ends_with_the_same_bits(kind, kills, tmp_path):
    """64 times kill -9 over the seven kinds of runs. No kill is ever taken for damage."""
    killing.compare(tmp_path, kind, kills, seed=1)
    assert not list(tmp_path.glob("*/*/damaged-*"))


@pytest.mark.parametrize(("kind", "pieces"), [(DIAG, (1, 3, 6)), (FULL_BY_SOAP, (1, 2, 3)), (PAPER, (1, 2, 3))])
def test_a_damaged_journal_costs_time_but_no_bits(tmp_path, kind, pieces):
    """Runs are killed with -9 after so many pieces of work; of each, three copies of the journal get flipped bits.

    Every resumed run says so, unless the bits did not matter; the runs that it is grown from stay as they are.
    """
    rng = random.Random(2)
    kind.train(tmp_path / "whole")
    whole = killing.content(tmp_path / "whole")
    reported = 0
    for count in pieces:
        stopped = tmp_path / f"stopped-{count}"
        killing.kill_in_the_middle(stopped, kind, count)
        for number in range(3):
            folder = tmp_path / f"damaged-{count}-{number}"
            shutil.copytree(stopped, folder)
            (journal,) = folder.glob("*/journal*")
            journal.write_bytes(fuzz_mutations.flip_bits(journal.read_bytes(), rng))
            before = {path: found for path, found in files(folder).items() if path.parent.name != journal.parent.name}
            messages, worked = train_again(kind, folder)
            reported += len(messages)
            assert all("damaged" in message for message in messages)
            assert len(worked) == 1
            assert killing.content(folder) == whole
            assert before.items() <= files(folder).items()
    assert reported >= 6  # of nine: few bits of a journal do not matter
