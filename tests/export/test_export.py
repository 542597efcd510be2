"""What is exported is run, and compared with the token form."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from frameworks_models import Halves
from ridgeformer import Diag, Full, GDpp, Layout, LinearTransformer, Moments, Problem, load, save, train
from ridgeformer.errors import RidgeformerError
from ridgeformer.export import FORMATS, export, write
from ridgeformer.models.family import FAMILIES, known_families
from ridgeformer.training import Search
from support import refusals, tame_model

MODELS = {
    "kind": st.sampled_from(["full", "diag", "gdpp", "diag omega", "gdpp omega", "full of diag"]),
    "dim": st.integers(1, 6),
    "context": st.integers(1, 9),
    "layers": st.integers(1, 7),
    "heads": st.integers(1, 3),
    "seed": st.integers(0, 99),
}


def model_of(kind, dim, layers, heads, context, seed=0):
    name, *form = kind.split()
    if form == ["of", "diag"]:
        return tame_model("diag", dim, layers, heads, context, seed).to_full()
    model = tame_model(name, dim, layers, heads, context, seed)
    if form == ["omega"]:
        omega = model.family.omega
        return LinearTransformer(Diag(omega=omega) if name == "diag" else GDpp(omega=omega[:, :, 0]), dim)
    return model


def sequences(model, context, noise="uniform(0,1)", seed=0):
    s = Problem(model.dim, context, noise).sequences(5, seed=seed, queries=3)
    return s.x, s.y, s.queries


def run(source):
    """Executed in a namespace of its own. `compile` and the modules it imports must not warn either."""
    space = {"__name__": "exported"}
    exec(compile(source, "exported.py", "exec"), space)
    return space


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a trained model."""
    out, problem = tmp_path_factory.mktemp("runs"), Problem(3, 6, "uniform(0,3)")
    return train(problem, "diag", 2, protocol=Search(effort=0.1), sequences=2000, out=out).folder


def assert_close_in_float64(model, inputs, found):
    """1e-12 of the largest prediction: 4,000 roundings, far more than any of these sums has in a row."""
    truth = model.predict(*inputs)
    assert found.shape == truth.shape
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12 * np.abs(truth).max())


def assert_close_in_float32(model, inputs, found):
    """1e-6, 16 roundings of float32, of the largest prediction that any layer's readout makes: later layers may cancel
    what earlier ones have added.

    What cancels within a layer is measured: rounding the parameters and the inputs, and nothing else, moves the truth
    too. No format in float32 can do better than that, and these stay within a few times of it.
    """
    truth = model.predict(*inputs)
    rounded = [np.asarray(value, np.float32).astype(np.float64) for value in inputs]
    moved = np.abs(model.astype(np.float32).astype(np.float64).predict(*rounded) - truth).max()
    assert found.shape == truth.shape
    assert found.dtype == np.float32
    scale = np.abs(model.tokens(*inputs)[:, :, inputs[0].shape[1] :, -1]).max()
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-6 * scale + 4 * moved)


@given(**MODELS)
def test_python_is_the_token_form(kind, dim, context, layers, heads, seed):
    model = model_of(kind, dim, layers, heads, context, seed)
    inputs = sequences(model, context, seed=seed)
    module = run(export(model))
    assert_close_in_float64(model, inputs, module["predict"](*inputs))
    x, y, queries = (value[0] for value in inputs)
    assert_close_in_float64(model, [value[:1] for value in inputs], module["predict"](x, y, queries)[None])
    one = module["predict"](x.tolist(), y.tolist(), queries[0].tolist())
    assert np.shape(one) == ()
    assert one == pytest.approx(module["predict"](x, y, queries)[0], rel=1e-12)
    w = module["weights"](*inputs[:2])
    truth = model.weights(Moments.from_tokens(*inputs[:2]))
    np.testing.assert_allclose(w, truth, rtol=0, atol=1e-12 * np.abs(truth).max())


def assert_is_exported(model, inputs, formats=("python", "float32", "float64", "onnx")):
    """What is exported predicts as the token form: NumPy, PyTorch in two dtypes, and ONNX."""
    if "python" in formats:
        assert_close_in_float64(model, inputs, run(export(model))["predict"](*inputs))
    for name in {"float32", "float64"} & set(formats):
        torch = pytest.importorskip("torch")
        dtype, close = getattr(torch, name), globals()[f"assert_close_in_{name}"]
        module = run(export(model, "torch"))["LinearTransformer"](dtype)
        close(model, inputs, module.predict(*(torch.tensor(v, dtype=dtype) for v in inputs)).detach().numpy())
    if "onnx" in formats:
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(export(model, "onnx"), providers=["CPUExecutionProvider"])
        feed = dict(zip(("X", "y", "x_query"), (value.astype(np.float32) for value in inputs), strict=True))
        assert_close_in_float32(model, inputs, session.run(["prediction"], feed)[0])


@settings(max_examples=20)
@given(**MODELS)
def test_onnx_is_the_token_form(kind, dim, context, layers, heads, seed):
    reference = pytest.importorskip("onnx.reference")
    model = model_of(kind, dim, layers, heads, context, seed)
    inputs = sequences(model, context, seed=seed)
    feed = {name: value.astype(np.float32) for name, value in zip(("X", "y", "x_query"), inputs, strict=True)}
    prediction, weights = reference.ReferenceEvaluator(export(model, "onnx")).run(None, feed)
    assert_close_in_float32(model, inputs, prediction)
    units = np.broadcast_to(np.eye(dim), (5, dim, dim))  # their predictions are w
    assert_close_in_float32(model, (*inputs[:2], units), weights)


@pytest.mark.parametrize("kind", ["full", "diag", "gdpp omega"])
def test_onnx_runs_in_the_runtime_with_any_lengths(kind):
    runtime = pytest.importorskip("onnxruntime")
    model = model_of(kind, 4, 5, 2, 9)
    session = runtime.InferenceSession(export(model, "onnx", about="Remark."), providers=["CPUExecutionProvider"])
    shapes = ["batch", "context", 4], ["batch", "context"], ["batch", "queries", 4]
    assert tuple(i.shape for i in session.get_inputs()) == shapes
    for context in (1, 9):
        assert_is_exported(model, sequences(model, context), ["onnx"])
    assert session.get_modelmeta().producer_name == "ridgeformer"
    assert session.get_modelmeta().description.endswith("for d = 4. Remark.")


def test_python_needs_nothing_but_numpy(tmp_path):
    """In a process that cannot import ridgeformer."""
    model = tame_model("full", 3, 2, 2, 5)
    inputs = sequences(model, 5)
    (tmp_path / "exported.py").write_text(export(model))
    np.savez(tmp_path / "inputs.npz", *inputs)
    code = (
        "import sys; sys.modules['ridgeformer'] = None\n"
        "import numpy as np, exported\n"
        "inputs = np.load('inputs.npz')\n"
        "np.save('found.npy', exported.predict(*(inputs[name] for name in inputs.files)))\n"
        "print(*sorted(name for name in sys.modules if sys.modules[name] and name.startswith('ridgeformer')))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    assert_close_in_float64(model, inputs, np.load(tmp_path / "found.npy"))


@pytest.mark.parametrize("kind", [*MODELS["kind"].elements, "channels(1,3)", "looped(channels(2,2),2)", "registers(2)"])
@pytest.mark.parametrize("heads", [1, 3])
def test_sources_are_clean(kind, heads, tmp_path):
    for to in ("python", "torch"):
        source = export(model_of(kind, 10, 7, heads, 20), to, about="Trained on something; " * 20)
        assert max(map(len, source.splitlines())) <= 120
        assert "ridgeformer" not in source
        (tmp_path / f"{to}.py").write_text(source)
    rules = "E,F,W,I,B,UP,SIM,NPY,C4,PIE,RET"
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", rules]
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--diff", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_python_of_a_small_model_reads_like_its_algorithm():
    model = LinearTransformer(Diag(omega=[[[0.25, 0], [-0.5, 0]], [[0, 0], [-0.1, 0]]]), dim=2)
    source = export(model, about='Says """ and \\ and\na second line')
    assert "    (0.25, -0.5),  # layer 1\n    (0.0, -0.1),  # layer 2\n" in source
    assert "for xx, yx in LAYERS:" in source
    assert "xy" not in source
    assert "\nSays and and a second line\n" in re.sub(" +", " ", source)
    assert "for (yx,) in LAYERS:" in export(LinearTransformer(GDpp(omega=[[0, -0.5]]), dim=2))
    nothing = run(export(LinearTransformer(GDpp(omega=[[0, 0]]), dim=2)))
    assert (nothing["weights"]([[1.0, 2.0]], [3.0]) == 0).all()


def test_numbers_read_back_exactly():
    rng = np.random.default_rng(0)
    omega = rng.normal(size=(3, 2, 2)) * 10.0 ** rng.integers(-30, 30, size=(3, 2, 2))
    assert np.array_equal(run(export(LinearTransformer(Diag(omega=omega), 4)))["LAYERS"], omega.reshape(3, 4))
    P, Q = rng.normal(size=(2, 3, 2, 9, 9)) * 10.0 ** rng.integers(-30, 30, size=(2, 3, 2, 9, 9))
    module = run(export(LinearTransformer(Full(P, Q))))
    assert np.array_equal(module["P"], P)
    assert np.array_equal(module["Q"], Q)
    single = np.float32(0.1)
    model = LinearTransformer(GDpp(omega=np.full((1, 2), single, np.float32)), 2)
    assert run(export(model))["LAYERS"] == [(float(single), float(single))]


def model_with_room(name, layers=2, heads=2):
    """A random model of any family, by its name; with two scratch coordinates if the family is Full."""
    layout = Layout(scratch=2) if name == "full" else Layout()
    return LinearTransformer.random(name, dim=3, layers=layers, heads=heads, scale=0.2, context=30, layout=layout)


EVERY_FAMILY = [
    "full", "diag", "gdpp", "preconditioned", "registers(0)", "registers(1)", "lowrank(1)", "channels(1,1)",
    "channels(1,3)", "channels(2,2)", "channels(3,2)", "looped(diag,3)", "looped(channels(1,2),2)",
    "looped(lowrank(2),2)",
]  # fmt: skip


def test_all_families_are_among_those_that_are_tried():
    others = {name for name, family in FAMILIES.items() if not family.built_in}  # those of other tests
    names = set(known_families()) - others
    assert {name.split("(")[0] for name in names} <= {name.split("(")[0] for name in EVERY_FAMILY}


@pytest.mark.parametrize("name", EVERY_FAMILY)
def test_every_family_is_exported(name):
    """Room for intermediate results included: NumPy, PyTorch and ONNX predict what the token form does."""
    model = model_with_room(name)
    assert_is_exported(model, sequences(model, 8))


@pytest.mark.parametrize("name", [*EVERY_FAMILY, "diag omega", "gdpp omega"])
def test_torch_parameters_are_the_arrays_of_the_family(name):
    """As many numbers, under the same names, and with the gradient that `pullback` has."""
    torch = pytest.importorskip("torch")
    model = model_of(name, 3, 2, 2, 8) if name.endswith("omega") else model_with_room(name)
    module = run(export(model, "torch"))["LinearTransformer"](torch.float64)
    arrays = model.family.arrays
    assert sum(value.numel() for value in module.parameters()) == sum(value.size for value in arrays.values())
    x, y, _ = sequences(model, 8)
    moments, target = Moments.from_tokens(x, y), np.random.default_rng(0).standard_normal((5, 3))
    truth = model.family.pullback(model.evaluate(moments, target, gradient=True).gradient)
    units = torch.eye(3, dtype=torch.float64).expand(5, 3, 3)  # their predictions are w
    w = module.predict(torch.tensor(x), torch.tensor(y), units)
    (0.5 * (w - torch.tensor(target)).square().sum(-1).mean()).backward()
    for key, value in arrays.items():
        found = torch.stack([getattr(layer, key).grad for layer in module.layers]).numpy()
        assert found.shape == value.shape
        # Both add up the same products in another order, as for predictions.
        np.testing.assert_allclose(found, truth[key], rtol=0, atol=1e-12 * np.abs(truth[key]).max())


@pytest.mark.parametrize("name", ["diag", "gdpp", "channels(1,3)", "channels(3,2)", "looped(channels(2,1),2)"])
def test_sources_of_isotropic_families_work_in_any_dimension(name):
    model = model_with_room(name)
    other = LinearTransformer(model.family, 5)
    inputs = sequences(other, 8)
    assert_close_in_float64(other, inputs, run(export(model))["predict"](*inputs))
    torch = pytest.importorskip("torch")
    found = run(export(model, "torch"))["LinearTransformer"](torch.float64).predict(*map(torch.tensor, inputs))
    assert_close_in_float64(other, inputs, found.detach().numpy())


def rows_of(text):
    """The rows of the first align environment."""
    return text.split("\\begin{align*}\n")[1].split("\n\\end{align*}")[0].split(" \\\\\n")


def terms_of(equation):
    """The signed factors of a LaTeX sum after its first term, with what they multiply."""
    factor = r"([+-]) ([\d.]+)(?: \\cdot 10\^\{(-?\d+)\})?\\, (.*?)(?= [+-] [\d.]|$)"
    return {
        re.sub(r"\^\{\d+\}", "", what): float(f"{sign}{digits}e{power or 0}")
        for sign, digits, power, what in re.findall(factor, equation)
    }


@pytest.mark.parametrize("kind", ["diag", "gdpp", "full of diag"])
@pytest.mark.parametrize("digits", [1, 3, 17])
def test_latex_has_the_numbers_of_every_update(kind, digits):
    model = model_of(kind, 3, 4, 2, 5)
    rows = rows_of(export(model, "latex", digits=digits))
    assert rows[-1] == r"  \hat{y} &= -y_{n+1}^{4}"
    P, Q = model.P, model.Q
    omega = {
        r"\Sigma x_i": (P[:, :, 0, 0] * Q[:, :, 0, 0]).sum(1),
        r"y_i \alpha": (P[:, :, 0, 0] * Q[:, :, -1, -1]).sum(1),
        r"\langle \alpha, x_i \rangle": (P[:, :, -1, -1] * Q[:, :, 0, 0]).sum(1),
        r"\lambda y_i": (P[:, :, -1, -1] * Q[:, :, -1, -1]).sum(1),
    }
    for layer in range(4):
        x, y = rows[1 + 2 * layer : 3 + 2 * layer]
        assert x.startswith(f"  x_i^{{{layer + 1}}} &= x_i^{{{layer}}} ")
        assert y.startswith(f"  y_i^{{{layer + 1}}} &= y_i^{{{layer}}} ")
        found = terms_of(x) | terms_of(y)
        wanted = {name: values[layer] for name, values in omega.items() if values[layer]}
        assert found == pytest.approx(wanted, rel=0.5 * 10.0 ** (1 - digits) + 1e-15)


@pytest.mark.parametrize("heads", [1, 2])
def test_latex_has_full_matrices(heads):
    model = tame_model("full", 10, 2, heads, 20)
    text = export(model, "latex", digits=4)
    assert (r"\sum_{k=1}^{2} P_k^{l}" in text) == (heads == 2)
    assert text.count(r"\begin{align*}") == text.count(r"\end{align*}") == 1 + 2 * heads
    assert text.count("{") == text.count("}")
    for layer in range(2):
        for head in range(heads):
            at = f"_{{{head + 1}}}" if heads > 1 else ""
            for name, matrix in (("P", model.P[layer, head]), ("Q", model.Q[layer, head])):
                body = text.split(f"  {name}{at}^{{{layer}}} &= ")[1].split(r"\end{array}")[0]
                power = int(re.match(r"10\^\{(-?\d+)\} \\cdot ", body)[1])
                rows = body.split("{rrrrrrrrrrr}\n")[1].split(" \\\\\n")
                found = np.array([[float(entry) for entry in row.split("&")] for row in rows])
                assert np.abs(found).max() < 10
                np.testing.assert_allclose(found * 10.0**power, matrix, rtol=0, atol=0.5001 * 10.0 ** (power - 3))


def channels_of(text, layers, heads):
    """P_v, Q_v, P_s and Q_s of every layer and head, as LaTeX has them."""
    found = {}
    for name in ("P_{v", "Q_{v", "P_{s", "Q_{s"):
        for layer, head in np.ndindex(layers, heads):
            at = f",{head + 1}" if heads > 1 else ""
            body = re.split(r" \\\\\n  [PQ]|\n\\end{align", text.split(f"  {name}{at}}}^{{{layer}}} &= ")[1])[0]
            power = re.search(r"10\^\{(-?\d+)\}", body)
            rows = re.sub(r"10\^.*\n|\\left.*\n|\n.*\\right\)|\\cdot.*", "", body).split("\\\\")
            matrix = np.array([[float(entry) for entry in row.split("&")] for row in rows])
            found[name, layer, head] = matrix * 10.0 ** int(power[1] if power else 0)
    return found


@pytest.mark.parametrize(("name", "heads"), [("channels(1,3)", 1), ("channels(2,2)", 2), ("channels(1,1)", 1)])
def test_latex_of_channels_has_updates_of_vectors_and_scalars(name, heads):
    """Its equations, computed token by token with its numbers, are the model."""
    model = model_with_room(name, heads=heads)
    text = export(model, "latex", digits=17)
    numbers = channels_of(text, 2, heads)
    assert text.count("{") == text.count("}")
    assert (r"\langle X_j^{l}, X_i^{l} (Q_{v" in text) == (name == "channels(2,2)")
    assert (r"\sum_{k=1}^{2} \sum_{j=1}^{n} s_{kij}^{l}" in text) == (heads == 2)
    x, y, queries = sequences(model, 8)
    vectors, scalars = model.family.vectors, model.family.scalars
    X = np.zeros((9, 3, vectors))  # X_i: the vectors are columns
    z = np.zeros((9, scalars))
    X[:8, :, 0], X[8, :, 0], z[:8, -1] = x[0], queries[0, 0], y[0]
    for layer in range(2):
        dX, dz = np.zeros_like(X), np.zeros_like(z)
        for head in range(heads):
            Pv, Qv, Ps, Qs = (numbers[key, layer, head] for key in ("P_{v", "Q_{v", "P_{s", "Q_{s"))
            score = np.einsum("jda,ida->ij", X[:8], X @ Qv.T) + (z[:8] @ Qs @ z.T).T
            dX += np.einsum("ij,jda->ida", score, X[:8] @ Pv.T)
            dz += score @ (z[:8] @ Ps.T)
        X, z = X + dX, z + dz
    assert -z[8, -1] == pytest.approx(model.predict(x, y, queries)[0, 0], rel=1e-12)


def test_latex_shows_scratch_coordinates_and_matrices_of_zeros():
    text = export(model_with_room("full"), "latex")
    assert r"x_i \\ 0_{2} \\ y_i" in text
    assert r"(e_{n+1}^{2})_{6}" in text
    Q = np.stack([np.ones((2, 2)), np.zeros((2, 2))])[None]
    assert "0.00 & 0.00" in export(LinearTransformer(Full(np.ones((1, 2, 2, 2)), Q)), "latex")


def test_the_documentation_shows_what_is_exported():
    """The numbers of its example, put into a model, give its text again."""
    text = (Path(__file__).parents[2] / "docs" / "howto" / "export.md").read_text()
    source = next(block for block in text.split("```python\n") if block.startswith('"""')).split("```")[0]
    model = LinearTransformer(Diag(omega=np.reshape(run(source)["LAYERS"], (2, 2, 2))), dim=10)
    about = source.split("\n")[2]
    assert export(model, about=about) == source
    assert f"```latex\n{export(model, 'latex', about=about)}```" in text
    exec(text.split("```python\n")[1].split("```")[0], {})


def test_families_of_ones_own_are_exported():
    model = LinearTransformer(Halves([[0.1, 0.2], [0.1, -0.1]]), 3)
    assert_is_exported(model, sequences(model, 5))


test_bad_exports_are_refused_in_words = refusals(
    (lambda m: export(m, "matlab"), "a format must be one of python, latex, torch, onnx; got 'matlab'"),
    (lambda m: export(np.ones(3)), "export needs a LinearTransformer; got an ndarray"),
    (lambda m: export(m, "latex", digits=0), "digits must be at least 1; got 0"),
    (lambda m: export(m, "torch", digits=3), "digits is only for the format latex; got it for torch. Leave it"),
    (lambda m: export(m, "latex", colour=3), "export has the arguments model, to, about, context, digits; got colour"),
    (lambda m: export(LinearTransformer(Diag([[[1e300, 1]]], [[[1e300, 1]]]), 2)), "omega must be finite"),
    (lambda m: export(LinearTransformer(GDpp(omega=[[1e39, 0]]), 2), "onnx"), "in float32; got omega 1 of 1e+39"),
    (lambda m: write("", "/dev"), "an export is written to a file; got /dev, which is not an ordinary file"),
    (lambda m: write("", "/nonexistent/m.py"), "a file needs a writable folder; /nonexistent does not exist."),
    by=lambda make: make(tame_model("diag", 2, 1, 1, 3)),
    kind=RidgeformerError,
)


@pytest.fixture
def command(call):
    return lambda *arguments: call("export", *arguments)


def test_command_prints_or_writes_every_format(command, folder, tmp_path):
    for model in (folder, folder / "model.safetensors"):
        for to, kind in FORMATS.items():
            out = tmp_path / f"model{kind.suffix}"
            out.write_text("old")
            code, printed, error = command(model, "--to", to, "--out", out)
            assert (code, error) == (0, "")
            assert printed == f"Wrote {load(folder / 'model.safetensors')} as {to} to {out}.\n"
            if not kind.binary:
                assert command(model, "--to", to) == (0, out.read_text(), "")
                assert "Trained on d=3 n=6 uniform(0,3), seed 0: adjusted loss " in out.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.py", "model.tex"]
    assert "numbers rounded to 2 significant digits" in command(folder, "--to", "latex", "--digits", 2)[1]
    facts = json.loads(command(folder, "--json")[1])
    assert facts["text"] == export(load(folder / "model.safetensors"), about=facts["text"].split("\n")[2])
    facts = json.loads(command(folder, "--to", "onnx", "--out", tmp_path / "model.onnx", "--json")[1])
    assert facts["bytes"] == (tmp_path / "model.onnx").stat().st_size


def test_command_refuses_in_one_line(command, folder, tmp_path):
    model = tmp_path / "model.safetensors"
    save(tame_model("diag", 2, 1, 1, 3), model)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "spec.json").write_text("{}")
    for arguments, words in {
        (model, "--to", "matlab"): "'matlab' is not one of 'python', 'latex', 'torch', 'onnx'",
        (model, "--to", "onnx"): "the format onnx is binary, so it needs a file; got no --out. Add --out model.onnx.",
        (model, "--out", "/proc/model.py"): "a file must go to a writable place; /proc/model.py cannot",
        (folder.parent,): "a model is a file or the folder of a run",
        (tmp_path / "unfinished",): "Train it to its end first",
        (): "Missing argument 'MODEL'",
    }.items():
        code, printed, error = command(*arguments)
        assert (code, printed, error.count("\n")) == (2, "", 1)
        assert words in error
