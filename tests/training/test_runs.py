"""Runs on disk: found again, gone on with after any interruption, never mixed up, never half-written."""

import dataclasses
import functools
import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import killing
from ridgeformer import Layout, Problem, Training, load, train
from ridgeformer.errors import StorageError
from ridgeformer.files import digest, pack, read_tensors
from ridgeformer.training import Search
from ridgeformer.training.spec import make_spec
from ridgeformer.training.store import DamagedRunWarning, Folder, Journal
from support import each, refused, same_model

SMALL = Problem(dim=3, context=6, noise="uniform(0,3)")
HOW = {"protocol": Search(effort=0.2), "sequences": 1000}


class Stop(Exception):
    """Raised in the middle of a run."""


@pytest.fixture
def done(tmp_path):
    """A small finished run."""
    return train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path)


@pytest.mark.parametrize(("kind", "kills"), [(killing.DIAG, 4), (killing.FULL, 3), (killing.PAPER, 3)])
@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path, kind, kills):
    """kill -9, ten times over the three cases; `test_interruptions.py` kills more often."""
    killing.compare(tmp_path, kind, kills, seed=0)


def test_a_journal_lets_a_run_go_on(tmp_path):
    """Stopped by its progress function after each piece of work, it never does the same piece twice."""
    pieces = []

    def stop(progress):
        pieces.append((progress.spec, progress.phase, progress.fraction))  # losses of two starts may be equal
        raise Stop

    problem, protocol = Problem(11, 14, "uniform(0,3)"), Search(effort=0.1)
    runs = Folder(tmp_path, interval=0.0)
    for _ in range(200):
        try:
            found = train(problem, "full", 1, protocol=protocol, sequences=1000, out=runs, callbacks=[stop])
            break
        except Stop:
            pass
    whole = train(problem, "full", 1, protocol=protocol, sequences=1000)
    assert len(pieces) > 5
    assert len(set(pieces)) == len(pieces)
    assert same_model(found.model, whole.model)
    assert found.history == whole.history


def test_a_finished_run_is_found(tmp_path):
    first = train(SMALL, "diag", 2, **HOW, out=tmp_path)
    seen = []
    second = train(SMALL, "diag", 2, **HOW, out=tmp_path, callbacks=[seen.append])
    assert not seen
    assert second.record() == first.record() == Training.load(first.folder).record()
    assert sorted(p.name.split("-")[0] for p in tmp_path.iterdir()) == ["diag", "diag", "gdpp", "gdpp"]
    assert sorted(p.name for p in first.folder.iterdir()) == ["model.safetensors", "record.json", "spec.json"]


@each(
    ("full", None, "full, 2 layers"),
    ("full", Layout(scratch=2), "full, 2 layers, scratch=2"),
    ("looped(full,3)", Layout("mean", "length", 1), "2 layers repeated 3 times, attention=mean,"),
    ("channels(1,3)", None, "channels(1,3), 2 layers"),
    ("channels(1,3)", Layout("sum", "constant"), "channels(1,3), 2 layers, coordinate=constant"),
)
def test_a_heading_names_the_layout(family, layout, words):
    """Unless it is that of the paper, or the room that the family always has."""
    spec = make_spec(Problem(3, 6, "fixed(1)"), family, layers=2, sequences=9, layout=layout)
    assert words in spec.describe_model()
    assert spec.describe_model().endswith(words) or "looped" in family
    assert spec.describe() == f"{spec.describe_model()}, d=3 n=6 fixed(1)"


@pytest.mark.slow
def test_two_processes_on_one_run_do_no_harm(tmp_path):
    for process in [killing.start(tmp_path / name, killing.FULL) for name in ("whole", "both", "both")]:
        killing.finish(process)
    assert killing.content(tmp_path / "whole") == killing.content(tmp_path / "both")


def test_two_processes_that_store_one_run_in_turns(tmp_path):
    """The model's file is one process's, the record the other's: same bits, other seconds."""
    one, other = (train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path / name) for name in ("one", "other"))
    shutil.copy(other.folder / "model.safetensors", one.folder)
    assert train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path / "one").record() == one.record()


def test_a_run_that_another_process_finished_is_kept(tmp_path):
    first = train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path)
    runs = Folder(tmp_path)
    runs.journal(first.spec, {}).write()
    runs.store(dataclasses.replace(first, seconds=1e9))
    assert Training.load(first.folder).record() == first.record()
    assert sorted(path.name for path in first.folder.iterdir()) == ["model.safetensors", "record.json", "spec.json"]


def test_a_folder_that_is_a_file(tmp_path):
    place = tmp_path / "runs"
    place.write_text("")
    refused(lambda: train(SMALL, "gdpp", 1, out=place), "runs need a folder; ... runs is a file")
    folder = tmp_path / "store"
    done = train(SMALL, "gdpp", 1, sequences=1000, out=folder)
    shutil.rmtree(done.folder)
    done.folder.write_text("")
    refused(lambda: train(SMALL, "gdpp", 1, sequences=1000, out=folder), "a run needs a folder; ... is a file")


@pytest.mark.parametrize("name", ["spec.json", "record.json"])
def test_a_folder_that_holds_another_run(done, tmp_path, name):
    path = done.folder / name
    if name == "spec.json":
        (done.folder / "record.json").unlink()
    text = path.read_text().replace('"seed": 0', '"seed": 7')
    path.write_text(text)
    with pytest.warns(DamagedRunWarning, match=r"its checksum differs.*trained again|another run; it is written anew"):
        again = train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path)
    assert same_model(again.model, done.model)
    assert (done.folder / f"damaged-{name}").read_text() == text


@each(
    (lambda f: (f / "record.json").unlink(), "has none yet. Train it to its end"),
    (lambda f: (f / "model.safetensors").write_bytes(b"no"), "truncated, corrupt or of another kind"),
    (lambda f: shutil.rmtree(f), "a run is a folder; ... is not there"),
    (lambda f: [shutil.rmtree(f), f.mkdir()], "and there are no runs in it. Name the folder that was given to"),
)
def test_a_damaged_run(damage, message, done):
    """Damage to the record itself is in test_run_tables.py."""
    refused(lambda: Training.load(done.folder.parent), "is not the folder of a run, but holds runs. Name one of them")
    damage(done.folder)
    refused(lambda: Training.load(done.folder), message)


def test_a_family_that_is_not_there(done):
    path = done.folder / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'\\"family\\": \\"gdpp\\"', b'\\"family\\": \\"mine\\"'))
    refused(lambda: Training.load(done.folder), "got 'mine'. Name one of these. A family of your own has a name once")
    refused(lambda: train(SMALL, "gdpp", 1, out=3), "runs need the name of a folder; got 3")


def test_a_damaged_spec_of_a_finished_run_is_written_anew(done, tmp_path):
    """The record holds the spec too, so nothing is trained again."""
    path = done.folder / "spec.json"
    text = path.read_text()
    path.write_text("{")
    seen = []
    with pytest.warns(DamagedRunWarning, match=r"spec.json is damaged, or of another run; it is written anew"):
        again = train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path, callbacks=[seen.append])
    assert again.record() == done.record()
    assert not seen
    assert path.read_text() == text
    assert (done.folder / "damaged-spec.json").read_text() == "{"


def test_files_that_were_set_aside_are_not_overwritten(done, tmp_path):
    for text in ("first", "second", "third"):
        (done.folder / "record.json").write_text(text)
        with pytest.warns(DamagedRunWarning, match="trained again; its damaged files are kept"):
            assert same_model(train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path).model, done.model)
    kept = {path.name: path.read_text() for path in done.folder.glob("damaged-*record.json")}
    assert kept == {"damaged-record.json": "first", "damaged-2-record.json": "second", "damaged-3-record.json": "third"}


def test_the_journal_of_a_finished_run_is_removed(done, tmp_path):
    """A kill between the record and the removal of the journal leaves both."""
    (done.folder / "journal.safetensors").write_bytes(b"")
    train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path)
    assert sorted(path.name for path in done.folder.iterdir()) == ["model.safetensors", "record.json", "spec.json"]


@each(
    {"names": None},
    {"names": ["a", "b"]},
    {"checksums": []},
    {"marks": [float("inf")]},
    {"history": [["race", float("inf"), 0.5]]},
    {"seconds": 10**400},
    {"writer": 3},
    {"writer": {"run": "\x1b[2J\n" * 1000}},
)
def test_odd_facts_of_a_journal_are_no_error(facts, tmp_path):
    """Even with the right checksum, as another program might write them."""
    path = tmp_path / "journal.safetensors"
    arrays = {"point": np.ones(2)}
    good = {"writer": {}, "history": [], "seconds": 1.0, "names": ["a"], "marks": [0], "checksums": [digest(arrays)]}
    text = json.dumps(good | facts)
    seal = hashlib.sha256(text.encode()).hexdigest()
    metadata = {"format": "ridgeformer-journal-2", "facts": text, "facts checksum": seal}
    path.write_bytes(pack({"0/point": arrays["point"]}, metadata))
    with pytest.warns(DamagedRunWarning, match=r"the run starts again|before") as caught:
        assert Journal(path).recall("a") is None
    assert str(caught[0].message).isprintable()
    assert len(str(caught[0].message)) < 1000


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    """The write fails in the middle: the error says so, no half-written file stays, and the run goes on later."""
    real = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    def fill(progress):
        if progress.phase == "best":
            monkeypatch.setattr(os, "fsync", full)

    runs = Folder(tmp_path, interval=0.0)
    with pytest.raises(StorageError, match=r"cannot be written .No space left on device.*intact"):
        train(SMALL, "diag", 1, **HOW, out=runs, callbacks=[fill])
    assert list(tmp_path.glob("*/journal.safetensors"))
    assert not list(tmp_path.glob("*/.*.tmp"))
    monkeypatch.setattr(os, "fsync", real)
    found = train(SMALL, "diag", 1, **HOW, out=runs)
    assert found.history == train(SMALL, "diag", 1, **HOW).history


@pytest.fixture
def journal(tmp_path):
    """The journal of a run that stopped after five pieces of work."""
    fractions = []

    def stop(progress):
        if progress.spec.family.name == "diag":
            fractions.append(progress.fraction)
        if len(fractions) == 5:
            raise Stop

    with pytest.raises(Stop):
        train(SMALL, "diag", 1, **HOW, out=Folder(tmp_path, interval=0.0), callbacks=[stop])
    (path,) = tmp_path.glob("*/journal.safetensors")
    return path


def resumed(journal):
    return train(SMALL, "diag", 1, **HOW, out=Folder(journal.parents[1], interval=0.0))


@functools.cache
def undisturbed():
    return train(SMALL, "diag", 1, **HOW)


def test_what_comes_before_the_damage_is_used(journal):
    content = Journal(journal, writer=writer(journal))
    names = list(content._pieces)
    content._pieces[names[3]]["point"] = content._pieces[names[3]]["point"] + 1
    tensors = {f"{i}/{key}": value for i, name in enumerate(names) for key, value in content._pieces[name].items()}
    header, _ = read_tensors(journal, "a journal", lambda metadata: None)
    journal.write_bytes(pack(tensors, header))
    with pytest.warns(DamagedRunWarning, match=rf"goes on from its last sound state, before {names[3]}"):
        again = Journal(journal, writer=writer(journal))
    assert list(again._pieces) == names[:3]
    assert again.history == content.history[:3]
    with pytest.warns(DamagedRunWarning):
        assert same_model(resumed(journal).model, undisturbed().model)


def writer(journal):
    return json.loads(read_tensors(journal, "a journal", lambda metadata: None)[0]["facts"])["writer"]


def test_a_journal_says_which_run_version_and_engine_wrote_it(journal):
    assert writer(journal) == {
        "run": journal.parent.name,
        "ridgeformer": undisturbed().made_with["ridgeformer"],
        "engine": undisturbed().made_with["engine"],
    }
    sound = journal.read_bytes()
    for name, value in (("engine", "another"), ("ridgeformer", "0.0.1"), ("run", "of-something-else")):
        kept = Journal(journal, writer=writer(journal))
        kept.writer = {**kept.writer, name: value}
        kept.write()
        with pytest.warns(DamagedRunWarning, match=rf"was written by another {name} {value}, now .*starts again"):
            again = Journal(journal, writer={**kept.writer, name: writer(journal)[name] + "x"})
        assert again._pieces == {}
        journal.write_bytes(sound)
    kept = Journal(journal, writer=writer(journal))
    kept.writer["engine"] = "another"
    kept.write()
    with pytest.warns(DamagedRunWarning, match="was written by another engine another, now"):
        assert same_model(resumed(journal).model, undisturbed().model)


def test_a_journal_of_version_0_1_is_reported(journal):
    """It had no checksums, so nobody can say whether it is sound."""
    save_file({"0/point": np.zeros(3)}, journal, metadata={"history": "[]", "seconds": "1.0", "names": '["race/0"]'})
    with pytest.warns(DamagedRunWarning, match=r"is damaged .it is not a journal of this version.*from its beginning"):
        assert same_model(resumed(journal).model, undisturbed().model)


@pytest.mark.parametrize(("family", "layers"), [("diag", 2), ("gdpp", 1), ("diag", 1)])
def test_a_model_of_another_run_is_not_accepted(tmp_path, family, layers):
    """Another depth, another family, and other weights of the same shape."""
    done = train(SMALL, "diag", 1, **HOW, out=tmp_path / "runs")
    other = train(SMALL, family, layers, seed=1, **HOW, out=tmp_path / "others")
    shutil.copy(other.folder / "model.safetensors", done.folder / "model.safetensors")
    refused(lambda: Training.load(done.folder), "a run's model must be the one that was trained")
    with pytest.warns(DamagedRunWarning, match=r"must be the one that was trained.*trained again.*damaged-"):
        again = train(SMALL, "diag", 1, **HOW, out=tmp_path / "runs")
    assert same_model(again.model, done.model)
    assert again.loss == done.loss
    assert load(done.folder / "damaged-model.safetensors").layers == layers
    assert Training.load(done.folder).loss == done.loss


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name what is synced")
def test_files_and_their_folders_are_synced_before_anybody_relies_on_them(tmp_path, monkeypatch):
    """Every file is synced before it is renamed and its folder afterwards; the record comes after the model."""
    events = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def renamed(source, target):
        events.append(("rename", Path(source), Path(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    done = train(SMALL, "gdpp", 1, sequences=1000, out=tmp_path)
    renames = [event for event in events if event[0] == "rename"]
    assert [event[2].name for event in renames][-2:] == ["model.safetensors", "record.json"]
    for event in renames:
        place = events.index(event)
        assert ("sync", event[1]) in events[:place]
        assert ("sync", done.folder) in events[place:]


def test_a_thousand_layers_are_no_recursion(tmp_path):
    """The plan is made without recursion; the time limit then ends the work."""
    seen = []

    def stop(progress):
        seen.append(progress)
        raise Stop

    with pytest.raises(Stop):
        train(SMALL, "full", 1000, **HOW, out=tmp_path, callbacks=[stop])
    assert seen
