"""Bad problems, each refused with a message that says the rule, what was received and what to do."""

import numpy as np
import pytest

import support
from own_problems import HeavyTails
from ridgeformer import ConstRR, LinearTransformer, Moments, Problem, compare, evaluate, floor, train
from ridgeformer.engine import Layout
from ridgeformer.population import Quadratic
from ridgeformer.problems import CustomProblem, Dataset, Draw, Gaussian, Pool, Sequences, Sparse, problem_from_dict
from support import refusals

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
    message = support.refused(make, words)
    assert len(message) < 1000
    assert message.endswith((".", ").", "...."))
    return message


test_features_and_queries = refusals(
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
    (features("factors(1,unique=0)"), "the unique variance must be at least 0.001; got 0.0"),
    (features("powerlaw(11)"), "the exponent of a power law must be at most 10; got 11.0"),
    (features("scales(0)"), "the spread of scales must lie in (0, 3]; got 0.0"),
    (features("scales(0.5,scales(0.5))"), "features are scaled once, before they are standardised; got"),
    (features("standardised(standardised())"), "features are standardised once; got standardised()"),
    (features("standardised()", 1), "standardising needs at least two examples; got context 1"),
    (features(object()), "features must hold real numbers"),
    (query("factors(1)"), "queries have one covariance for all sequences; got factors(1)"),
    (query(np.eye(3), "standardised()"), "queries of standardised features have the covariance of the features"),
)


test_tasks = refusals(
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
    (lambda: Sparse(1, variance=10**400), "the variance of sparse tasks must be positive and finite; got 1000"),
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
)


test_lengths = refusals(
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
    by=lambda given: context(given)(),
)


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
    words = "must be written as name(arguments), with arguments that the name takes; got"
    if len(text) > 200_000:
        words = "must be written in at most 200,000 characters, beside lists of 250,000 numbers; got 1,000,000. "
    elif text in ("x", "nonsense(3)", "é(1)"):
        words = "there is no law of "
    message = refused(lambda: Problem(D, 6, 1.0, **{what: text.replace("NAME", name)}), words)
    assert "Write " in message


class Broken(CustomProblem):
    """Draws sequences that `change` spoils: a function of their fields that returns what `draw` is to return."""

    def __init__(self, change=lambda fields: Sequences(**fields), dim=2, context=5):
        self.dim, self.context, self.change = dim, context, change

    def five(self):
        return self.moments(5)

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


test_draws_of_custom_problems = refusals(
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
    (lambda f: Sequences(**{n: v if v is None else v[:3] for n, v in f.items()}), "must draw 7 contexts of dimension"),
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
    by=lambda change: Broken(change).drawn(np.random.default_rng(0), 7),
)


def test_what_is_broken_is_the_change():
    """Without one, or with harmless ones, nothing is refused."""
    for change in (tokens(), tokens(x=np.ndarray.tolist, y=np.ndarray.tolist), moments(), moments(metric=np.eye(2))):
        assert len(Broken(change).moments(7).moments) == 7
    lists = Sequences([[[1.0]], [[2.0]]], [[1.0], [2.0]], [[[1.0]], [[1.0]]], [[1.0], [1.0]])
    assert len(Dataset(lists).moments(2).task) == 2


def test_a_run_of_a_problem_without_a_name_is_not_stored(tmp_path):
    words = "a run is stored under the name of its problem ... got a Broken without a name of its own. Write name ="
    message = refused(lambda: train(Broken(), "gdpp", 1, out=tmp_path, sequences=10), words)
    assert message.endswith(' name = "my-problem" in its class, or train without out.')
    assert not list(tmp_path.iterdir())


LENGTH = Layout("mean", "length")
FIVE = Problem(5, 5, "fixed(1)")
VARYING = Problem("2..4", "d..2d", 1, tasks="gaussian(signal=1)")
FULL = LinearTransformer.random("full", dim=3, layers=1)
WIDE = LinearTransformer.random("full", dim=2, layers=1, layout=LENGTH)
BARE = Broken(moments(moments=lambda f: Moments(Moments.from_tokens(f["x"], f["y"]).gram, 5)))
SPOILT = Broken(tokens(y=nan))
NEGATIVE = moments(offset=lambda f: -np.ones(len(f["x"])))
CARELESS = Broken(lambda f: Sequences(**{**f, "x": np.random.default_rng().standard_normal(f["x"].shape)}))


RR = ConstRR(1.0)


class Scaled(HeavyTails):
    """Labels in other units."""

    name = None

    def __init__(self, unit):
        super().__init__()
        self.unit = unit

    def draw(self, rng, count):
        """See `CustomProblem.draw`."""
        drawn, unit = super().draw(rng, count), self.unit
        return Sequences(drawn.x, unit * drawn.y, drawn.queries, unit * drawn.answers, unit * drawn.task)


test_others = refusals(
    (context(np.array(8)), "the context must be a number of examples, a range or ... got array(8). Pass 20, "),
    (lambda: Problem(D, "3..5", 1.0).context, "a fixed number of examples; got n = 3..5. Use one context length."),
    (tasks("pool()"), "that the name takes; got 'pool()'. Write gaussian(), "),
    (tasks("pool(3,law=sphere)"), "that the name takes; got 'pool(3,law=sphere)'. Write"),
    (tasks("powerlaw(1)"), "there is no law of tasks called 'powerlaw'. Write one of gaussian, lowrank, pool"),
    (lambda: Problem.parse(""), "a problem needs a noise distribution; got none. Pass noise="),
    (lambda: Problem.parse("d= fixed(1)"), "described part by part; got 'd= fixed(1)'. Write 'd=10 n=20"),
    (lambda: Problem.parse("fixed(1) " * 10**5), "a problem must be described part by part"),
    (lambda: Problem.parse("x=3"), "that the name takes; got 'x=3'. Write uniform(0,5), "),
    (lambda: Problem.parse("fixed(1) features=lowrank(1)"), "no law of features called 'lowrank'. Write one of"),
    (lambda: Problem.parse(5), "a problem must be described by text; got 5. Write 'd=10 n=20 uniform(0,5)'."),
    (lambda: Problem(0, 5, 1), "dim must be at least 1; got 0. Pass 1 or more."),
    (lambda: evaluate(Problem(3, 5, 1, tasks="gaussian(signal=1e-290)"), RR), "between 1e-280 and 1e+140; got 1e-290."),
    (lambda: evaluate(Scaled(1e100), RR), "the signal, the mean square of the answers, must lie ... Use other units"),
    (lambda: train(Scaled(1e-30), "diag", 1), "labels of a moderate size; got a problem whose answers"),
    (lambda: train(Scaled(1e20), "gdpp", 1), "a search computes in float32, which needs labels of"),
    (lambda: Problem(10**9, 3, 1), "dim must be at most 4096; got 1000000000. Pass 4096 or less."),
    (lambda: Problem(np.array(3), 8, 1), "dim must be a whole number; got array(3). Pass a whole number"),
    (lambda: Problem("2..x", 8, 1), "dim must be a dimension, or a range or list of them; got '2..x'. Pass 10, "),
    (lambda: Problem("3,3", 8, 1), "dimensions must differ from each other; got '3,3'. Name each of them once."),
    (lambda: Problem(2, "4d..d", 1), "such as 2d, d+2 ... got '4d..d', whose range is 8..2 at d = 2. Pass "),
    (lambda: Problem(2, "2x..4d", 1), "must be made of terms such as 2d, d+2 ... got '2x..4d'. Pass "),
    (lambda: Problem(2, "d-2", 1), "context must be at least 1; got 0. Pass 1 or more."),
    (lambda: Problem("2..3", "2d", "student(4,1)"), "must have one noise level; got student(4,1). Use a problem"),
    (lambda: Problem(d=3, noise=1), "the arguments dim, context, noise, features, tasks, query; got d. Write dim."),
    (lambda: Problem(feature="powerlaw(1)", noise=1), "got feature. Write features."),
    (lambda: Problem(noise=1, colour=3), "got colour. Write only these."),
    (lambda: FIVE.replace(size=3), "noise, features, tasks, query; got size. Pass only these."),
    (lambda: problem_from_dict({"problem": "nope"}), "got 'nope'. Import the module that defines its class first."),
    (lambda: problem_from_dict({"problem": []}), "a stored problem must be one of the built-in one ... got []."),
    (lambda: type("Mine", (Problem,), {}), "no subclasses; got Mine. Derive a problem of your own from CustomProb"),
    (lambda: FIVE.moments(0), "the number of sequences must be at least 1; got 0. Pass 1 or more."),
    (lambda: FIVE.moments(2, first=2**32 - 1), "number of sequences must be at most 1; got 2. Pass 1 or less."),
    (lambda: FIVE.moments(1, seed=2**64), "seed must be at most"),
    (lambda: FIVE.at_noise(1j), "sigma must be a number; got 1j. Pass a number of at least 0."),
    (lambda: VARYING.at_noise([1.0]), "sigma must be a number; got [1.0]. Pass a number of at least 0."),
    (lambda: VARYING.sequences(3), "whole sequences have one dimension; got d = 2..4. Use problem.cell(d)."),
    (lambda: VARYING.cell(9), "the dimensions are 2..4; got 9. Choose one of these."),
    (lambda: train(VARYING, "full", layers=1), "a family without d in its parameters; got full ... Use channels"),
    (lambda: FULL.at_dim(2), "of the family full are for one dimension, here 3; got dimension 2. Use GD++"),
    (lambda: FULL.in_basis(np.ones((3, 3))), "C must be invertible; got a singular matrix. Pass the Cholesky"),
    (lambda: LinearTransformer(FULL.family, layout="mean"), "must be a Layout; got a str. Pass Layout("),
    (
        lambda: train(FIVE, "diag", 1, layout=LENGTH, sequences=10),
        "the family diag has room for no further coordinates in its tokens; got a layout with 1. The families "
        "full, ... take any number of them, and channels(1,1+k) takes k: use full, or channels(1,2).",
    ),
    (lambda: WIDE.weights(Problem(2, 6, 1).moments(5).moments), "sums of the tokens; got moments without them."),
    (lambda: evaluate(BARE, WIDE, sequences=7), "sums of the tokens; got moments without them. Return Sequences."),
    (lambda: LinearTransformer.random("diag", dim=3, layers=10**30), "layers must be at most 1000; got 1000"),
    (lambda: Quadratic.of_problem(Problem(2, 4, "pareto(3)")), "a finite E[sigma^4]; got pareto(3). Use a fixed"),
    (lambda: floor(Broken(), sequences=10), "whose best predictor is known; got Broken( ... Write a method best_"),
    (lambda: compare(Broken(), ConstRR(1.0), {"sigma": [1.0]}), "got a Broken without at_noise. Write a method"),
    (lambda: compare(Broken(), ConstRR(1.0), "sigma"), "noise levels of this problem have no default; got none. P"),
    (lambda: type("X", (Broken,), {"name": "Not A Name"}), "a lower-case letter and ... got 'Not A Name'. Write n"),
    (
        lambda: [type(name, (Broken,), {"name": "taken"}) for name in ("One", "Two")],
        "the name of a problem must be its own; got 'taken', which is abc.One. Choose another name.",
    ),
    (lambda: type("Empty", (CustomProblem,), {"draw": None})().moments(5), "got an Empty without them. Write"),
    (lambda: Dataset(5), "a data set is made of Sequences; got an int. Pass Sequences(x, y, ...)."),
    (lambda: evaluate(SPOILT, ConstRR(1.0), sequences=7), "y must be finite; got NaN or infinity in it. Drop or"),
    (lambda: train(SPOILT, "gdpp", 1, sequences=7), "y must be finite; got NaN or infinity in it. Drop or repair"),
    (Broken(moments(metric=-np.eye(2))).five, "metric must have no negative eigenvalue; got -1"),
    (Broken(moments(metric=np.triu(np.ones((2, 2))))).five, "metric must be symmetric; got 1 at [0, 1] and 0 at"),
    (Broken(NEGATIVE).five, "which are mean squares, must not be negative; got -1.0. Correct the draw method."),
    (Broken(tokens(answers=lambda a: a + 5)).five, "answers must be <task, query>, without noise; got others."),
    (CARELESS.five, "the same random numbers must give the same ... got a Broken whose draw gives others"),
)
