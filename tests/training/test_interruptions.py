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


@pytest.mark.parametrize(
    ("kind", "kills"),
    [(DIAG, 14), (FULL_BY_BFGS, 10), (FULL_BY_SOAP, 6), (FULL, 8), (PAPER, 10), (GDPP, 10), (DESCENT, 6)],
)
def test_a_killed_run_ends_with_the_same_bits(tmp_path, kind, kills):
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    SMALL.train(folder)
    return folder


def flip(content, rng):
    return fuzz_mutations.flip_bits(content, rng)


def halve(content, rng):
    return content[: len(content) // 2]


def empty(content, rng):
    return b""


def lose_a_block(content, rng):
    return fuzz_mutations.zero_blocks(content, rng)


@pytest.mark.parametrize("damage", [flip, halve, empty, lose_a_block])
@pytest.mark.parametrize("name", ["record.json", "model.safetensors", "spec.json"])
@pytest.mark.parametrize("family", ["gdpp", "diag"])
def test_a_damaged_finished_run_is_set_aside_and_trained_again(tmp_path, finished, family, name, damage):
    """Nothing else is touched. A damaged spec costs no training: the record has it too."""
    folder = tmp_path / "runs"
    shutil.copytree(finished, folder)
    (place,) = folder.glob(f"{family}-1x*")
    damaged = damage((place / name).read_bytes(), random.Random(family + name))
    (place / name).write_bytes(damaged)
    before = files(folder)
    messages, worked = train_again(SMALL, folder)
    after = files(folder)
    assert len(messages) == 1
    assert place.name in messages[0]
    assert ("written anew" if name == "spec.json" else "trained again") in messages[0]
    assert len(worked) == (name != "spec.json")
    assert all(run.startswith(family) for run in worked)
    assert after[(place / f"damaged-{name}").relative_to(folder)] == damaged
    assert killing.content(folder) == killing.content(finished)
    elsewhere = {path: found for path, found in before.items() if path.parent.name != place.name}
    assert elsewhere.items() <= after.items()
    assert train_again(SMALL, folder) == ([], set())


@pytest.mark.parametrize("names", [["model.safetensors"], ["record.json"], ["record.json", "model.safetensors"]])
def test_lost_files_of_a_finished_run_are_made_again(tmp_path, finished, names):
    folder = tmp_path / "runs"
    shutil.copytree(finished, folder)
    (place,) = folder.glob("diag-1x*")
    for name in names:
        (place / name).unlink()
    messages, worked = train_again(SMALL, folder)
    assert len(messages) == (names == ["model.safetensors"])  # without a record, a run is not finished
    assert len(worked) == 1
    assert killing.content(folder) == killing.content(finished)
