"""Files of arrays with a checksum: what is read is what was written, or an error."""

import numpy as np
import pytest
from safetensors.numpy import load

from ridgeformer.errors import InputError
from ridgeformer.files import DamagedFile, checksum, digest, pack, read_tensors

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


def test_other_programs_can_read_it(path):
    assert all(np.array_equal(value, ARRAYS[name]) for name, value in load(path.read_bytes()).items())


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
    with pytest.raises(DamagedFile, match="it is truncated, corrupt or of another kind"):
        read_tensors(path, "a model", accept)


def test_the_header_is_checked_before_the_arrays_are_read(path):
    def refuse(metadata):
        assert metadata["format"] == "test"
        raise DamagedFile("of another kind")

    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DamagedFile, match="of another kind"):
        read_tensors(path, "a model", refuse)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"a model must be a file; there is no file .*none"):
        read_tensors(tmp_path / "none", "a model", accept)
