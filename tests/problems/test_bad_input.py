"""Bad problems, each refused with a message that says the rule, what was received and what to do."""

import numpy as np
import pytest

from ridgeformer import ConstRR, InputError, LinearTransformer, Moments, Problem, compare, evaluate, floor, train
from ridgeformer.engine import Layout
from ridgeformer.problems import (
    CustomProblem,
    Dataset,
    Draw,
    Gaussian,
    Pool,
    Sequences,
    problem_from_dict,
)

D = 3
LOPSIDED = [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]]
INDEFINITE = [[1, 2, 0], [2, 1, 0], [0, 0, 1]]


def features(law, context=6):
    return lambda: Problem(D, context, 1.0, features=law)


def tasks(law):
    return lambda: Problem(D, 6, 1.0, tasks=law)


def context(n):
    return lambda: Problem(D, n, 1.0)


def query(law, base=None):
    return lambda: Problem(D, 6, 1.0, features=base, query=law)


def refused(make, words):
    with pytest.raises(InputError) as caught:
        make()
    message = str(caught.value)
    assert words in message, message
    assert len(message) < 1000
    assert message.endswith((".", ").", "...."))
    return message


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (features(LOPSIDED), "the covariance of features must be symmetric; got 0.5 at [0, 1] and 0 at [1, 0]. Pass"),
        (features(INDEFINITE), "the covariance of features must be positive definite; got a smallest eigenvalue of -1"),
        (features(np.ones((3, 2))), "the covariance of features must be square; got shape (3, 2)"),
        (features(np.ones((3, 3, 3))), "the covariance of features must have shape (d, d); got shape (3, 3, 3)"),
        (features(np.full((3, 3), np.nan)), "the covariance of features must be finite; got NaN or infinity in it"),
        (features(np.eye(2)), "the covariance of features must fit the dimension 3; got one for dimension 2"),
        (features([1, 2]), "the spectrum of features must fit the dimension 3; got one for dimension 2"),
        (features([1, -2, 1]), "a spectrum must be positive; got -2 in it"),
        (features("rotated(factors(2))"), "what is rotated must be a spectrum; got factors(2)"),
        (features("factors(4)"), "there can be at most d = 3 factors; got 4. Pass 3 or less."),
        (features("factors(1,unique=0)"), "the unique variance must lie between 0.001 and 1e6; got 0.0"),
        (features("powerlaw(11)"), "the exponent of a power law must be at most 10; got 11.0"),
        (features("scales(0)"), "the spread of scales must lie in (0, 3]; got 0.0"),
        (features("scales(0.5,scales(0.5))"), "features are scaled once, before they are standardised; got"),
        (features("standardised(standardised())"), "features are standardised once; got standardised()"),
        (features("standardised()", 1), "standardising needs at least two examples; got context 1"),
        (features(object()), "features must hold real numbers"),
        (query("factors(1)"), "queries have one covariance for all sequences; got factors(1)"),
        (query(np.eye(3), "standardised()"), "queries of standardised features have the covariance of the features"),
    ],
)
def test_features_and_queries(make, words):
    refused(make, words)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gaussian(covariance=LOPSIDED), "the covariance of tasks must be symmetric"),
        (lambda: Gaussian(covariance=INDEFINITE), "the covariance of tasks must have no negative eigenvalue; got -1"),
        (lambda: Gaussian(covariance=np.zeros((3, 3))), "tasks must vary in at least one direction; got a covariance"),
        (tasks(Gaussian(covariance=np.eye(2) * 2)), "the covariance of tasks must fit the dimension 3; got one for"),
        (tasks(Gaussian(mean=[1, 2])), "the mean of tasks must fit the dimension 3; got one for dimension 2"),
        (tasks("gaussian(mean=1)"), "the mean of tasks must be a list of numbers; got one number"),
        (tasks("lowrank(4)"), "the rank of tasks can be at most d = 3; got 4"),
        (tasks("sparse()"), "sparse tasks have a size, p or beta; got none of them. Write sparse(3), "),
        (tasks("sparse(4)"), "sparse tasks can have at most d = 3 weights; got 4"),
        (tasks("sparse(p=1)"), "the probability p of a weight must lie between 0 and 1; got 1"),
        (tasks("sparse(beta=[1])"), "the parameters of beta must have shape (2)"),
        (tasks("sparse(beta=[1,-4])"), "the parameters of beta must be positive; got [1.0, -4.0]"),
        (tasks("pool(1.5)"), "the number of tasks in a pool must be a whole number; got 1.5"),
        (tasks("pool(99999999999)"), "the number of tasks in a pool must be at most 16777216"),
        (tasks("pool([])"), "a pool must have at least one task; got none. List vectors of length d"),
        (lambda: Pool([[1, 2, 3], [1]]), "the tasks of a pool must be a rectangular array"),
        (tasks("pool([[1,2]])"), "the tasks of a pool must have dimension 3; got dimension 2"),
        (tasks("pool(3,law='cube')"), "the law of a pool must be gaussian or sphere; got 'cube'"),
        (tasks("mixture(pool(4),0)"), "the share of new tasks must lie between 0 and 1; got 0.0"),
        (tasks("mixture(gaussian(),0.5)"), "a mixture is of a pool and a Gaussian law; got gaussian() and gaussian()"),
        (tasks(5), "tasks must be a law of tasks, its text or a covariance matrix; got 5"),
    ],
)
def test_tasks(make, words):
    refused(make, words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "context must be at least 1; got 0"),
        ([], "got an empty range or list. Pass 20, range(10, 41)"),
        ("5..3", "got '5..3', which ends before it begins"),
        ([3, 3], "context lengths must differ from each other; got [3, 3]"),
        (1.5, "the context must be a number of examples, a range or a list of them; got 1.5"),
        (None, "the context must be a number of examples, a range or a list of them; got None"),
        ("1..2..3", "the context must be a number of examples, a range or a list of them; got '1..2..3'"),
        ("9" * 10**6, "the context must be a number of examples, a range or a list of them; got '999"),
        ("1..99999999999999", "there may be at most 10,000 context lengths; got 99,999,999,999,999"),
        (1 << 60, "context must be at most 4503599627370496"),
    ],
)
def test_lengths(given, words):
    refused(context(given), words)


def test_one_context_length_is_asked_for_where_there_are_several():
    refused(lambda: Problem(D, "3..5", 1.0).context, "this needs a fixed number of examples; got n = 3..5")


NONSENSE = [
    "",
    "x",
    "[1,2,3]",
    "NAME",
    "NAME(",
    "NAME(1)+NAME(1)",
    "NAME(1);1",
    "NAME(1)\0",
    "NAME(*[1])",
    "NAME(nonsense=1)",
    "NAME(1,2,3,4,5,6)",
    "nonsense(3)",
    "__import__('os').getcwd()",
    "é(1)",
    "x" * 10**6,
    "(" * 10**5,
    "NAME(" + "[" * 5000 + "]" * 5000 + ")",
    "NAME(" + "-" * 50_000 + "1)",
    "NAME(" + "9" * 10_000 + ")",
]


@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: text[:20].replace("\0", "NUL"))
@pytest.mark.parametrize(("what", "name"), [("features", "powerlaw"), ("query", "powerlaw"), ("tasks", "lowrank")])
def test_nonsense_texts(what, name, text):
    unknown = text in ("x", "nonsense(3)", "é(1)", "x" * 10**6)
    words = "there is no law of " if unknown else "must be written as name(arguments)"
    message = refused(lambda: Problem(D, 6, 1.0, **{what: text.replace("NAME", name)}), words)
    assert "Write " in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool()", "tasks must be written as name(arguments); got 'pool()'. Write gaussian(), "),
        ("pool(3,law=sphere)", "tasks must be written as name(arguments); got 'pool(3,law=sphere)'"),
        ("powerlaw(1)", "there is no law of tasks called 'powerlaw'. Write one of gaussian, lowrank, pool"),
    ],
)
def test_texts_of_tasks(text, words):
    refused(tasks(text), words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a problem needs a noise distribution; got none"),
        ("d= fixed(1)", "a problem must be described part by part; got 'd= fixed(1)'"),
        ("fixed(1) " * 10**5, "a problem must be described part by part"),
        ("d=a fixed(1)", "dim must be a dimension, or a range or list of them; got 'a'"),
        ("x=3", "noise must be written as name(numbers); got 'x=3'"),
        ("d=3 fixed(1) features=lowrank(1)", "there is no law of features called 'lowrank'. Write one of isotropic, "),
        (5, "a problem must be described by text; got 5"),
    ],
)
def test_texts_of_problems(text, words):
    refused(lambda: Problem.parse(text), words)


def test_other_arguments_of_problems():
    refused(
        lambda: Problem(D, 6, 1.0).replace(size=3),
        "a Problem has the arguments dim, context, noise, features, tasks, query; got size",
    )
    refused(
        lambda: problem_from_dict({"problem": "nope"}), "got 'nope'. Import the module that defines its class first."
    )
    refused(lambda: problem_from_dict({"problem": []}), "a stored problem must be one of the built-in one")
    refused(lambda: type("Mine", (Problem,), {}), "Problem has no subclasses; got Mine")


# ---- problems of one's own ----------------------------------------------------------------------------------


class Broken(CustomProblem):
    """Draws sequences that `change` spoils: a function of their fields that returns what `draw` is to return."""

    def __init__(self, change=lambda fields: Sequences(**fields), dim=2, context=5):
        self.dim, self.context, self.change = dim, context, change

    def draw(self, rng, count):
        x, task = rng.standard_normal((count, 5, 2)), rng.standard_normal((count, 2))
        queries = rng.standard_normal((count, 3, 2))
        y, answers = (np.einsum("bnd,bd->bn", z, task) for z in (x, queries))
        return self.change({"x": x, "y": y, "queries": queries, "answers": answers, "task": task, "sigma": None})


def tokens(**new):
    """What makes `Broken` return sequences with other fields; functions are applied to the right ones."""
    return lambda f: Sequences(**{**f, **{name: v(f[name]) if callable(v) else v for name, v in new.items()}})


def moments(**new):
    """The same for a draw; functions are applied to all fields of the tokens."""

    def change(f):
        usual = {"moments": Moments.from_tokens(f["x"], f["y"]), "task": f["task"], "ridge": f["task"], "sigma": None}
        return Draw(**{**usual, **{name: v(f) if callable(v) else v for name, v in new.items()}})

    return change


def nan(value):
    return np.where(np.arange(value.size).reshape(value.shape) == 3, np.nan, value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (tokens(x=lambda x: x[0]), "x must have shape (B, n, d); got shape (5, 2)"),
        (tokens(y=lambda y: y[:, :3]), "y must have shape (7, 5); got shape (7, 3)"),
        (tokens(queries=lambda q: q[:, :, :1]), "queries must have shape (7, m, 2); got shape (7, 3, 1)"),
        (tokens(queries=lambda q: q[:, 0]), "queries must have shape (7, m, 2); got shape (7, 2)"),
        (tokens(queries=lambda q: q[:, :0], answers=lambda a: a[:, :0]), "queries must not be empty"),
        (tokens(answers=lambda a: a[:, :1]), "answers must have shape (7, 3); got shape (7, 1)"),
        (tokens(task=lambda w: w[:, :1]), "task must have shape (7, 2); got shape (7, 1)"),
        (tokens(sigma=np.ones(3)), "sigma must have shape (7); got shape (3,)"),
        (tokens(context=np.ones(3, int)), "context must have shape (7); got shape (3,)"),
        (tokens(context=np.full(7, 9)), "a context can have at most the 5 tokens given; got 9"),
        (tokens(context=np.full(7, 2)), "tokens beyond the number of a context's tokens must be 0; got others"),
        (tokens(context=np.zeros(7, int)), "numbers of tokens must be whole numbers of at least 1"),
        (tokens(x=lambda x: x[:, :4], y=lambda y: y[:, :4]), "contexts must have as many examples as the problem's"),
        (tokens(x=nan), "x must be finite; got NaN or infinity in it"),
        (tokens(y=nan), "y must be finite; got NaN or infinity in it"),
        (tokens(queries=nan), "queries must be finite; got NaN or infinity in it"),
        (tokens(answers=nan, task=None), "answers must be finite; got NaN or infinity in it"),
        (tokens(task=nan), "task must be finite; got NaN or infinity in it"),
        (tokens(sigma=np.full(7, np.nan)), "sigma must be finite; got NaN or infinity in it"),
        (tokens(sigma=np.full(7, -1.0)), "noise levels must not be negative; got -1.0"),
        (tokens(y=lambda y: 1j * y), "y must hold real numbers; got dtype complex128"),
        (tokens(y=lambda y: y.astype(str)), "y must hold real numbers; got dtype"),
        (
            lambda f: Sequences(**{n: v if v is None else v[:3] for n, v in f.items()}),
            "must draw 7 contexts of dimension 2",
        ),
        (tokens(x=np.ones((7, 5, 3)), queries=np.ones((7, 3, 3)), task=None), "got 7 of dimension 3. Correct its draw"),
        (lambda f: None, "draw must return Sequences or a Draw; got None. Correct its draw method."),
        (lambda f: (f["x"], f["y"]), "draw must return Sequences or a Draw; got a tuple"),
        (lambda f: Moments.from_tokens(f["x"], f["y"]), "draw must return Sequences or a Draw; got a Moments"),
        (moments(moments=5), "a draw needs Moments; got an int"),
        (moments(task=np.ones((3, 2))), "task must have shape (7, 2); got shape (3, 2)"),
        (moments(task=None), "task must hold real numbers"),
        (moments(ridge=np.full((7, 2), np.inf)), "ridge must be finite"),
        (moments(metric=np.eye(3)), "metric must have shape (2, 2); got shape (3, 3)"),
        (moments(metric=np.ones((3, 2, 2))), "metric must have shape (7, 2, 2); got shape (3, 2, 2)"),
        (moments(offset=np.ones(3)), "offset must have shape (7); got shape (3,)"),
        (moments(sigma=np.ones(3)), "sigma must have shape (7); got shape (3,)"),
    ],
)
def test_draws_of_custom_problems(change, words):
    refused(lambda: Broken(change).drawn(np.random.default_rng(0), 7), words)


def test_what_is_broken_is_the_change():
    """Without one, or with harmless ones, nothing is refused."""
    for change in (tokens(), tokens(x=np.ndarray.tolist, y=np.ndarray.tolist), moments(), moments(metric=np.eye(2))):
        assert len(Broken(change).moments(7).moments) == 7
    assert (
        len(Dataset(Sequences([[[1.0]], [[2.0]]], [[1.0], [2.0]], [[[1.0]], [[1.0]]], [[1.0], [1.0]])).moments(2).task)
        == 2
    )


@pytest.mark.parametrize("change", [tokens(y=nan), moments(ridge=lambda f: np.nan * f["task"])])
def test_evaluation_and_training_refuse_them_too(change):
    refused(lambda: evaluate(Broken(change), ConstRR(1.0), sequences=7), "must be finite")
    refused(lambda: train(Broken(change), "gdpp", 1, sequences=7), "must be finite")


def test_what_a_custom_problem_does_not_offer():
    problem = Broken()
    refused(
        lambda: floor(problem, sequences=10),
        "a floor needs a problem whose best predictor is known; got Broken(",
    )
    refused(
        lambda: compare(problem, ConstRR(1.0), {"sigma": [1.0]}, sequences=10),
        "a profile needs the problem at single noise levels; got a Broken without at_noise. Write a method",
    )
    refused(
        lambda: compare(problem, ConstRR(1.0), "sigma", sequences=10), "noise levels of this problem have no default"
    )


def test_a_run_of_a_problem_without_a_name_is_not_stored(tmp_path):
    message = refused(
        lambda: train(Broken(), "gdpp", 1, out=tmp_path, sequences=10), "a run is stored under the name of its problem"
    )
    assert (
        'got a Broken without a name of its own. Write name = "my-problem" in its class, or train without out.'
        in message
    )
    assert not list(tmp_path.iterdir())


def test_names_of_custom_problems():
    refused(
        lambda: type("Shouting", (Broken,), {"name": "Not A Name"}), "the name of a problem must be a lower-case letter"
    )
    type("One", (Broken,), {"name": "taken"})
    refused(lambda: type("Two", (Broken,), {"name": "taken"}), "the name of a problem must be its own; got 'taken'")


def test_a_data_set_of_something_else():
    refused(lambda: Dataset(5), "a data set is made of Sequences; got an int")


def test_further_coordinates_need_full_models_and_sums():
    layout = Layout("mean", "length")
    refused(
        lambda: train(Problem(D, 6, 1.0), "diag", 1, layout=layout, sequences=10),
        "the family diag has room for no further coordinates in its tokens; got a layout with 1. The families full, ",
    )
    refused(
        lambda: LinearTransformer.random("diag", dim=2, layers=1, layout=layout),
        "take any number of them, and channels(1,1+k) takes k: use full, or channels(1,2).",
    )
    model = LinearTransformer.random("full", dim=2, layers=1, layout=layout)
    bare = moments(moments=lambda f: Moments(Moments.from_tokens(f["x"], f["y"]).gram, 5))
    refused(
        lambda: evaluate(Broken(bare), model, sequences=7),
        "a further coordinate needs the sums of the tokens; got moments without them. Return Sequences.",
    )
    refused(lambda: Layout("median"), "attention must be sum or mean; got 'median'")
    refused(lambda: Layout("mean", "angle"), "the coordinate must be one of none, constant, length, ratio; got 'angle'")
    refused(lambda: Layout(scratch=-1), "scratch must be at least 0; got -1")


@pytest.mark.parametrize("sigma", [None, [1.0], 1j, "loud"])
@pytest.mark.parametrize("dim", [3, "2..4"])
def test_noise_levels_that_are_none(sigma, dim):
    refused(lambda: Problem(dim, "2d", 1).at_noise(sigma), "sigma must be a number")


def test_arrays_without_axes_and_models_of_endless_depth():
    refused(lambda: Problem(np.array(3), 8, 1), "dim must be a dimension, or a range or list of them; got")
    refused(lambda: Problem(3, np.array(8), 1), "context must be")
    refused(lambda: LinearTransformer.random("diag", dim=3, layers=10**30, scale=0.1), "layers must be at most 1000")
