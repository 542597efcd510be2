"""The baselines that a problem allows."""

import pytest

from own_problems import HeavyTails
from ridgeformer import InputError, Problem, compare
from ridgeformer.predictors import baselines

ALL = ["OracleRR", "ConstRR", "LeastSquares", "AdaRR", "TunedRR", "IterativeRR(100)", "Bayes floor"]


@pytest.mark.parametrize(
    ("problem", "missing"),
    [
        (Problem(3, 8, 1), []),
        (Problem(3, 3, 1), ["AdaRR", "TunedRR", "IterativeRR(100)"]),
        (Problem(3, "3..8", 1), ["AdaRR", "TunedRR", "IterativeRR(100)"]),
        (Problem(3, "4..8", 1), ["IterativeRR(100)"]),
        (Problem(3, 3, 1, tasks="lowrank(2)"), ["IterativeRR(100)"]),
        (Problem(3, 8, 1, features="factors(1)"), ["IterativeRR(100)"]),
    ],
    ids=str,
)
def test_which_baselines_there_are(problem, missing):
    chosen, left_out = baselines(problem)
    assert list(chosen) == [name for name in ALL if name not in missing]
    assert bool(left_out) == bool(missing)
    compare(problem, chosen, sequences=50)  # all of them can be used


def test_pools_have_dmmse():
    problem = Problem(3, 8, "uniform(0,1)", tasks="pool(4)")
    chosen, left_out = baselines(problem)
    assert list(chosen)[-1] == "DMMSE"
    assert left_out == [
        "IterativeRR is left out: it assumes that features, tasks and queries are N(0, I) and n is fixed; here the "
        "tasks are not."
    ]
    found = compare(problem, chosen, sequences=1000)
    assert found["DMMSE"].loss == pytest.approx(found["DMMSE"].floor, rel=1e-12)
    assert all(found[name].loss >= found["DMMSE"].loss for name in chosen if name != "OracleRR (Gaussian prior)")


def test_problems_of_ones_own_have_no_oracle():
    problem = HeavyTails()
    chosen, left_out = baselines(problem)
    assert list(chosen) == ["ConstRR", "LeastSquares", "AdaRR", "TunedRR"]
    assert [line.split(" is left out: ")[0] for line in left_out] == ["OracleRR", "The floor"]
    found = compare(problem, chosen, sequences=2000)
    assert found["TunedRR"].loss < found["ConstRR"].loss < found["LeastSquares"].loss
    with pytest.raises(InputError, match="the problem must be a Problem; got a str"):
        baselines("uniform(0,5)")


def test_reasons_name_all_that_differs():
    problem = Problem(3, "4..8", 1, features="factors(1)", query="powerlaw(1)")
    assert baselines(problem)[1][0].endswith("; here the features and the queries are not and n is 4..8.")
