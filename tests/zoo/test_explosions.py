"""Stored probabilities of explosions of the shipped models."""

import json

import numpy as np
import pytest

from benchmarks.shipped import measure_price, text
from commands import call
from ridgeformer import Problem, explosion_probability, load, zoo
from ridgeformer.zoo import cells, explosions, prices
from ridgeformer.zoo.shipped_models import WIDER


def test_every_shipped_model_has_one():
    stored = explosions()
    one_problem = [name for name in zoo.further_models() if not name.startswith(("zoo:universal", "zoo:lengths"))]
    assert list(stored) == [*cells(), *one_problem]
    own = {name: rare for name, rare in stored.items() if name in cells()}
    assert json.loads(text(own)) == json.loads((zoo.shipped_models.MODELS / "explosions.json").read_text())
    facts = json.loads(call("models", "diag/3/uniform(0,5)", "--json").stdout)
    assert facts["explosion_probability"] == stored["zoo:diag/3/uniform(0,5)"].probability


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diag/3/uniform(0,5)", "full/5/uniform(0,1)", "caution=0.01/diag/3/uniform(0,1)"])
def test_stored_numbers_are_measured_again(name):
    """With the same seed the same number, but for contexts at the limit; with another one the same to the errors."""
    stored, noise = explosions()[f"zoo:{name}"], name.split("/")[-1]
    same, other = (
        explosion_probability(Problem(noise=noise), load(f"zoo:{name}"), sequences=WIDER, seed=seed) for seed in (0, 1)
    )
    assert same.probability == pytest.approx(stored.probability, abs=0.5 * stored.error)
    assert other.probability == pytest.approx(stored.probability, abs=4.5 * np.hypot(other.error, stored.error))


def test_every_model_that_was_searched_with_caution_has_a_price():
    stored = prices()
    assert stored.keys() == {name for name in cells() if "gdpp" not in name}
    assert all(price.worse >= 0 for price in stored.values())
    assert json.loads(text(stored)) == json.loads((zoo.shipped_models.MODELS / "prices.json").read_text())
    facts = json.loads(call("models", "diag/3/uniform(0,5)", "--json").stdout)
    assert facts["price_of_caution"] == stored["zoo:diag/3/uniform(0,5)"]._asdict()


@pytest.mark.parametrize("name", ["zoo:full/3/uniform(0,0)", "zoo:diag/4/uniform(0,1)", "zoo:full/2/uniform(0,5)"])
def test_prices_are_measured_again(name):
    """Machines round differently, and 300 steps enlarge that. A descent that does not move gains nothing."""
    price, stored = measure_price(name), prices()[name]
    assert price.loss == pytest.approx(stored.loss, rel=1e-2)
    assert price.worse == pytest.approx(stored.worse, abs=1e-2)
    assert measure_price(name, steps=0).worse == pytest.approx(0, abs=1e-9)
