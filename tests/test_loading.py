"""One name for every model: a file, the folder of a run, or a shipped model, in Python and on the command line."""

from pathlib import Path

import numpy as np

from ridgeformer import Problem, Training, load, save, train, zoo
from ridgeformer.loading import with_record
from ridgeformer.training import Search
from support import each, refused, tame_model


def test_files_folders_and_shipped_models_are_loaded_by_one_function(tmp_path):
    model = tame_model("full", 3, 2, 1, 6)
    save(model, tmp_path / "model.safetensors")
    for name in (tmp_path / "model.safetensors", str(tmp_path / "model.safetensors")):
        np.testing.assert_array_equal(load(name).P, model.P)
    problem = Problem(2, 4, "fixed(1)")
    run = train(problem, "gdpp", 1, protocol=Search(effort=0.1), sequences=200, out=tmp_path / "runs")
    np.testing.assert_array_equal(load(run.folder).P, run.model.P)
    assert with_record(run.folder)[1]["spec"] == Training.load(run.folder).spec.as_dict()
    shipped, record = with_record("zoo:diag/7/uniform(0,5)/3")
    assert shipped is zoo.shipped().models[("diag", 7, "uniform(0,5)"), 3]
    assert record["spec"]["seed"] == 3
    best = zoo.shipped().best("diag", 7, "uniform(0,5)")
    assert load("zoo:diag/7/uniform(0,5)") is load(f"zoo:diag/7/uniform(0, 5)/{best}")


@each(
    (None, "a model needs the name of a file; got None. Pass a path such as model.safetensors."),
    ("", "a model needs the name of a file; got ''"),
    (Path("."), "a model needs the name of a file; got '.'"),
    ("missing", "there is no file 'missing'. Give a .safetensors file, the folder of a run, or a model of the zoo"),
    ("{empty}", "a model is a file or the folder of a run; "),
    ("zoo:diag/7", "a model of the zoo is named zoo:FAMILY/LAYERS/NOISE or zoo:FAMILY/LAYERS/NOISE/SEED; got "),
    ("zoo:diag/11/uniform(0,5)", "layers must be one of 1, 2, 3, 4, 5, 6, 7; got 11"),
)
def test_other_names_are_refused_in_words(name, words, tmp_path):
    refused(lambda: load(str(tmp_path) if name == "{empty}" else name), words)
