"""The package as a whole: imports point one way, importing is light, what is public is documented and runs."""

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ridgeformer

SOURCE = Path(ridgeformer.__file__).parent
# Data flows down this list; a module may import only modules above it.
ORDER = [
    "errors",
    "plain",
    "files",
    "tensors",
    "values",
    "losses",
    "noise.base",
    "noise.basic",
    "noise.frozen",
    "noise.text",
    "noise",
    "moments",
    "engine.arguments",
    "_core",
    "engine.interface",
    "engine.threefry",
    "engine.threads",
    "engine.reference",
    "engine.native",
    "engine",
    "spectrum",
    "problem",
    "families",
    "family_check",
    "model",
    "model_file",
    "baselines",
    "bayes",
    "evaluation",
    "wishart",
    "training.vector",
    "training.objective",
    "training.bfgs",
    "training.quadrature",
    "training.soap",
    "training.journal",
    "training.task",
    "training.few",
    "training.many",
    "training.search",
    "training.protocols",
    "training.paper",
    "training.runs",
    "training.train",
    "training",
    "sweeps.grid",
    "sweeps.grid_file",
    "sweeps.connection",
    "sweeps.execute",
    "sweeps.listing",
    "sweeps",
    "zoo",
    "experiments.paper",
    "experiments.table",
    "experiments.render",
    "experiments.evidence",
    "experiments.ship",
    "experiments.claims.claim",
    "experiments.claims.uniform",
    "experiments.claims.by_level",
    "experiments.claims.categorical",
    "experiments.claims.convergence",
    "experiments.claims",
    "experiments",
    "figures.style",
    "figures.depth",
    "figures.profiles",
    "figures.inside",
    "figures",
    "report",
    "export.coefficients",
    "export.python",
    "export.latex",
    "export.torch",
    "export.onnx",
    "export",
    "theory.statement",
    "theory.examples",
    "theory.linear_model",
    "theory.quadratic",
    "theory.momentum",
    "theory.heads",
    "theory.step_size",
    "theory.fixed_noise",
    "theory.gdpp_solver",
    "theory.iterations",
    "theory.layers_needed",
    "theory.second_order",
    "theory.rescaling",
    "theory.verification",
    "theory",
    "plots",
    "theory.pictures",
    "explanation.coefficients",
    "explanation.readings",
    "explanation.behaviour",
    "explanation.ablation",
    "explanation.symmetry",
    "explanation.story",
    "explanation.explanation",
    "explanation.pictures",
    "explanation",
    "",  # the package itself
    "benchmarks.clock",
    "benchmarks.frameworks",
    "benchmarks.figures",
    "benchmarks.training",
    "benchmarks.sweeps",
    "benchmarks.report",
    "benchmarks",
    "cli.group",
    "cli.options",
    "cli.display",
    "cli.models",
    "cli.machine",
    "cli.measure",
    "cli.training",
    "cli.sweep",
    "cli.evidence",
    "cli.export",
    "cli.second_order",
    "cli.verify",
    "cli.explain",
    "cli",
    "__main__",
]


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imported(path):
    """Names of ridgeformer's modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ridgeformer":
            base = node.module.removeprefix("ridgeformer").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in ORDER else base
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("ridgeformer").lstrip(".")
                for alias in node.names
                if "ridgeformer" in alias.name
            )


def test_imports_point_one_way():
    for name, path in modules():
        assert name in ORDER, f"{name} is new: give it a place in the order"
        for other in imported(path):
            if name == "engine" and other.startswith("engine."):
                continue
            if (name, other) == ("moments", "spectrum"):
                continue  # Moments.spectrum computes on demand
            assert ORDER.index(other) < ORDER.index(name), f"{name} imports {other}"


def test_the_threshold_of_explosions_is_written_once():
    """What counts as exploded is said in `losses` alone; elsewhere there is no number times the dimension."""
    number = r"[12]00\.?0?"
    written = re.compile(
        rf"\b{number} ?\* ?[\w.]*(dim|shape)|(dim|shape[\[\]\-1-9]*) ?\* ?{number}\b|\b{number} d\b|EXPLODES ="
    )
    found = [name for name, path in modules() if written.search(path.read_text())]
    assert found == ["losses"]


def test_one_module_writes_files():
    """Whole, synced and renamed: a direct write may leave half a file."""
    direct = re.compile(
        r"""write_text\(|write_bytes\(|\.mkdir\(|makedirs\(|\.touch\(|open\([^)]*["'](w|a|x|r\+)b?["']"""
        r"""|savefig\((?!buffer\b)|json\.dump\(|np\.save|save_file\(|os\.replace\("""
    )
    elsewhere = {"files", "training.runs", "sweeps.grid_file"}  # runs renames damaged files; grid_file only reads
    found = {name for name, path in modules() if direct.search(path.read_text())}
    assert found <= elsewhere


def test_importing_is_light():
    """None of these is needed to import the package; each would cost a tenth of a second or more."""
    heavy = {"scipy", "safetensors", "rich", "click", "torch", "jax", "matplotlib", "multiprocessing"}
    code = "import sys, ridgeformer; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not heavy & loaded


def test_everything_public_is_documented():
    for name in ridgeformer.__all__:
        thing = getattr(ridgeformer, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                    assert inspect.getdoc(getattr(thing, attribute)), f"{name}.{attribute}"
    assert sorted(ridgeformer.__all__) == ridgeformer.__all__


@pytest.mark.parametrize(
    "name",
    [
        "errors",
        "noise",
        "moments",
        "problem",
        "model",
        "model_file",
        "losses",
        "baselines",
        "evaluation",
        "wishart",
        "training.train",
        "sweeps.grid",
        "sweeps.grid_file",
        "sweeps.listing",
        "explanation.explanation",
        "export",
        "theory.gdpp_solver",
        "theory.layers_needed",
        "theory.rescaling",
        "theory.statement",
        "theory.examples",
        "theory.step_size",
        "theory.quadratic",
        "theory.heads",
        "theory.verification",
        "theory",
    ],
)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(f"ridgeformer.{name}")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/second-order.md",
        "docs/rescaling.md",
        pytest.param("docs/training.md", marks=pytest.mark.long),
        pytest.param("docs/explain.md", marks=pytest.mark.long),
        "docs/theory.md",
    ],
)
def test_the_readme_runs(name):
    """Every Python block, in order, in one session."""
    text = (SOURCE.parents[1] / name).read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert blocks
    session = {}
    for block in blocks:
        exec(block, session)
