"""Odd calls of every engine, as many as one likes. Each must end in a sound result or in an `InputError`."""

import re
import warnings
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction

import numpy as np

from ridgeformer import InputError, engine
from ridgeformer.engine import Choices, Evaluation, Key, Law, Layout
from ridgeformer.engine.kernels import KERNELS, Matrices, Mixings, Omegas

MESSAGE = re.compile(r".+; got .+\. .+\.", re.DOTALL)  # the rule, what was received, the remedy
ENGINES = tuple(name for name in engine.available() if name != "jax")  # which would compile for every shape
NUMBERS = np.random.default_rng(0).standard_normal(4096)


class Hostile:
    """Answers every question with an error."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def _raise(self, *_):
        raise RuntimeError("hostile")

    __array__ = __bool__ = __eq__ = __float__ = __hash__ = __index__ = __int__ = __iter__ = __len__ = __repr__ = _raise


class Subclass(np.ndarray):
    """An array of another type."""


SCALARS = [
    None, "ridge", "text", "", b"bytes", [], [1.0, 2.0], (), (1,), {}, set(), object(), 1j, True, False, np.True_, 0,
    -1, 1, 2, 1.5, 0.0, -0.5, np.nan, np.inf, -np.inf, 1e308, 5e-324, 10**400, -(10**400), 10**5000, 2**31, 2**32,
    2**53, 2**63, 2**64, np.int64(3), np.uint8(2), np.float32(2), np.array(3), np.array(2.5), Fraction(1, 3),
    Fraction(10**400), Decimal(1), range(3), slice(None), len, Hostile(), Hostile, np.datetime64("2020"),
    Ellipsis, Key(), np.float32, int, Key(-1), Key(2**64), Key(0, 2**32), Key(0, 0, 2**64), Key("a"),
    Key(None, 1.5, []), Key(np.int64(3)), (0, 0, 0), Key(2**64 - 1, 2**32 - 1, 2**64 - 1), Key(10**5000), Key(True),
]  # fmt: skip
BY_NAME = {
    "dim": [0, 4097, 5, -3, 2**62],
    "context": [0, 2**52, 2**52 + 1, -3],
    "shortest": [0, 1, 2, 2**52, -3],
    "covariance": ["fixed", "rotated", "factors", "Fixed", "none"],
    "factors": [0, 1, 5, 4097],
    "unique": [0.0, 1e-300, 1e300, 7],
    "spread": [0.0, 1e-300, 3.0, 7],
    "standardised": [True, False, 1, "yes"],
    "attention": ["sum", "mean", "Sum", "max"],
    "coordinate": ["none", "constant", "length", "one"],
    "scratch": [0, 1, 4096, 4097, -1],
    "counted": [0, 1, 5, 4097],
    "word": [0, 3, 4, -1],
    "counts": [np.ones(3, int), np.full(9, 2), np.ones(5), [1, 2]],
    "task": [np.zeros(3, int), np.full(9, -1), np.full(9, -2), np.ones(5), [0, 1]],
    "law": [Law(2, 3), Law(1, 1), Law(3, 6, 2), Law(2, 4, pool=[[1.0, 2.0]]), {"dim": 2, "context": 3}, 3],
    "choices": [Choices(np.ones(5)), Choices(np.ones(0)), Choices(1.0), Choices(None), np.ones(5)],  # type: ignore[arg-type]
    "layout": [Layout(), Layout("mean"), Layout("sum", "constant"), Layout(scratch=4096), "mean"],
    "first": [2**32 - 1, 2**32 - 9, 2**32, -5],
    "count": [0, 2**32 + 1, -5],
    "threads": [0, 1024, 1025, -1],
    "dtype": ["float32", "f4", ">f8", "a", "nonsense", "f4,f4", np.float16, np.int64, complex, [("a", "f4")], "O", ","],
    "target": ["task", "Ridge", "tasks"],
    "ceiling": [0, 0.0, 1e-300, 1e300, np.float64(3), 7],
    "kernel": [
        *(Omegas(None), Matrices(1, 2), Omegas([[1.0]]), Matrices(np.zeros(3), np.zeros(3)), Omegas(Hostile()), Omegas),
        *(Mixings(*np.zeros((4, 1, 1, 1, 1))), (np.zeros((1, 2, 2)),), [np.zeros((1, 2, 2))]),
    ],
    "engine": ["numpy", "mmx", "NumPy", [], {}, np.zeros(3)],
}
TRICKS = [
    lambda a: a[::-1],
    lambda a: a.T,
    lambda a: np.broadcast_to(a[:1], a.shape),
    lambda a: a[:0],
    lambda a: a[..., None],
    lambda a: a[0],
    lambda a: a.ravel(),
    lambda a: np.append(a, a, axis=0),
    lambda a: a.tolist(),
    lambda a: tuple(a),
    lambda a: np.ma.masked_array(a, a > 0),
    lambda a: a.view(Subclass),
    lambda a: a.astype(a.dtype.newbyteorder()),
    lambda a: np.frombuffer(b"0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),  # misaligned, read-only
    lambda a: np.full(a.shape, None),
    lambda a: a.astype("U9"),
    *(lambda a, kind=kind: a.astype(kind) for kind in (np.float16, np.longdouble, int, bool, complex, object)),
    *(lambda a, kind=kind: a.astype(kind) for kind in (np.float32, np.float64)),
    *(lambda a, value=value: np.where(
        NUMBERS[: a.size].reshape(a.shape) > 0.5, np.result_type(a, np.float32).type(value), a)
      for value in (np.nan, np.inf, -np.inf, -1, 0, 1e30, 1e-30)),
    *(lambda a, value=value: a.astype(float) * value for value in (1e10, 1e60, 1e150, 1e300, -1e300, 1e-320, np.inf)),
]  # fmt: skip


def judge(rng, folder):
    """Make a call with sound arguments of which up to three are replaced; a NumPy warning is an error."""
    method = rng.choice(["uniforms", "sample", "evaluate", "evaluate", "step", "step", "resolve", "named"])
    arguments = _sound(method, rng)
    names = sorted(arguments) + (["choices", "law", "layout"] if method in ("sample", "step") else [])
    changed = rng.sample(names, min(len(names), rng.choice([0, 1, 1, 1, 2, 3])))
    for name in changed:
        arguments[name] = _odd(name, arguments.get(name), rng)
    chosen = rng.choice(ENGINES)
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        try:
            _call(chosen, method, arguments)
            return "result"
        except Exception as error:
            if isinstance(error, InputError) and MESSAGE.fullmatch(str(error)):
                return "refused"
            raise AssertionError(f"{chosen}.{method}, odd: {changed}: {type(error).__name__}: {error}") from error


def _call(chosen, method, arguments):
    """Make a call, and check what it returns."""
    if method in ("resolve", "named"):
        getattr(engine, method)(arguments["engine"])
        return
    given = _assembled(arguments) if method in ("sample", "step") else arguments
    result = getattr(engine.named(chosen), method)(**given)
    if isinstance(result, Evaluation):
        _check(result)
    elif method == "uniforms":
        assert ((result > 0) & (result < 1)).all(), result


def _sound(method, rng):
    if method in ("resolve", "named"):
        return {"engine": rng.choice(ENGINES)}
    if method == "uniforms":
        return {"key": _key(rng), "count": rng.randint(1, 9), "first": rng.randint(0, 9), "word": rng.randint(0, 3)}
    dim, count, dtype = rng.randint(1, 4), rng.choice([1, 2, 3, 5, 9, 70]), rng.choice([np.float32, np.float64])
    options = {"threads": rng.choice([None, 1, 2])}
    limits = {"ceiling": rng.choice([np.inf, 1.0, 0.01]), "gradient": rng.random() < 0.8}
    if method in ("sample", "step"):
        law, choices, layout = _law(rng, dim), {"sigma": np.abs(_numbers(rng, (count,)))}, _layout(rng)
        if "shortest" in law:
            choices["counts"] = np.array([rng.randint(law["shortest"], law["context"]) for _ in range(count)])
        if "pool" in law:
            choices["task"] = np.array([rng.randint(-1, len(law["pool"]) - 1) for _ in range(count)])
        draw = law | choices | layout | options | {"key": _key(rng), "first": rng.randint(0, 9)}
        if method == "sample":
            return draw | {"dtype": dtype}
        width = dim + Layout(**layout).extra
        goal = "task" if "pool" in law else rng.choice(["ridge", "task"])
        model = {"kernel": _kernel(rng, width, dtype, dim, full=width > dim)}
        return model | draw | limits | {"target": goal, "unadjusted": rng.random() < 0.5}
    model = {"kernel": _kernel(rng, dim, dtype, rng.randint(1, dim))}
    half = _numbers(rng, (count, dim + 1, dim + 3)) * 10 ** rng.choice([0, 0, 0, rng.uniform(0, 77)])
    with np.errstate(over="ignore"):
        gram = (half @ half.transpose(0, 2, 1)).astype(dtype)
    batch = {"gram": gram, "target": _numbers(rng, (count, dim)).astype(dtype)}
    if rng.random() < 0.3:
        half = _numbers(rng, (*rng.choice([(), (count,)]), dim, dim))
        batch["metric"] = (half @ half.swapaxes(-1, -2)).astype(dtype)
    return model | limits | batch | options | {"weights": rng.random() < 0.5}


def _assembled(arguments):
    """The arguments of `sample` and `step`: law, choices and layout from their parts, unless they are there already."""
    others = dict(arguments)
    for name, kind in (("law", Law), ("choices", Choices), ("layout", Layout)):
        parts = {field.name: others.pop(field.name) for field in fields(kind) if field.name in others}
        if parts and name not in others:
            others[name] = kind(**parts)
    return others


def _law(rng, dim):
    """The parts of a law: half the time that of the seed paper, or else with up to three further parts."""
    law = {"dim": dim, "context": rng.randint(2, 6)}
    if rng.random() < 0.5:
        return law
    square = np.linalg.qr(_numbers(rng, (dim, dim)))[0]
    kinds = [
        {"shortest": rng.randint(2, law["context"])},
        {"factor": np.tril(square) + np.eye(dim)},
        {"covariance": "rotated", "factor": np.abs(_numbers(rng, (dim,)))},
        {"covariance": "factors", "factors": rng.randint(1, dim), "unique": 0.5},
        {"spread": rng.uniform(0, 1)},
        {"standardised": True},
        {"mean": _numbers(rng, (dim,))},
        {"task_factor": _numbers(rng, (dim, rng.randint(1, dim)))},
        {"pool": _numbers(rng, (rng.randint(1, 4), dim))},
        {"query": square @ np.diag(np.arange(1.0, dim + 1)) @ square.T},
    ]
    for part in rng.sample(kinds, rng.randint(1, 3)):
        law |= part
    if law.get("covariance") == "factors":
        law.pop("factor", None)
    if law.get("shortest") == law["context"]:
        del law["shortest"]
    if "standardised" in law:
        law.pop("query", None)
    return law


def _layout(rng):
    if rng.random() < 0.6:
        return {}
    coordinate = rng.choice(["none", "constant", "length"])
    return {"attention": rng.choice(["sum", "mean"]), "coordinate": coordinate, "scratch": rng.choice([0, 0, 2])}


def _kernel(rng, dim, dtype, length, full=False):
    """Omegas, P and Q, or channels of one or more vectors of this length, for `dim` coordinates beside y."""
    layers, heads, scale = rng.randint(1, 3), rng.randint(1, 2), 10 ** rng.uniform(-2, 0)
    kind = rng.choice(["full", "channels"] if full else ["diag", "full", "channels"])
    if kind == "diag":
        return Omegas((scale * _numbers(rng, (layers, 2, 2))).astype(dtype))
    v = rng.randint(1, dim // length)
    s = dim + 1 - v * length
    sizes = (dim + 1, dim + 1) if kind == "full" else (v, v, s, s)
    arrays = [(scale * _numbers(rng, (layers, heads, size, size))).astype(dtype) for size in sizes]
    return Matrices(*arrays) if kind == "full" else Mixings(*arrays)


def _key(rng):
    return Key(rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(64))


def _numbers(rng, shape):
    size = int(np.prod(shape))
    start = rng.randrange(len(NUMBERS) - size)
    return NUMBERS[start : start + size].reshape(shape)


def _odd(name, sound, rng):
    if name == "kernel" and rng.random() < 0.7:
        values = list(sound)
        at = rng.randrange(len(values))
        values[at] = _odd("", values[at], rng)
        make = type(sound)._make
        other = rng.choice([kind for kind in KERNELS.values() if len(kind._fields) != len(values)])
        mistyped = lambda v: other(*(v * 4)[: len(other._fields)])  # noqa: E731
        return rng.choice([make, make, make, tuple, list, lambda v: make(v[::-1]), mistyped])(values)
    if isinstance(sound, np.ndarray) and rng.random() < 0.8:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return rng.choice(TRICKS)(sound)
    chosen = rng.choice(BY_NAME.get(name, SCALARS) if rng.random() < 0.5 else SCALARS)
    if name == "count" and isinstance(chosen, int) and 10**5 < chosen <= 2**32:
        return 0  # the number is sound, but its array would fill the memory
    return chosen


def _check(result):
    assert not np.isnan(result.losses).any(), "losses with NaN"
    assert 0 <= result.limited <= len(result.losses), f"{result.limited} limited"
    assert all(np.isfinite(piece).all() for piece in result.gradient or ()), "the gradient is not finite"
    assert f"{result.limited} limited" in repr(result)
