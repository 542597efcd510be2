import numpy as np
import pytest

from ridgeformer import AdaRR, BayesRR, ConstRR, Diag, InputError, LinearTransformer, Problem, evaluate, profile, zoo
from ridgeformer.evaluation import EVALUATION, profile_by_layer, profiles
from ridgeformer.noise import Fixed

PROBLEM = Problem(noise="uniform(0,5)")


def test_profile_averages_to_the_loss():
    """Loss over uniform(0,5) is the mean of the profile over [0, 5]: Gauss-Legendre in sigma."""
    x, w = np.polynomial.legendre.leggauss(8)
    found = profile(PROBLEM, AdaRR(), sigma=2.5 + 2.5 * x, sequences=40_000)
    whole = evaluate(PROBLEM, AdaRR(), sequences=100_000, with_floor=False)
    error = np.sqrt(((w / 2 * found.error) ** 2).sum()) * 3 + 4 * whole.error  # levels share their sequences
    assert (w / 2) @ found.loss == pytest.approx(whole.loss, abs=error)


def test_a_profile_is_an_evaluation_at_every_level():
    """Sequences, eigenbasis and blocks are shared between levels and predictors: nothing but time may depend on it."""
    rivals = {
        "full": zoo.load("full", 7, "uniform(0,5)"),
        "AdaRR": AdaRR(),
        "const": ConstRR(2),
        "bayes": BayesRR("uniform(0,5)"),
    }
    levels = [0.0, 0.7, 5.0]
    together = profiles(PROBLEM, rivals, sigma=levels, sequences=9000, seed=4)
    for name, predictor in rivals.items():
        assert together[name].sequences == 9000
        for i, sigma in enumerate(levels):
            fixed = Problem(10, 20, Fixed(sigma))
            alone = evaluate(fixed, predictor, sequences=9000, seed=4, with_floor=False)
            # At sigma = 0 the losses of ridge regression are squares of rounding errors.
            assert together[name].loss[i] == pytest.approx(alone.loss, rel=1e-12, abs=1e-25)
            assert together[name].error[i] == pytest.approx(alone.error, rel=1e-9, abs=1e-25)
            assert together[name].exploded[i] == alone.exploded


def test_a_profile_counts_explosions():
    """Of losses above 100 d and of those that overflow, after a layer and in the end; against all losses at once."""
    model, problem = zoo.load("full", 7, "uniform(0,1)"), Problem(noise="uniform(0,1)")
    found = profile(problem, model, sigma=[1.0, 2.0], sequences=5000)
    draw = Problem(noise="fixed(2)").moments(5000, stream=EVALUATION)
    losses = 0.5 * np.square(model.weights(draw.moments) - draw.ridge).sum(1)
    assert found.exploded.tolist() == [0, (losses > 1000).sum()]
    assert found.exploded[1] > 0
    by_layers = profile_by_layer(problem, model, sigma=[1.0, 2.0], sequences=5000)
    assert by_layers.exploded.shape == (8, 2)
    assert by_layers.exploded[-1].tolist() == found.exploded.tolist()
    wild = LinearTransformer(Diag(omega=np.full((8, 2, 2), 5.0)), 10)
    assert profile(problem, wild, sigma=[1.0], sequences=100).exploded.tolist() == [100]


def test_profile_marks_what_can_occur():
    found = profile(Problem(3, 6, "uniform(1,2)"), ConstRR(1), sequences=100)
    assert found.sigma[0] == 0
    assert found.sigma[-1] == 3
    np.testing.assert_array_equal(found.in_distribution, (found.sigma >= 1) & (found.sigma <= 2))
    assert found.loss.shape == found.error.shape == found.sigma.shape
    inside = profile(Problem(3, 6, "uniform(0.2,1.5)"), ConstRR(1), sequences=2)
    assert inside.sigma[inside.in_distribution][[0, -1]].tolist() == [0.2, 1.5]
    paper = profile(Problem(3, 6, "uniform(0,5)"), ConstRR(1), sequences=2).sigma  # stored with the figures
    np.testing.assert_array_equal(paper, np.union1d(np.linspace(0, 6, 41), [5]))
    assert np.argmin(found.loss) == np.argmin(abs(found.sigma - 1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: profile(PROBLEM, AdaRR(), sigma=[-1.0]), "sigma must not be negative; got -1"),
        (lambda: profile(PROBLEM, AdaRR(), sigma=[np.nan]), "sigma must be finite"),
        (lambda: profile(PROBLEM, AdaRR(), sigma=[]), "must not be empty"),
        (
            lambda: profile(PROBLEM, "AdaRR"),
            "predictor must be a predictor, with weights(moments) or predict(x, y, queries); got a str",
        ),
        (lambda: profiles(PROBLEM, {}), "profiles need a dict of at least one predictor; got an empty one"),
        (lambda: profiles(PROBLEM, [AdaRR()]), "profiles need a dict of at least one predictor; got a list"),
    ],
)
def test_bad_input_is_refused_in_words(make, words):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)
