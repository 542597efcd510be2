"""No input to the native core, however odd, may crash the interpreter. Run by `make sanitize` as well."""

import contextlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

_core = pytest.importorskip("ridgeformer._core")
SETS = [name for name, _ in _core.instruction_sets()]
BEST = SETS[0]


def sampling(**changes):
    """Valid arguments for `sample`, some of them replaced."""
    B, d = 5, 3
    arguments = {
        "isa": BEST,
        "dim": d,
        "context": 4,
        "seed": 0,
        "stream": 0,
        "step": 0,
        "first": 0,
        "sigma": np.ones(B),
        "gram": np.empty((d + 1, d + 1, B)),
        "task": np.empty((d, B)),
        "ridge": np.empty((d, B)),
        "threads": 2,
    }
    return arguments | changes


def evaluating(**changes):
    B, d, L = 5, 3, 2
    rng = np.random.default_rng(0)
    arguments = {
        "isa": BEST,
        "dim": d,
        "first": rng.normal(size=(L, 2, 2)) * 0.01,
        "second": None,
        "gram": np.repeat(np.eye(d + 1)[..., None], B, 2),
        "target": np.zeros((d, B)),
        "ceiling": np.inf,
        "losses": np.empty(B),
        "weights": np.empty((d, B)),
        "gradient": np.empty(4 * L),
        "threads": 2,
    }
    return arguments | changes


def stepping(**changes):
    arguments = {
        "isa": BEST,
        "dim": 3,
        "context": 4,
        "seed": 0,
        "stream": 0,
        "step": 0,
        "first_sequence": 0,
        "sigma": np.ones(5),
        "first": np.full((2, 2, 2), 0.01),
        "second": None,
        "ridge": True,
        "ceiling": np.inf,
        "losses": np.empty(5),
        "plain": np.empty(5),
        "gradient": np.empty(8),
        "threads": 2,
    }
    return arguments | changes


def full(D=4, L=2, H=1):
    return {
        "first": np.full((L, H, D, D), 0.01),
        "second": np.full((L, H, D, D), 0.01),
        "gradient": np.empty(2 * L * H * D * D),
    }


def misaligned(shape):
    size = int(np.prod(shape))
    return np.zeros(8 * size + 1, np.uint8)[1:].view(np.float64).reshape(shape)


def read_only(shape):
    a = np.zeros(shape)
    a.flags.writeable = False
    return a


def test_the_valid_arguments_are_valid():
    _core.sample(**sampling())
    _core.evaluate(**evaluating())
    _core.evaluate(**evaluating(**full()))
    _core.evaluate(**evaluating(weights=None, gradient=None))
    _core.step(**stepping())
    _core.step(**stepping(**full()))
    _core.step(**stepping(plain=None, gradient=None))


BAD = [
    ("sample", {"dim": 0}, "dim must be between 1 and"),
    ("sample", {"dim": -1}, "dim must be"),
    ("sample", {"dim": 2**62}, "dim must be"),
    ("sample", {"context": 0}, "context must be"),
    ("sample", {"context": 2**62}, "context must be"),
    ("sample", {"stream": -1}, "stream must be"),
    ("sample", {"stream": 2**32}, "stream must be"),
    ("sample", {"first": -1}, "first must be"),
    ("sample", {"first": 2**62}, "first must be"),
    ("sample", {"first": 2**32 - 4}, "first must be"),
    ("sample", {"threads": 0}, "threads must be"),
    ("sample", {"threads": 10**6}, "threads must be"),
    ("sample", {"isa": "mmx"}, "instruction set must be one this CPU has"),
    ("sample", {"sigma": np.ones(0)}, "batch must be between 1"),
    ("sample", {"sigma": np.ones(6)}, "gram must have shape (4, 4, 6), got (4, 4, 5)"),
    ("sample", {"sigma": np.ones((5, 1))}, "sigma must have 1 axes"),
    ("sample", {"sigma": np.ones(5, np.float32)}, "sigma must have the dtype"),
    ("sample", {"sigma": np.ones(10)[::2]}, "sigma must be C-contiguous"),
    ("sample", {"sigma": misaligned((5,))}, "sigma must be aligned"),
    ("sample", {"gram": np.empty((4, 4, 5), np.float32)}, "dtype"),
    ("sample", {"gram": np.empty((4, 4, 5), np.int64)}, "float32 or float64"),
    ("sample", {"gram": np.empty((5, 4, 4)).T}, "gram must be C-contiguous"),
    ("sample", {"gram": misaligned((4, 4, 5))}, "gram must be aligned"),
    ("sample", {"task": np.empty((3, 4))}, "task must have shape (3, 5)"),
    ("sample", {"ridge": np.empty((2, 5))}, "ridge must have shape"),
    ("evaluate", {"dim": 4}, "gram must have shape (5, 5, 5)"),
    ("evaluate", {"dim": 0}, "dim must be"),
    ("evaluate", {"first": np.zeros((0, 2, 2))}, "layers must be between 1"),
    ("evaluate", {"first": np.zeros((2, 4))}, "omega must have 3 axes"),
    ("evaluate", {"first": np.zeros((2, 2, 3))}, "omega must have shape"),
    ("evaluate", {"first": np.zeros((2, 2, 2), np.float32)}, "omega must have the dtype"),
    ("evaluate", full() | {"second": np.zeros((1, 1, 4, 4))}, "Q must have shape (2, 1, 4, 4)"),
    ("evaluate", full() | {"second": np.zeros((2, 1, 4, 4)).swapaxes(2, 3)[:, :, ::-1]}, "Q must be C-contiguous"),
    ("evaluate", full(H=0), "heads must be between 1"),
    ("evaluate", full(D=5), "P must have shape"),
    ("evaluate", {"gram": np.zeros((4, 4, 0))}, "batch must be between 1"),
    ("evaluate", {"gram": np.zeros((4, 4))}, "gram must have 3 axes"),
    ("evaluate", {"target": np.zeros((3, 6))}, "target must have shape"),
    ("evaluate", {"losses": np.zeros(4)}, "losses must have shape"),
    ("evaluate", {"weights": np.zeros((5, 3))}, "weights must have shape"),
    ("evaluate", {"gradient": np.zeros(7)}, "gradient must have shape (8), got (7)"),
    ("evaluate", {"gradient": np.zeros(8, np.float32)}, "gradient must have the dtype"),
    ("step", {"gradient": np.zeros(7)}, "gradient must have shape"),
    ("step", {"losses": np.zeros(6)}, "losses must have shape"),
    ("step", {"plain": np.zeros(6)}, "plain must have shape"),
    ("step", {"sigma": np.ones(0), "losses": np.ones(0)}, "batch must be"),
    ("step", full(D=5), "P must have shape"),
    ("step", {"first_sequence": -5}, "first must be"),
]
ARGUMENTS = {"sample": sampling, "evaluate": evaluating, "step": stepping}


@pytest.mark.parametrize(("function", "changes", "words"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_arguments_are_refused_in_words(function, changes, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        getattr(_core, function)(**ARGUMENTS[function](**changes))


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        ("sample", {"gram": None}),
        ("sample", {"gram": [[1.0]]}),
        ("sample", {"gram": "text"}),
        ("sample", {"gram": read_only((4, 4, 5))}),
        ("sample", {"seed": -1}),
        ("sample", {"seed": 2**64}),
        ("sample", {"seed": 1.5}),
        ("sample", {"dim": 2**70}),
        ("evaluate", {"losses": read_only((5,))}),
        ("evaluate", {"ceiling": "high"}),
        ("evaluate", {"target": None}),
        ("step", {"losses": None}),
        ("step", {"threads": None}),
    ],
)
def test_arguments_of_the_wrong_type_are_refused(function, changes):
    with pytest.raises((TypeError, ValueError)):
        getattr(_core, function)(**ARGUMENTS[function](**changes))


def arrays():
    """Arrays of odd shapes, dtypes, strides and alignments."""
    shapes = st.lists(st.integers(0, 6), max_size=4).map(tuple)
    dtypes = st.sampled_from([np.float64, np.float32, np.int32, np.complex128, np.bool_, ">f8"])

    def make(shape, dtype, trick):
        a = np.ones(shape, dtype)
        if trick == "transposed":
            return a.T
        if trick == "reversed" and a.ndim:
            return a[::-1]
        if trick == "broadcast" and a.ndim:
            return np.broadcast_to(a[:1], shape) if shape[0] else a
        if trick == "misaligned":
            return misaligned(shape)
        if trick == "nan":
            return a * np.nan if a.dtype.kind in "fc" else a
        return a

    tricks = st.sampled_from(["plain", "transposed", "reversed", "broadcast", "misaligned", "nan"])
    return st.builds(make, shapes, dtypes, tricks)


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.integers(-2, 8), st.floats(), st.none(), st.text(max_size=3), st.booleans()
)


@settings(max_examples=400)
@given(data=st.data())
@pytest.mark.parametrize("function", ARGUMENTS)
def test_fuzz(function, data):
    """Any mixture of valid and odd arguments ends in a result or an exception."""
    arguments = ARGUMENTS[function]()
    if function != "sample" and data.draw(st.booleans()):
        arguments |= full()
    for name in data.draw(st.lists(st.sampled_from(sorted(arguments)), min_size=1, max_size=3, unique=True)):
        arguments[name] = data.draw(arrays() if isinstance(arguments[name], np.ndarray) else NUMBERS)
    if isinstance(arguments.get("threads"), int) and arguments["threads"] > 8:
        arguments["threads"] = 3
    with contextlib.suppress(TypeError, ValueError, MemoryError, OverflowError):
        getattr(_core, function)(**arguments)


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 1e30, 0.0])
def test_odd_numbers_give_numbers_not_crashes(isa, dtype, value):
    """NaN and infinity in the data come out as infinite losses and a finite gradient of everything else."""
    _core.sample(**sampling(isa=isa, sigma=np.full(5, value)))
    gram = np.repeat(np.eye(4, dtype=dtype)[..., None], 5, 2)
    gram[:, :, 2] = value
    for family in ({}, full()):
        arguments = evaluating(isa=isa, **family)
        for name in ("first", "second", "target", "losses", "weights"):
            if arguments[name] is not None:
                arguments[name] = arguments[name].astype(dtype)
        arguments["gram"] = gram
        _core.evaluate(**arguments)
        assert not np.isnan(arguments["losses"]).any()
        if not abs(value) < 1e9:
            assert np.isfinite(arguments["gradient"]).all()


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("dim", [1, 2, 5, 10, 11, 17, 33])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 64, 65])
def test_every_remainder_of_lanes_and_tiles(isa, dim, count):
    """Writes stay inside their arrays (guard cells around them keep their value), for all shapes of tiles."""
    guard = 7.5
    D = dim + 1

    def guarded(shape, dtype):
        block = np.full(int(np.prod(shape)) + 32, guard, dtype)
        return block, block[16:-16].reshape(shape)

    for dtype in (np.float32, np.float64):
        blocks, views = zip(
            *(guarded(s, dtype) for s in ((D, D, count), (dim, count), (dim, count), (count,))), strict=True
        )
        _core.sample(isa, dim, 2 * dim, 0, 0, 0, 0, np.ones(count), *views[:3], 2)
        omega = np.full((3, 2, 2), -0.01 / D, dtype)
        P = np.full((2, 2, D, D), 0.01 / D, dtype)
        for first, second, size in ((omega, None, 12), (P, P, 8 * D * D)):
            block, gradient = guarded((size,), np.float64)
            _core.evaluate(isa, dim, first, second, views[0], views[1], np.inf, views[3], None, gradient, 2)
            assert np.isfinite(gradient).all()
            assert (block[:16] == guard).all()
            assert (block[-16:] == guard).all()
        for block in blocks:
            assert (block[:16] == guard).all()
            assert (block[-16:] == guard).all()


def test_a_batch_too_large_for_memory_is_a_memory_error():
    from ridgeformer import Problem

    with pytest.raises(MemoryError):
        Problem(4096, 5, "fixed(1)").moments(2**22)
