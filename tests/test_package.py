"""The package as a whole: imports point one way, importing is light, what is public is documented and runs."""

import ast
import builtins
import collections
import doctest
import functools
import graphlib
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ridgeformer
from ridgeformer import errors
from support import each, unmeasured

SOURCE = Path(ridgeformer.__file__).parent
ROOT = SOURCE.parents[1]
# From the bottom to the top. A module may import from its own group and from lower layers, not from its neighbours.
LAYERS = (
    ("_version", "errors"),
    ("files", "validation"),
    ("values",),
    ("_core", "bfgs", "losses", "noise"),
    ("engine",),
    ("moments",),
    ("predictors+problems",),  # a problem names its best predictor and its oracle
    ("models",),
    ("exact",),
    ("evaluation", "population"),
    ("training",),
    ("sweeps", "zoo"),
    ("playground",),
    ("loading",),
    ("explanation", "export", "sklearn", "theory"),
    ("jax", "plotting", "torch"),
    ("papers",),
    ("ridgeformer",),  # the package itself
    ("cli",),
    ("__main__",),
)
PLACE = {name: (level, group) for level, groups in enumerate(LAYERS) for group in groups for name in group.split("+")}


@functools.cache
def parsed(path):
    """The syntax tree of a file, read once for all tests."""
    return ast.parse(path.read_text())


@functools.cache
def nodes_of(path):
    return list(ast.walk(parsed(path)))


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def outside(*folders):
    """The Python files of folders beside the package."""
    return ((path.stem, path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def imported(path):
    """The top-level names of ridgeformer that a file imports, anywhere in it but in methods `plot...` of results.

    A result is drawn when it is asked to, by the pictures of a higher layer.
    """
    plots = [node for node in nodes_of(path) if isinstance(node, ast.FunctionDef) and node.name.startswith("plot")]
    drawing = {node for plot in plots for node in ast.walk(plot)}
    for node in nodes_of(path):
        if node in drawing:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ridgeformer":
            inner = node.module.split(".")[1:]
            names = {alias.name for alias in node.names}
            yield from inner[:1] or (name if name in PLACE else "ridgeformer" for name in names)
        elif isinstance(node, ast.Import):
            names = (alias.name.split(".") for alias in node.names)
            yield from ((name[1:] or name)[0] for name in names if name[0] == "ridgeformer")


def test_imports_point_one_way():
    print("\nImport layers, from the bottom to the top:")
    for level, groups in enumerate(LAYERS):
        print(f"  {level:2}  {', '.join(groups).replace('+', ' and ')}")
    for name, path in modules():
        top = name.split(".")[0] or "ridgeformer"
        assert top in PLACE, f"{top} is new: give it a place in the layers"
        level, group = PLACE[top]
        for other in imported(path):
            assert PLACE[other][0] < level or PLACE[other][1] == group, f"{name} imports {other}"


def imported_modules(path, known):
    """The modules of ridgeformer that a file imports when it runs, anywhere in it."""
    blocks = [node for node in nodes_of(path) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    only_types = {inner for block in blocks for inner in ast.walk(block)}
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module and node not in only_types:
            inner = ".".join(node.module.split(".")[1:])
            parts = {f"{inner}.{alias.name}".strip(".") for alias in node.names}
            if node.module.split(".")[0] == "ridgeformer":
                yield from (parts & known) or {inner}


def test_imports_point_one_way_inside_packages_too():
    """No module imports another that needs it; imports that only type checkers follow do not count."""
    known = dict(modules())
    graph = {name: {*imported_modules(path, known.keys())} - {name} for name, path in known.items()}
    for package in sorted({name.partition(".")[0] for name in known if "." in name}):
        inside = {name: needs for name, needs in graph.items() if name.split(".")[0] == package}
        parts = {name: {need for need in needs if need in inside} for name, needs in inside.items()}
        layers = graphlib.TopologicalSorter(parts)
        layers.prepare()  # raises CycleError, which names the modules
        print(f"\n{package}, from the bottom to the top:")
        while ready := layers.get_ready():
            print("  " + ", ".join(sorted(ready)))
            layers.done(*ready)


def bound_names(tree):
    """The names that a module defines or imports at its top level, with the full names of imported ones."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, None


def test_no_name_of_a_package_hides_one_of_its_modules():
    """Otherwise `import ridgeformer.package.name as x` gives a function. Commands are named like their modules."""
    full = {f"ridgeformer.{name}" for name, _ in modules()}
    for name, path in modules():
        if path.name == "__init__.py" and not name.startswith("cli"):
            package = f"ridgeformer.{name}".rstrip(".")
            hidden = [bound for bound, origin in bound_names(parsed(path)) if f"{package}.{bound}" in full - {origin}]
            assert hidden == [], name


def test_no_two_classes_have_the_same_name():
    classes = collections.defaultdict(list)
    for name, path in modules():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}


def test_functions_fit_on_a_screen():
    """At most 60 lines with the docstring, in the package, benchmarks, examples and tests."""
    for name, path in [*modules(), *outside("benchmarks", "examples", "tests")]:
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                assert lines <= 60, f"{name}.{node.name} has {lines} lines"


def lines_beside_docstrings(path):
    text = path.read_text()
    nodes = (n for n in nodes_of(path) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef))
    texts = (node.body[0] for node in nodes if ast.get_docstring(node))
    return text.count("\n") - sum(found.end_lineno - found.lineno + 1 for found in texts)


def test_files_are_short():
    """At most 300 lines beside docstrings, in the package and in the benchmarks."""
    for name, path in [*modules(), *outside("benchmarks")]:
        lines = lines_beside_docstrings(path)
        assert lines <= 300, f"{name} has {lines} lines"


def test_the_tests_mirror_the_package():
    """A folder for every package, and a file for every top-level module.

    `torch` and `jax` share tests/frameworks: in a folder tests/torch, which is on the path, PyTorch would not be found.
    """
    shared = {"torch": "frameworks", "jax": "frameworks"}
    parts = [path for path in SOURCE.iterdir() if not path.name.startswith("_")]
    packages = {path.name for path in parts if (path / "__init__.py").exists()}
    for name in packages:
        assert list((ROOT / "tests" / shared.get(name, name)).rglob("test_*.py")), name
    for path in parts:
        assert path.suffix != ".py" or (ROOT / "tests" / f"test_{path.name}").exists(), path.name


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
        r"""|savefig\((?!buffer\b)|json\.dump\(|np\.save|save_file\(|os\.replace\(|unlink\(|os\.remove|rmtree\("""
    )
    found = {name for name, path in modules() if direct.search(path.read_text())}
    assert found == {"files"}


def test_one_module_knows_the_names_of_the_files_of_a_run():
    written = re.compile(r""""(spec\.json|record\.json|model\.safetensors)\"""")
    examples = {"models.file"}  # a model of its own, in the example of its docstring
    assert {name for name, path in modules() if written.search(path.read_text())} - examples == {"training.store"}


def test_one_module_knows_colours():
    assert [name for name, path in modules() if re.search(r'"#[0-9A-Fa-f]{6}"', path.read_text())] == ["plotting.style"]


def test_only_the_command_line_prints():
    """But for the progress line of `train`, which notebooks show too."""
    printing = re.compile(r"sys\.std(out|err)|click\.echo|Console\(")
    for name, path in modules():
        if not name.startswith("cli"):
            text = path.read_text()
            calls = (node.func for node in nodes_of(path) if isinstance(node, ast.Call))
            prints = printing.search(text) or any(isinstance(f, ast.Name) and f.id == "print" for f in calls)
            assert not prints or name == "training.callbacks", name


def test_importing_is_light():
    """None of these is needed to import the package; each would cost a tenth of a second or more."""
    heavy = {
        *["scipy", "safetensors", "rich", "click", "torch", "jax", "matplotlib", "multiprocessing", "pandas", "sklearn"]
    }
    code = "import sys, ridgeformer; print(*{name.split('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=unmeasured()
    )  # coverage imports much
    assert not heavy & set(done.stdout.split())


INDEX = (ROOT / "docs/reference/api/index.md").read_text()
ROWS = re.findall(r"^\| `(ridgeformer[\w.]*)` \| (.*) \|$", INDEX, re.M)
PUBLIC = {module: re.findall(r"`(\w+)`", names) for module, names in ROWS}


def test_everything_public_is_documented():
    for name in PUBLIC["ridgeformer"]:
        thing = getattr(ridgeformer, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for attribute, value in vars(thing).items():
                if not attribute.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                    assert inspect.getdoc(getattr(thing, attribute)), f"{name}.{attribute}"


def test_the_public_names_are_the_written_list():
    """The table of docs/reference/api/index.md, module by module; torch, jax and sklearn need not be installed.

    The top level lists its names in `__all__` and imports submodules when they are used; tab completion shows both.
    Another package imports `A as A` what its row lists of its modules, and nothing else.
    """
    pages = "".join(path.read_text() for path in (ROOT / "docs/reference/api").glob("*.md"))
    assert set(PUBLIC) == {"ridgeformer", *re.findall(r"^.. automodule:: (\S+)", pages, re.M)}
    assert set(ridgeformer.__all__) == set(PUBLIC["ridgeformer"])
    submodules = {module.split(".")[1] for module in PUBLIC if "." in module}
    assert {*ridgeformer.__all__, *submodules, "__version__"} == set(dir(ridgeformer))
    for module in PUBLIC.keys() - {"ridgeformer"}:
        names, path = PUBLIC[module], SOURCE.joinpath(*module.split(".")[1:])
        text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
        for name in names:
            assert re.search(rf"^(class|def) {name}\b|^{name}(: .*)? = |\bas {name}\b", text, re.M), f"{module}.{name}"
        assert {*re.findall(r"\b(\w+) as \1\b", text)} <= {*names}, module


def public_functions(tree):
    """Public functions, and public methods of public classes, with whether the first argument is the object itself."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, False
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield inner, not any(ast.unparse(found) == "staticmethod" for found in inner.decorator_list)


def undocumented(tree):
    """What public functions and classes do not say about their arguments, attributes and results."""
    for node, bound in public_functions(tree):
        text = ast.get_docstring(node) or ""
        if node.name.startswith("_") or "See `" in text:  # a method that is documented in its base class
            continue
        if any(ast.unparse(found) == "overload" for found in node.decorator_list):  # documented where it is defined
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs][bound:]
        yield from (f"{node.name}: {a.arg}" for a in arguments if f"    {a.arg}:" not in text)
        returns = "None" if node.returns is None else ast.unparse(node.returns)
        if arguments and returns not in ("None", "NoReturn") and not re.search("^(Returns|Yields):", text, re.M):
            yield f"{node.name}: what it returns"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node) or ""
            made = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
            fields = [f for f in node.body if isinstance(f, ast.AnnAssign) and "ClassVar" not in ast.unparse(f)]
            names = [f.target.id for f in fields] if made is None else [a.arg for a in made.args.args[1:]]
            yield from (f"{node.name}: {n}" for n in names if n[0] != "_" and f"    {n}:" not in text)


def test_all_arguments_attributes_and_results_are_documented():
    """Ruff's D417 only looks at functions that have a section `Args:`. Docstrings of commands are help texts."""
    for name, path in modules():
        if not name.startswith("cli"):
            assert list(undocumented(parsed(path))) == [], name


# What the functions that write files or need packages raise; whoever calls them directly must say so.
RAISES = {
    "write_whole": {"StorageError"},
    "make_folder": {"StorageError"},
    "check_plot": {"StorageError", "MissingPackageError"},
    "_matplotlib": {"MissingPackageError"},
}


def raised(node):
    """The classes that the section `Raises:` of a docstring names."""
    section = re.search(r"^Raises:\n((?:    .*\n?|\n)*)", ast.get_docstring(node) or "", re.M)
    return set(re.findall(r"^    (\w+): ", section[1], re.M)) if section else set()


def test_docstrings_name_the_errors_that_are_raised():
    """All of them exist, and functions that write files or need packages do not promise another class."""
    for name, path in modules():
        if name.split(".")[0] in ("cli", "__main__", "torch", "jax", "sklearn") or name == "engine.xla":
            continue  # help texts, or packages that need not be installed
        module, tree = importlib.import_module(f"ridgeformer.{name}".rstrip(".")), parsed(path)
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                for kind in raised(node):
                    found = getattr(builtins, kind, None) or getattr(errors, kind, None) or getattr(module, kind, None)
                    assert inspect.isclass(found), f"{name}.{node.name}: {kind}"
                    assert issubclass(found, Exception), f"{name}.{node.name}: {kind}"
        for node, _ in public_functions(tree):
            called = {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
            needed = set().union(*(RAISES[call] for call in called & RAISES.keys()))
            if not node.name.startswith("_") and "See `" not in (ast.get_docstring(node) or ""):
                assert needed <= raised(node), f"{name}.{node.name}: {needed - raised(node)}"


SLOW_EXAMPLES = {"evaluation.explosions", "torch", "torch.training"}
EXAMPLES = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW_EXAMPLES else ())
    for name, path in modules()
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_run(name):
    if name.split(".")[0] in ("torch", "jax"):
        pytest.importorskip(name.split(".")[0])
    module = importlib.import_module(f"ridgeformer.{name}".rstrip("."))
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@each(
    "docs/explanations/models.md",
    "docs/explanations/interventions.md",
    "docs/papers/vladymyrov2024/second-order.md",
    "docs/papers/vladymyrov2024/rescaling.md",
    pytest.param("docs/explanations/training.md", marks=pytest.mark.long),
    pytest.param("docs/explanations/descents.md", marks=pytest.mark.slow),
    pytest.param("docs/howto/watch-training.md", marks=pytest.mark.slow),
    "docs/howto/runs.md",
    "docs/explanations/families.md",
    pytest.param("docs/explanations/explain.md", marks=pytest.mark.slow),
    "docs/papers/vladymyrov2024/theory.md",
    "docs/papers/vladymyrov2024/reproduction.md",
    "docs/howto/sweeps.md",
)
def test_the_pages_run(name, tmp_path, monkeypatch):
    """Every Python block, in order, in one session. For the README and the tutorial see test_documentation.py."""
    monkeypatch.chdir(tmp_path)  # some write files
    _run((ROOT / name).read_text())


def _run(text):
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert blocks
    session = {"__name__": "__main__"}  # sweeps start processes
    for block in blocks:
        exec(block, session)
