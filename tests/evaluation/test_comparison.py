import subprocess
import sys

import numpy as np
import pytest

from ridgeformer import (
    AdaRR,
    BayesRR,
    ConstRR,
    Diag,
    GDpp,
    InputError,
    LeastSquares,
    LinearTransformer,
    OracleRR,
    Problem,
    TunedRR,
    compare,
    evaluate,
    floor,
    load,
)
from ridgeformer.evaluation import EVALUATION
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.predictors import IterativeRR
from support import tame_model

PROBLEM = Problem(noise="uniform(0,5)")


DESCENT = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10)


# Exact values of ConstRR, AdaRR, TunedRR and the floor from an independent computation on 300,000 sequences each.
EXACT = {
    "uniform(0,1)": (0.00845, 0.00272, 0.00165, 0.00152),
    "uniform(0,2)": (0.0633, 0.0158, 0.0107, 0.00957),
    "uniform(0,3)": (0.1559, 0.0342, 0.0240, 0.0206),
    "uniform(0,4)": (0.2604, 0.0528, 0.0376, 0.0309),
    "uniform(0,5)": (0.3616, 0.0694, 0.0498, 0.0391),
    "uniform(0,6)": (0.4525, 0.0833, 0.0600, 0.0452),
    "uniform(0,7)": (0.5306, 0.0946, 0.0681, 0.0494),
    "categorical(1,3)": (0.2202, 0.0511, 0.0216, 0.0059),
    "categorical(1,3,5)": (0.4277, 0.0828, 0.0550, 0.0302),
}


# The baselines' rows of the paper's Table 1, on 100,000 sequences with a sampled query.
PRINTED = {
    "uniform(0,0)": (0, 0, 0),
    "uniform(0,1)": (0.009, 0.003, 0.002),
    "uniform(0,2)": (0.066, 0.016, 0.010),
    "uniform(0,3)": (0.161, 0.034, 0.023),
    "uniform(0,4)": (0.265, 0.053, 0.037),
    "uniform(0,5)": (0.365, 0.068, 0.049),
    "uniform(0,6)": (0.454, 0.081, 0.060),
    "uniform(0,7)": (0.530, 0.092, 0.068),
    "categorical(1,3)": (0.222, 0.051, 0.021),
    "categorical(1,3,5)": (0.422, 0.084, 0.054),
}


def yardsticks(problem, sequences=300_000):
    predictors = {"ConstRR": ConstRR.tune(problem), "AdaRR": AdaRR(), "TunedRR": TunedRR.tune(problem)}
    return compare(problem, predictors, sequences=sequences)


@pytest.mark.long
@pytest.mark.parametrize("noise", PRINTED)
def test_the_baselines_of_table_1(noise):
    """Within 1 % of the exact values (or 4 standard errors of ours), and of the paper's within four standard errors of
    its own estimator at its 100,000 sequences, plus the rounding of the printed digits.
    """
    problem = Problem(noise=noise)
    rivals = {"ConstRR": ConstRR.tune(problem), "AdaRR": AdaRR(), "TunedRR": TunedRR.tune(problem)}
    found = compare(problem, rivals, sequences=300_000)
    noisy = compare(problem, rivals, estimator="query", with_floor=False)
    for i, name in enumerate(("ConstRR", "AdaRR", "TunedRR")):
        assert abs(found[name].loss - PRINTED[noise][i]) <= 4 * noisy[name].error + 0.0005
        if noise in EXACT:
            assert found[name].loss == pytest.approx(EXACT[noise][i], rel=0.01, abs=4 * found[name].error)
    if noise in EXACT:
        assert found["AdaRR"].floor == pytest.approx(EXACT[noise][3], rel=0.01, abs=4 * found["AdaRR"].floor_error)


def test_one_column_of_table_1():
    found = yardsticks(PROBLEM, 50_000)
    for i, name in enumerate(("ConstRR", "AdaRR", "TunedRR")):
        assert found[name].loss == pytest.approx(EXACT["uniform(0,5)"][i], abs=4 * found[name].error)
    assert found["AdaRR"].floor == pytest.approx(EXACT["uniform(0,5)"][3], abs=4 * found["AdaRR"].floor_error)


@pytest.mark.parametrize(
    "predictor",
    [ConstRR(8), AdaRR(), LeastSquares(), BayesRR("uniform(0,5)"), DESCENT, tame_model("full", 10, 3, 2, 20)],
    ids=repr,
)
def test_both_estimators_agree_and_the_exact_one_is_quieter(predictor):
    exact = evaluate(PROBLEM, predictor, sequences=20_000, with_floor=False)
    query = evaluate(PROBLEM, predictor, sequences=20_000, estimator="query", with_floor=False)
    assert abs(exact.loss - query.loss) < 4 * np.hypot(exact.error, query.error)
    assert abs(exact.unadjusted - query.unadjusted) < 4 * np.hypot(exact.unadjusted_error, query.unadjusted_error)
    print(f"{predictor!r}: variance ratio {(query.error / exact.error) ** 2:.0f}")
    assert query.error > 1.2 * exact.error


def test_noise_of_the_query_only_adds_a_constant():
    """1/2 E (prediction - (answer + noise))^2 = 1/2 E (prediction - answer)^2 + sigma^2 / 2, for every predictor."""
    s = Problem(noise="fixed(2)").sequences(10_000, seed=8)
    noise = 2 * np.random.default_rng(0).standard_normal(s.answers.shape)
    predicted = DESCENT.predict(s.x, s.y, s.queries)
    gap = 0.5 * (predicted - s.answers - noise) ** 2 - 0.5 * (predicted - s.answers) ** 2
    assert gap.mean() == pytest.approx(2, abs=4 * gap.std() / 100)


PLACES = [
    ("uniform(0,5)", 10, 20),
    ("categorical(1,3)", 10, 20),
    ("gamma(0.3)", 4, 8),
    ("categorical(0,2)", 4, 8),
    ("expon(scale=2)", 5, 3),
    ("fixed(1)", 5, 10),
]


@pytest.mark.parametrize(("noise", "dim", "context"), PLACES)
def test_nothing_beats_the_floor(noise, dim, context):
    problem = Problem(dim, context, noise)
    rivals = {"const": ConstRR.tune(problem), "const 1": ConstRR(1), "ols": LeastSquares()}
    if context > dim:
        rivals |= {"ada": AdaRR(), "tuned": TunedRR.tune(problem, sequences=20_000), "iterative": IterativeRR(50)}
    rivals |= {
        f"{kind} {seed}": tame_model(kind, dim, 3, 2, context, seed) for kind in ("full", "diag") for seed in (0, 1)
    }
    rivals |= {"step": LinearTransformer(GDpp(omega=[[0, -1 / (context + dim)]]), dim), "trained": trained(problem)}
    found = compare(problem, rivals | {"bayes": BayesRR(noise)}, sequences=15_000)
    for name in rivals:
        gap, error = found.difference(name, "bayes")
        assert gap > -4 * error - 1e-12, name


def trained(problem, steps=200):
    """A two-layer Diag model after a little Adam, from one step of gradient descent and a layer that does nothing."""
    start = LinearTransformer(Diag(omega=[[[0, 0], [-1 / (problem.context + problem.dim), 0]]]), problem.dim)
    omega = start.with_identity(0).family.omega
    mean, square = np.zeros_like(omega), np.zeros_like(omega)
    for step in range(1, steps + 1):
        model = LinearTransformer(Diag(omega=omega), problem.dim)
        slope = model.step(problem, 256, step=step, ceiling=100.0).gradient[0]
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        rate = 0.003 / problem.context * (1 - step / steps)
        omega = omega - rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-12)
    return LinearTransformer(Diag(omega=omega), problem.dim)


@pytest.mark.long
def test_ten_million_sequences_need_no_more_memory_than_a_hundred_thousand():
    """Largest resident memory of a process, in MB; the difference allows for the allocator's mood."""
    code = """
import resource, sys
from ridgeformer import Diag, LinearTransformer, Problem, evaluate
model = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10)
evaluate(Problem(noise="uniform(0,5)"), model, sequences=int(sys.argv[1]), with_floor=False)
unit = 1024**2 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
"""
    few, many = (
        float(subprocess.run([sys.executable, "-c", code, count], capture_output=True, text=True, check=True).stdout)
        for count in ("100000", "10000000")
    )
    assert many < few + 30


class Cheater:
    """Looks at sigma, which no predictor can know, and does not say so."""

    def weights(self, moments):
        return OracleRR().weights(moments)

    def __repr__(self):
        return "Cheater()"


def test_a_loss_below_the_floor_is_a_warning():
    with pytest.warns(
        BelowFloorWarning, match=r"Cheater\(\) has .*the floor is 0.03.*The data or the code is wrong"
    ) as one:
        evaluate(PROBLEM, Cheater(), sequences=2000)
    assert len(one) == 1
    with pytest.warns(BelowFloorWarning, match="the fast one has"):
        compare(PROBLEM, {"the fast one": Cheater(), "AdaRR": AdaRR()}, sequences=2000)
    with pytest.warns(BelowFloorWarning):
        evaluate(PROBLEM, Cheater(), sequences=5000, estimator="query")


def test_losses_that_may_be_that_small_raise_no_warning():
    """Every warning is an error here: predictors that say that they know sigma, no floor, a floor of 0."""
    assert evaluate(PROBLEM, OracleRR(), sequences=2000).ratio < 1e-18
    compare(PROBLEM, Cheater(), {"sigma": [1, 2]}, sequences=2000)
    assert np.isnan(evaluate(PROBLEM, Cheater(), sequences=2000, with_floor=False).ratio)
    evaluate(Problem(noise="fixed(1)"), Cheater(), sequences=2000)
    floor(PROBLEM, sequences=2000)
    compare(PROBLEM, {"AdaRR": AdaRR(), "Bayes": BayesRR("uniform(0,5)")}, sequences=2000)


@pytest.mark.parametrize("noise", ["uniform(0,5)", "categorical(1,3)"])
def test_gdpp_never_beats_const(noise):
    """GD++ weights are linear in y, and among those the ridge solution at E[sigma^2] is the best."""
    problem = Problem(noise=noise)
    rivals = {f"{seed}": tame_model("gdpp", 10, 4, 1, 20, seed) for seed in range(5)}
    rivals["step"] = LinearTransformer(GDpp(omega=[[0, -1 / 39]]), 10)
    found = compare(problem, rivals | {"const": ConstRR.tune(problem)}, sequences=20_000, with_floor=False)
    for name in rivals:
        gap, error = found.difference(name, "const")
        assert gap > -4 * error


def test_differences_are_sharper_than_losses():
    both = {"ada": AdaRR(), "iterative": IterativeRR(100)}
    found = compare(PROBLEM, both, sequences=20_000, with_floor=False)
    gap, error = found.difference("ada", "iterative")
    assert gap == pytest.approx(found["ada"].loss - found["iterative"].loss)
    assert error < 0.3 * found["ada"].error
    draw = PROBLEM.moments(16_000, stream=EVALUATION)
    one, other = (draw.losses(each.weights(draw.moments), draw.ridge) for each in both.values())
    levels = compare(
        PROBLEM, {"ada": AdaRR(), "iterative": IterativeRR(100)}, {"noise": [PROBLEM.noise, 2]}, sequences=16_000
    )
    gaps, errors = levels.difference("ada", "iterative")
    assert gaps.shape == errors.shape == (2,)
    assert (gaps[0], errors[0]) == pytest.approx(
        ((one - other).mean(), (one - other).std() / np.sqrt(16_000)), rel=1e-4
    )
    with pytest.raises(InputError, match="one of ada, iterative; got 'x'"):
        found.difference("ada", "x")


def test_explosions_give_a_finite_report():
    explosive = LinearTransformer(Diag(omega=np.full((8, 2, 2), 5.0)), 10)
    result = evaluate(PROBLEM, explosive, sequences=1000)
    assert result.exploded == 1000
    assert np.isfinite([v for v in result.as_dict().values() if isinstance(v, float)]).all()
    assert result.loss == 1e12


def test_floor_is_the_bayes_predictors_loss_and_is_remembered():
    best = floor(PROBLEM, sequences=5000)
    assert best.loss == best.floor == evaluate(PROBLEM, AdaRR(), sequences=5000).floor
    assert best.ratio == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: evaluate(PROBLEM, AdaRR(), sequences=0), "sequences must be at least 2"),
        (lambda: evaluate(PROBLEM, "AdaRR"), "must be a predictor, with weights(moments) or predict(x, y, queries);"),
        (lambda: evaluate(Problem(5, 5, "fixed(1)"), AdaRR()), "n > d"),
        (lambda: evaluate(Problem(3, 5, "fixed(1)"), DESCENT), "needs a problem of that dimension; got dimension 3"),
        (lambda: evaluate(PROBLEM, AdaRR(), estimator="guess"), "exact or query; got 'guess'"),
        (lambda: evaluate(AdaRR(), PROBLEM), "the problem must be a Problem; got an AdaRR. The problem comes first,"),
        (lambda: floor("uniform(0,5)"), "the problem must be a Problem; got a str"),
        (lambda: compare(PROBLEM, {}), "a comparison needs at least one predictor; got an empty dict"),
    ],
)
def test_bad_input_is_refused_in_words(make, words):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)


def test_the_error_of_the_papers_estimator_needs_no_queries():
    """Against its own spread over queries; a model, and a predictor that is no model."""
    problem = Problem(noise="uniform(0,5)")
    predictors = {
        "diag": load("zoo:diag/3/uniform(0,5)"),
        "gdpp": load("zoo:gdpp/2/uniform(0,5)"),
        "AdaRR": AdaRR(),
    }
    exact = compare(problem, predictors, sequences=60_000, with_floor=False, with_query_errors=True)
    sampled = compare(problem, predictors, sequences=60_000, with_floor=False, estimator="query")
    np.testing.assert_allclose(exact.query_error, sampled.error, rtol=0.05)
    assert (exact.query_error > exact.error).all()
    assert sampled.query_error is None
