"""Grids and the files that describe them: what is wrong is said in one line, and at once."""

import os
import subprocess
import sys
import time
from pathlib import Path

import fuzz_cases
import pytest

from commands import refused_line
from own_problems import HeavyTails
from ridgeformer import CustomProblem, InputError, Problem, Training
from ridgeformer.problems import Dataset
from ridgeformer.sweeps import Grid, grid as grid_module, read_grid, sweep
from ridgeformer.training import Runs, Search
from support import LONGEST, each, refused, unmeasured

NOISE = 'noise = ["fixed(1)"]\n'


def read(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return read_grid(path)


@each(
    (NOISE + "layers = = 3", "must be TOML; .*line 2"),
    ("layers = [1]", "must have the key noise"),
    (NOISE + "layer = [3]", "line 2, key layer: a key of a grid must be one of noise"),
    (NOISE + "layers = 3", "line 2, key layers: layers must be a list"),
    (NOISE + "seeds = [1, 1]", "line 2, key seeds: seeds must list every value once"),
    ('noise = ["loud(1)"]', "line 1, key noise: .*known distribution"),
    (NOISE + 'families = ["mlp"]', "line 2, key families: the family must be one of"),
    (NOISE + '[protocol]\nname = "newton"', "line 2, key protocol: .*must have the name .*search"),
    (NOISE + "[protocol]\nrate = 3", "line 3, key rate: a key of .protocol. must be one of effort"),
    (NOISE + "[protocol]\neffort = 0", "key protocol: effort must lie in"),
    (NOISE + 'features = ["round(1)"]', "line 2, key features: there is no law of features called 'round'"),
    (NOISE + 'context = ["40..10"]', "line 2, key context: the context must be a number of examples"),
    (NOISE + 'features = ["powerlaw(1)", "powerlaw( 1 )"]', "line 2, key features: features must list every"),
    (NOISE + 'features = ["spectrum(1,2,3)"]', "the spectrum of features must fit the dimension 10"),
    (NOISE + 'dim = [3]\nfeatures = ["spectrum(1,2,3)"]\nlayers = [0]', "line 4, key layers: layers must be at"),
    # nested too deeply, or of a wrong type
    (NOISE + "seeds = " + "[" * 5000 + "]" * 5000, "must be TOML; .* nested too deeply"),
    (NOISE + "a" + ".a" * 5000 + " = 1", "must be TOML; .* more than 200 dots"),
    (NOISE + 'families = [["diag"]]', r"line 2, key families: families must be listed as text; got \['diag'\]"),
    ('noise = [[["fixed(1)"]]]', "line 1, key noise: noise must be a distribution; got a list"),
    (NOISE + "seeds = [{a = 1}]", "line 2, key seeds: seed must be a whole number; got {'a': 1}"),
    (NOISE + "protocol = 3", "line 2, key protocol: .*must have the name .*search; got 3"),
    # too large
    (NOISE + "seeds = [" + "9" * 5000 + "]", "must be TOML; .* a whole number has more than 4,300 digits"),
    (
        NOISE + "seeds = [" + "9" * 300 + "]",
        r"line 2, key seeds: seed must be at most 9223372036854775807; got 9{51}\.\.\.",
    ),
    (
        NOISE + "".join(f"{axis} = {list(range(1, 200))}\n" for axis in ("dim", "context", "layers")),
        "a grid must describe at most 1,000,000 runs; got 7,880,599. Split it into several grids",
    ),
    (NOISE + '"' + "k" * 5000 + '" = 1', r"line 2, key k{50}.*\.\.\.k{25}: a key of a grid must be one of"),
    (NOISE + '"\\u001b[2J" = 1', r"key \\x1b\[2J: a key of a grid"),  # would clear the reader's terminal
    ids=lambda value: value[:40],
)
def test_a_malformed_grid_says_where(text, message, tmp_path):
    with pytest.raises(InputError, match=message) as refused:
        read(tmp_path, text)
    assert len(str(refused.value)) < 1000


def test_the_line_is_that_of_the_key_and_not_of_a_longer_one(tmp_path):
    refused(lambda: read(tmp_path, NOISE + "# dim\ndim = [0]\n"), "line 3, key dim: ")
    refused(lambda: read(tmp_path, "noises = [1]\n" + NOISE), "line 1, key noises: ")


@each(
    ("nothing", "there is no file"),
    ("folder", "is a folder"),
    ("pipe", "is a pipe or a device"),
    ("/dev/zero", "is a pipe or a device"),
    ("latin", "can't decode byte 0xfc in position 10"),
    ("sparse", "has 5,000,000,"),
    ("loop", "levels of symbolic links"),
    ("x" * 5000, "a path must not be too long"),
    ids=lambda value: value[:40],
)
def test_what_is_no_text_file_is_refused_at_once(kind, why, tmp_path):
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "latin":
        path.write_bytes(b'noise = ["\xfc"]')
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(5_000_000_000)
    elif kind == "loop":
        path.symlink_to(path)
    refused_line(why, "sweep", path, "--out", tmp_path / "runs")


def test_the_name_of_a_grid_is_a_path():
    refused(lambda: read_grid(3), "a grid must be the name of a file; got 3")
    refused(lambda: read_grid("a\0b"), "a grid must be the name of a file; got 'a\\x00b'. Pass a path")


def test_a_grid_of_windows(tmp_path):
    """With a byte order mark and carriage returns."""
    (tmp_path / "grid.toml").write_bytes(b'\xef\xbb\xbfnoise = ["fixed(1)"]\r\nlayers = [1, 2]\r\n')
    assert len(read_grid(tmp_path / "grid.toml")) == 2


@each(
    ({"seeds": range(10**30)}, "seeds must list at most 1,000,000 values; got range"),
    ({"seeds": range(10**9)}, "at most 1,000,000 runs; got 1,000,000,000"),
    ({"seeds": [10**5000]}, "seed must be at most 9223372036854775807; got <int too large to show>"),
    ({"families": [["diag"]]}, "families must be listed as text; got"),
    ({"noise": "fixed(1)"}, "noise must be a list"),
    ({"protocol": "newton"}, "the protocol must be one of .*search"),
)
def test_a_grid_from_code_is_checked_without_enumerating_it(axes, message):
    start = time.process_time()
    with pytest.raises(InputError, match=message):
        Grid(**{"noise": ["fixed(1)"], **axes})
    assert time.process_time() - start < 5  # seconds of computing; a million runs would take minutes


def test_a_large_grid_is_lazy(monkeypatch):
    grid = Grid(noise=["fixed(1)"], dim=range(1, 101), context=range(1, 101), seeds=range(100), protocol=Search())
    made, problem_of = [], grid_module._problem
    monkeypatch.setattr(grid_module, "_problem", lambda *law: made.append(law) or problem_of(*law))
    assert len(grid) == 1_000_000
    assert next(grid.specs()).problem.dim == 1
    assert len(made) == 1


def test_damaged_grids_are_read_or_refused():
    assert fuzz_cases.run("grids", 1000, seed=0).total() == 1000


# ---- Grids of general problems, and sweeps over problems of one's own in real worker processes


QUICK = Search(effort=0.1)


def test_defaults_leave_problems_and_names_as_they_are():
    old = Grid(noise=["fixed(1)"], dim=[3], context=[6], layers=[1, 2])
    laws = {"features": ["isotropic()"], "tasks": ["gaussian()"], "query": ["none"]}
    new = Grid(noise=["fixed(1)"], dim=[3], context=["6"], layers=[1, 2], **laws)
    assert [spec.name for spec in old.specs()] == [spec.name for spec in new.specs()]
    assert next(old.specs()).name == "diag-1x1-fixed-1-d3n6-s0-" + next(old.specs()).name[-10:]


def test_a_grid_is_every_combination_with_few_layers_first():
    laws = {"features": ["isotropic()", "powerlaw(1)"], "tasks": ["sparse(2)", "pool(4)"]}
    laws["query"] = ["none", "powerlaw(0.5)"]
    parts = {"dim": [3], "context": [6, "4..8"], "families": ["gdpp", "diag"], "layers": [2, 1], "seeds": range(5)}
    grid = Grid(noise=["fixed(2)", "student(4,1)"], **parts, **laws)
    specs = list(grid.specs())
    assert len(specs) == len(grid) == len({spec.name for spec in specs}) == 640
    assert [spec.layers for spec in specs[:2]] == [1, 2]
    problems = {spec.problem for spec in specs}
    assert Problem(3, "4..8", 2, features="powerlaw(1)", tasks="pool(4)", query="powerlaw(0.5)") in problems
    varying = next(spec for spec in specs if not spec.problem.lengths.fixed)
    assert varying.layout.attention == "mean"


def test_problems_and_their_parts_exclude_each_other():
    refused(lambda: Grid(problem=[HeavyTails()], dim=[3]), "either problems or their parts; got problem and dim")
    refused(lambda: Grid(problem=["mine"]), "the problem must be a Problem; got a str")
    refused(lambda: Grid(problem=[HeavyTails(), HeavyTails()]), "problem must list every value once")
    refused(lambda: Grid(), "noise must be a list of at least one value")


def test_a_sweep_over_problems_of_ones_own_in_processes(tmp_path):
    """The worker processes import the class, and the runs are read back with it."""
    problems = [HeavyTails(), HeavyTails(freedom=5.0), Problem(3, "4..8", 1, features="powerlaw(1)")]
    grid = Grid(problem=problems, families=["gdpp"], layers=[1], protocol=QUICK, sequences=500)
    found = sweep(grid.specs(), tmp_path, workers=2)
    assert found.failures == []
    assert len(found.folders) == 3
    assert {Training.load(folder).spec.problem for folder in found.folders} == set(problems)
    again = sweep(grid.specs(), tmp_path, workers=2)
    assert again.reused == 3
    listed = {entry.details for entry in Runs.load(tmp_path).entries}
    assert listed == {"dim=3 context=8 freedom=3.0", "dim=3 context=8 freedom=5.0", "features=powerlaw(1)"}
    command = [sys.executable, "-m", "ridgeformer", "runs", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, env=unmeasured(), timeout=LONGEST)
    assert shown.returncode == 0, shown.stderr
    assert "freedom=5.0" in shown.stdout
    assert "features=powerlaw(1)" in shown.stdout
    assert "damaged" not in shown.stdout + shown.stderr


def test_what_workers_cannot_import_is_refused_at_once(tmp_path):
    class Local(HeavyTails):
        name = "local-tails"

    class Nameless(CustomProblem):
        def __init__(self):
            self.dim, self.context = 2, 4

        def draw(self, rng, count):
            raise NotImplementedError

    refused(lambda: sweep(Grid(problem=[Local()]).specs(), tmp_path), "whose class its worker processes can import by")
    refused(lambda: sweep(Grid(problem=[Nameless()]).specs(), tmp_path), "a Nameless without a name of its own")
    data = Dataset(Problem(2, 4, 1).sequences(10))
    refused(lambda: sweep(Grid(problem=[data]).specs(), tmp_path), "a Dataset without a name of its own")


SCRIPT = """
import sys
from own_problems import HeavyTails
from ridgeformer.sweeps import Grid, sweep
from ridgeformer.training import Search


class Own(HeavyTails):
    name = "own"


if __name__ == "__main__":
    grid = Grid(problem=[Own(), Own(freedom=5.0)], families=["gdpp"], layers=[1], protocol=Search(effort=0.1))
    found = sweep(grid.specs(), sys.argv[1], workers=1)
    print(len(found.folders), found.failures)
"""


def test_the_class_may_be_that_of_a_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "runs")]
    environment = {**unmeasured(), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LONGEST)
    assert done.stdout.strip() == "2 []", done.stderr
