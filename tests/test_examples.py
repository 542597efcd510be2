"""The scripts in examples/ run as they are, quickly, and are as short as examples should be."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ridgeformer

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# What a script's output must contain.
WORDS = {
    "train_and_compare.py": ("Training(", "loss / floor", "below that of ConstRR"),
    "edit_a_layer.py": ("x unchanged", "layer 2 without yx"),
    "pytorch_tokens.py": ("median loss 5.01 -> 4.", "ms per step"),
    "softmax_attention.py": ("softmax attention", "linear attention", "ConstRR"),
    "pytorch_moments.py": ("median loss 5.01 -> 4.", "ms per step"),
    "fine_tune.py": ("shipped    adjusted loss 0.05", "fine-tuned adjusted loss 0.0", "steps took"),
    "plateaus.py": ("separate: steps there", "the exact loss never rises"),
    "sparse_tasks.py": ("matching pursuit", "least squares"),
    "sweep_a_grid.py": ("loss / floor", "uniform(0,3)"),
    "paper_experiment.py": ("full, 2 layers", "ConstRR", "60"),
    "your_paper.py": ("supported: The loss of least squares is (d - n) / 2.", "report.html"),
    "real_data.py": ("BayesianRidge, real", "(0 times for Bayes)", "diabetes"),
}
ARGUMENTS = {
    "paper_experiment.py": ["0.02"],
    "real_data.py": ["2"],
    "softmax_attention.py": ["20"],
}  # repetitions, steps
LONG = {
    "paper_experiment.py": 25,
    "your_paper.py": 70,
    "real_data.py": 160,
    "softmax_attention.py": 70,
}  # lines, where it is not 50


def test_every_example_is_tested():
    assert sorted(WORDS) == sorted(path.name for path in EXAMPLES.glob("*.py"))


def check_plateaus(text):
    """Descents stand still within 2 % of the plateaus of Zhang and others: at all of them, or at the outer ones."""
    rows = [line.replace(",", "").split() for line in text.splitlines()[1:6]]
    levels, separate, merged = np.array(rows, float).T
    np.testing.assert_allclose(levels, [1, 0.641, 0.377, 0.210, 0.136], rtol=0.02)
    assert (separate > 500).all()
    assert (merged > 0).tolist() == [True, False, False, False, True]


def check_experiment(folder):
    """One row for each of three families, depths and seeds; five lengths of four predictors; figures that are PDFs."""
    runs, losses = ((folder / f"{name}.csv").read_text().splitlines() for name in ("depth", "context"))
    assert (len(runs), len(losses)) == (1 + 18, 1 + 20)
    rows = list(csv.DictReader(losses))
    assert {row["context"] for row in rows} == {"5", "10", "20", "40", "60"}
    assert all(float(row["floor"]) <= 1.02 * float(row["loss"]) for row in rows)
    for name in ("depth", "context"):
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.slow
def test_example(name, tmp_path):
    """In an empty folder and with warnings as errors, so that nobody learns from something outdated."""
    if "torch" in (EXAMPLES / name).read_text():
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *ARGUMENTS.get(name, [])],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(ridgeformer.__file__).resolve().parents[1])},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in WORDS[name]:
        assert words in done.stdout
    if name == "plateaus.py":
        check_plateaus(done.stdout)
    if name == "paper_experiment.py":
        check_experiment(tmp_path)
    assert len((EXAMPLES / name).read_text().splitlines()) <= LONG.get(name, 50)
