"""Files appear whole or not at all, and odd ones are refused before they are read."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from safetensors.numpy import load

from ridgeformer.errors import DamageError, StorageError
from ridgeformer.files import (
    DamagedFile,
    append,
    checksum,
    digest,
    jsonable,
    make_folder,
    open_regular,
    pack,
    parse_json,
    read_json,
    read_tensors,
    write_whole,
)
from support import each, refused


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "record.json"
    for content in (b"one", b"", b"three" * 1000):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_logs_grow(tmp_path):
    for content in (b"one\n", b"two\n"):
        append(tmp_path / "log.csv", content)
    assert (tmp_path / "log.csv").read_bytes() == b"one\ntwo\n"
    refused(lambda: append(tmp_path / "none" / "log.csv", b""), "a file needs a writable folder;", StorageError)
    refused(lambda: append(tmp_path, b""), "must go to a writable place; ... cannot be written (Is a", StorageError)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_was_there_survives_a_failure(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "record.json"
    write_whole(path, b"old")
    monkeypatch.setattr(os, call, fail)
    refused(lambda: write_whole(path, b"new"), "cannot be written (No space left on device) ... is", StorageError)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def opened(path, **options):
    with open_regular(path, "a model", **options) as file:
        return file.read()


@pytest.mark.parametrize("name", ["none/file", "x" * 300, "with\0zero"])
def test_impossible_places(tmp_path, name):
    with pytest.raises(StorageError, match=r"a file (must go to a writable place|needs a writable folder; .* exist)"):
        write_whole(tmp_path / name, b"")
    refused(lambda: opened(tmp_path / name), "a model must be a file")


def test_folders_are_made_with_their_parents(tmp_path):
    make_folder(tmp_path / "a" / "b", "runs")
    make_folder(tmp_path / "a" / "b", "runs")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    refused(lambda: make_folder(tmp_path / "file" / "c", "runs"), "runs need a folder that can be made;", StorageError)


def test_only_ordinary_files_of_a_reasonable_size_are_opened(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"12345")
    assert opened(path, most=5) == b"12345"
    os.mkfifo(tmp_path / "pipe")
    for place, words in (
        (path, "a model may have 4 bytes; ... has 5"),
        (tmp_path, "a model must be a file; ... is a folder"),
        (tmp_path / "pipe", "a model must be an ordinary file; ... is a pipe or a device"),
        (Path("/dev/zero"), "a model must be an ordinary file"),
        (tmp_path / "none", "a model must be a file; there is no file"),
    ):
        refused(lambda place=place: opened(place, most=4), words)


@each(
    (b"", "a record must hold JSON"),
    (b"[1, 2]", "a record must hold a JSON object"),
    (b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}", "nested too deeply"),
    (b"[" * 1_000_000, "a record must hold JSON"),
    ids=range(4),
)
def test_what_is_no_json_object_is_damaged(content, words, tmp_path):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    refused(lambda: read_json(path, "a record"), words, DamageError)


def test_json_may_be_ninety_nine_levels_deep():
    """The numbers are the hundredth level."""
    text = "[" * 99 + "1" + "]" * 99
    assert parse_json(text) is not None
    refused(lambda: parse_json(f"[{text}]"), "nested too deeply", ValueError)


# ---- Files of arrays with a checksum: what is read is what was written, or an error


ARRAYS = {"P": np.arange(6.0).reshape(2, 3), "layers": np.array(3), "half": np.ones((2, 2), np.float32)}
FACTS = {"format": "test", "words": "\u03c3 = 1"}


def accept(metadata):
    pass


@pytest.fixture
def path(tmp_path):
    place = tmp_path / "arrays.safetensors"
    place.write_bytes(pack(ARRAYS, FACTS))
    return place


def test_what_is_read_is_what_was_written(path):
    metadata, arrays = read_tensors(path, "a model", accept)
    assert metadata == FACTS
    assert arrays.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert arrays[name].dtype == value.dtype
        assert np.array_equal(arrays[name], value)
        assert np.array_equal(load(path.read_bytes())[name], value)  # as other programs read it


def test_views_are_written_as_they_look():
    """safetensors alone writes the memory of a view as it lies there."""
    whole = np.arange(12.0).reshape(3, 4)
    for view in (whole.T, whole[::-1], whole[:, 1::2], np.broadcast_to(whole[0], (2, 4))):
        assert np.array_equal(load(pack({"view": view}, {}))["view"], view)


def test_names_dtypes_shapes_and_texts_count():
    a = np.zeros((2, 3))
    others = [{"a": a}, {"b": a}, {"a": a.T}, {"a": a.astype(np.float32)}, {"a": a + 1}, {"a": a, "b": a}]
    found = [digest(other) for other in others] + [digest(others[0], "x"), digest(others[0], "x", "y")]
    assert len(set(found)) == len(found)
    assert checksum({"a": a}, {"x": "1", "y": "2"}) == checksum({"a": a}, {"y": "2", "x": "1"})


def test_every_changed_byte_is_noticed(path):
    """If the caller requires a checksum, as all do: without one nothing is compared."""

    def require(metadata):
        if "checksum" not in metadata:
            raise DamagedFile("no checksum")

    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            metadata, arrays = read_tensors(path, "a model", require)
        except DamagedFile:
            continue
        # JSON has several spellings of the same header; then nothing that is read may differ.
        assert (metadata, arrays.keys()) == (FACTS, ARRAYS.keys())
        assert all(np.array_equal(arrays[name], value) for name, value in ARRAYS.items())


@pytest.mark.parametrize("kept", [0, 7, 8, 40, -1])
def test_truncated_files_are_damaged(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    refused(lambda: read_tensors(path, "a model", accept), "it is truncated, corrupt or of another kind", DamagedFile)


def test_the_header_is_checked_before_the_arrays_are_read(path):
    def refuse(metadata):
        assert metadata["format"] == "test"
        raise DamagedFile("of another kind")

    path.write_bytes(path.read_bytes()[:-8])
    refused(lambda: read_tensors(path, "a model", refuse), "of another kind", DamagedFile)


# ---- Values for JSON: nothing of NumPy, nothing that is not finite, and otherwise the same


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_what_json_can_hold_stays(value):
    assert jsonable(value) == value
    assert json.loads(json.dumps(jsonable(value), allow_nan=False)) == value


@each(
    (np.float32(0.5), 0.5),
    (np.int64(3), 3),
    (np.bool_(True), True),
    (np.array([[1.0, np.nan], [np.inf, -np.inf]]), [[1.0, None], [None, None]]),
    (np.array(2.0), 2.0),
    ((1, (2, np.nan)), [1, [2, None]]),
    ({1: np.arange(2), "inner": {"loss": float("nan")}}, {"1": [0, 1], "inner": {"loss": None}}),
)
def test_arrays_tuples_and_numbers_that_are_not_finite(value, expected):
    found = jsonable(value)
    assert found == expected
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


def test_a_device_or_a_pipe_is_not_replaced(tmp_path):
    """The system administrator's /dev/null would become an ordinary file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused(lambda: write_whole(pipe, b"content"), "it is a device or a pipe", StorageError)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
