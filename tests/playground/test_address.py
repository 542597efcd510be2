"""Models in the address of the page, read by Python alone."""

import numpy as np
import pytest

from ridgeformer import (
    AdaRR,
    BayesRR,
    ConstRR,
    Diag,
    Full,
    GDpp,
    LeastSquares,
    LinearTransformer,
    Problem,
    engine,
    evaluate,
    load,
    zoo,
)
from ridgeformer.engine import Key, Layout, Omegas
from ridgeformer.noise import Categorical
from ridgeformer.playground import address, is_address, page, read_address, write_page
from ridgeformer.playground.links import _models
from support import each, refusals


@each(
    ("d=3&n=7&omega=1e-2,0.5,-0.03,-4;0,0,-0.1,2", Diag, 3, [[1e-2, 0.5, -0.03, -4], [0, 0, -0.1, 2]]),
    ("omega=1,2,3,4;5,6,7,8&off=1.xy,2.yy", Diag, 10, [[1, 0, 3, 4], [5, 6, 7, 0]]),
    ("family=gdpp&d=2&omega=-0.01,0,-0.03,0", GDpp, 2, [[-0.01, 0, -0.03, 0]]),
)
def test_an_address_is_a_model_whose_terms_that_are_off_are_zero(text, family, dim, omega):
    for model in (load(f"file:///tmp/page.html#view=explore&noise=uniform(0,5)&{text}"), read_address(text)):
        assert (type(model.family), model.dim) == (family, dim)
        np.testing.assert_array_equal(omegas(model), omega)


test_other_texts_are_refused = refusals(
    ("#d=10", "omega=xx,xy,yx,yy"),
    ("#omega=1,2,3", "four numbers per layer"),
    ("#omega=1,2,3,x", "four numbers per layer"),
    ("#omega=1,2,3,4&d=0", "from 1 to 20"),
    ("#omega=1,2,3,4&family=full", "diag or gdpp"),
    ("#omega=1,2,3,4&family=gdpp", "xy = yy = 0"),
    ("#omega=1,2,3,4&off=2.xx", "such as 2.xy"),
    ("#omega=1,2,3,nan", "finite"),
    (7, "a text"),
    by=lambda text: read_address(text),
)


@each("zoo:diag/4/uniform(0,5)", "zoo:gdpp/3/categorical(1,3)", "zoo:d=1/diag/3/uniform(0,2)")
def test_the_address_of_a_model_is_read_back(name):
    model, noise = load(name), name.split("/")[-1]
    text = address(Problem(model.dim, 10, noise), model)
    assert f"n=10&noise={noise}&" in text
    again = load(f"https://x#{text}")
    assert (type(again.family), again.dim) == (type(model.family), model.dim)
    np.testing.assert_array_equal(again.kernel.omega, model.kernel.omega)


def test_the_page_shows_what_the_address_says(visit):
    omega = [[[1e-5, -1e-17], [-0.03, 1 / 3]], [[0, 2e22], [-0.5, 1e-300]]]
    tab = visit(address(Problem(3, 7, "categorical(1,0.25)"), LinearTransformer(Diag(omega=omega), dim=3)))
    state = tab.evaluate("playground.store.state")
    assert [state[name] for name in ("d", "n", "noise", "family")] == [3, 7, "categorical(1,0.25)", "diag"]
    np.testing.assert_array_equal(np.reshape(state["omega"], (2, 2, 2)), omega)


def one_layer(family=Diag, dim=10, layers=1, **more):
    return LinearTransformer(family.random(dim, layers, 1, 0.01, np.random.default_rng(0)), dim, **more)


test_what_the_page_cannot_show_is_refused = refusals(
    ("uniform(0,5)", one_layer(), "needs a Problem; got a str"),
    (Problem(10, 20, 1), "model", "families diag and gdpp; got a str"),
    (Problem(10, 20, 1), one_layer(Full), "families diag and gdpp"),
    (Problem(5, 20, 1), one_layer(), "the dimension of the problem, 5; got 10"),
    (Problem(10, 20, 1), one_layer(layout=Layout("mean")), "to_attention('sum', context=n)"),
    (Problem(10, 20, 1), one_layer(layers=11), "at most 10 layers; got 11"),
    (Problem(21, 20, 1), one_layer(dim=21), "d up to 20"),
    (Problem(10, 101, 1), one_layer(), "one n up to 100"),
    (Problem(10, "10..20", 1), one_layer(), "one n up to 100"),
    (Problem(10, 20, 101), one_layer(), "up to 100"),
    (Problem(10, 20, "student(4,1)"), one_layer(), "noise such as uniform(0,5)"),
    (Problem(10, 20, "categorical(1,3,weights=(0.1,0.9))"), one_layer(), "noise such as uniform(0,5)"),
    (Problem(10, 20, Categorical(range(13))), one_layer(), "noise such as uniform(0,5)"),
    (Problem(10, 20, 1, features="powerlaw(1)"), one_layer(), "normal features and tasks"),
    by=address,
)


def test_only_addresses_look_like_one():
    assert is_address("#omega=0,0,0,0")
    assert not any(map(is_address, ["model.safetensors", "omega=1", "a#b", None, 3]))


def test_the_page_is_one_file(tmp_path):
    text = page()
    assert len(text.encode()) < 3e6
    assert "{{" not in text[:2000]
    assert not any(mark in text for mark in ('src="http', "src='http", 'href="http', "@import"))
    path = write_page(tmp_path / "page.html")
    assert path.read_text() == text


def test_the_page_offers_the_small_models_of_the_zoo():
    offered = {model["name"]: model for model in _models()}
    for dim in (1, 2):
        for name in (name for name in zoo.further_models() if name.startswith(f"zoo:d={dim}/")):
            model, expected = offered[name.removeprefix("zoo:").replace("/", ": ", 1)], load(name)
            assert (model["d"], model["n"], len(model["omega"])) == (dim, 10, expected.layers)
            expected = expected.kernel[0]
            np.testing.assert_array_equal(np.reshape(model["omega"], (-1, 2, 2)), expected)


# ---- The core in the browser gives the numbers of the core in Python, bit for bit; the predictors of


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
@each((10, 20, "uniform(0,5)"), (3, 7, "categorical(1,3)"), (5, 3, "fixed(2)"))
def test_losses_and_gradients_are_those_of_the_baseline_engine(d, n, noise, visit, precision):
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
    np.testing.assert_allclose(found[1:], step.gradient[0].ravel(), atol=1e-12 * np.abs(step.gradient).max())


@each((10, 20, "uniform(0,5)"), (2, 10, "categorical(1,3)"), (6, 4, "uniform(1,3)"))
def test_the_predictors_of_the_page_are_those_of_python(d, n, noise, visit):
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
