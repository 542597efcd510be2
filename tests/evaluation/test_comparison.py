import subprocess
import sys

import numpy as np
import pytest

from ridgeformer import Diag, GDpp, LinearTransformer, Problem, compare, evaluate, floor, load, train
from ridgeformer.evaluation.sequence_losses import EVALUATION
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.papers.vladymyrov2024.paper import COLUMNS, printed
from ridgeformer.predictors import AdaRR, BayesRR, ConstRR, IterativeRR, LeastSquares, OracleRR, TunedRR
from ridgeformer.training import Search
from support import refusals, refused, tame_model

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


def yardsticks(problem, **options):
    predictors = {"ConstRR": ConstRR.tune(problem), "AdaRR": AdaRR(), "TunedRR": TunedRR.tune(problem)}
    return compare(problem, predictors, **options)


@pytest.mark.parametrize("noise", [pytest.param(n, marks=[pytest.mark.long] * (n != "uniform(0,5)")) for n in COLUMNS])
def test_the_baselines_of_table_1(noise):
    """Within 1 % of the exact values (or 4 standard errors of ours), and of the paper's within four standard errors of
    its own estimator at its 100,000 sequences, plus the rounding of the printed digits.
    """
    problem = Problem(noise=noise)
    found, noisy = yardsticks(problem, sequences=300_000), yardsticks(problem, estimator="query", with_floor=False)
    for i, name in enumerate(("ConstRR", "AdaRR", "TunedRR")):
        loss, rounding = printed()[name, None, noise]
        assert abs(found[name].loss - loss) <= 4 * noisy[name].error + max(rounding, 0.0005)
        if noise in EXACT:
            assert found[name].loss == pytest.approx(EXACT[noise][i], rel=0.01, abs=4 * found[name].error)
    if noise in EXACT:
        assert found["AdaRR"].floor == pytest.approx(EXACT[noise][3], rel=0.01, abs=4 * found["AdaRR"].floor_error)


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
    rivals |= {f"{k} {s}": tame_model(k, dim, 3, 2, context, s) for k in ("full", "diag") for s in (0, 1)}
    rivals |= {
        "step": LinearTransformer(GDpp(omega=[[0, -1 / (context + dim)]]), dim),
        "trained": train(problem, "diag", 2, protocol=Search(effort=0.05), sequences=100).model,
    }
    found = compare(problem, rivals | {"bayes": BayesRR(noise)}, sequences=15_000)
    for name in rivals:
        gap, error = found.difference(name, "bayes")
        assert gap > -4 * error - 1e-12, name


def memory_of_an_evaluation(dim, sequences):
    """The largest resident memory of a process, in MB."""
    code = """
import resource, sys
from ridgeformer import Diag, LinearTransformer, Problem, evaluate
dim, sequences = map(int, sys.argv[1:])
model = LinearTransformer(Diag(omega=[[[0, 0], [-0.3 / dim, 0]]]), dim)
evaluate(Problem(dim, 20, noise="uniform(0,5)"), model, sequences=sequences, with_floor=False)
unit = 1024**2 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
"""
    command = [sys.executable, "-c", code, str(dim), str(sequences)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("large", "small", "megabytes"),
    [
        pytest.param((10, 10_000_000), (10, 100_000), 30, marks=pytest.mark.long),  # but for the allocator's mood
        pytest.param((512, 500), (10, 500), 300, marks=pytest.mark.slow),  # 500 Gram matrices alone have 1 GB
    ],
)
def test_memory_grows_neither_with_sequences_nor_with_the_dimension_squared(large, small, megabytes):
    assert memory_of_an_evaluation(*large) < memory_of_an_evaluation(*small) + megabytes


class Cheater:
    """Looks at sigma, which no predictor can know, and does not say so."""

    def weights(self, moments):
        return OracleRR().weights(moments)

    def __repr__(self):
        return "Cheater()"


def test_a_loss_below_the_floor_is_a_warning():
    with pytest.warns(BelowFloorWarning, match=r"Cheater\(\) has .*the floor is 0.03.*the code is wrong") as one:
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


def test_differences_are_sharper_than_losses():
    both = {"ada": AdaRR(), "iterative": IterativeRR(100)}
    found = compare(PROBLEM, both, sequences=20_000, with_floor=False)
    gap, error = found.difference("ada", "iterative")
    assert gap == pytest.approx(found["ada"].loss - found["iterative"].loss)
    assert error < 0.3 * found["ada"].error
    draw = PROBLEM.moments(20_000, stream=EVALUATION)
    one, other = (draw.losses(of.weights(draw.moments), draw.ridge) for of in both.values())
    levels = compare(PROBLEM, both, {"noise": [PROBLEM.noise, 2]}, sequences=20_000)
    gaps, errors = levels.difference("ada", "iterative")
    assert gaps.shape == errors.shape == (2,)
    assert (gaps[0], errors[0]) == pytest.approx(((one - other).mean(), (one - other).std() / 20_000**0.5), rel=1e-4)
    refused(lambda: found.difference("ada", "x"), "one of ada, iterative; got 'x'")


def test_floor_is_the_bayes_predictors_loss_and_is_remembered():
    best = floor(PROBLEM, sequences=5000)
    assert best.loss == best.floor == evaluate(PROBLEM, AdaRR(), sequences=5000).floor
    assert best.ratio == 1


test_bad_input_is_refused_in_words = refusals(
    (lambda: evaluate(PROBLEM, AdaRR(), sequences=0), "sequences must be at least 2"),
    (lambda: evaluate(PROBLEM, "AdaRR"), "must be a predictor, with weights(moments) or predict(x, y, queries);"),
    (lambda: evaluate(Problem(5, 5, "fixed(1)"), AdaRR()), "n > d"),
    (lambda: evaluate(Problem(3, 5, "fixed(1)"), DESCENT), "needs a problem of that dimension; got dimension 3"),
    (lambda: evaluate(PROBLEM, AdaRR(), estimator="guess"), "exact or query; got 'guess'"),
    (lambda: evaluate(AdaRR(), PROBLEM), "the problem must be a Problem; got an AdaRR. The problem comes first,"),
    (lambda: floor("uniform(0,5)"), "the problem must be a Problem; got a str"),
    (lambda: compare(PROBLEM, {}), "a comparison needs at least one predictor; got an empty dict"),
)


def test_the_error_of_the_papers_estimator_needs_no_queries():
    """Against its own spread over queries; a model, and a predictor that is no model."""
    problem = Problem(noise="uniform(0,5)")
    predictors = {"diag": load("zoo:diag/3/uniform(0,5)"), "gdpp": load("zoo:gdpp/2/uniform(0,5)"), "AdaRR": AdaRR()}
    exact = compare(problem, predictors, sequences=60_000, with_floor=False, with_query_errors=True)
    sampled = compare(problem, predictors, sequences=60_000, with_floor=False, estimator="query")
    np.testing.assert_allclose(exact.query_error, sampled.error, rtol=0.05)
    assert (exact.query_error > exact.error).all()
    assert sampled.query_error is None
