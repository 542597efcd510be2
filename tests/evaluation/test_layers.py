from dataclasses import replace

import numpy as np
import pytest

from ridgeformer import AdaRR, Diag, InputError, LinearTransformer, Problem, by_layer, evaluate, profile, zoo
from ridgeformer.evaluation import profile_by_layer
from ridgeformer.losses import BelowFloorWarning
from support import tame_model

PROBLEM = Problem(noise="uniform(0,5)")


DESCENT = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10)


class Doubled(LinearTransformer):
    """A subclass with weights of its own."""

    def weights(self, moments, **options):
        return 2 * super().weights(moments, **options)


@pytest.mark.parametrize("measure", [by_layer, profile_by_layer])
def test_layers_of_a_subclass_are_refused(measure):
    whole = zoo.load("diag", 3, "uniform(0,5)")
    with pytest.raises(
        InputError, match=r"need a LinearTransformer and no subclass.*got a Doubled\. Pass LinearTransformer"
    ):
        measure(PROBLEM, Doubled(whole.family, whole.dim), sequences=100)


def test_by_layer_ends_with_the_model():
    model = tame_model("full", 10, 3, 1, 20)
    found = by_layer(PROBLEM, model, sequences=20_000)
    assert found.layer.tolist() == [0, 1, 2, 3]
    assert found.loss.shape == found.error.shape == found.exploded.shape == (4,)
    assert found.sequences == 20_000
    assert found.loss[-1] == pytest.approx(evaluate(PROBLEM, model, sequences=20_000, with_floor=False).loss, rel=1e-9)
    levels = profile_by_layer(PROBLEM, model, sigma=[0, 2], sequences=500)
    assert levels.loss.shape == (4, 2)
    whole = profile(PROBLEM, model, sigma=[0, 2], sequences=500)
    np.testing.assert_allclose(levels.loss[-1], whole.loss, rtol=1e-9)


def test_losses_by_layer_have_the_floor_of_the_problem():
    """The floor of the same sequences, as `evaluate` has it, and none if it is not asked for."""
    model = zoo.load("diag", 3, "uniform(0,5)")
    found, whole = by_layer(PROBLEM, model, sequences=3000, seed=2), evaluate(PROBLEM, model, sequences=3000, seed=2)
    assert (found.floor, found.floor_error) == (whole.floor, whole.floor_error)
    np.testing.assert_allclose(found.ratio, found.loss / whole.floor, rtol=1e-15)
    without = by_layer(PROBLEM, model, sequences=3000, seed=2, with_floor=False)
    assert np.isnan([without.floor, without.floor_error, *without.ratio]).all()
    assert without.loss.tolist() == found.loss.tolist()


def test_a_layer_below_the_floor_is_a_warning():
    found = by_layer(PROBLEM, zoo.load("diag", 3, "uniform(0,5)"), sequences=3000)
    with pytest.warns(BelowFloorWarning, match=r"after layer 3 has 1\.\d+e-06 .*the floor is 0\.03"):
        replace(found, loss=found.loss * [1, 1, 1, 1e-5])


def test_explosions_are_counted_after_every_layer():
    wild = LinearTransformer(Diag(omega=np.full((8, 2, 2), 5.0)), 10)
    found = by_layer(PROBLEM, wild, sequences=100, with_floor=False)
    assert found.exploded[0] == 0
    assert found.exploded[-1] == 100
    assert found.loss[-1] == 1e12


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: by_layer(PROBLEM, AdaRR()), "need a model; got an AdaRR"),
        (lambda: by_layer(PROBLEM, DESCENT, sequences=-1), "sequences must be at least 2"),
        (lambda: by_layer(PROBLEM, DESCENT, sequences=10, seed=-1), "seed must be at least 0"),
        (lambda: profile_by_layer(PROBLEM, DESCENT, sigma=[-2]), "sigma must not be negative; got -2"),
    ],
)
def test_bad_input_is_refused_in_words(make, words):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)


def test_progress_counts_the_sequences():
    told = []
    by_layer(PROBLEM, DESCENT, sequences=9000, with_floor=False, progress=lambda *counts: told.append(counts))
    assert told[-1] == (9000, 9000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
