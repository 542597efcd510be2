"""`ridgeformer models`."""

import csv
import io
import json

import numpy as np
import pytest

from commands import call
from ridgeformer import Problem, zoo
from ridgeformer.loading import with_record
from ridgeformer.zoo import explosions, prices

NOISES = [*(f"uniform(0,{top})" for top in range(1, 8)), "categorical(1,3)", "categorical(1,3,5)"]


def test_models_are_listed():
    text = call("models").stdout
    assert text.count("zoo:") == 211 + len(zoo.further_models())  # every model, and at the end an example
    (line,) = [line for line in text.splitlines() if line.startswith("zoo:full/5/categorical(1,3)")]
    made = zoo.record("zoo:full/5/categorical(1,3)")
    rare = explosions()["zoo:full/5/categorical(1,3)"]
    worse = prices()["zoo:full/5/categorical(1,3)"].worse
    numbers = made.loss, made.floor, made.loss / made.floor, rare.probability, rare.error, worse
    shown = [f"{number:#.4g}" for number in numbers]
    assert line.split()[1:] == ["full,", "5", "layers", *shown, str(made.spec["seed"])]
    some = json.loads(call("models", "--family", "diag", "--noise", "uniform(0, 0)", "--json").stdout)
    assert [entry["layers"] for entry in some] == [1, 2, 3, 4, 5, 6, 7, 4, 3]  # two of them with less caution
    assert {entry["ratio"] for entry in some} == {None}  # the floor is 0
    failed = call("models", "--layers", "11")
    assert failed.returncode == 2
    assert "a shipped model has layers 1, 2, 3, 4, 5, 6, 7, 8, 9, 10; got layers 11" in failed.stderr


@pytest.mark.parametrize("name", ["diag/7/uniform(0,5)", "zoo:diag/7/uniform(0,5)/2"])
def test_a_model_is_described(name):
    made = zoo.record(name)
    text = call("models", name).stdout
    for words in (
        "dim 10, context 20, noise uniform(0,5)",
        "parameters             28",
        f"{made.loss:.5g} +- ",
        made.message,
    ):
        assert words in text
    found = json.loads(call("models", name, "--json").stdout)
    assert found["name"] == "zoo:" + name.removeprefix("zoo:")
    assert found["loss"] == made.loss
    assert found["ratio"] == made.loss / made.floor
    assert found["seed"] == made.spec["seed"]
    assert found["protocol"]["name"] == "search"
    assert found["seeds_with_weights"] == [0, 1, 2, 3, 4]


def test_the_table_has_explosions_actual_families_and_prices():
    """One row for each of the 210 models; what a search chose is read from its parameters."""
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(call("models", "--csv", "-").stdout))}
    table = {name for name in rows if name.count("/") == 2 and "=" not in name and int(name.split("/")[1]) < 8}
    assert len(table) == 210
    assert all(float(row["explosion_error"] or 0) >= 0 for row in rows.values())
    assert rows["zoo:full/2/uniform(0,5)"]["actual"] == "diag, 2 layers"
    assert rows["zoo:full/7/uniform(0,5)"]["actual"] == "full, 7 layers"
    assert {name for name in table if not rows[name]["price"]} == {name for name in table if ":gdpp/" in name}
    assert "GD++ has none, because its search takes no account of" in call("models", "--layers", "1").stdout.replace(
        "\n", " "
    )
    facts = json.loads(call("models", "diag/7/uniform(0,5)", "--json").stdout)
    assert facts["explosion_hits"] > 10
    assert facts["explosion_bound"] == "none"


def test_models_for_every_dimension_are_named_and_described():
    assert "zoo:universal/8" in call("models", "--dim", "2..32").stdout
    facts = json.loads(call("models", "universal/8", "--json").stdout)
    assert (facts["name"], facts["layers"], facts["problem"]["dim"]) == ("zoo:universal/8", 8, "2..32")
    assert "models of the kind universal are named" in call("models", "universal/19").stderr


def test_the_nearest_to_the_floor_of_every_noise():
    """Every noise with a floor above 0 has a shipped model within 2 % of it that explodes less often than 1e-7."""
    rows = json.loads(call("models", "--nearest", "--json").stdout)
    assert [row["noise"] for row in rows] == NOISES
    assert all(row["name"].startswith("zoo:channels(1,6)/") for row in rows)
    for row in rows:
        made = [zoo.record(f"zoo:full/{layers}/{row['noise']}") for layers in range(1, 8)]
        assert 1 < row["ratio"] < min(1.02, *(one.loss / one.floor for one in made))
        assert row["explosion_probability"] < 1e-7
    assert "Leave out the others" in call("models", "--nearest", "--layers", "7").stderr


@pytest.mark.parametrize("noise", NOISES)
def test_models_beyond_the_paper_are_as_good_as_their_records_say(noise):
    """The difference to exact Bayes has less chance in it than the loss, which is the floor plus its mean square."""
    model, record = with_record(f"zoo:channels(1,6)/8/{noise}")
    problem = Problem(noise=noise)
    draw = problem.moments(20_000, seed=3)
    best, mine = (predictor.weights(draw.moments) for predictor in (problem.best_predictor(), model))
    excess, floor = draw.losses(mine, best), draw.losses(best, draw.ridge)
    share, error = excess.mean() / floor.mean(), excess.std() / np.sqrt(len(excess)) / floor.mean()
    assert 1 + share < 1.02 + 3 * error
    assert 1 + share == pytest.approx(record["result"]["loss"] / record["result"]["floor"], abs=0.03)
