"""Every kind of law and layout: the native core against its NumPy twin, and both against closed forms."""

import functools
import itertools

import numpy as np
import pytest

import support
from ridgeformer import engine
from ridgeformer.engine import Choices, Key, Law, Layout, Matrices, Mixings, Omegas
from support import check_slope, each, refusals, refused

DIM, CONTEXT, COUNT = 5, 8, 150  # 150 sequences are three blocks, the last one not full
KEY = Key(3, 1, 2)
TWIN = engine.named("numpy")
# Relative to the largest entry. Rounding is 1e-16 and 6e-8; ridge solutions and three layers, whose losses are
# polynomials of high degree in the features, amplify it by some thousands: 1e-12 and 3e-4 at worst, for random scales.
TOLERANCE = {np.float64: 1e-11, np.float32: 3e-3}
_RNG = np.random.default_rng(0)
_HALF = _RNG.standard_normal((DIM, DIM))
COVARIANCE = _HALF @ _HALF.T / DIM + 0.2 * np.eye(DIM)
ROOT = np.linalg.cholesky(COVARIANCE)
LOW, SQUARE = _RNG.standard_normal((DIM, 2)), _RNG.standard_normal((DIM, DIM))
ROOTS, ONES = np.sqrt([2, 1, 0.5, 0.3, 0.1]), np.ones(DIM)
FACTORS = {"covariance": "factors", "factors": 2, "unique": 0.5}
LAWS = {
    name: Law(DIM, parts.pop("context", CONTEXT), **parts)
    for name, parts in {
        "as in the seed paper": {},
        "fewer tokens than dimensions": {"context": 3},
        "one token": {"context": 1},
        "covariance": {"factor": ROOT},
        "rotated": {"covariance": "rotated", "factor": ROOTS},
        "rotated identity": {"covariance": "rotated"},
        "factors": FACTORS,
        "one factor": {**FACTORS, "factors": 1},
        "as many factors as features": {**FACTORS, "factors": DIM},
        "scales": {"spread": 0.5},
        "scales of a covariance": {"spread": 0.5, "factor": ROOT},
        "scales of factors": {"spread": 0.5, **FACTORS},
        "standardised": {"standardised": True},
        "standardised factors": {"standardised": True, **FACTORS},
        "standardised rotated": {"standardised": True, "covariance": "rotated", "factor": ROOTS},
        "standardised, few tokens": {"standardised": True, "context": 4},
        "mean of tasks": {"mean": 0.3 * np.arange(DIM)},
        "tasks of low rank": {"task_factor": LOW},
        "tasks of low rank, few tokens": {"task_factor": LOW, "context": 3},
        "tasks of any covariance": {"task_factor": SQUARE, "mean": ONES},
        "covariances, few tokens": {"task_factor": SQUARE, "mean": ONES, "factor": ROOT, "context": 3},
        "lengths": {"context": 12, "shortest": 1},
        "lengths, mean, covariance": {"context": 12, "shortest": 6, "factor": ROOT, "mean": ONES},
        "lengths, rotated, tasks": {"context": 12, "shortest": 1, "covariance": "rotated", "task_factor": SQUARE},
        "lengths, tasks of low rank": {"context": 12, "shortest": 2, "task_factor": LOW},
        "lengths, standardised": {"context": 12, "shortest": 2, "standardised": True},
        "pool": {"pool": _RNG.standard_normal((7, DIM))},
        "pool and other tasks": {"pool": _RNG.standard_normal((2, DIM)), "task_factor": LOW, "factor": ROOT},
        "queries": {"query": COVARIANCE},
        "rotated, queries": {"covariance": "rotated", "factor": ROOTS, "query": COVARIANCE},
    }.items()
}
LAYOUTS = {
    "(x, y)": Layout(),
    "mean": Layout("mean"),
    "constant": Layout("sum", "constant"),
    "mean, length, scratch": Layout("mean", "length", 2),
}
ALL = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
WAYS = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def chosen(law, count=COUNT, least=0.0):
    """Choices for a law: noise levels from `least` to 2, and numbers of tokens and tasks where it needs them."""
    rng = np.random.default_rng(count)
    sigma = rng.uniform(least, 2, count)
    counts = None if law.least == law.context else rng.integers(law.least, law.context + 1, count)
    task = None if law.pool is None else rng.integers(-1, len(law.pool), count)
    return Choices(sigma, counts, task)


def target(law):
    return "ridge" if law.pool is None else "task"


def full(layout, dtype=np.float64, layers=3):
    """P and Q so small that no loss explodes, and so large that all layers matter."""
    D = DIM + layout.extra + 1
    P, Q = 0.02 * np.random.default_rng(D).standard_normal((2, layers, 2, D, D))
    return Matrices(P.astype(dtype), Q.astype(dtype))


def kernels(layout, dtype=np.float64):
    """Full, channels, and where tokens are (x, y), Diag."""
    rng, s = np.random.default_rng(0), 1 + layout.extra
    omegas = [] if layout.extra else [Omegas(0.02 * rng.standard_normal((3, 2, 2)).astype(dtype))]
    mixings = Mixings(*(0.05 * rng.standard_normal((3, 2, k, k)).astype(dtype) for k in (1, 1, s, s)))
    return [full(layout, dtype), mixings, *omegas]


def close(mine, twin, dtype):
    """See `support.close`; ridge solutions and random scales amplify rounding."""
    support.close(mine, twin, dtype, TOLERANCE[dtype])


@functools.cache
def expected(law, layout, dtype):
    """Choices, and what the twin makes of them: a sample, and kernels with their evaluations."""
    choices = chosen(law, least=0.0 if dtype == np.float64 else 0.5)  # without noise, few tokens amplify rounding
    options = {"layout": layout, "target": target(law), "unadjusted": True}
    steps = [(kernel, TWIN.step(kernel, law, choices, KEY, **options)) for kernel in kernels(layout, dtype)]
    return choices, TWIN.sample(law, choices, KEY, layout=layout, dtype=dtype), steps


@ALL
@WAYS
@DTYPES
def test_native_is_numpy(native, law, layout, dtype):
    """Samples, losses of both kinds, and gradients."""
    choices, twin, steps = expected(law, layout, dtype)
    mine = native.sample(law, choices, KEY, layout=layout, dtype=dtype)
    for name, ours, theirs in zip(mine._fields, mine, twin, strict=True):
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            assert ours.dtype == theirs.dtype == dtype
            close(ours, theirs, dtype)
    for kernel, theirs in steps:
        ours = native.step(kernel, law, choices, KEY, layout=layout, target=target(law), unadjusted=True)
        close(ours.losses, theirs.losses, dtype)
        close(ours.unadjusted, theirs.unadjusted, dtype)
        close(ours.gradient, theirs.gradient, dtype)


@ALL
@WAYS
def test_a_step_is_a_sample_and_an_evaluation(any_engine, law, layout):
    """Exactly, or to rounding where the core reads the metric of a law in another order."""
    choices = chosen(law)
    drawn = any_engine.sample(law, choices, KEY, layout=layout)
    options = {"metric": layout.metric(law.metric if drawn.metric is None else drawn.metric)}
    options["counted"] = DIM + layout.counted
    for kernel, goal in itertools.product(kernels(layout), ("task", target(law))):
        step = any_engine.step(kernel, law, choices, KEY, layout=layout, target=goal)
        apart = any_engine.evaluate(kernel, drawn.gram, layout.target(getattr(drawn, goal)), **options)
        np.testing.assert_allclose(step.losses, apart.losses, rtol=1e-12)
        support.close(step.gradient, apart.gradient, tolerance=1e-12)


@WAYS
@pytest.mark.parametrize(
    "name", ["as in the seed paper", "covariance", "scales of factors", "standardised", "lengths", "pool", "queries"]
)
def test_gradient_is_the_slope_of_the_loss(any_engine, name, layout):
    law, choices = LAWS[name], chosen(LAWS[name], 40)

    def step(kernel, gradient):
        return any_engine.step(kernel, law, choices, KEY, layout=layout, target=target(law), gradient=gradient)

    check_slope(step, full(layout))


@ALL
@DTYPES
def test_same_bits_on_any_number_of_threads_and_in_any_part(native, law, dtype):
    """300 sequences are five blocks, the last one not full; 40,000 exceed one wave of partial sums."""
    layout, choices = Layout("mean", "length"), chosen(law, 40_000 if law is LAWS["as in the seed paper"] else 300)
    runs = []
    for threads in (1, 2, 5):
        drawn = native.sample(law, choices, KEY, layout=layout, dtype=dtype, threads=threads)
        options = {"layout": layout, "target": target(law), "threads": threads}
        steps = [native.step(kernel, law, choices, KEY, **options) for kernel in kernels(layout, dtype)]
        found = [*drawn, *(piece for step in steps for piece in (step.losses, *step.gradient))]
        runs.append([array.tobytes() for array in found if array is not None])
    assert runs[0] == runs[1] == runs[2]
    part = native.sample(law, choices.chosen(slice(100, 207)), KEY, layout=layout, first=100, dtype=dtype)
    for a, b in zip(part, drawn, strict=True):
        assert (a is None and b is None) or np.asarray(a).tobytes() == np.asarray(b[100:207]).tobytes()


@ALL
def test_labels_without_noise_are_those_of_the_task(any_engine, law):
    """a = S w and l = w' S w; and S has the rank that the tokens can have."""
    given = chosen(law)
    choices = Choices(np.zeros(COUNT), given.counts, given.task)
    gram, task, _, _ = any_engine.sample(law, choices, KEY)
    S, scale = gram[:, :-1, :-1], np.abs(gram).max()
    np.testing.assert_allclose(gram[:, :-1, -1], np.einsum("bij,bj->bi", S, task), rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(gram[:, -1, -1], np.einsum("bi,bij,bj->b", task, S, task), rtol=0, atol=1e-12 * scale)
    n = np.full(COUNT, law.context) if given.counts is None else np.asarray(given.counts)
    rank = np.linalg.matrix_rank(S, tol=1e-10 * scale, hermitian=True)
    np.testing.assert_array_equal(rank, np.minimum(n - law.standardised, DIM))
    if law.standardised:
        np.testing.assert_allclose(np.diagonal(S, axis1=1, axis2=2), np.repeat(n[:, None], DIM, 1), rtol=1e-12)
    if law.pool is not None:
        chosen_ones = given.task >= 0
        np.testing.assert_array_equal(task[chosen_ones], law.pool[given.task[chosen_ones]])


@pytest.mark.parametrize("attention", ["sum", "mean"])
@pytest.mark.parametrize("coordinate", ["constant", "length"])
@pytest.mark.parametrize("name", ["covariance", "lengths", "standardised"])
def test_the_further_coordinate_is_part_of_the_gram_matrix(any_engine, name, attention, coordinate):
    """Of tokens (x, c, scratch, y): its products with x and y are c times their sums, and with itself c^2 n."""
    law, layout = LAWS[name], Layout(attention, coordinate, 2)
    choices = chosen(law)
    plain, sums, mine = (
        any_engine.sample(law, choices, KEY, layout=one).gram for one in (Layout(), Layout("sum", "constant"), layout)
    )
    kept = [*range(DIM), -1]
    n = np.full(COUNT, law.context) if choices.counts is None else np.asarray(choices.counts)
    share = (1 / n if attention == "mean" else np.ones(COUNT))[:, None, None]
    c = np.sqrt(20 / n) if coordinate == "length" else np.ones(COUNT)
    np.testing.assert_allclose(mine[:, kept][:, :, kept], share * plain, rtol=1e-12)
    np.testing.assert_allclose(mine[:, DIM, kept], share[:, 0] * c[:, None] * sums[:, DIM, kept], atol=1e-11)
    np.testing.assert_allclose(mine[:, DIM, DIM], share[:, 0, 0] * c**2 * n, rtol=1e-12)
    assert not mine[:, DIM + 1 : -1].any()
    assert (np.linalg.eigvalsh(sums) > -1e-10 * np.abs(sums).max()).all()
    if law.standardised:
        np.testing.assert_allclose(sums[:, DIM, :DIM], 0, atol=1e-10)
    else:
        # The sums of x over n tokens have the covariance n Lambda: their squares, so scaled, have a mean of d.
        covariance = np.eye(DIM) if law.metric is None else law.metric
        whitened = np.linalg.solve(np.linalg.cholesky(covariance), sums[:, DIM, :DIM].T).T
        squares = np.square(whitened).sum(1) / n
        assert abs(squares.mean() - DIM) < 5 * np.sqrt(2 * DIM / COUNT)


test_odd_laws_are_refused_in_words = refusals(
    ({"shortest": 0}, "the smallest number of tokens must be at least 1; got 0"),
    ({"shortest": 9}, "the smallest number of tokens must be at most 8; got 9"),
    ({"shortest": 1, "standardised": True}, "the smallest number of tokens must be at least 2; got 1"),
    ({"standardised": "no"}, "standardised must be True or False; got 'no'. Pass True or False."),
    ({"covariance": "diagonal"}, "covariance must be one of fixed, rotated, factors; got 'diagonal'"),
    ({"factor": np.eye(4)}, "factor must have shape (5, 5); got shape (4, 4)"),
    ({"factor": ROOT.T}, "factor must be lower triangular; got entries above the diagonal"),
    ({"factor": ROOT * np.nan}, "factor must be finite; got NaN or infinity in it"),
    ({"covariance": "rotated", "factor": ROOT}, "factor must have shape (5); got shape (5, 5)"),
    ({"factor": ROOT, **FACTORS}, "factor is for other covariances than factors; got a factor. Leave out factor."),
    ({"covariance": "factors", "unique": 0.5}, "the number of factors must be at least 1; got 0"),
    ({**FACTORS, "factors": 6}, "the number of factors must be at most 5; got 6"),
    ({**FACTORS, "unique": 0.0}, "unique must be at least 0.001; got 0.0"),
    ({"unique": np.inf}, "unique must be at most 1e+06; got inf"),
    ({"spread": np.inf}, "spread must be at most 1e+06; got inf"),
    ({"mean": np.zeros(4)}, "mean must have shape (5); got shape (4,)"),
    ({"task_factor": ONES}, "task_factor must have shape (5, r); got shape (5,)"),
    ({"task_factor": np.ones((5, 6))}, "the rank of the tasks must be at most 5; got 6"),
    ({"pool": np.ones((0, 5))}, "pool must not be empty; got shape (0, 5)"),
    ({"pool": np.ones((3, 4))}, "pool must have shape (K, 5); got shape (3, 4)"),
    ({"query": ROOT}, "query must be symmetric; got a matrix that is not"),
    ({"query": COVARIANCE, "standardised": True}, "queries of standardised features have the covariance of"),
    by=lambda parts: Law(**({"dim": DIM, "context": CONTEXT} | parts)),
)


@each(
    ("lengths", None, None, "counts must be a NumPy array; got None"),
    ("lengths", np.ones(2), None, "counts must hold whole numbers; got dtype float64"),
    ("lengths", np.ones(3, int), None, "counts must have shape (2,) to fit sigma; got shape (3,)"),
    ("lengths", np.array([1, 13]), None, "counts must lie between 1 and 12; got 13 in it"),
    ("lengths", np.ma.masked_array([1, 2], [0, 1]), None, "counts must have no masked entries; got a masked array"),
    ("covariance", np.array([8, 8]), None, "counts are for laws whose n varies; got counts and n = 8"),
    ("pool", None, None, "task must be a NumPy array; got None"),
    ("pool", None, np.array([0, 7]), "task must lie between -1 and 6; got 7 in it"),
    ("pool", None, np.array([True, False]), "task must hold whole numbers; got dtype bool"),
    ("covariance", None, np.array([0, 0]), "task numbers are for laws with a pool; got task numbers without"),
)
def test_choices_that_do_not_fit_the_law_are_refused_in_words(name, counts, task, words, any_engine):
    for method in (lambda *a: any_engine.sample(*a), lambda *a: any_engine.step(full(Layout()), *a, target="task")):
        refused(lambda method=method: method(LAWS[name], Choices(np.ones(2), counts, task), KEY), words)


test_odd_layouts_are_refused_in_words = refusals(
    ({"attention": "max"}, "attention must be sum or mean; got 'max'"),
    ({"coordinate": "one"}, "the coordinate must be one of none, constant, length, ratio; got 'one'"),
    ({"scratch": -1}, "scratch must be at least 0; got -1"),
    ({"scratch": 4097}, "scratch must be at most 4096; got 4097"),
    by=lambda parts: Layout(**parts),
)


def test_what_does_not_go_together_is_refused(any_engine):
    """The oracle of a pool is not the engine's business, and Diag models have tokens (x, y)."""
    law = LAWS["pool"]
    refused(lambda: any_engine.step(full(Layout()), law, chosen(law), KEY), "the target of a law with a pool must be")
    omegas, options = Omegas(np.zeros((1, 2, 2))), {"target": "task", "layout": Layout("sum", "length", 2)}
    words = "omegas are for tokens (x, y); got 3 further coordinates. Use a Full"
    refused(lambda: any_engine.step(omegas, law, chosen(law), KEY, **options), words)
