"""Problems of one's own: heavy tails, nonlinear labels, moments without tokens, fixed data."""

import json
import math

import numpy as np
import pytest

from own_problems import Uneven
from ridgeformer import Full, InputError, LinearTransformer, Moments, Problem, Training, explain, train
from ridgeformer.engine import Layout
from ridgeformer.evaluation import compare, evaluate, floor
from ridgeformer.evaluation.sequence_losses import EVALUATION
from ridgeformer.noise import Fixed, as_noise
from ridgeformer.predictors import ConstRR, LeastSquares, OracleRR
from ridgeformer.problems import CustomProblem, Dataset, Draw, Sequences, problem_from_dict
from ridgeformer.training import Search
from support import check_slope, refused

D, N, M = 2, 8, 5
QUICK = {"protocol": Search(effort=0.2), "sequences": 2000}


class Student(CustomProblem):
    """Linear labels; noise and tasks of a Student t distribution."""

    name = "test-student"

    def __init__(self, dim=D, context=N, freedom=5.0, scale=1.0):
        self.dim, self.context, self.freedom, self.scale = dim, context, freedom, scale

    @property
    def noise(self):
        return Fixed(self.scale)

    def draw(self, rng, count):
        x = rng.standard_normal((count, self.context, self.dim))
        task = rng.standard_t(self.freedom, (count, self.dim))
        y = np.einsum("bnd,bd->bn", x, task) + self.scale * rng.standard_t(self.freedom, (count, self.context))
        queries = rng.standard_normal((count, M, self.dim))
        answers = np.einsum("bmd,bd->bm", queries, task)
        return Sequences(x, y, queries, answers, task)

    def at_noise(self, sigma):
        return Student(self.dim, self.context, self.freedom, sigma)


class Cubic(CustomProblem):
    """Labels that no weights give, of contexts of several lengths."""

    def __init__(self, context=(4, 8), queries=M):
        self.dim, self.context, self.queries = D, context, queries

    def draw(self, rng, count):
        n = rng.choice(self.lengths.values, count)
        there = np.arange(self.lengths.most) < n[:, None]
        x = rng.uniform(-1, 1, (count, self.lengths.most, D)) * there[..., None]
        queries = rng.uniform(-1, 1, (count, self.queries, D))
        power = rng.choice([1.0, 3.0], (count, 1))

        def label(z):
            return np.sign(z[..., 0]) * np.abs(z[..., 0]) ** power + 0.3 * z[..., 1]

        return Sequences(x, label(x) * there, queries, label(queries), context=None if self.lengths.fixed else n)


class Laplace(CustomProblem):
    """A draw of moments, with a metric and an oracle of its own."""

    def __init__(self, metric=None):
        self.dim, self.context, self.metric = D, N, metric

    def draw(self, rng, count):
        x, task = rng.laplace(size=(count, N, D)), rng.standard_normal((count, D))
        moments = Moments.from_tokens(x, np.einsum("bnd,bd->bn", x, task) + rng.standard_normal((count, N)))
        sigma = np.ones(count)
        ridge = np.linalg.solve(moments.S + np.eye(D), moments.b[..., None])[..., 0]
        return Draw(Moments(moments.gram, N, sigma, moments.sums), task, ridge, sigma, self.metric)

    def best_predictor(self):
        return ConstRR(1.0)


def tokens_of(problem, count, seed):
    """The sequences that an evaluation of a custom problem draws: its `draw` with the documented random numbers."""
    block = problem.draw(np.random.default_rng(np.random.SeedSequence((seed, EVALUATION, 0, 0))), 512)
    return block.chosen(slice(0, count))


def model_of(layers=2, kind="full", layout=Layout("mean"), seed=0):  # noqa: B008
    scale = 0.3 if layout.attention == "mean" else 0.3 / np.sqrt(N)
    return LinearTransformer.random(kind, dim=D, layers=layers, scale=scale, seed=seed, layout=layout)


def ridge_by_hand(s, penalty):
    n = np.full(len(s.x), s.x.shape[1]) if s.context is None else s.context
    return np.stack(
        [
            np.linalg.solve(x[:k].T @ x[:k] + penalty * np.eye(D), x[:k].T @ y[:k])
            for x, y, k in zip(s.x, s.y, n, strict=True)
        ]
    )


@pytest.mark.parametrize("problem", [Student(), Cubic(), Cubic(6), Cubic(6, queries=1)], ids=str)
def test_losses_are_those_of_the_queries(problem):
    """Half the mean squared error over each sequence's own queries, from tokens with nothing of the package."""
    s = tokens_of(problem, 500, seed=3)
    by_hand = 0.5 * np.square(np.einsum("bmd,bd->bm", s.queries, ridge_by_hand(s, 0.7)) - s.answers).mean(1)
    found = evaluate(problem, ConstRR(0.7), sequences=500, seed=3)
    assert found.loss == pytest.approx(by_hand.mean(), rel=1e-9)
    assert found.unadjusted == pytest.approx(by_hand.mean(), rel=1e-9)
    assert found.error == pytest.approx(by_hand.std(ddof=1) / np.sqrt(500), rel=1e-9)
    assert found.largest == pytest.approx(by_hand.max(), rel=1e-9)


@pytest.mark.parametrize("problem", [Student(), Cubic(), Cubic(6, queries=1)], ids=str)
@pytest.mark.parametrize("layout", [Layout(), Layout("mean"), Layout("mean", "length"), Layout("mean", "none", 1)])
def test_losses_of_models_are_those_of_their_predictions(problem, layout):
    """The token form of the model, sequence by sequence; layers of `compare` are its first layers."""
    s, model = tokens_of(problem, 200, seed=4), model_of(layout=layout)
    n = np.full(200, s.x.shape[1]) if s.context is None else s.context

    def by_hand(one):
        predicted = [one.predict(s.x[b, :k], s.y[b, :k], s.queries[b]) for b, k in enumerate(n)]
        return 0.5 * np.square(np.stack(predicted) - s.answers).mean()

    assert evaluate(problem, model, sequences=200, seed=4).loss == pytest.approx(by_hand(model), rel=1e-9)
    layers = compare(problem, model, "layer", sequences=200, seed=4)
    expected = [0.5 * np.square(s.answers).mean(), by_hand(model.truncate(1)), by_hand(model)]
    np.testing.assert_allclose(layers.loss[0], expected, rtol=1e-9)


class Shifted(CustomProblem):
    """Queries with another mean than 0, and labels with an intercept; linear in x only if `linear`."""

    def __init__(self, queries=5, linear=False):
        self.dim, self.context, self.queries, self.linear = D, N, queries, linear

    def draw(self, rng, count):
        x, w = rng.standard_normal((count, N + self.queries, D)) + 0.7, rng.standard_normal((count, D))
        y = (x @ w[..., None])[..., 0]
        if not self.linear:
            y = y + 1.5 + 0.3 * x[..., 0] ** 2
        task = w if self.linear else None
        return Sequences(x[:, :N], y[:, :N], x[:, N:], y[:, N:], task)


@pytest.mark.parametrize("problem", [Shifted(), Shifted(2), Shifted(1), Shifted(linear=True), Student()], ids=str)
@pytest.mark.parametrize("layout", [Layout("mean", "constant"), Layout("sum", "constant", 1), Layout("mean")], ids=str)
def test_losses_with_an_intercept_are_those_of_predictions(problem, layout):
    """Queries have any mean, and there may be fewer of them than features."""
    model = LinearTransformer.random(
        "full", dim=D, layers=2, scale=0.1, context=1 if layout.attention == "mean" else N, seed=1, layout=layout
    )
    key = {"seed": 5, "stream": EVALUATION}
    s = tokens_of(problem, 200, seed=5)
    missed = model.predict(s.x, s.y, s.queries) - s.answers
    expected = 0.5 * np.square(missed).mean()
    assert evaluate(problem, model, sequences=200, seed=5).loss == pytest.approx(expected, rel=1e-9)
    assert compare(problem, model, "layer", sequences=200, seed=5).loss[0, -1] == pytest.approx(expected, rel=1e-9)
    assert explain(problem, model, sequences=200, seed=5).behaviour.loss[-1] == pytest.approx(expected, rel=1e-6)
    found = model.step(problem, 200, unadjusted=True, **key)
    np.testing.assert_allclose(found.unadjusted, 0.5 * np.square(missed).mean(1), rtol=1e-8, atol=1e-12)
    by_query = evaluate(problem, model, sequences=20_000, seed=5, estimator="query")
    exact = evaluate(problem, model, sequences=20_000, seed=5)
    assert abs(by_query.loss - exact.loss) < 4 * np.hypot(by_query.error, exact.error)


@pytest.mark.long
def test_an_intercept_is_learned_where_labels_have_one():
    how = {"protocol": Search(effort=0.02), "sequences": 1000}
    layouts = Layout(), Layout("sum", "constant")
    plain, with_one = (train(Shifted(20), "full", 1, layout=layout, **how).loss for layout in layouts)
    assert with_one < 0.8 * plain


def test_gradients_with_an_intercept_are_finite_differences():
    def step(kernel, gradient):
        model = LinearTransformer(Full(*kernel), layout=Layout("mean", "constant"))
        return model.step(Shifted(2), 50, seed=1, gradient=gradient)

    check_slope(step, model_of(layout=Layout("mean", "constant")).kernel)


def unpredictable():
    """Answers that are noise: most of the loss is what no weights can predict."""
    rng = np.random.default_rng(0)
    shapes = ((4000, N, D), (4000, N), (4000, M, D), (4000, M))
    return Dataset(Sequences(*(rng.standard_normal(shape) for shape in shapes)))


@pytest.mark.parametrize(
    "problem", [Student(), Cubic(), Cubic(6, queries=1), Laplace(np.diag([1.0, 3.0])), unpredictable()], ids=str
)
def test_sampled_queries_agree_with_the_exact_loss(problem):
    exact = evaluate(problem, LeastSquares(), sequences=4000, with_floor=False)
    query = evaluate(problem, LeastSquares(), sequences=4000, estimator="query", with_floor=False)
    assert abs(exact.unadjusted - query.unadjusted) < 5 * np.hypot(exact.unadjusted_error, query.unadjusted_error)
    assert abs(exact.loss - query.loss) < 5 * np.hypot(exact.error, query.error)


def test_the_signal_and_the_scale_are_those_of_the_problem():
    """Estimated from 1,024 sequences; 5 standard errors of a mean square are below a quarter of it here."""
    assert Student().signal == pytest.approx(D * 5 / 3, rel=0.25)
    assert Cubic().feature_scale == pytest.approx(np.sqrt(1 / 3), rel=0.1)


@pytest.mark.parametrize("problem", [Student(), Cubic()], ids=str)
def test_an_unknown_floor_is_reported_as_unknown(problem):
    found = evaluate(problem, ConstRR(1.0), sequences=100)
    assert math.isnan(found.floor)
    assert math.isnan(found.ratio)
    stored = json.loads(json.dumps(found.as_dict()))
    assert stored["floor"] is stored["floor_error"] is stored["ratio"] is None
    header, row = str(found).splitlines()[-2:]
    assert row.split()[-6:-4] != ["nan", "nan"]
    assert "nan" not in row
    assert row.split().count("-") == 2  # floor and ratio
    assert {"floor", "ratio"} <= set(header.split())
    assert "floor" not in str(compare(problem, model_of(), "layer", sequences=100))
    refused(lambda: floor(problem, sequences=100), "a floor needs a problem whose best predictor is known")


def test_a_floor_is_that_of_the_best_predictor():
    problem = Laplace()
    found = evaluate(problem, LeastSquares(), sequences=500, seed=1)
    best = evaluate(problem, ConstRR(1.0), sequences=500, seed=1, with_floor=False)
    assert found.floor == best.loss == floor(problem, sequences=500, seed=1).loss
    assert found.floor < 1e-20  # sigma is known here, so the oracle is not better
    assert found.loss > 0.01
    assert evaluate(problem, OracleRR(), sequences=500, seed=1).loss < 1e-20


def test_a_metric_without_tasks_changes_nothing():
    """Without tasks, the loss is that of the queries themselves: half their mean squared error."""
    plain = Problem(2, 6, 0.5).sequences(40, queries=3)
    parts = {"x": plain.x, "y": plain.y, "queries": plain.queries, "answers": plain.answers}
    found = evaluate(Dataset(Sequences(**parts, metric=4 * np.eye(2))), ConstRR(0.3), sequences=40)
    w = ConstRR(0.3).weights(Moments.from_tokens(plain.x, plain.y))
    errors = np.einsum("bmd,bd->bm", plain.queries, w) - plain.answers
    assert found.loss == pytest.approx(0.5 * np.square(errors).mean(), rel=1e-12)


def test_a_draw_with_a_metric_and_an_oracle():
    metric = np.array([[2.0, 0.5], [0.5, 1.0]])
    drawn = tokens_of(Laplace(metric), 300, seed=2)
    w = np.linalg.solve(drawn.moments.S + 3 * np.eye(D), drawn.moments.b[..., None])[..., 0]
    loss = [0.5 * np.einsum("bi,ij,bj->b", w - goal, metric, w - goal).mean() for goal in (drawn.ridge, drawn.task)]
    found = evaluate(Laplace(metric), ConstRR(3.0), sequences=300, seed=2)
    assert (found.loss, found.unadjusted) == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize("problem", [Student(), Cubic(6), Cubic(), Laplace()], ids=str)
def test_training_on_a_problem_of_ones_own(problem):
    """Better than predicting 0 and than one step alone would be by chance; the loss is that of an evaluation."""
    result = train(problem, "diag", 1, protocol=Search(effort=0.05), sequences=2000)
    nothing = compare(problem, result.model, "layer", sequences=2000, with_floor=False).loss[0, 0]
    assert result.loss < 0.7 * nothing
    again = evaluate(problem, result.model, sequences=2000, seed=9, with_floor=False)
    assert abs(again.loss - result.loss) < 5 * np.hypot(again.error, result.result.error)
    assert result.model.layout.attention == ("sum" if problem.lengths.fixed else "mean")


def test_profiles_need_and_use_at_noise():
    found = compare(Student(), ConstRR(1.0), {"sigma": [0.5, 1.0, 3.0]}, sequences=1000)
    assert (np.diff(found.loss[0]) > 0).all()
    assert found.in_distribution["sigma"] == (False, True, False)
    alone = evaluate(Student(scale=3.0), ConstRR(1.0), sequences=1000, with_floor=False)
    assert found.loss[0, 2] == alone.loss
    assert Student().noise == as_noise(1.0)


def test_runs_are_stored_and_read_back(tmp_path):
    problem = Student(freedom=7.0)
    first = train(problem, "gdpp", 1, out=tmp_path, **QUICK)
    again = train(Student(freedom=7.0), "gdpp", 1, out=tmp_path, **QUICK)
    assert again.folder == first.folder
    assert Training.load(first.folder).spec.problem == problem
    assert problem_from_dict(problem.as_dict()) == problem
    assert hash(Student()) == hash(Student())
    assert Student() != Student(scale=2.0)
    assert Cubic() != Cubic()  # without a name, every object is a problem of its own


def test_moments_depend_on_the_key_alone():
    key = {"seed": 1, "stream": 2, "step": 3}
    one, same = (Student().moments(20, **key).moments.gram for _ in range(2))
    np.testing.assert_array_equal(one, same)
    more = Student().moments(600, **key, first=5).moments.gram  # of two blocks
    np.testing.assert_array_equal(more[:15], one[5:])
    tokens = Student().moments(600, **key, first=5, tokens=True)
    np.testing.assert_array_equal(tokens.moments.gram, more)
    np.testing.assert_allclose(tokens.tokens.moments.gram, more, rtol=1e-12)
    for other in ({"seed": 2}, {"stream": 3}, {"step": 4}):
        assert not np.isin(Student().moments(20, **{**key, **other}).moments.gram, one).any()
    single = Student().moments(20, **key, dtype=np.float32)
    assert single.moments.dtype == single.task.dtype == single.metric.dtype == np.float32


def test_a_data_set_is_its_sequences():
    source = Problem(D, "3..6", "uniform(0,1)", features="factors(1)").sequences(40, seed=1, queries=3)
    data = Dataset(source)
    assert str(data) == "Dataset(40 sequences, dim=2, context=3..6)"
    assert len(data) == data.size == 40
    drawn = data.moments(80, seed=5)
    order = [int(np.flatnonzero((source.moments.gram == one).all((1, 2)))[0]) for one in drawn.moments.gram]
    assert sorted(order[:40]) == list(range(40))  # each once before any comes again
    assert order[40:] == order[:40]
    np.testing.assert_array_equal(drawn.moments.counts, source.context[order])
    np.testing.assert_array_equal(drawn.sigma, source.sigma[order])
    few = data.moments(10, seed=5, first=30).moments.gram
    np.testing.assert_array_equal(few, source.moments.gram[order[30:40]])
    assert not np.array_equal(few, data.moments(10, seed=6, first=30).moments.gram)
    found, once = (evaluate(data, LeastSquares(), sequences=count) for count in (100_000, 40))
    assert (found.sequences, found.loss, found.error) == (40, once.loss, once.error)
    assert compare(data, model_of(), "layer", sequences=1000).sequences == 40


class Hidden(Student):
    """Keeps its arguments under other names than theirs."""

    name = "test-hidden"

    def __init__(self, scale=1.0, law=None, levels=()):
        super().__init__(D, N, 5.0, 1.0)
        self._scale, self._law, self._levels = scale, law, levels

    def draw(self, rng, count):
        s = super().draw(rng, count)
        return Sequences(s.x, self._scale * s.y, s.queries, self._scale * s.answers, self._scale * s.task)


class Named(Dataset):
    name = "test-named"


def test_problems_are_equal_if_their_laws_are():
    assert Hidden(2.0) == Hidden(scale=2.0)
    assert hash(Hidden(2.0)) == hash(Hidden(scale=2.0))
    assert Hidden(1.0) != Hidden(2.0)
    assert Hidden(1) == Hidden(1.0)
    assert str(Hidden(levels=[[1, 2], [3]])) == str(Hidden(levels=[[1, 2], [3]]))  # lists that are no array
    assert Hidden(1.0).replace(scale=2.0) == Hidden(2.0)
    assert Hidden(levels=np.array([1.0, 2.0])) == Hidden(levels=[1.0, 2.0])
    assert Hidden(levels=[1, 2]) != Hidden(levels=[1, 3])
    drawn = [one.moments(3, seed=5).moments.gram for one in (Hidden(2.0), Hidden(scale=2), Hidden(2.0 + 2**-50))]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert Hidden(2.0) != Hidden(2.0 + 2**-50)
    assert Hidden(3.0).signal == pytest.approx(9 * Hidden(1.0).signal)
    assert problem_from_dict(json.loads(json.dumps(Hidden(2.0).as_dict()))) == Hidden(2.0)
    small, large = (evaluate(Hidden(scale), ConstRR(1.0), sequences=500).loss for scale in (1.0, 5.0))
    assert small < large


def test_what_cannot_be_compared_is_equal_to_itself_only_and_not_stored(tmp_path):
    class Same:
        def __repr__(self):
            return "same"

    few, others = (Named(Problem(D, N, 1).sequences(20, seed=seed)) for seed in (1, 2))
    for one, other in ((few, others), (Hidden(law=Same()), Hidden(law=Same()))):
        assert one == one
        assert one != other
        words = r"compared by its arguments and attributes: .*; got a Se?a?quences? called|; got a S\w+ called"
        with pytest.raises(InputError, match=words):
            train(one, "gdpp", 1, **QUICK, out=tmp_path)
    assert not list(tmp_path.iterdir())


class ByToken:
    """The oracle of `Uneven` cannot be a predictor: this one takes all noise levels to be the same."""

    def predict(self, x, y, queries):
        S = np.swapaxes(x, 1, 2) @ x + 1.4 * np.eye(D)
        w = np.linalg.solve(S, np.einsum("bnd,bn->bd", x, y)[..., None])[..., 0]
        return np.einsum("bmd,bd->bm", queries, w)


def test_an_oracle_of_ones_own_adjusts_losses():
    """The adjusted loss is the unadjusted one minus that of the oracle, on average."""
    problem = Uneven(N, M, exact=False)
    assert problem.has_oracle
    assert not Student().has_oracle
    found = compare(problem, {"weights": ConstRR(1.4), "tokens": ByToken()}, sequences=20_000, seed=3)
    draw = problem.moments(20_000, seed=3, stream=EVALUATION)
    oracle = draw.losses(draw.ridge, draw.task).mean()
    assert found["weights"].unadjusted - found["weights"].loss == pytest.approx(oracle, rel=0.05)
    assert 0 < found["weights"].loss < found["weights"].unadjusted
    assert found["tokens"].loss == pytest.approx(found["weights"].loss, rel=1e-9)  # the same sequences
    assert train(problem, "diag", 1, **QUICK).loss < 3 * found["weights"].loss


def test_steps_of_training_share_sequences_and_are_the_same_in_any_order():
    model = model_of(kind="diag", layers=1)
    here, there = Student(), Student()
    forward = [model.step(here, 512, step=i).losses for i in range(34)]
    backward = [model.step(there, 512, step=i).losses for i in reversed(range(34))][::-1]
    np.testing.assert_array_equal(forward, backward)
    first, second = np.sort(np.ravel(forward[:32])[:16384]), np.sort(np.ravel(forward[32:34]))
    assert np.isin(second, first).all()  # of the second pass, in another order
    assert not np.array_equal(forward[32], forward[0])
    assert len(np.unique(first)) == 16384
    assert not np.isin(model.step(here, 512, step=32 * 8).losses, first).any()  # drawn anew
