import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ridgeformer import Diag, GDpp, LinearTransformer, load, save
from ridgeformer.errors import RidgeformerError, StorageError
from ridgeformer.loading import with_record
from support import draw, each, refused, tame_model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["full", "diag", "gdpp", "omega", "gdpp omega"])
def test_what_is_saved_is_what_is_loaded(path, kind, dtype):
    if kind == "omega":
        model = LinearTransformer(Diag(omega=np.random.default_rng(0).normal(size=(3, 2, 2)) * 0.01), 4)
    elif kind == "gdpp omega":
        model = LinearTransformer(GDpp(omega=np.random.default_rng(0).normal(size=(3, 2)) * 0.01), 4)
    else:
        model = tame_model(kind, 4, 3, 2, 8)
    model = model.astype(dtype)
    save(model, path, record={"seed": 3, "loss": 0.5})
    again = load(path)
    assert repr(again) == repr(model)
    assert again.family.dtype == dtype
    for name, value in model.family.arrays.items():
        np.testing.assert_array_equal(again.family.arrays[name], value)
    m = draw(4, 8).moments
    np.testing.assert_array_equal(again.weights(m), model.weights(m))
    assert with_record(path)[1] == {"seed": 3, "loss": 0.5}


def test_the_header_says_what_it_is(path):
    """Readable by anybody: eight bytes of length, then JSON."""
    save(tame_model("diag", 4, 3, 2, 8), path)
    assert with_record(path)[1] == {}
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    assert header["format"] == "ridgeformer-model"
    assert json.loads(header["spec"]) == {"family": "diag", "dim": 4, "layers": 3, "heads": 2}


def write(path, metadata, **arrays):
    save_file(arrays or {"omega": np.zeros((1, 2, 2))}, path, metadata=metadata)


SPEC = {"family": "diag", "dim": 4, "layers": 1, "heads": 2}
GOOD = {"format": "ridgeformer-model", "version": "1", "spec": json.dumps(SPEC)}


@each(
    (GOOD | {"version": "3"}, {}, "reads format versions up to 2; got version 3 ... Upgrade it"),
    (GOOD | {"version": "2"}, {}, "it has no checksum"),
    (GOOD | {"version": "2", "checksum": "0" * 64}, {}, "its checksum is not that of its content"),
    (GOOD | {"version": "x"}, {}, "its format version is 'x'"),
    (GOOD | {"spec": json.dumps(SPEC | {"heads": 99})}, {}, "its spec says 1 and 99"),
    (GOOD | {"format": "other"}, {}, "of some other program"),
    (None, {}, "of some other program"),
    (GOOD | {"spec": "{"}, {}, "header is damaged"),
    (GOOD | {"spec": json.dumps(SPEC | {"family": "mlp"})}, {}, "got 'mlp'. Name one of these. A family of your"),
    (GOOD | {"spec": json.dumps(SPEC | {"dim": 0})}, {}, "do not fit its spec"),
    (GOOD | {"spec": json.dumps(SPEC | {"layers": 5})}, {}, "have 1 layers and 2 heads, its spec says 5 and 2"),
    (GOOD | {"spec": json.dumps(SPEC | {"heads": "\x1b[2J\n\ud800"})}, {}, "its spec says 1 and \\x1b[2J \\ud800"),
    (GOOD, {"omega": np.zeros((1, 3, 2))}, "do not fit its spec"),
    (GOOD, {"surprise": np.zeros(3)}, "do not fit its spec"),
)
def test_files_that_are_not_ours_or_newer_are_refused_in_words(metadata, arrays, words, path):
    write(path, metadata, **arrays)
    refused(lambda: load(path), words)


def test_a_pickle_is_not_run(path):
    path.write_bytes(b"cposix\nsystem\n(S'touch pwned'\ntR.")
    refused(lambda: load(path), "truncated, corrupt or of another kind")
    assert not os.path.exists("pwned")


def test_missing_files_and_folders_are_named(tmp_path):
    refused(lambda: load(tmp_path / "nothing"), "there is no file ' ... nothing'")
    refused(lambda: load(tmp_path), "a model is a file or the folder of a run; ... is another folder")


def test_metadata_are_checked_before_any_array_is_read(path, monkeypatch):
    """The arrays of a file of another program, or of a newer version, are never made."""
    monkeypatch.setattr("safetensors.numpy.load", None)
    for metadata, words in (
        (GOOD | {"version": "3"}, "got version 3"),
        (None, "of some other program"),
    ):
        write(path, metadata, omega=np.zeros((1, 2, 2)))
        refused(lambda: load(path), words)


def test_a_header_that_claims_to_be_huge_is_not_read(path):
    """Its length is a number of eight bytes, which a damaged file may set to anything."""
    path.write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    refused(lambda: load(path), "no safetensors header")


@each(
    (lambda path: save("x", path), "save needs a LinearTransformer itself; got a str"),
    (lambda path: save(tame_model("diag", 2, 1, 1, 5), None), "needs the name of a file; got None"),
    (lambda path: save(tame_model("diag", 2, 1, 1, 5), path, record={"a": np.ones(2)}), "that JSON can hold"),
    (lambda path: load(3), "needs the name of a file; got 3"),
)
def test_bad_calls_are_refused_in_words(make, words, path):
    refused(lambda: make(path), words, RidgeformerError)


def test_a_failure_of_the_system_is_not_called_wrong_input(tmp_path, monkeypatch):
    save(tame_model("diag", 2, 1, 1, 5), tmp_path / "model.safetensors")

    def fail(number):
        def opened(*_, **__):
            raise OSError(number, os.strerror(number))

        return opened

    monkeypatch.setattr(Path, "open", fail(errno.EIO))
    refused(lambda: load(tmp_path / "model.safetensors"), "cannot (Input/output error). Check the disk", StorageError)
    monkeypatch.setattr(Path, "open", fail(errno.EACCES))
    refused(lambda: load(tmp_path / "model.safetensors"), "must be a file that you may read; ... Change its")
