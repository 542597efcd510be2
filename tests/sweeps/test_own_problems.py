"""Grids of general problems, and sweeps over problems of one's own in real worker processes."""

import subprocess
import sys

from own_problems import HeavyTails
from ridgeformer import CustomProblem, Problem, load_run
from ridgeformer.problems import Dataset
from ridgeformer.sweeps import Grid, sweep
from ridgeformer.training import Search, load_runs
from support import LONGEST, refused, unmeasured

QUICK = Search(effort=0.1)


def test_defaults_leave_problems_and_names_as_they_are():
    old = Grid(noise=["fixed(1)"], dim=[3], context=[6], layers=[1, 2])
    new = Grid(
        noise=["fixed(1)"],
        dim=[3],
        context=["6"],
        layers=[1, 2],
        features=["isotropic()"],
        tasks=["gaussian()"],
        query=["none"],
    )
    assert [spec.name for spec in old.specs()] == [spec.name for spec in new.specs()]
    assert next(old.specs()).name == "diag-1x1-fixed-1-d3n6-s0-" + next(old.specs()).name[-10:]


def test_a_grid_of_general_problems_is_every_combination():
    grid = Grid(
        noise=["fixed(2)", "student(4,1)"],
        dim=[3],
        context=[6, "4..8"],
        features=["isotropic()", "powerlaw(1)"],
        tasks=["sparse(2)", "pool(4)"],
        query=["none", "powerlaw(0.5)"],
        layers=[1],
    )
    specs = list(grid.specs())
    assert len(specs) == len(grid) == 32
    assert len({spec.name for spec in specs}) == 32
    problems = {spec.problem for spec in specs}
    assert Problem(3, "4..8", 2, features="powerlaw(1)", tasks="pool(4)", query="powerlaw(0.5)") in problems
    varying = next(spec for spec in specs if not spec.problem.lengths.fixed)
    assert varying.layout.attention == "mean"


def test_problems_and_their_parts_exclude_each_other():
    refused(
        lambda: Grid(problem=[HeavyTails()], dim=[3]), "either problems or their parts; got problem and dim. Leave one"
    )
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
    assert {load_run(folder).spec.problem for folder in found.folders} == set(problems)
    again = sweep(grid.specs(), tmp_path, workers=2)
    assert again.reused == 3
    listed = {entry.details for entry in load_runs(tmp_path).entries}
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

    refused(
        lambda: sweep(Grid(problem=[Local()]).specs(), tmp_path),
        "whose class its worker processes can import by name; got ... Local",
    )
    refused(lambda: sweep(Grid(problem=[Nameless()]).specs(), tmp_path), "a Nameless without a name of its own")
    data = Dataset(Problem(2, 4, 1).sequences(10))
    refused(lambda: sweep(Grid(problem=[data]).specs(), tmp_path), "a Dataset without a name of its own")


SCRIPT = """
import sys
from ridgeformer import CustomProblem
from ridgeformer.problems import Sequences
from ridgeformer.sweeps import Grid, sweep
from ridgeformer.training import Search


class Shifted(CustomProblem):
    name = "shifted"

    def __init__(self, dim=2, context=5, by=1.0):
        self.dim, self.context, self.by = dim, context, by

    def draw(self, rng, count):
        x = rng.standard_normal((count, self.context + 1, self.dim))
        y = x[..., 0] + self.by * x[..., 0] ** 2
        return Sequences(x[:, :-1], y[:, :-1], queries=x[:, -1:], answers=y[:, -1:])


if __name__ == "__main__":
    grid = Grid(problem=[Shifted(by=0.1), Shifted(by=1.0)], families=["gdpp"], layers=[1], protocol=Search(effort=0.1))
    found = sweep(grid.specs(), sys.argv[1], workers=1)
    print(len(found.folders), found.failures)
"""


def test_the_class_may_be_that_of_a_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, env=unmeasured(), timeout=LONGEST)
    assert done.stdout.strip() == "2 []", done.stderr
