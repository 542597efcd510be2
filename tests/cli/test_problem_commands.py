"""General problems on the command line: options, and the commands problem and eval."""

import json

import numpy as np
import pytest

from own_problems import HeavyTails
from ridgeformer import Layout, LinearTransformer, Problem, Training, evaluate, save, train
from ridgeformer.predictors import baselines
from ridgeformer.training import Search
from support import each

LAW = ["--noise", "uniform(0,2)", "--dim", "3"]
FEW = ["--sequences", "300"]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run on a general problem with one context length."""
    problem = Problem(3, 8, "uniform(0,2)", features="powerlaw(1)", tasks="lowrank(2)", query="powerlaw(2)")
    out = tmp_path_factory.mktemp("runs")
    return train(problem, "diag", 1, protocol=Search(effort=0.1), sequences=300, out=out).folder


@each(
    ([], Problem(3, 20, "uniform(0,2)")),
    (["--context", "4..8"], Problem(3, "4..8", "uniform(0,2)")),
    (["--context", "4,8"], Problem(3, [4, 8], "uniform(0,2)")),
    (["--features", "factors(1)", "--context", "6"], Problem(3, 6, "uniform(0,2)", features="factors(1)")),
    (["--tasks", "pool(4)"], Problem(3, 20, "uniform(0,2)", tasks="pool(4)")),
    (["--query", "powerlaw(1)"], Problem(3, 20, "uniform(0,2)", query="powerlaw(1)")),
    (["--query", "none", "--tasks", "gaussian()"], Problem(3, 20, "uniform(0,2)")),
)
def test_baselines_are_those_of_the_problem(options, problem, call):
    code, out, err = call("problem", *LAW, *options, *FEW, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["problem"] == str(problem)
    names = [result["name"] for result in found["results"]]
    assert names == list(baselines(problem)[0])
    assert names[-1] == ("DMMSE" if problem.has_pool else "Bayes floor")
    best = evaluate(problem, problem.best_predictor(), sequences=300)
    assert found["results"][-1]["loss"] == pytest.approx(best.loss, rel=1e-9)


def test_baselines_say_what_they_leave_out(call):
    text = call("problem", *LAW, "--context", "3..6", *FEW)[1]
    assert "needs n > 3 examples, and n is 3..6." in text
    assert "IterativeRR is left out: it assumes that features" in text
    assert "and n is fixed; here n is 3..6." in text
    assert "TunedRR  " not in text
    assert "left out: they" not in call("problem", *LAW, "--context", "3..6", "--tasks", "lowrank(2)", *FEW)[1]


def test_train_takes_a_problem_and_a_layout(call, tmp_path):
    small = ["--layers", "1", "--effort", "0.1", "--quiet", "--json", *FEW, "--out", tmp_path]
    law = ["--context", "4..8", "--features", "powerlaw(1)"]
    code, out, err = call("train", *LAW, *law, "--family", "full", *small)
    assert code == 0, err
    found = Training.load(json.loads(out)["folder"]).spec
    assert found.problem == Problem(3, "4..8", "uniform(0,2)", features="powerlaw(1)")
    assert found.layout == Layout("mean", "length")
    named = ["--attention", "sum", "--coordinate", "constant", "--scratch", "1"]
    code, out, err = call("train", *LAW, *law, "--family", "full", *named, *small)
    assert code == 0, err
    assert Training.load(json.loads(out)["folder"]).spec.layout == Layout("sum", "constant", 1)
    assert Training.load(json.loads(out)["folder"]).model.layout == Layout("sum", "constant", 1)
    code, out, err = call("train", *LAW, "--family", "channels(1,3)", "--coordinate", "constant", *small)
    assert code == 0, err
    spec = Training.load(json.loads(out)["folder"]).spec
    assert spec.layout == Layout("sum", "constant", 1)  # channels have room for 2
    listed = [line for line in call("runs", tmp_path)[1].splitlines() if " full-1x1-" in line]  # not where they began
    assert [line.count("features=powerlaw(1)") for line in listed] == [1, 1]


def test_commands_on_a_model_use_the_problem_of_its_record(call, run_folder):
    problem = Training.load(run_folder).spec.problem
    found = json.loads(call("eval", run_folder, *FEW, "--json")[1])
    assert found["problem"] == str(problem)
    expected = evaluate(problem, Training.load(run_folder).model, sequences=300)
    assert found["results"][0]["loss"] == pytest.approx(expected.loss, rel=1e-9)
    assert found["results"][0]["floor"] == pytest.approx(expected.floor, rel=1e-9)
    other = json.loads(call("eval", run_folder, *FEW, "--query", "none", "--noise", "fixed(1)", "--json")[1])
    assert other["problem"] == str(problem.replace(query=None, noise=1))
    assert "features=powerlaw(1) tasks=lowrank(2) query=powerlaw(2)" in call("export", run_folder)[1]
    pool = call("explain", run_folder, "--tasks", "pool(4)", "--context", "5..8", *FEW, "--numbers")[1]
    assert "OLS to oracle" in pool
    assert "|w - w_oracle|^2" in pool
    explained = json.loads(call("explain", run_folder, "--tasks", "gaussian()", *FEW, "--json")[1])
    assert explained["problem"] == str(problem.replace(tasks=None))


@pytest.mark.parametrize("law", ["--tasks=sparse(1)", "--noise=student(4,1)", "--noise=tokens(uniform(0,2))"])
def test_sparse_tasks_and_noise_of_tokens_are_laws_for_every_command(call, run_folder, tmp_path, law):
    """The floor is the smallest loss; where tokens differ in noise, the bound of the Gram matrix lies above it."""
    name, text = law.removeprefix("--").split("=")
    options = [*LAW, "--context", "6", "--sequences", "200", law]
    rows = {row["name"]: row for row in json.loads(call("problem", *options, "--json")[1])["results"]}
    assert rows["Bayes floor"]["loss"] == min(row["loss"] for key, row in rows.items() if not key.startswith("Oracle"))
    assert ("Gram bound" in rows) == (name == "noise")
    found = json.loads(call("eval", run_folder, law, *FEW, "--json")[1])
    assert f"{text}" in found["problem"]
    assert 0 < found["results"][0]["floor"] < found["results"][0]["loss"]
    assert json.loads(call("explain", run_folder, law, *FEW, "--json")[1])["problem"] == found["problem"]
    arguments = ["--family", "gdpp", "--layers", "1", "--effort", "0.1", "--out", str(tmp_path)]
    code, out, err = call("train", *options, *arguments, "--json")
    assert code == 0, err
    assert text in str(Training.load(json.loads(out)["folder"]).spec.problem)


def test_ridge_regression_that_knows_sigma_is_not_called_the_oracle_of_a_pool(call):
    text = call("problem", *LAW, "--tasks", "pool(4)", *FEW)[1]
    assert "\nOracleRR (Gaussian prior)  " in text
    assert "is told sigma but not the law of the tasks" in text
    assert "Gaussian prior" not in call("problem", *LAW, *FEW)[1]


def test_problem_says_what_it_is(call, tmp_path):
    law = [*LAW, "--features", "powerlaw(1)", "--context", "4..8"]
    code, text, err = call("problem", *law, *FEW, "--plot", tmp_path / "problem.png")
    assert code == 0, err
    for words in ("x has independent coordinates", "w is N(0, I)", "n is one of the 5 numbers 4..8", "signal      3: "):
        assert words in text
    assert "The best estimates W b, with b = sum y x" in text
    assert "Bayes floor" in text
    assert (tmp_path / "problem.png").stat().st_size > 10_000
    found = json.loads(call("problem", *law, *FEW, "--json")[1])
    assert found["signal"] == pytest.approx(3)
    assert found["one_layer"]["unadjusted"] > found["oracle"]["loss"] > 0
    assert set(found["words"]) == {"features", "tasks", "context", "noise", "query"}
    assert found["left_out"]
    drawn = json.loads(call("problem", *LAW, "--features", "rotated(powerlaw(1))", *FEW, "--json")[1])
    assert drawn["one_layer"] is None
    text = call("problem", *LAW, "--features", "factors(1)", *FEW)[1]
    assert "There is no closed form" in text
    assert "from 1 common factor, with" in text
    assert "d=3 n=20 fixed(1)" in call("problem", "--noise", "1", "--dim", "3", *FEW, "--json")[1]
    text = call("problem", *LAW, "--features", "standardised()", "--context", "3", *FEW)[1]
    assert "predicting 0 has an infinite unadjusted loss" in " ".join(text.split())


def test_shifts_are_evaluated_as_other_problems(call, run_folder):
    arguments = ["eval", run_folder, *FEW, "--over", "noise=0.5,uniform(0,1),uniform(0,4)"]
    code, text, err = call(*arguments)
    assert code == 0, err
    assert "d=3 n=8 uniform(0,2) features=powerlaw(1)" in text
    rows = json.loads(call(*arguments, "--json")[1])["results"]
    assert [row["noise"] for row in rows] == [0.5, "uniform(0,1)", "uniform(0,4)"]
    problem = Training.load(run_folder).spec.problem
    expected = evaluate(problem.replace(noise="uniform(0,4)"), Training.load(run_folder).model, sequences=300)
    assert rows[2]["loss"] == pytest.approx(expected.loss, rel=1e-9)
    assert rows[2]["floor"] == pytest.approx(expected.floor, rel=1e-9)
    for axis, count in (("context=4;6..9", 2), ("tasks=pool(3);gaussian()", 2), ("query=none;powerlaw(1)", 2)):
        code, out, err = call("eval", run_folder, *FEW, "--over", axis, "--json")
        assert code == 0, err
        assert len(json.loads(out)["results"]) == count
    prefixes = json.loads(call("eval", run_folder, "--over", "context=2,4,9", *FEW, "--json")[1])
    assert prefixes["axes"]["context"] == [2, 4, 9]
    everything = json.loads(call("eval", run_folder, "--over", "context", *FEW, "--json")[1])
    assert everything["axes"]["context"] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_run_on_a_problem_of_ones_own_is_evaluated_with_its_context(call, tmp_path):
    found = train(HeavyTails(context=6), "gdpp", 1, protocol=Search(effort=0.1), sequences=300, out=tmp_path)
    assert "a problem of your own. Name a built-in one with --noise" in call("eval", found.folder)[2]
    assert "dim=3 context=6" in call("runs", tmp_path)[1]
    code, out, err = call("eval", found.folder, "--noise", "uniform(0,1)", *FEW, "--json")
    assert code == 0, err
    assert json.loads(out)["problem"] == "d=3 n=6 uniform(0,1)"
    assert "was trained for heavy-tails(dim=3,context=6,freedom=3" in " ".join(
        call("eval", found.folder, "--noise", "uniform(0,1)", *FEW)[1].split()
    )
    # Also where the class is not known, as in a new process.
    spec = {"problem": "unknown-here", "arguments": {"dim": 3, "context": [5, 7]}}
    save(found.model, tmp_path / "model.safetensors", record={"spec": spec})
    out = call("eval", tmp_path / "model.safetensors", "--noise", "uniform(0,1)", *FEW, "--json")[1]
    assert json.loads(out)["problem"] == "d=3 n=5,7 uniform(0,1)"


@pytest.mark.parametrize("family", ["diag", "full"])
def test_what_is_exported_of_attention_by_mean_is_for_one_number_of_examples(call, family, tmp_path):
    model = LinearTransformer.random(family, dim=3, layers=2, scale=0.05, layout=Layout("mean"), seed=1)
    save(model, tmp_path / "mean.safetensors")
    unknown = "this model was trained on n = an unknown number. Add --context 20"
    assert unknown in call("export", tmp_path / "mean.safetensors")[2]
    drawn = Problem(3, 10, 1).sequences(2)
    expected = model.predict(drawn.x, drawn.y, drawn.queries)
    for to in ("python", "torch", "latex"):
        code, source, err = call("export", tmp_path / "mean.safetensors", "--context", 10, "--to", to)
        assert code == 0, err
        assert "valid for contexts of exactly n = 10 examples" in source
        if to == "python":
            space = {}
            exec(source, space)
            np.testing.assert_allclose(space["predict"](drawn.x, drawn.y, drawn.queries), expected, rtol=1e-9)
            with pytest.raises(ValueError, match="of exactly n = 10 examples; got 9"):
                space["predict"](drawn.x[:, 1:], drawn.y[:, 1:], drawn.queries)
    assert "ValueError" not in call("export", "zoo:diag/2/uniform(0,1)")[1]
