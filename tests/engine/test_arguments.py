"""Every odd argument of an engine is refused in words: the rule, what was received, the remedy."""

import numpy as np
import pytest

from ridgeformer import engine
from ridgeformer.engine import Choices, Engine, Key, Law, Layout, Matrices, Mixings, Omegas
from support import each, refused, tame_model

DIM, COUNT = 3, 5
OMEGA, FULL = (tame_model(kind, DIM, 2, 1, 4).kernel for kind in ("diag", "full"))
CHANNELS = Mixings(*np.random.default_rng(0).normal(0, 0.05, (4, 2, 3, 1, 1)))  # one vector, one scalar, three heads
GRAM, TARGET = np.repeat(np.eye(DIM + 1)[None], COUNT, 0), np.zeros((COUNT, DIM))
SOUND = {
    "uniforms": {"key": Key(), "count": COUNT, "first": 0},
    "sample": {"law": Law(DIM, 4), "choices": Choices(np.ones(COUNT)), "key": Key(), "first": 0, "dtype": float},
    "evaluate": {"kernel": FULL, "gram": GRAM, "target": TARGET},
    "step": {"kernel": FULL, "law": Law(DIM, 4), "choices": Choices(np.ones(COUNT)), "key": Key()},
}


def call(chosen, method, **changes):
    """Call a method with sound arguments, some of them replaced; `dim`, `context` and `sigma` by themselves."""
    law = {name: changes.pop(name) for name in ("dim", "context") if name in changes}
    if law:
        changes["law"] = Law(**({"dim": DIM, "context": 4} | law))
    if "sigma" in changes:
        changes["choices"] = Choices(changes.pop("sigma"))
    return getattr(chosen, method)(**(SOUND[method] | changes))


class Subclass(np.ndarray):
    pass


DRAWS, KEYS, MODELS = ("sample", "step"), ("uniforms", "sample", "step"), ("evaluate", "step")
WHOLE = "must be a whole number; got"
ODD = [
    # (methods, argument, value, words)
    (DRAWS, "dim", None, f"dim {WHOLE} None. Pass a whole number of at least 1."),
    (DRAWS, "dim", 0, "dim must be at least 1; got 0. Pass 1 or more."),
    (DRAWS, "dim", 4097, "dim must be at most 4096; got 4097. Pass 4096 or less."),
    (DRAWS, "context", 2.0, f"context {WHOLE} 2.0"),
    (DRAWS, "context", 2**52 + 1, "context must be at most 4503599627370496; got 4503599627370497"),
    (("uniforms",), "count", 0, "the number of sequences must be at least 1; got 0"),
    (("uniforms",), "count", 2**32 + 1, "the number of sequences must be at most 4294967296"),
    (KEYS, "first", -1, "first must be at least 0; got -1"),
    (KEYS, "first", 2**32 - 4, "the number of sequences must be at most 4; got 5"),
    (KEYS, "key", None, "key must be a Key; got None. Pass Key(seed, stream, step)."),
    (KEYS, "key", Key(-1), "the key's seed must be at least 0; got -1"),
    (KEYS, "key", Key(0, 2**32), "the key's stream must be at most 4294967295"),
    (KEYS, "key", Key(0, 0, 2**64), "the key's step must be at most 18446744073709551615"),
    (DRAWS, "sigma", 1.0, "sigma must be a NumPy array; got 1.0. Convert it, for example with"),
    (DRAWS, "sigma", np.ones((COUNT, 1)), "sigma must have shape (B,) with at least one sequence; got shape (5, 1)"),
    (DRAWS, "sigma", np.array([1, np.nan]), "sigma must be finite and not negative; got nan in it"),
    (DRAWS, "sigma", np.array([1, -0.5]), "sigma must be finite and not negative; got -0.5 in it"),
    (DRAWS, "sigma", np.full(COUNT, 1j), "sigma must hold real numbers; got dtype complex128"),
    (DRAWS, "sigma", np.ma.masked_array(np.ones(2), [0, 1]), "sigma must have no masked entries; got a masked array"),
    (DRAWS, "law", None, "law must be a Law; got None. Pass Law(dim, context), for example."),
    (DRAWS, "choices", np.ones(COUNT), "choices must be Choices; got array("),
    (DRAWS, "layout", "mean", "layout must be a Layout; got 'mean'. Pass Layout(), for example."),
    (DRAWS, "layout", Layout(scratch=4094), "the number of coordinates beside y must be at most 4096; got 4097"),
    (("uniforms",), "word", 4, "word must be at most 3; got 4"),
    (("sample",), "dtype", np.float16, "dtype must be float32 or float64; got <class 'numpy.float16'>"),
    (MODELS, "threads", 0, "threads must be at least 1; got 0"),
    (("sample", "evaluate"), "threads", 1025, "threads must be at most 1024; got 1025"),
    (MODELS, "ceiling", -1.0, "ceiling must be at least 0; got -1.0"),
    (MODELS, "gradient", "no", "gradient must be True or False; got 'no'. Pass True or False."),
    (("evaluate",), "weights", 1, "weights must be True or False; got 1"),
    (("step",), "target", "tasks", "target must be ridge or task; got 'tasks'"),
    (MODELS, "kernel", None, "a kernel must be Omegas(omega), Matrices(P, Q) or Mixings(Pv, Qv, Ps, Qs); got None"),
    (MODELS, "kernel", Omegas(1.0), "omega must be a NumPy array; got 1.0"),
    (MODELS, "kernel", Omegas(np.zeros((2, 4))), "omega must have shape (L, 2, 2); got shape (2, 4)"),
    (MODELS, "kernel", Omegas(np.zeros((0, 2, 2))), "the number of layers must be at least 1; got 0"),
    (MODELS, "kernel", Omegas(OMEGA[0].astype(int)), "omega must hold float32 or float64 numbers; got dtype"),
    (MODELS, "kernel", Omegas(OMEGA[0] * np.inf), "omega must be finite in float64; got NaN or infinity"),
    (MODELS, "kernel", Matrices(FULL[0], FULL[1] * np.nan), "Q must be finite in float64; got NaN or infinity"),
    (MODELS, "kernel", Matrices(FULL[0], FULL[1][:1]), "P and Q must have the same shape; got P (2, 1, 4, 4), Q"),
    (MODELS, "kernel", Matrices(FULL[0], np.float32(FULL[1])), "P and Q must have the same dtype; got P float64"),
    (MODELS, "kernel", type(FULL)(*(p[:, :0] for p in FULL)), "the number of heads must be at least 1; got 0"),
    (MODELS, "kernel", type(FULL)(*(p[..., 1:, 1:] for p in FULL)), "P must have shape (L, H, 4, 4) for"),
    (("evaluate",), "gram", None, "gram must be a NumPy array; got None"),
    (("evaluate",), "gram", GRAM[:, 1:], "gram must have shape (B, d+1, d+1); got shape (5, 3, 4)"),
    (("evaluate",), "gram", GRAM[:0], "gram must hold at least one sequence; got shape (0, 4, 4)"),
    (("evaluate",), "gram", GRAM[:, :1, :1], "gram must be for a dimension d of 1 to 4096; got shape (5, 1, 1)"),
    (("evaluate",), "gram", GRAM.astype(int), "gram must hold float32 or float64 numbers; got dtype int64"),
    (("evaluate",), "target", TARGET[:4], "target must have shape (5, 3) to fit gram; got shape (4, 3)"),
    (("evaluate",), "counted", 4, "counted must be at most 3; got 4"),
    (("evaluate",), "counted", 2, "target must have shape (5, 2) to fit gram; got shape (5, 3)"),
    (("evaluate",), "metric", np.eye(2), "metric must have shape (3, 3) or (5, 3, 3) to fit target; got shape (2, 2)"),
    (("evaluate",), "metric", np.eye(3, dtype=int), "metric must hold float32 or float64 numbers; got dtype int64"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "name", "value", "words"),
    [(method, *rest) for methods, *rest in ODD for method in methods],
    ids=[f"{method}-{name}" for methods, name, *_ in ODD for method in methods],
)
def test_odd_arguments_are_refused_in_words(any_engine, method, name, value, words):
    refused(lambda: call(any_engine, method, **{name: value}), words)


@pytest.mark.parametrize("odd", [3, 1.5, [], {}, ("numpy",), np.zeros(3), object, "mmx"])
@pytest.mark.parametrize("function", [engine.resolve, engine.named])
def test_what_is_no_engine_is_refused(function, odd):
    refused(lambda: function(odd), "an engine (RIDGEFORMER_ENGINE) must be one of ... numpy ... ; got")


def test_an_engine_is_found_by_itself_and_by_name(any_engine):
    assert isinstance(any_engine, Engine)
    assert engine.resolve(any_engine) is engine.resolve(any_engine.name) is any_engine
    assert engine.resolve(None) is engine.current()


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@each(
    read_only,
    lambda a: a.view(Subclass),
    lambda a: np.ma.masked_array(a),
    lambda a: a.astype(a.dtype.newbyteorder()),
    lambda a: np.asfortranarray(a),
    lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    ids=["read-only", "subclass", "masked array without a mask", "byte order", "column-major", "strided"],
)
@pytest.mark.parametrize("kernel", [OMEGA, FULL, CHANNELS], ids=["diag", "full", "channels"])
def test_arrays_of_any_form_give_the_same_bits(form, any_engine, kernel):
    rng = np.random.default_rng(0)
    half = rng.standard_normal((COUNT, DIM + 1, 6))
    sound = {"kernel": kernel, "gram": half @ half.swapaxes(1, 2), "target": rng.standard_normal((COUNT, DIM))}
    other = {"kernel": type(kernel)(*map(form, kernel)), "gram": form(sound["gram"]), "target": form(sound["target"])}
    sigma = rng.random(COUNT)
    for mine, twin in (
        (call(any_engine, "evaluate", **sound), call(any_engine, "evaluate", **other)),
        (
            call(any_engine, "step", kernel=kernel, sigma=sigma),
            call(any_engine, "step", kernel=other["kernel"], sigma=form(sigma)),
        ),
    ):
        assert type(twin.losses) is np.ndarray
        # NumPy's own sums may depend on the order in memory, to rounding.
        slack = 0.0 if any_engine.name != "numpy" else 1e-13
        for a, b in zip((mine.losses, *mine.gradient), (twin.losses, *twin.gradient), strict=True):
            np.testing.assert_allclose(a, b, rtol=slack, atol=slack * np.abs(b).max())


def test_numbers_of_any_type_are_normalised(any_engine):
    """NumPy's integers and a float32 or integer sigma mean what Python's numbers mean."""
    plain = call(any_engine, "sample", sigma=np.array([1.0, 2.0]))
    for sigma in (np.array([1, 2]), np.array([1, 2], np.float32), np.array([1, 2], np.longdouble)):
        changes = {"sigma": sigma, "dim": np.int8(DIM), "key": Key(np.int64(0)), "threads": np.uint16(1)}
        for a, b in zip(plain[:3], call(any_engine, "sample", **changes)[:3], strict=True):
            assert a.tobytes() == b.tobytes()


def test_parameters_and_targets_take_the_dtype_of_the_gram_matrices(any_engine):
    gram = GRAM.astype(np.float32)
    mixed = any_engine.evaluate(FULL, gram, TARGET + 0.1)
    rounded = type(FULL)(*(p.astype(np.float32) for p in FULL))
    same = any_engine.evaluate(rounded, gram, (TARGET + 0.1).astype(np.float32))
    assert mixed.losses.dtype == np.float32
    assert mixed.losses.tobytes() == same.losses.tobytes()
    refused(lambda: any_engine.evaluate(Omegas(OMEGA[0] * 1e100), gram, TARGET), "omega must be finite in float32; got")


def test_the_last_sequences_of_a_stream_can_be_drawn(any_engine):
    """Indices end at 2^32 - 1; the reference had an integer overflow there."""
    key, last = Key(2**64 - 1, 2**32 - 1, 2**64 - 1), 2**32 - 3
    uniforms = any_engine.uniforms(key, 3, last)
    np.testing.assert_array_equal(uniforms, engine.named("numpy").uniforms(key, 3, last))
    assert len(set(uniforms.tolist())) == 3
    mine, twin = (
        chosen.sample(Law(DIM, 4), Choices(np.ones(3)), key, first=last)
        for chosen in (any_engine, engine.named("numpy"))
    )
    np.testing.assert_allclose(mine.gram, twin.gram, rtol=1e-9)


def test_numpys_error_settings_do_not_matter(any_engine):
    """Overflow and underflow inside an engine are its own business, whatever `np.seterr` says."""
    with np.errstate(all="raise"):
        for sigma in (np.full(COUNT, 1e200), np.full(COUNT, 1e-200)):
            call(any_engine, "sample", sigma=sigma, dtype=np.float32)
            call(any_engine, "step", sigma=sigma, unadjusted=True)
        for size in (1e300, 1e100, 1e-300):
            for weights in (False, True):
                result = call(any_engine, "evaluate", gram=GRAM * size, weights=weights)
                assert "5 sequences" in repr(result)
                call(any_engine, "evaluate", gram=GRAM.astype(np.float32), target=TARGET + size, weights=weights)
