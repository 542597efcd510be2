"""Grids and the files that describe them: what is wrong is said in one line, and at once."""

import os
import time

import fuzz_cases
import pytest

from commands import call
from ridgeformer import InputError
from ridgeformer.sweeps import Grid, read_grid
from ridgeformer.sweeps import grid as grid_module
from ridgeformer.training import Search

NOISE = 'noise = ["fixed(1)"]\n'


def test_a_grid_is_every_combination():
    grid = Grid(noise=["uniform(0,3)", "fixed(1)"], families=["gdpp", "diag"], layers=[2, 1], seeds=range(5))
    specs = list(grid.specs())
    assert len(specs) == len(grid) == 40
    assert len({spec.name for spec in specs}) == 40
    assert [spec.layers for spec in specs[:2]] == [1, 2]


def read(tmp_path, text):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return read_grid(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
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
        (NOISE + "seeds = [" + "9" * 5000 + "]", "must be TOML; .* line 2 has a whole number of more than 64 bits"),
        (NOISE + "seeds = [" + "9" * 300 + "]", r"line 2, key seeds: .* fit in 64 bits; got 9{51}\.\.\.9{26}\. Write"),
        (
            NOISE + "".join(f"{axis} = {list(range(1, 200))}\n" for axis in ("dim", "context", "layers")),
            "a grid must describe at most 1,000,000 runs; got 7,880,599. Split it into several grids",
        ),
        (NOISE + '"' + "k" * 5000 + '" = 1', r"line 2, key k{50}.*\.\.\.k{25}: a key of a grid must be one of"),
        (NOISE + '"\\u001b[2J" = 1', r"key \\x1b\[2J: a key of a grid"),  # would clear the reader's terminal
    ],
    ids=lambda value: value[:40],
)
def test_a_malformed_grid_says_where(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as refused:
        read(tmp_path, text)
    assert len(str(refused.value)) < 1000


def test_the_line_is_that_of_the_key_and_not_of_a_longer_one(tmp_path):
    with pytest.raises(InputError, match="line 3, key dim: "):
        read(tmp_path, NOISE + "# dim\ndim = [0]\n")
    with pytest.raises(InputError, match="line 1, key noises: "):
        read(tmp_path, "noises = [1]\n" + NOISE)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("nothing", "there is no file"),
        ("folder", "is a folder"),
        ("pipe", "is a pipe or a device"),
        ("/dev/zero", "is a pipe or a device"),
        ("latin", "can't decode byte 0xfc in position 10"),
        ("sparse", "has 5,000,000,"),
        ("loop", "levels of symbolic links"),
        ("x" * 5000, "a path must not be too long"),
    ],
    ids=lambda value: value[:40],
)
def test_what_is_no_text_file_is_refused_at_once(tmp_path, kind, why):
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
    done = call("sweep", str(path), "--out", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert done.stderr.startswith("ridgeformer: error: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 500


def test_the_name_of_a_grid_is_a_path():
    with pytest.raises(InputError, match="a grid must be the name of a file; got 3"):
        read_grid(3)
    with pytest.raises(InputError, match=r"a file that can be read; .* cannot \(embedded null byte\)"):
        read_grid("a\0b")


def test_a_grid_of_windows(tmp_path):
    """With a byte order mark and carriage returns."""
    (tmp_path / "grid.toml").write_bytes(b'\xef\xbb\xbfnoise = ["fixed(1)"]\r\nlayers = [1, 2]\r\n')
    assert len(read_grid(tmp_path / "grid.toml")) == 2


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"seeds": range(10**30)}, "seeds must list at most 1,000,000 values; got range"),
        ({"seeds": range(10**9)}, "at most 1,000,000 runs; got 1,000,000,000"),
        ({"seeds": [10**5000]}, "seed must be at most 9223372036854775807; got <int too large to show>"),
        ({"families": [["diag"]]}, "families must be listed as text; got"),
        ({"noise": "fixed(1)"}, "noise must be a list"),
        ({"protocol": "newton"}, "the protocol must be one of .*search"),
    ],
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
