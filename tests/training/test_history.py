"""Histories as tables: what they record, against independent truths."""

import json

import numpy as np
import pytest

from ridgeformer import Problem, train
from ridgeformer.evaluation import Oracle, evaluate
from ridgeformer.population import Quadratic
from ridgeformer.theory import one_layer
from ridgeformer.training import (
    GradientDescent,
    Paper,
    Search,
)

SMALL = Problem(dim=3, context=6, noise="uniform(0,2)")
FEW = {"sequences": 1000, "threads": 1}
FACTORS = Problem(3, 6, 1, features="factors(1)")


def descent(**options):
    return GradientDescent(**{"rate": 1e-3, "steps": 40, "scale": 0.05, **options})


def test_a_printed_history_says_how_many_rows_it_shows():
    history = train(SMALL, "diag", 1, protocol=descent(record=1), **FEW).history
    title, rows = str(history).split("\n\n")
    assert title == "20 of 41 recorded steps"
    assert len(rows.splitlines()) == 1 + 20
    assert len(history) == 41


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


def test_the_adjusted_loss_of_a_history_is_that_of_the_result():
    problem = Problem(dim=2, context=40, noise="fixed(3)")
    init = one_layer.model_of(one_layer.optimum(problem))
    found = train(problem, "full", 1, protocol=descent(rate=1e-9, steps=1), init=init, sequences=100_000)
    assert found.history.adjusted_loss[-1] == pytest.approx(found.loss, abs=4 * found.result.error)


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
    found = train(SMALL, "diag", 1, protocol=Paper(steps=400, batch=2048, rate=1e-9), **FEW)
    assert len(found.history) == 200
    assert found.history.sequences.tolist() == list(range(4096, 400 * 2048 + 1, 4096))
    assert found.history.adjusted_loss.mean() == pytest.approx(found.loss, rel=0.1)  # 1,000 sequences in the result
    np.testing.assert_allclose(found.history.ratio, found.history.adjusted_loss / found.floor)
    assert (np.diff(found.history.seconds) > 0).all()
