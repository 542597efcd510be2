"""No input to the native core, however odd, may crash the interpreter. Run by `make sanitize` as well."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ridgeformer import Problem
from ridgeformer.engine import Choices, Law, Layout
from support import refused

_core = pytest.importorskip("ridgeformer._core")
native = pytest.importorskip("ridgeformer.engine.native", exc_type=ImportError)
SETS = [name for name, _ in _core.instruction_sets()]
BEST = SETS[0]


def described(B=5, **changes):
    """A law as the core reads it, by default that of the seed paper, some of its entries replaced."""
    law = Law(changes.pop("dim", 3), changes.pop("context", 4))
    return native._described(law, Choices(np.ones(B)), Layout(), np.dtype(float)) | changes


def with_law(arguments, changes):
    """The arguments with some of them replaced, and with those that are entries of the law replaced there."""
    entries = {name: changes[name] for name in changes if name in arguments["law"] and name not in arguments}
    others = {name: value for name, value in changes.items() if name not in entries}
    return arguments | {"law": arguments["law"] | entries} | others


def first_arguments():
    """What `sample` and `step` begin with."""
    return {"isa": BEST, "law": described(), "seed": 0, "stream": 0, "step": 0}


def sampling(**changes):
    """Valid arguments for `sample`, some of them replaced."""
    B, d = 5, 3
    arguments = {
        **first_arguments(),
        "first": 0,
        "sigma": np.ones(B),
        "gram": np.empty((d + 1, d + 1, B)),
        "task": np.empty((d, B)),
        "ridge": np.empty((d, B)),
        "metric": None,
        "threads": 2,
    }
    return with_law(arguments, changes)


def evaluating(**changes):
    B, d, L = 5, 3, 2
    rng = np.random.default_rng(0)
    arguments = {
        "isa": BEST,
        "dim": d,
        "parameters": [rng.normal(size=(L, 2, 2)) * 0.01],
        "gram": np.repeat(np.eye(d + 1)[..., None], B, 2),
        "target": np.zeros((d, B)),
        "metric": None,
        "ceiling": np.inf,
        "losses": np.empty(B),
        "weights": np.empty((d, B)),
        "gradient": np.empty(4 * L),
        "threads": 2,
    }
    return arguments | changes


def stepping(**changes):
    arguments = {
        **first_arguments(),
        "first_sequence": 0,
        "sigma": np.ones(5),
        "parameters": [np.full((2, 2, 2), 0.01)],
        "ridge": True,
        "ceiling": np.inf,
        "losses": np.empty(5),
        "unadjusted": np.empty(5),
        "gradient": np.empty(8),
        "threads": 2,
    }
    return with_law(arguments, changes)


def layers(*sizes):
    """Parameters of two layers with one head: P and Q, or those of channels (v, v, s, s)."""
    return {
        "parameters": [np.full((2, 1, k, k), 0.01) for k in sizes],
        "gradient": np.empty(sum(2 * k * k for k in sizes)),
    }


def channels(v=1, s=1):
    """Channels for tokens of four coordinates, unless told otherwise."""
    return layers(v, v, s, s)


def misaligned(shape):
    size = int(np.prod(shape))
    return np.zeros(8 * size + 1, np.uint8)[1:].view(np.float64).reshape(shape)


def test_the_valid_arguments_are_valid():
    _core.sample(**sampling())
    _core.evaluate(**evaluating())
    _core.evaluate(**evaluating(**layers(4, 4)))
    for v, s in ((1, 1), (1, 2), (2, 2), (3, 1)):
        _core.evaluate(**evaluating(**channels(v, s)))
    _core.evaluate(**evaluating(weights=None, gradient=None))
    _core.step(**stepping())
    _core.step(**stepping(**layers(4, 4)))
    _core.step(**stepping(unadjusted=None, gradient=None))


BAD = [
    ("sample", {"dim": 0}, "dim must be between 1 and"),
    ("sample", {"law": {}}, "a law must have the entry dim"),
    ("sample", {"dim": "3"}, "dim is of the wrong type"),
    ("sample", {"shortest": 3}, "counts must be an array where n varies"),
    ("sample", {"shortest": 3, "counts": np.array([3, 4, 5, 4, 3])}, "counts must be between 3 and 4, got 5"),
    ("sample", {"covariance": 2}, "factors must be between 1 and 3, got 0"),
    ("sample", {"factor": np.eye(2)}, "factor must have shape (3, 3), got (2, 2)"),
    ("sample", {"rank": 2}, "rank must be between 3 and 3, got 2"),
    ("sample", {"pool_size": 2, "pool": np.ones((2, 3))}, "choice must be an array where there is a pool"),
    (
        "sample",
        {"pool_size": 2, "pool": np.ones((2, 3)), "choice": np.array([0, 1, 2, 0, 0])},
        "choice must be between -1 and 1, got 2",
    ),
    ("sample", {"own_metric": True}, "metric must be an array, got None"),
    ("sample", {"scratch": 1}, "gram must have shape (5, 5, 5), got (4, 4, 5)"),
    ("sample", {"scratch": 4093, "coordinate": 1}, "coordinates of tokens must be between 1 and 4096, got 4097"),
    ("sample", {"first": 2**32 - 4}, "first must be"),
    ("sample", {"isa": "mmx"}, "instruction set must be one this CPU has"),
    ("sample", {"sigma": np.ones(6)}, "gram must have shape (4, 4, 6), got (4, 4, 5)"),
    ("sample", {"sigma": misaligned((5,))}, "sigma must be aligned"),
    ("sample", {"gram": np.empty((4, 4, 5), np.int64)}, "float32 or float64"),
    ("sample", {"gram": np.empty((5, 4, 4)).T}, "gram must be C-contiguous"),
    ("evaluate", layers(5, 5) | {"dim": 4}, "gram must have shape (5, 5, 5)"),
    ("evaluate", {"parameters": [np.zeros((0, 2, 2))]}, "layers must be between 1"),
    ("evaluate", {"parameters": [np.zeros((2, 1, 4, 4)), np.zeros((1, 1, 4, 4))]}, "Q must have shape (2, 1, 4, 4)"),
    ("evaluate", {"parameters": []}, "parameters must be 1, 2 or 4 arrays, got 0"),
    ("evaluate", channels(2, 1), "tokens of 4 coordinates must hold 2 vectors and 1 scalars"),
    ("evaluate", channels(0, 1), "vectors must be between 1 and 4, got 0"),
    ("evaluate", {"gram": np.zeros((4, 4))}, "gram must have 3 axes"),
    ("evaluate", {"target": np.zeros((2, 5))}, "omega must be for tokens without further coordinates"),
    ("evaluate", {"target": np.zeros((4, 5))}, "the length of targets must be between 1 and 3, got 4"),
    ("evaluate", {"metric": np.eye(2)}, "metric must have shape (3, 3), got (2, 2)"),
    ("evaluate", {"gradient": np.zeros(7)}, "gradient must have shape (8), got (7)"),
    ("step", {"losses": np.zeros(6)}, "losses must have shape"),
    ("step", {"scratch": 1}, "omega must be for tokens without further coordinates"),
]
ARGUMENTS = {"sample": sampling, "evaluate": evaluating, "step": stepping}


@pytest.mark.parametrize(("function", "changes", "words"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_arguments_are_refused_in_words(function, changes, words):
    refused(lambda: getattr(_core, function)(**ARGUMENTS[function](**changes)), words, ValueError)


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


NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.integers(-2, 8), st.floats(), st.none(), st.text(), st.booleans())


@settings(max_examples=400)
@given(data=st.data())
@pytest.mark.parametrize("function", ARGUMENTS)
def test_fuzz(function, data):
    """Any mixture of valid and odd arguments ends in a result or an exception."""
    arguments = ARGUMENTS[function]()
    if function != "sample":
        arguments |= data.draw(st.sampled_from([{}, layers(4, 4), channels(), channels(1, 2), channels(2, 2)]))
        odd = st.lists(st.one_of(arrays(), st.sampled_from(arguments["parameters"])), max_size=5)
        if data.draw(st.booleans()):
            arguments["parameters"] = data.draw(odd)
    law = arguments.get("law", {})
    names = sorted({*arguments, *law})
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)):
        place = arguments if name in arguments else law
        may_be_array = isinstance(place[name], np.ndarray) or place[name] is None
        place[name] = data.draw(st.one_of(arrays(), NUMBERS) if may_be_array else NUMBERS)
    if isinstance(arguments.get("threads"), int) and arguments["threads"] > 8:
        arguments["threads"] = 3
    with contextlib.suppress(TypeError, ValueError, MemoryError, OverflowError):
        getattr(_core, function)(**arguments)


def splits(dim):
    """Numbers of vectors and their lengths that `dim` coordinates beside y have room for: few scalars, and many."""
    return {(1, dim), (1, max(dim - 2, 1)), (1, (dim + 1) // 2), (2, dim // 2), (3, dim // 3)} - {(2, 0), (3, 0)}


class Guarded:
    """Arrays with guard cells around them."""

    def __init__(self, dtype, *shapes):
        self.blocks = [np.full(int(np.prod(shape)) + 32, 7.5, dtype) for shape in shapes]
        self.views = [block[16:-16].reshape(shape) for block, shape in zip(self.blocks, shapes, strict=True)]

    def check(self):
        """All that was written is finite and inside the arrays."""
        assert all(np.isfinite(view).all() for view in self.views)
        assert all((cells == 7.5).all() for block in self.blocks for cells in (block[:16], block[-16:]))


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 2, 5, 10, 11, 12, 17, 33])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 64, 65])
def test_every_remainder_of_lanes_and_tiles(isa, dtype, dim, count):
    D = dim + 1
    data = Guarded(dtype, (D, D, count), (dim, count), (dim, count), (count,))
    law = native._described(Law(dim, 2 * dim), Choices(np.ones(count)), Layout(), np.dtype(dtype))
    _core.sample(isa, law, 0, 0, 0, 0, np.ones(count), *data.views[:3], None, 2)
    omega, P = np.full((3, 2, 2), -0.01 / D, dtype), np.full((2, 2, D, D), 0.01 / D, dtype)
    mixed = [[np.full((3, 2, k, k), 0.01 / D, dtype) for k in (v, v, D - v * d, D - v * d)] for v, d in splits(dim)]
    for parameters in ([omega], [P, P], *mixed):
        gradient, (gram, target, _, losses) = Guarded(np.float64, (sum(p.size for p in parameters),)), data.views
        _core.evaluate(isa, dim, parameters, gram, target, None, np.inf, losses, None, *gradient.views, 2)
        gradient.check()
    data.check()


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 2, 5, 17])
@pytest.mark.parametrize("count", [1, 17, 65])
@pytest.mark.parametrize("covariance", ["fixed", "rotated", "factors"])
def test_every_remainder_with_metrics_and_further_coordinates(isa, dtype, dim, count, covariance):
    """The same for the metric of each sequence, contexts of different lengths, and tokens with further coordinates."""
    layout, parts = Layout("mean", "length", 2), {"factors": dim, "unique": 0.5} if covariance == "factors" else {}
    law = Law(dim, 2 * dim + 2, 2, covariance, spread=0.5, standardised=True, mean=np.ones(dim), **parts)
    choices, D = Choices(np.ones(count), np.arange(count) % (2 * dim + 1) + 2), dim + layout.extra + 1
    data = Guarded(dtype, (D, D, count), (dim, count), (dim, count), (dim, dim, count))
    described = native._described(law, choices, layout, np.dtype(dtype))
    _core.sample(isa, described, 0, 0, 0, 0, np.ones(count), *data.views, 2)
    data.check()


def test_a_batch_too_large_for_memory_is_a_memory_error():
    refused(lambda: Problem(4096, 5, "fixed(1)").moments(2**22), "", MemoryError)
