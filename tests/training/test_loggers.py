"""Callbacks, loggers and the progress line of a training."""

import csv
from contextlib import suppress

import numpy as np
import pytest

from ridgeformer import Problem, train
from ridgeformer.errors import MissingPackageError
from ridgeformer.training import (
    Callback,
    CSVLogger,
    GradientDescent,
    Search,
    TensorBoardLogger,
    WandbLogger,
    callbacks,
)
from ridgeformer.training.store import Folder

SMALL = Problem(dim=3, context=6, noise="uniform(0,2)")
FEW = {"sequences": 1000, "threads": 1}


def descent(**options):
    return GradientDescent(**{"rate": 1e-3, "steps": 40, "scale": 0.05, **options})


def test_callbacks_are_told_everything():
    class Told(Callback):
        def __init__(self):
            self.calls = []

        def on_start(self, spec):
            self.calls.append(("start", spec.name))

        def on_step(self, progress):
            self.calls.append(("step", progress.record["step"], progress.loss))

        def on_end(self, training):
            self.calls.append(("end", training.spec.name))

    told, seen = Told(), []
    found = train(SMALL, "diag", 1, protocol=descent(record=8), callbacks=[told, seen.append], **FEW)
    rows = [("step", row["step"], row["loss"]) for row in found.history]
    assert told.calls == [("start", found.spec.name), *rows, ("end", found.spec.name)]
    for name in ("gradient_norm", "ratio", "step"):
        assert [progress.record[name] for progress in seen] == getattr(found.history, name).tolist()
    assert {type(progress.record["step"]) for progress in seen} == {int}
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)


def test_a_csv_file_holds_the_history(tmp_path):
    path = tmp_path / "logs" / "history.csv"
    found = train(SMALL, "diag", 1, protocol=descent(), callbacks=[CSVLogger(path)], **FEW)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [float(row["loss"]) for row in rows] == found.history.loss.tolist()
    assert {row["run"] for row in rows} == {found.spec.name}
    search = train(SMALL, "diag", 1, protocol=Search(effort=0.1), callbacks=[CSVLogger(path)], **FEW)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len({row["run"] for row in rows}) == 2  # with the simpler family
    assert sum(row["run"] == search.spec.name for row in rows) == len(search.history)


def test_a_csv_file_is_complete_at_any_moment(tmp_path):
    """Also after an error, and of a run that resumes: the rows before the interruption come first."""
    path, told = tmp_path / "history.csv", []

    def stop(progress):
        told.append(progress.record["step"])
        rows = list(csv.DictReader(path.read_text().splitlines()))
        assert [int(row["step"]) for row in rows] == told
        if len(told) == 30:
            raise RuntimeError

    options = {"protocol": descent(record=1), "out": Folder(tmp_path, interval=0.0), **FEW}
    with pytest.raises(RuntimeError):
        train(SMALL, "diag", 1, callbacks=[CSVLogger(path), stop], **options)
    assert len(path.read_text().splitlines()) == 31
    told.clear()
    with pytest.raises(RuntimeError):
        train(SMALL, "diag", 1, callbacks=[CSVLogger(path), stop], **options)
    assert told == list(range(30))


def test_a_csv_logger_that_is_used_again_writes_its_file_anew(tmp_path):
    logger, counts = CSVLogger(tmp_path / "history.csv"), []

    def stop(progress):
        counts.append(len((tmp_path / "history.csv").read_text().splitlines()) - 1)
        if len(counts) == 11:
            raise RuntimeError

    for _ in range(2):
        with suppress(RuntimeError):
            train(SMALL, "diag", 1, protocol=descent(record=1), callbacks=[logger, stop], **FEW)
    assert counts[:11] == list(range(1, 12))
    assert counts[11:] == list(range(1, len(counts) - 10))


def test_numbers_that_are_not_finite_are_not_sent(tmp_path, capfd, monkeypatch):
    """With a known noise level the floor is 0, and the ratio to it infinite."""
    problem = Problem(dim=3, context=6, noise="fixed(1)")
    found = train(problem, "diag", 1, protocol=descent(record=20), callbacks=[TensorBoardLogger(tmp_path)], **FEW)
    assert np.isinf(found.history.ratio).all()
    (events,) = (tmp_path / found.spec.name).glob("events*")
    assert b"ratio" not in events.read_bytes()
    assert b"gradient_norm" in events.read_bytes()
    out = capfd.readouterr()
    assert "NaN or Inf" not in out.out + out.err


def test_tensorboard_gets_every_number(tmp_path):
    found = train(SMALL, "diag", 1, protocol=descent(record=20), callbacks=[TensorBoardLogger(tmp_path)], **FEW)
    (events,) = (tmp_path / found.spec.name).glob("events*")
    content = events.read_bytes()
    for tag in (b"loss", b"adjusted_loss", b"ratio", b"gradient_norm"):
        assert content.count(tag) >= 3


def test_weights_and_biases_gets_every_number(monkeypatch):
    """By a stand-in for the package, which needs an account."""
    logged = []

    class Run:
        def __init__(self, **options):
            self.options, self.summary = options, {}
            logged.append(self)

        def log(self, numbers, step):
            logged.append((step, numbers["loss"]))

        def finish(self):
            logged.append("finished")

    package = type("wandb", (), {"init": staticmethod(lambda **options: Run(**options))})
    real = callbacks.importlib.import_module
    monkeypatch.setattr(callbacks.importlib, "import_module", lambda n: package if n == "wandb" else real(n))
    found = train(SMALL, "diag", 1, protocol=descent(record=20), callbacks=[WandbLogger("mine", mode="offline")], **FEW)
    run, *rows, end = logged
    assert rows == [(row["step"], row["loss"]) for row in found.history]
    assert end == "finished"
    assert run.options["project"] == "mine"
    assert run.summary["loss"] == found.loss


@pytest.mark.parametrize(
    ("logger", "message"), [(WandbLogger, "pip install wandb"), (TensorBoardLogger, "tensorboardX")]
)
def test_missing_packages_are_named(monkeypatch, logger, message):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(callbacks.importlib, "import_module", missing)
    with pytest.raises(MissingPackageError, match=message):
        logger("anywhere")


def test_nothing_is_printed_without_a_terminal(capfd):
    train(SMALL, "diag", 1, protocol=descent(), **FEW)
    assert capfd.readouterr() == ("", "")


def test_the_progress_line_appears_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("ridgeformer.training.callbacks.PATIENCE", 0.0)
    from ridgeformer.training.callbacks import Display

    line = Display(after=0.0)
    train(SMALL, "diag", 1, protocol=descent(), callbacks=[line], progress=False, **FEW)
    line.close()
    shown = capfd.readouterr().err
    assert "diag, 1 layer" in shown
    assert "times the floor" in shown
    train(SMALL, "diag", 1, protocol=descent(), progress=False, **FEW)
    assert capfd.readouterr() == ("", "")
