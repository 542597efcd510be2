"""Files appear whole or not at all, and odd ones are refused before they are read."""

import os
from pathlib import Path

import pytest

from ridgeformer.errors import DamageError, InputError, StorageError
from ridgeformer.files import append, make_folder, open_regular, parse_json, read_json, short, write_whole


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
    with pytest.raises(StorageError, match=r"a file needs a writable folder; .* does not exist"):
        append(tmp_path / "none" / "log.csv", b"")
    with pytest.raises(StorageError, match=r"must go to a writable place; .* cannot be written \(Is a directory\)"):
        append(tmp_path, b"")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_was_there_survives_a_failure(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "record.json"
    write_whole(path, b"old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StorageError, match=r"cannot be written \(No space left on device\).*is intact"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["none/file", "x" * 300, "with\0zero"])
def test_impossible_places(tmp_path, name):
    with pytest.raises(
        StorageError, match=r"a file (must go to a writable place|needs a writable folder; .* does not exist)"
    ):
        write_whole(tmp_path / name, b"")
    with pytest.raises(InputError, match="a model must be a file"), open_regular(tmp_path / name, "a model"):
        pass


def test_folders_are_made_with_their_parents(tmp_path):
    make_folder(tmp_path / "a" / "b", "runs")
    make_folder(tmp_path / "a" / "b", "runs")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"runs need a folder that can be made; .*file/c cannot"):
        make_folder(tmp_path / "file" / "c", "runs")


def test_only_ordinary_files_of_a_reasonable_size_are_opened(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"12345")
    with open_regular(path, "a model", most=5) as file:
        assert file.read() == b"12345"
    os.mkfifo(tmp_path / "pipe")
    for place, words in (
        (path, "a model may have 4 bytes; .* has 5"),
        (tmp_path, "a model must be a file; .* is a folder"),
        (tmp_path / "pipe", "a model must be an ordinary file; .* is a pipe or a device"),
        (Path("/dev/zero"), "a model must be an ordinary file"),
        (tmp_path / "none", "a model must be a file; there is no file"),
    ):
        with pytest.raises(InputError, match=words), open_regular(place, "a model", most=4):
            pass


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "a record must hold JSON"),
        (b"[1, 2]", "a record must hold a JSON object"),
        (b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}", "nested too deeply"),
        (b"[" * 1_000_000, "a record must hold JSON"),
    ],
    ids=range(4),
)
def test_what_is_no_json_object_is_damaged(tmp_path, content, words):
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(DamageError, match=words):
        read_json(path, "a record")


def test_json_may_be_ninety_nine_levels_deep():
    """The numbers are the hundredth level."""
    text = "[" * 99 + "1" + "]" * 99
    assert parse_json(text) is not None
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(f"[{text}]")


def test_short_texts_are_one_printable_line():
    assert short("a\x1b[2J\nb") == "a?[2J?b"
    assert short("x" * 10_000, 40) == "x" * 20 + "..." + "x" * 10
