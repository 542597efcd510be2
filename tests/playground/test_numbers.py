"""The core in the browser gives the numbers of the core in Python, bit for bit; the predictors of the page to 1e-9."""

import numpy as np
import pytest

from ridgeformer import AdaRR, BayesRR, ConstRR, LeastSquares, Problem, engine, evaluate, load
from ridgeformer.engine import Key, Omegas

STREAM = 1 << 30  # that of `evaluate`, which the page draws from too
ASK = """async (given) => {
    const found = await playground.engine.ask("check", given);
    return JSON.parse(JSON.stringify(found, (_, x) => ArrayBuffer.isView(x) ? Array.from(x) : x));
}"""
NAMES = ["zoo:diag/7/uniform(0,5)", "zoo:gdpp/3/categorical(1,3)", "zoo:diag/1/uniform(0,2)"]


def omegas(model):
    return np.asarray(model.kernel.omega, np.float64).reshape(-1, 4)


def check(tab, problem, omega, precision, size=300, seed=0):
    given = {"d": problem.dim, "n": problem.context, "noise": str(problem.noise), "omega": omega.tolist(), "seed": seed}
    return tab.evaluate(ASK, {**given, "size": size, "precision": precision})


@pytest.mark.parametrize("precision", ["float", "double"])
@pytest.mark.parametrize(
    ("d", "n", "noise"), [(10, 20, "uniform(0,5)"), (3, 7, "categorical(1,3)"), (5, 3, "fixed(2)")]
)
def test_losses_and_gradients_are_those_of_the_baseline_engine(visit, precision, d, n, noise):
    """WebAssembly has vectors of 128 bits and no fused products, as the baseline on x86-64, so bits are the same."""
    tab, dtype = visit("view=chapters"), {"float": np.float32, "double": np.float64}[precision]
    problem, omega = Problem(d, n, noise), omegas(load(NAMES[0]))
    found = check(tab, problem, omega, precision, seed=3)
    baseline, key = engine.named("baseline"), Key(3, STREAM, 0)
    choices = problem.choices(300, seed=3, stream=STREAM)
    step = baseline.step(Omegas(omega.reshape(-1, 2, 2).astype(dtype)), problem.law, choices, key, unadjusted=True)
    np.testing.assert_array_equal(found["sigma"], choices.sigma)
    for name, expected in (("losses", step.losses), ("unadjusted", step.unadjusted)):
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(np.array(found[name], float)[finite], expected[finite].astype(float), name)
    np.testing.assert_array_equal(found["gradient"], step.gradient[0].ravel())
    draw = baseline.sample(problem.law, choices, key, dtype=dtype)
    stored = baseline.evaluate(Omegas(omega.reshape(-1, 2, 2).astype(dtype)), draw.gram, draw.ridge, weights=True)
    np.testing.assert_array_equal(found["stored"]["gradient"], stored.gradient[0].ravel())
    estimates = np.array(found["stored"]["estimates"], float).reshape(d, -1).T
    np.testing.assert_array_equal(estimates[finite], stored.weights[finite].astype(float))


def test_the_two_halves_of_a_training_step_are_one_batch_of_the_baseline_engine(visit):
    """Two workers compute a step. Both halves are sums in float64, so only the order of the sums differs."""
    tab, problem, omega = visit("view=chapters"), Problem(10, 20, "uniform(0,5)"), omegas(load(NAMES[0]))
    given = {"problem": {"d": 10, "n": 20, "noise": "uniform(0,5)"}, "omega": omega.tolist()}
    ask = "async (given) => (({ loss, gradient }) => [loss, ...gradient])(await playground.engine.ask('half', given))"
    keys = [{"seed": 3, "step": 5, "second": second} for second in (False, True)]
    found = np.mean([tab.evaluate(ask, {**given, "key": key}) for key in keys], axis=0)
    choices = problem.choices(2048, seed=3, stream=0, step=5)
    kernel = Omegas(omega.reshape(-1, 2, 2).astype(np.float32))
    step = engine.named("baseline").step(kernel, problem.law, choices, Key(3, 0, 5), ceiling=10.0)
    assert found[0] == pytest.approx(step.losses.mean(dtype=np.float64), rel=1e-12)
    np.testing.assert_allclose(
        found[1:], step.gradient[0].ravel(), rtol=1e-12, atol=1e-12 * np.abs(step.gradient).max()
    )


@pytest.mark.parametrize(
    ("d", "n", "noise"), [(10, 20, "uniform(0,5)"), (2, 10, "categorical(1,3)"), (6, 4, "uniform(1,3)")]
)
def test_the_predictors_of_the_page_are_those_of_python(visit, d, n, noise):
    problem = Problem(d, n, noise)
    found = check(visit("view=chapters"), problem, omegas(load(NAMES[2])), "double")
    draw = problem.moments(300, seed=0, stream=STREAM)
    predictors = {"bayes": BayesRR(noise), "least": LeastSquares(), "constant": ConstRR.tune(problem)}
    if n > d:
        predictors["adaptive"] = AdaRR()
    for name, predictor in predictors.items():
        np.testing.assert_allclose(found[name], predictor.weights(draw.moments), rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_loss_and_floor_are_those_of_evaluate(visit, name):
    """The page draws the sequences that `evaluate` draws; engines differ by rounding."""
    noise, model = name.split("/")[-1], load(name)
    tab = visit("view=chapters")
    given = {"d": 10, "n": 20, "noise": noise, "omega": omegas(model).tolist(), "size": 2048}
    found = tab.evaluate("(given) => playground.engine.ask('losses', given)", given)
    expected = evaluate(Problem(10, 20, noise), model, sequences=2048)
    assert found["loss"] == pytest.approx(expected.loss, rel=1e-9)
    assert found["error"] == pytest.approx(expected.error, rel=1e-3)  # n and n - 1
    assert found["floor"] == pytest.approx(expected.floor, rel=1e-9)
    assert found["unadjusted"] == pytest.approx(expected.unadjusted, rel=1e-9)
    assert found["exploded"] == expected.exploded
    assert found["byLayer"][-1]["loss"] == found["loss"]
