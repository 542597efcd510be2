"""The metric of the loss, layouts of tokens and changes of basis, against queries and tokens."""

import numpy as np
import pytest

import token_form as tf
from ridgeformer import ConstRR, Full, LinearTransformer, Moments, OracleRR, Problem, evaluate, load, save
from ridgeformer.engine import Layout
from ridgeformer.errors import DamageError
from ridgeformer.models import file
from ridgeformer.problems import Gaussian
from support import refused
from token_form import GAMMA, LAMBDA, OTHER

D, N = 3, 6
LAYOUTS = [
    Layout(),
    Layout("mean"),
    Layout("sum", "constant"),
    Layout("mean", "constant"),
    Layout("mean", "length"),
    Layout("sum", "length"),
    Layout("sum", "none", 2),
    Layout("mean", "length", 1),
    Layout("mean", "constant", 2),
]
PROBLEMS = {
    "covariance": ({"features": LAMBDA}, tf.gaussian(LAMBDA)),
    "rotated": ({"features": "rotated(2,0.7,0.2)"}, tf.rotated([2, 0.7, 0.2])),
    "factors": ({"features": "factors(1)"}, tf.factors(1, 0.5)),
    "standardised": ({"features": "standardised(factors(1))"}, tf.standardised(tf.factors(1, 0.5))),
    "query": ({"features": LAMBDA, "query": OTHER}, tf.other_queries(tf.gaussian(LAMBDA), OTHER)),
}


def model_of(layout, kind="full", layers=2, seed=0):
    """A random model whose layers change tokens by a few tenths."""
    scale = 0.25 if layout.attention == "mean" else 0.25 / np.sqrt(N)
    return LinearTransformer.random(kind, dim=D, layers=layers, heads=2, scale=scale, seed=seed, layout=layout)


def calm_model(layout, context):
    """A step of gradient descent, with an intercept where the layout has one, and a little of everything else.

    Losses then have light tails, as statistics need them.
    """
    base = model_of(layout, layers=2, seed=3).family
    P, Q = 0.2 * base.arrays["P"], 0.2 * base.arrays["Q"]
    P[0, 0, -1, -1] -= 1.0
    Q[0, 0, :-1, :-1] += 0.4 * np.eye(Q.shape[-1] - 1)
    return LinearTransformer(Full(P, Q / (context if layout.attention == "sum" else 1)), layout=layout)


def tokens(features=PROBLEMS["covariance"][1], count=200, lengths=(N,), queries=3, seed=0):
    noise = lambda rng, count: 1.5 * rng.random(count)  # noqa: E731
    tasks = tf.gaussian_tasks(np.zeros(D), np.linalg.cholesky(GAMMA))
    return tf.simulate(count, D, list(lengths), noise, features, tasks, queries, seed)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_tokens_weights_and_intercepts_are_one_function(layout):
    model, t = model_of(layout), tokens()
    predicted = model.predict(t.x, t.y, t.queries)
    np.testing.assert_allclose(predicted[0], tf.predictions(model, t.x[0], t.y[0], t.queries[0]), atol=1e-9)
    moments = Moments.from_tokens(t.x, t.y)
    w, b = model.weights(moments), model.intercepts(moments)
    np.testing.assert_allclose(predicted, np.einsum("bmd,bd->bm", t.queries, w) + b[:, None], rtol=1e-10, atol=1e-10)
    assert b.any() == (layout.coordinate == "constant")
    assert np.abs(w).max() > 0.05


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_contexts_of_several_lengths_are_what_they_are_alone(layout):
    model, t = model_of(layout), tokens(lengths=(2, 4, 6))
    moments = Moments.from_tokens(t.x, t.y, t.n)
    w, b = model.weights(moments), model.intercepts(moments)
    for i in range(30):
        n = t.n[i]
        alone = model.predict(t.x[i, :n], t.y[i, :n], t.queries[i])
        np.testing.assert_allclose(t.queries[i] @ w[i] + b[i], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("metric", [None, LAMBDA, "own"], ids=str)
def test_losses_are_the_explicit_formula(layout, metric, any_engine):
    model, t = model_of(layout), tokens()
    moments = Moments.from_tokens(t.x, t.y)
    given = t.second * np.linspace(0.5, 2, 200)[:, None, None] if isinstance(metric, str) else metric
    e = model.weights(moments, engine=any_engine) - t.task
    b = model.intercepts(moments, engine=any_engine)
    weight = np.broadcast_to(np.eye(D) if given is None else given, (200, D, D))
    expected = 0.5 * (np.einsum("bi,bij,bj->b", e, weight, e) + b**2)
    found = model.evaluate(moments, t.task, metric=given, engine=any_engine)
    np.testing.assert_allclose(found.losses, expected, rtol=1e-10, atol=1e-12)
    assert found.loss == pytest.approx(expected.mean(), rel=1e-10)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("who", ["ridge", *LAYOUTS[:3]], ids=str)
def test_exact_and_query_losses_agree(name, who):
    problem = Problem(D, N + 6, "uniform(0,1.5)", tasks=Gaussian(covariance=GAMMA), **PROBLEMS[name][0])
    predictor = ConstRR(3.0) if who == "ridge" else calm_model(who, N + 6)
    exact = evaluate(problem, predictor, sequences=10_000, seed=1, with_floor=False)
    query = evaluate(problem, predictor, sequences=10_000, seed=1, estimator="query", with_floor=False)
    assert query.error > exact.error > 0
    assert abs(exact.loss - query.loss) < 5 * np.hypot(exact.error, query.error)
    assert abs(exact.unadjusted - query.unadjusted) < 5 * np.hypot(exact.unadjusted_error, query.unadjusted_error)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("layout", [LAYOUTS[1], LAYOUTS[3], LAYOUTS[7]], ids=str)
def test_losses_are_those_of_predictions_for_simulated_queries(name, layout):
    """Half the squared error of `predict` on tokens that NumPy drew, against `evaluate` on the engine's moments."""
    arguments, law = PROBLEMS[name]
    problem = Problem(D, N + 6, "uniform(0,1.5)", tasks=Gaussian(covariance=GAMMA), **arguments)
    model, t = calm_model(layout, N + 6), tokens(law, count=10_000, lengths=(N + 6,), queries=4, seed=2)
    answers = np.einsum("bmd,bd->bm", t.queries, t.task)
    losses = 0.5 * np.square(model.predict(t.x, t.y, t.queries) - answers).mean(1)
    for estimator in ("exact", "query"):
        found = evaluate(problem, model, sequences=10_000, seed=3, estimator=estimator, with_floor=False)
        error = np.hypot(found.unadjusted_error, losses.std() / np.sqrt(len(losses)))
        assert abs(found.unadjusted - losses.mean()) < 5 * error, estimator


@pytest.mark.parametrize("kind", ["gdpp", "diag", "full"])
@pytest.mark.parametrize(("old", "new"), [("sum", "mean"), ("mean", "sum")])
def test_attention_is_converted_for_one_length(kind, old, new):
    model = model_of(Layout(old), kind)
    other = model.to_attention(new, context=N)
    assert other.layout.attention == new
    for n in (N, N - 2):
        t = tokens(lengths=(n,))
        same, changed = model.predict(t.x, t.y, t.queries), other.predict(t.x, t.y, t.queries)
        if n == N:
            np.testing.assert_allclose(changed, same, rtol=1e-10, atol=1e-10)
        else:
            assert np.abs(changed - same).max() > 1e-3
    back = other.to_attention(old, context=N)
    np.testing.assert_allclose(back.P, model.P, rtol=1e-12)
    assert model.to_attention(old, context=3) is model


def transformed(moments, inverse, sigma=None):
    """The moments of the same sequences in the features z = inverse x, by hand."""
    D_ = np.eye(D + 1)
    D_[:D, :D] = inverse
    gram = D_ @ moments.gram @ D_.T
    sums = None if moments.sums is None else moments.sums @ D_.T
    return Moments((gram + np.swapaxes(gram, 1, 2)) / 2, moments.context, sigma, sums)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_whitening_is_a_change_of_basis_for_full(layout):
    """x = C z: the same losses on the whitened problem, isotropic features and tasks of covariance C'Gamma C."""
    C = np.linalg.cholesky(LAMBDA)
    problem = Problem(D, N, "uniform(0,1.5)", features=LAMBDA, tasks=Gaussian(covariance=GAMMA))
    drawn = problem.moments(300, seed=4, sums=True)
    white = transformed(drawn.moments, np.linalg.inv(C), drawn.sigma)
    # The oracle of the whitened problem, on its own: its adjusted loss is meant.
    prior = Gaussian(covariance=C.T @ GAMMA @ C).prior(D)
    oracle = OracleRR(prior).weights(white)
    np.testing.assert_allclose(oracle, drawn.ridge @ C, rtol=1e-9, atol=1e-9)
    model = model_of(layout)
    there = model.evaluate(drawn.moments, drawn.ridge, metric=drawn.metric).losses
    here = model.in_basis(C).evaluate(white, oracle).losses
    np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-10)
    unchanged = model.evaluate(white, oracle).losses
    assert np.abs(unchanged - there).max() > 1e-3


@pytest.mark.parametrize("kind", ["gdpp", "diag"])
@pytest.mark.parametrize("attention", ["sum", "mean"])
def test_diag_is_equivariant_under_rotation_but_not_under_whitening(kind, attention):
    drawn = Problem(D, N, "uniform(0,1.5)", features=LAMBDA, tasks=Gaussian(covariance=GAMMA)).moments(200, seed=5)
    model = model_of(Layout(attention), kind)
    before = model.evaluate(drawn.moments, drawn.ridge, metric=drawn.metric).losses
    R = np.linalg.qr(np.random.default_rng(2).standard_normal((D, D)))[0]
    rotated = transformed(drawn.moments, R)
    after = model.evaluate(rotated, drawn.ridge @ R.T, metric=R @ drawn.metric @ R.T).losses
    np.testing.assert_allclose(after, before, rtol=1e-10, atol=1e-12)
    C = np.linalg.cholesky(LAMBDA)
    white = model.evaluate(transformed(drawn.moments, np.linalg.inv(C)), drawn.ridge @ C).losses
    assert abs(white.mean() - before.mean()) > 0.01 * before.mean()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_files_keep_the_layout(layout, tmp_path):
    model, t = model_of(layout), tokens()
    save(model, tmp_path / "m")
    found = load(tmp_path / "m")
    assert (found.layout, found.dim) == (layout, D)
    np.testing.assert_array_equal(found.predict(t.x, t.y, t.queries), model.predict(t.x, t.y, t.queries))
    other = model.to_attention("mean" if layout.attention == "sum" else "sum", context=1)
    assert file.fingerprint(found) == file.fingerprint(model) != file.fingerprint(other)


@pytest.mark.parametrize("layout", [{"attention": "median"}, {"scratch": -1}, {"scratch": 2}, {}, "mean", None])
def test_a_damaged_layout_is_an_error(layout, tmp_path, monkeypatch):
    """Written with a right checksum: the layout itself is what is wrong."""
    monkeypatch.setattr(file, "asdict", lambda given: layout)
    model = model_of(Layout("mean", "length"))
    save(model, tmp_path / "m")
    monkeypatch.undo()
    refused(lambda: load(tmp_path / "m"), "a model file must be one that ridgeformer saved", DamageError)
