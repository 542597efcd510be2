"""A search as a generator of steps: reports, time limits, and what it returns."""

import csv
import dataclasses
import importlib
import json
import time

import numpy as np
import pytest

import own_problems
from ridgeformer import Problem, train
from ridgeformer.bfgs import BfgsState
from ridgeformer.engine import Layout
from ridgeformer.errors import MissingPackageError
from ridgeformer.evaluation import Oracle, evaluate
from ridgeformer.losses import exploded
from ridgeformer.models import Diag, LinearTransformer
from ridgeformer.population import Quadratic
from ridgeformer.training import Callback, CSVLogger, PaperProtocol, Search, TensorBoardLogger, WandbLogger
from ridgeformer.training.callbacks import Display
from ridgeformer.training.job import Job, Outcome, Step, follow
from ridgeformer.training.search import many_starts, protocol as search_module
from ridgeformer.training.search.starts import Failures, SearchJob
from ridgeformer.training.spec import make_spec
from ridgeformer.training.store import Folder
from support import FEW, SMALL, descent, each, refused

MODELS = [LinearTransformer(Diag(omega=[[[0, 0], [-0.01 * k, 0]]]), 3) for k in (1, 2, 3)]


def steps(models=MODELS, seconds=0.0):
    for number, model in enumerate(models, 1):
        time.sleep(seconds)
        yield Step(model, "race", number / len(models), 1.0 / number)
    return Outcome(models[-1], True, "converged")


SPEC = make_spec(Problem(3, 6, "fixed(1)"), Diag, layers=2, sequences=2)


def job(problem=SPEC.problem, layout=SPEC.layout, **changes):
    return SearchJob(dataclasses.replace(SPEC, problem=problem, layout=layout), **changes)


def test_steps_are_reported_until_the_end_or_until_the_time_is_over():
    seen = []
    outcome = follow(steps(), Job(SPEC, report=seen.append))
    assert [step.fraction for step in seen] == [1 / 3, 2 / 3, 1.0]
    assert outcome == Outcome(MODELS[-1], True, "converged")
    # When the time is over, the best model so far is the result.
    seen.clear()
    outcome = follow(steps(), Job(SPEC, report=seen.append, deadline=time.monotonic() - 1))
    assert len(seen) == 1
    assert (outcome.model, outcome.converged, outcome.message) == (MODELS[0], False, "the time given was over")
    assert follow(steps(), Job(SPEC, deadline=time.monotonic() + 1000)).converged


@pytest.mark.parametrize("error", [RuntimeError, StopIteration, KeyboardInterrupt])
def test_an_error_of_the_report_is_not_swallowed(error):
    def report(step):
        raise error("enough")

    refused(lambda: follow(steps(), Job(SPEC, report=report)), "enough", error)


@each(
    (Problem(3, 6, "fixed(1)"), Layout(), 0.09),
    (Problem(3, "4..8", "fixed(1)"), Layout("mean"), 0.9),
    (own_problems.HeavyTails(3, 6), Layout(), 0.09),
)
def test_the_last_check_sees_what_the_selection_sees(problem, layout, rate):
    """Also where n varies, although searches before it look at the shortest and longest contexts only.

    And on a problem of one's own, whose sequences depend on the size of the block in which they are drawn.
    """
    unstable = LinearTransformer(Diag(omega=np.tile([[-rate, 0], [-rate, 0]], (5, 1, 1))), 3, layout)
    work = job(problem=problem, layout=layout)
    expected = int(exploded(search_module._losses(work, unstable), problem.signal).sum())
    known = work.checked(unstable, Failures.none(problem, layout))
    assert abs(known.exploded - expected) <= 1 + expected // 100  # float32 and float64
    assert expected > 10
    assert len(known) > 10
    assert work.checked(unstable, known).strength > known.strength


def test_descents_that_overflow_on_more_sequences_do_not_go_on():
    """BFGS cannot leave a point whose loss is not finite: there the gradient leaves out what overflows."""
    work = many_starts._BfgsRace(job())
    descents = [BfgsState(work.vector.pack(model), 0.1, np.eye(8), 1, True) for model in two_layers(1e200, 0.01, 0.02)]
    assert work.finite(descents, 2) == descents[1:]
    assert work.finite(descents, 1) == descents[1:2]
    assert work.finite(descents[:1], 2) == []


def two_layers(*rates):
    return [LinearTransformer(Diag(p=np.full((2, 1, 2), -rate), q=np.ones((2, 1, 2))), 3) for rate in rates]


# ---- Histories of trainings as tables, against independent truths; callbacks, loggers and the progre


def test_the_history_is_a_table():
    found = train(SMALL, "full", 1, protocol=descent(record=[0, 3, 10]), **FEW)
    history = found.history
    assert history.step.tolist() == [0, 3, 10, 40]
    frame = history.to_pandas()
    assert list(frame) == [
        "phase", "step", "time", "sequences", "loss", "adjusted_loss", "ratio", "gradient_norm", "seconds",
        "rate", "clipped", "fresh_loss",
    ]  # fmt: skip
    assert frame["loss"].is_monotonic_decreasing
    np.testing.assert_allclose(frame["ratio"], frame["adjusted_loss"] / found.floor)
    oracle = found.result.unadjusted - found.result.loss
    assert (frame["loss"] - frame["adjusted_loss"]).to_numpy() == pytest.approx(oracle, rel=0.2)
    assert (np.diff(history.seconds) >= 0).all()
    assert history[-1]["step"] == 40
    assert len(list(history)) == len(history) == 4
    assert str(history).startswith("4 recorded steps")
    assert str(train(SMALL, "full", 1, protocol=descent(record=1), **FEW).history).startswith("20 of 41 recorded")
    assert "gradient_norm" in str(history)
    with pytest.raises(ValueError, match="read-only"):
        history.loss[0] = 1
    assert json.dumps(history.as_dict())


@pytest.mark.parametrize("problem", [SMALL, Problem(4, 8, 1, features="spectrum(2,1,1,0.5)", tasks="lowrank(2)")])
def test_the_oracle_of_a_history_is_not_measured_on_few_sequences(problem):
    """Its loss, the difference of both losses, against a million sequences; the same for every seed."""
    found = [train(problem, "diag", 1, seed=seed, protocol=descent(steps=1), **FEW).history for seed in (0, 1)]
    oracle = evaluate(problem, Oracle(problem), sequences=1_000_000, with_floor=False)
    for history in found:
        difference = history.loss - history.adjusted_loss
        assert difference == pytest.approx(oracle.unadjusted, abs=4 * oracle.unadjusted_error)
        assert difference == pytest.approx(found[0].loss - found[0].adjusted_loss)


def test_the_gradient_norm_is_that_of_the_parameters():
    found = train(SMALL, "full", 1, protocol=descent(record=40, snapshots=[0, 40]), **FEW)
    for row, snapshot in zip(found.history, found.snapshots, strict=True):
        loss, slopes = Quadratic.of_problem(SMALL)(snapshot.model)
        assert row["step"] == snapshot.step
        assert row["loss"] == pytest.approx(loss)
        assert row["gradient_norm"] == pytest.approx(np.sqrt(sum(np.square(s).sum() for s in slopes.values())))
    for name, value in found.model.family.arrays.items():
        np.testing.assert_array_equal(found.snapshots[-1].model.family.arrays[name], value)


def test_searches_have_a_history_too():
    found = train(SMALL, "diag", 1, protocol=Search(effort=0.1), **FEW)
    assert {"race", "best", "final"} <= set(found.history.phase)
    assert np.isnan(found.history.gradient_norm).all()
    np.testing.assert_array_equal(found.history.loss, found.history.adjusted_loss)
    assert "gradient_norm" not in str(found.history)
    assert found.snapshots == ()
    assert (np.diff(found.history.seconds) >= 0).all()
    assert 0 < found.history.seconds[-1] <= found.seconds


def test_the_paper_records_adjusted_losses_too():
    """On a batch the query loss is noisy: the mean over all rows against the loss of the result, nearly that of 0."""
    found = train(SMALL, "diag", 1, protocol=PaperProtocol(steps=400, batch=2048, rate=1e-9), **FEW)
    assert len(found.history) == 200
    assert found.history.sequences.tolist() == list(range(4096, 400 * 2048 + 1, 4096))
    assert found.history.adjusted_loss.mean() == pytest.approx(found.loss, rel=0.1)  # 1,000 sequences in the result
    np.testing.assert_allclose(found.history.ratio, found.history.adjusted_loss / found.floor)
    assert (np.diff(found.history.seconds) > 0).all()


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
    logger = CSVLogger(path)  # one that is used again writes its file anew

    def stop(progress):
        told.append(progress.record["step"])
        rows = list(csv.DictReader(path.read_text().splitlines()))
        assert [int(row["step"]) for row in rows] == told
        if len(told) == 30:
            raise RuntimeError

    options = {"protocol": descent(record=1), "out": Folder(tmp_path, interval=0.0), **FEW}
    for _ in range(2):
        told.clear()
        with pytest.raises(RuntimeError):
            train(SMALL, "diag", 1, callbacks=[logger, stop], **options)
        assert told == list(range(30))
        assert len(path.read_text().splitlines()) == 31


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
    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda n: package if n == "wandb" else real(n))
    found = train(SMALL, "diag", 1, protocol=descent(record=20), callbacks=[WandbLogger("mine", mode="offline")], **FEW)
    run, *rows, end = logged
    assert rows == [(row["step"], row["loss"]) for row in found.history]
    assert end == "finished"
    assert run.options["project"] == "mine"
    assert run.summary["loss"] == found.loss


@each((WandbLogger, "install wandb"), (TensorBoardLogger, "tensorboardX"))
def test_missing_packages_are_named(logger, message, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    refused(lambda: logger("anywhere"), message, MissingPackageError)


def test_the_progress_line_appears_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("ridgeformer.training.callbacks.PATIENCE", 0.0)
    line = Display(after=0.0)
    train(SMALL, "diag", 1, protocol=descent(), callbacks=[line], progress=False, **FEW)
    line.close()
    shown = capfd.readouterr().err
    assert "diag, 1 layer" in shown
    assert "times the floor" in shown
    train(SMALL, "diag", 1, protocol=descent(), progress=False, **FEW)
    assert capfd.readouterr() == ("", "")
