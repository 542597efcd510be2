"""Problems and their parts as text and as values: `str` and `parse` are inverse, equality is by value."""

import json

import numpy as np
from hypothesis import given, settings, strategies as st

from ridgeformer import Problem
from ridgeformer.engine import Layout
from ridgeformer.problems import Features, Lengths, Tasks, problem_from_dict
from ridgeformer.problems.features import (
    Covariance,
    Factors,
    Isotropic,
    PowerLaw,
    Rotated,
    Scales,
    Spectrum,
    Standardised,
)
from ridgeformer.problems.sparse import Sparse
from ridgeformer.problems.tasks import Gaussian, LowRankTasks, Mixture, Pool
from ridgeformer.training.spec import make_spec, parse_spec
from support import each

D = 3
positive = st.floats(1e-6, 1e6)
real = st.floats(-1e6, 1e6)


@st.composite
def covariances(draw):
    """Positive definite, of any size and with all digits."""
    A = np.array(draw(st.lists(st.floats(-10, 10), min_size=D * D, max_size=D * D))).reshape(D, D)
    return A @ A.T + np.diag(draw(st.lists(st.floats(0.1, 10), min_size=D, max_size=D)))


diagonal = st.one_of(
    st.lists(positive, min_size=D, max_size=D).map(lambda values: Spectrum(*values)), st.floats(0, 10).map(PowerLaw)
)
base = st.one_of(
    st.just(Isotropic()),
    diagonal,
    covariances().map(Covariance),
    st.one_of(diagonal, st.just(Isotropic())).map(Rotated),
    st.builds(Factors, st.integers(1, D), st.floats(1e-3, 1e6)),
)
scaled = st.one_of(base, st.builds(Scales, st.floats(1e-3, 3), base))
features = st.one_of(scaled, scaled.map(Standardised))
pools = st.one_of(
    st.builds(Pool, st.integers(1, 50), seed=st.integers(0, 2**63 - 1), law=st.sampled_from(["gaussian", "sphere"])),
    st.lists(st.lists(real, min_size=D, max_size=D), min_size=1, max_size=4).map(Pool),
)
gaussians = st.one_of(
    st.builds(
        Gaussian, st.one_of(st.none(), st.lists(real, min_size=D, max_size=D)), st.one_of(st.none(), covariances())
    ),
    st.integers(1, D).map(LowRankTasks),
)
sparse = st.one_of(
    st.builds(Sparse, st.integers(1, D), variance=positive),
    st.builds(Sparse, p=st.floats(0.01, 0.99)),
    st.builds(Sparse, beta=st.lists(st.floats(0.01, 100), min_size=2, max_size=2), variance=positive),
)
tasks = st.one_of(gaussians, pools, sparse, st.builds(Mixture, pools, st.floats(0.001, 0.999), gaussians))
lengths = st.one_of(
    st.integers(2, 10**6),
    st.lists(st.integers(2, 10**6), min_size=1, max_size=6, unique=True),
    st.tuples(st.integers(2, 100), st.integers(1, 50)).map(lambda pair: range(pair[0], pair[0] + pair[1])),
).map(Lengths)
noises = st.sampled_from(["uniform(0,5)", "categorical(1,3)", "fixed(0.5)", "gamma(0.5)"])


@st.composite
def problems(draw):
    law = draw(features)
    query = None if law.standardised else draw(st.one_of(st.none(), diagonal, covariances().map(Covariance)))
    return Problem(D, draw(lengths), draw(noises), features=law, tasks=draw(tasks), query=query)


def assert_same(one, other):
    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == str(other)


@given(features)
def test_features_are_read_back(law):
    again = Features.of(str(law))
    assert_same(again, law)
    np.testing.assert_array_equal(again.mean_covariance(D), law.mean_covariance(D))


@given(tasks)
def test_tasks_are_read_back(law):
    again = Tasks.of(str(law))
    assert_same(again, law)
    np.testing.assert_array_equal(again.second_moment(D), law.second_moment(D))
    if law.pool(D) is not None:
        np.testing.assert_array_equal(again.pool(D), law.pool(D))


@given(lengths)
def test_lengths_are_read_back(n):
    assert_same(Lengths(str(n)), n)
    np.testing.assert_array_equal(Lengths(str(n)).values, n.values)
    assert_same(Lengths(n.values.tolist()[::-1]), n)  # the order does not matter


@settings(max_examples=20)
@given(problems())
def test_problems_are_read_back(problem):
    assert_same(Problem.parse(str(problem)), problem)
    stored = json.loads(json.dumps(problem.as_dict()))
    assert_same(problem_from_dict(stored), problem)
    assert_same(problem.replace(), problem)
    drawn, again = (one.moments(3, seed=1).moments.gram for one in (problem, Problem.parse(str(problem))))
    np.testing.assert_array_equal(drawn, again)


@settings(max_examples=20)
@given(problems(), problems())
def test_different_problems_are_different(one, other):
    assert (one == other) == (one.as_dict() == other.as_dict()) == (str(one) == str(other))


@each(
    (Spectrum(1, 0.5, 0.25), "spectrum(1,0.5,0.25)"),
    (Covariance([[1, 0.5], [0.5, 1]]), "covariance([[1,0.5],[0.5,1]])"),
    (Rotated(PowerLaw(1.5)), "rotated(powerlaw(1.5))"),
    (Factors(2, 0.1), "factors(2,unique=0.1)"),
    (Scales(0.5, Factors(2)), "scales(0.5,factors(2))"),
    (Standardised(Factors(2)), "standardised(factors(2))"),
    (Gaussian([1, 0]), "gaussian(mean=[1,0])"),
    (Sparse(p=0.2), "sparse(p=0.2)"),
    (Sparse(beta=[1, 4], variance=2), "sparse(beta=[1,4],variance=2)"),
    (Pool(64, seed=1, law="sphere"), "pool(64,seed=1,law='sphere')"),
    (Pool([[1, 0], [0, 1]]), "pool([[1,0],[0,1]])"),
    (Mixture(Pool(64), 0.1, LowRankTasks(2)), "mixture(pool(64),0.1,lowrank(2))"),
    (Lengths(20), "20"),
    (Lengths(range(10, 41)), "10..40"),
    (Lengths([40, 10, 20]), "10,20,40"),
    (Lengths([3, 4]), "3,4"),
    ids=str,
)
def test_texts_stay_as_they_are(made, text):
    """They are in the names and records of stored runs."""
    assert str(made) == text


def test_a_whole_problem_as_text():
    problem = Problem(3, "4..9", "uniform(0,5)", features="factors(2)", tasks="lowrank(2)", query=[1, 2, 3])
    text = "d=3 n=4..9 uniform(0,5) features=factors(2) tasks=lowrank(2) query=spectrum(1,2,3)"
    assert str(problem) == text
    assert Problem.parse(text) == problem
    assert Problem.parse("uniform(0,5)") == Problem(10, 20, "uniform(0,5)")
    laws = {"features": "factors(2)", "tasks": "lowrank(2)", "query": "spectrum(1,2,3)"}
    assert problem.as_dict() == {"dim": 3, "context": "4..9", "noise": "uniform(0,5)", **laws}


def test_arguments_of_several_types_are_one_problem():
    assert_same(Problem(3, 5, 1.0, features=[1, 2, 3]), Problem(3, 5, "fixed(1)", features="spectrum(1,2,3)"))
    matrix = [[1, 0.5], [0.5, 1]]
    assert_same(Problem(2, [5], 1, features=matrix), Problem(2, 5, 1, features="covariance([[1,0.5],[0.5,1]])"))
    assert_same(Problem(2, range(3, 6), 1), Problem(2, "3..5", 1))
    assert_same(Problem(2, [5, 4, 3], 1), Problem(2, "3..5", 1))
    assert_same(Problem(2, 5, 1, features="isotropic()", tasks="gaussian()"), Problem(2, 5, 1))
    assert Problem(2, 5, 1, query=[1, 1]) != Problem(2, 5, 1)
    assert len({Problem(2, 5, 1), Problem(2, 5, 1, features="factors(1)"), Problem(2, 5, 1, tasks="lowrank(1)")}) == 3


def test_values_do_not_follow_the_arrays_they_were_made_from():
    matrix, pool, mean = np.eye(2) * 2, np.ones((1, 2)), np.ones(2)
    problem = Problem(2, 5, 1, features=matrix, tasks=Mixture(Pool(pool), 0.5, Gaussian(mean)))
    before, name = problem.moments(5).moments.gram.copy(), str(problem)
    matrix[0, 0], pool[0, 0], mean[0] = 50, 50, 50
    np.testing.assert_array_equal(problem.moments(5).moments.gram, before)
    assert str(problem) == name
    assert problem == Problem.parse(name)


SEARCH = {"name": "search", "effort": 1.0, "caution": 1.0, "precision": "auto", "seconds": None}


@each(
    (Problem(10, 20, "uniform(0,5)"), ("diag", 3, 1, 0, 100_000), "diag-3x1-uniform-0-5-d10n20-s0-f5561bd4e6"),
    (Problem(10, 20, "uniform(0,5)"), ("full", 7, 2, 5, 1000), "full-7x2-uniform-0-5-d10n20-s5-d555dde477"),
    (Problem(3, 6, "categorical(1,3)"), ("diag", 2, 1, 0, 100_000), "diag-2x1-categorical-1-3-d3n6-s0-10d7379f63"),
    ids=str,
)
def test_specs_and_names_of_isotropic_runs_are_those_of_version_0_1(problem, arguments, name):
    family, layers, heads, seed, sequences = arguments
    spec = make_spec(problem, family, layers=layers, heads=heads, seed=seed, sequences=sequences)
    names = ["dim", "context", "noise", "family", "layers", "heads", "seed", "protocol", "sequences"]
    values = [problem.dim, problem.context, str(problem.noise), family, layers, heads, seed, SEARCH, sequences]
    assert list(spec.as_dict().items()) == list(zip(names, values, strict=True))
    assert spec.name == name
    assert parse_spec(json.loads(json.dumps(spec.as_dict()))) == spec


@settings(max_examples=20)
@given(problems(), st.sampled_from([None, Layout("mean"), Layout("sum", "constant", 2)]))
def test_specs_of_general_runs_are_read_back(problem, layout):
    spec = make_spec(problem, "full", layers=2, sequences=1000, layout=layout)
    again = parse_spec(json.loads(json.dumps(spec.as_dict())))
    assert again == spec
    assert again.name == spec.name
    assert len(spec.name) < 120
    assert "/" not in spec.name
