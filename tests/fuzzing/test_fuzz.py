"""The fuzzing itself: every kind runs, finds what it is there to find, and says how to find it again."""

import importlib
import subprocess
import sys
from pathlib import Path

import fuzz
import fuzz_cases
import fuzz_journals
import fuzz_mutations
import fuzz_records
import pytest

from benchmarks import shipped
from ridgeformer import CustomProblem, files
from ridgeformer.predictors import discrete
from ridgeformer.training import store
from ridgeformer.zoo import shipped_models
from support import each, refused


@pytest.fixture(autouse=True)
def saved(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_cases, "SAVED", tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("kind", ["models", "journals", "records", "zoo", "laws", "calls", "arrays", "pairs"])
def test_the_law_holds(kind):
    count = 30 if kind in ("laws", "pairs") else 100  # slow ones
    outcomes = fuzz_cases.run(kind, count, seed=20)
    assert outcomes.total() == count
    assert outcomes == fuzz_cases.run(kind, count, seed=20)
    assert outcomes != fuzz_cases.run(kind, count, seed=21)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_hostile_runs_on_a_terminal():
    assert fuzz_cases.run("terminal", 25, seed=1).total() == 25


@each(("laws", 17, 1), ("laws", 37, 5), ("laws", 9, 900), ("engine", 75, 154))
def test_what_was_found_before(kind, count, seed):
    """Mixtures with a pool, with n <= d: evidence was a difference of large numbers; and where labels are all 0 but for
    rounding. Features without a direction."""
    assert fuzz_cases.run(kind, count, seed).total() == count


def test_mixed_up_laws_are_found(monkeypatch):
    monkeypatch.setattr(CustomProblem, "as_dict", lambda self: {"problem": self.name, "arguments": {}})
    with pytest.raises(AssertionError, match=r"fuzz_cases.run\('pairs', \d+, 1\) breaks the law in its last case: "):
        fuzz_cases.run("pairs", 50, 1)


def test_wrong_posteriors_are_found(monkeypatch):
    monkeypatch.setattr(discrete, "TINY", 1e-3)
    with pytest.raises(AssertionError, match=r"fuzz_cases.run\('laws', \d+, 1\) .*: the (floor|oracle) of"):
        fuzz_cases.run("laws", 100, 1)


def accept_everything(*_, **__):
    return "0" * 64


@each(
    ("models", files, "checksum"),
    ("journals", files, "digest"),
    ("journals", store, "_seal"),
    ("records", store, "checksum"),
    ("zoo", shipped_models, "checksum_of"),
)
def test_without_a_checksum_the_violation_is_found(kind, module, name, monkeypatch, saved):
    monkeypatch.setattr(module, name, accept_everything)
    if kind == "zoo":
        monkeypatch.setattr(shipped, name, accept_everything)
    if kind == "journals" and name == "_seal":
        monkeypatch.setattr(fuzz_journals, "_seal", accept_everything)
    sound = importlib.import_module(f"fuzz_{kind}").sound
    sound.cache_clear()
    try:
        with pytest.raises(AssertionError, match=rf"fuzz_cases.run\('{kind}', \d+, 1\) breaks the law in its last"):
            fuzz_cases.run(kind, 3000, seed=1)
    finally:
        sound.cache_clear()
    assert len(list(saved.glob(f"{kind}-1-*/*"))) >= 1


def test_a_case_that_takes_too_long_is_a_violation(monkeypatch):
    def judge(folder, case):
        while True:
            pass

    monkeypatch.setattr(fuzz_cases, "HANG", 0.05)
    monkeypatch.setattr("fuzz_models.judge", judge)
    refused(lambda: fuzz_cases.run("models", 1, 0), "breaks the law in its last case, ... : Hang: it", AssertionError)


@pytest.mark.parametrize("mutations", [fuzz_mutations.JSON, fuzz_mutations.TENSORS])
def test_every_mutation_damages(mutations):
    """Over and over, every one of them gives something else."""
    content = fuzz_records.sound()[0].files["record.json" if mutations is fuzz_mutations.JSON else "model.safetensors"]
    for mutate in set(mutations):
        found = {mutate(content, fuzz_cases.random.Random(number)) for number in range(40)}
        assert len(found - {content}) > 5, mutate.__name__


def run_command(*options):
    command = [sys.executable, Path(fuzz.__file__), "--jobs", "1", "--seed", "3", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_the_command_says_what_it_tried():
    done = run_command("--quick", "--seconds", "0.1", "--only", "zoo", "--only", "models")
    assert done.returncode == 0, done.stderr
    assert "models         200 files in" in done.stdout
    assert "flip bits" in done.stdout
    assert "400 files and 0 calls in" in done.stdout
    assert "The time was over before all were tried (models: 200 of 8,400; zoo: 200 of 2,400)" in done.stdout


def test_a_full_run_that_has_no_time_fails():
    assert run_command("--seconds", "0.1", "--only", "zoo").returncode == 1
