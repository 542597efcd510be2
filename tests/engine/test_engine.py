"""The native core against its NumPy twin, finite differences and itself on other numbers of threads."""

import os
import subprocess
import sys

import fuzz_cases
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ridgeformer import Problem, engine
from ridgeformer.engine import Choices, Key, Law
from ridgeformer.engine.sampler import threefry
from support import NATIVE, check_slope, close, draw, tame_model

TWIN = engine.named("numpy")
SHAPE = {
    "dim": st.integers(1, 14),
    "context": st.integers(1, 30),
    "layers": st.integers(1, 8),
    "heads": st.integers(1, 4),
}
KINDS = st.sampled_from(["full", "diag", "gdpp"])


def test_threefry_has_the_published_answers():
    """Known answers of Random123's own test file, kat_vectors: threefry4x32, 20 rounds."""
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89)
    cases = [
        ((0,) * 4, (0,) * 4, (0x9C6CA96A, 0xE17EAE66, 0xFC10ECD4, 0x5256A7D8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 4, (0x2A881696, 0x57012287, 0xF6C7446E, 0xA16A6732)),
        (pi[:4], pi[4:], (0x59CD1DBB, 0xB8879579, 0x86B5D00C, 0xAC8B6D84)),
    ]
    for counter, key, answer in cases:
        words = threefry(key, tuple(np.array([word], np.uint32) for word in counter))
        assert tuple(int(word[0]) for word in words) == answer


@settings(max_examples=25)
@given(kind=KINDS, seed=st.integers(0, 99), count=st.integers(1, 150), **SHAPE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NATIVE)
def test_native_is_numpy(name, dtype, kind, dim, context, layers, heads, seed, count):
    """Sampling, losses, weights, gradient, and the fused step: all that an engine does."""
    native = engine.named(name)
    model = tame_model(kind, dim, layers, heads, context, seed).astype(dtype)
    kernel = model.kernel
    problem = Problem(dim, context, "uniform(0.5,1)")
    sigma = problem.choices(count, seed=seed, engine=native).sigma
    np.testing.assert_array_equal(sigma, problem.choices(count, seed=seed, engine=TWIN).sigma)
    ours = native.sample(problem.law, Choices(sigma), Key(seed), dtype=dtype)
    twins = TWIN.sample(problem.law, Choices(sigma), Key(seed), dtype=dtype)
    assert ours.metric is twins.metric is None
    # Chi-squares are drawn by rejection: a float32 may be accepted by one engine and, a rounding apart, not by another.
    same = np.isclose(ours.gram[:, -1, -1], twins.gram[:, -1, -1], rtol=1e-3)
    assert (~same).sum() <= (dtype == np.float32)
    for mine, other in zip(ours[:3], twins[:3], strict=True):
        assert mine.dtype == other.dtype == dtype
        assert mine.shape == other.shape
        close(mine[same], other[same], dtype)

    mine = native.evaluate(kernel, twins.gram, twins.ridge, weights=True)
    other = TWIN.evaluate(kernel, twins.gram, twins.ridge, weights=True)
    close(mine.losses, other.losses, dtype)
    close(mine.weights, other.weights, dtype)
    close(mine.gradient, other.gradient, dtype)
    value = native.evaluate(kernel, twins.gram, twins.ridge, gradient=False)
    np.testing.assert_array_equal(value.losses, mine.losses)
    assert value.gradient is None

    for kind_of_target in ("ridge", "task"):
        fused = native.step(kernel, problem.law, Choices(sigma), Key(seed), target=kind_of_target)
        apart = native.evaluate(kernel, ours.gram, getattr(ours, kind_of_target))
        np.testing.assert_array_equal(fused.losses, apart.losses)
        for a, b in zip(fused.gradient, apart.gradient, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("dim", "heads"), [(71, 1), (72, 1), (150, 1), (80, 2)])
@pytest.mark.parametrize("name", NATIVE)
def test_products_of_large_matrices_are_summed_in_pieces(name, dim, heads):
    """Beyond 72 coordinates: in two pieces, in three, and with heads side by side."""
    kernel, d = tame_model("full", dim, 4, heads, 2 * dim, 1).kernel, draw(dim, 2 * dim, 9)
    mine, other = (one.evaluate(kernel, d.moments.gram, d.ridge) for one in (engine.named(name), TWIN))
    close(mine.losses, other.losses, np.float64)
    close(mine.gradient, other.gradient)


@settings(max_examples=15)
@given(kind=KINDS, seed=st.integers(0, 99), **(SHAPE | {"dim": st.integers(1, 6)}))
@pytest.mark.parametrize("name", [*NATIVE, "numpy"])  # JAX would compile for every shape; see test_law.py
def test_gradient_is_the_slope_of_the_loss(name, kind, dim, context, layers, heads, seed):
    chosen, d = engine.named(name), draw(dim, context, 30, seed)

    def evaluate(kernel, gradient):
        return chosen.evaluate(kernel, d.moments.gram, d.ridge, gradient=gradient)

    check_slope(evaluate, tame_model(kind, dim, layers, heads, context, seed).kernel, seed)


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=600
    )


@pytest.mark.parametrize("name", engine.available())
def test_the_environment_chooses_the_engine(name):
    done = run("from ridgeformer import engine; print(engine.current().name)", RIDGEFORMER_ENGINE=name)
    assert done.stdout.strip() == name


def test_threads_come_from_the_environment():
    code = "from ridgeformer.engine import default_threads; print(default_threads())"
    assert run(code, RIDGEFORMER_THREADS="3").stdout.strip() == "3"
    assert run(code, RIDGEFORMER_THREADS="").returncode == 0
    for bad in ("0", "two", "-1", "9999"):
        words = f"from 1 to 1024; got {bad!r}. Set it to a whole number from 1 to 1024, or unset it."
        assert words in run(code, RIDGEFORMER_THREADS=bad).stderr


def test_without_the_core_numpy_takes_over_with_one_warning():
    code = """
import sys, warnings
sys.modules["ridgeformer._core"] = None
warnings.simplefilter("always")
from ridgeformer import Problem, engine
for _ in range(3):
    Problem(2, 3, "fixed(1)").moments(2)
print(engine.current().name)
"""
    done = run(code, RIDGEFORMER_ENGINE="")
    assert done.stdout.strip() == "numpy"
    assert done.stderr.count("native core is not built") == 1


def test_the_interpreter_runs_while_the_core_works():
    """The lock is released: a Python thread counts on while another is inside one long call."""
    import threading

    if not NATIVE:
        pytest.skip("needs the native core")
    done = threading.Event()
    worker = threading.Thread(target=lambda: (draw(10, 20, 200_000), done.set()))
    worker.start()
    ticks = 0
    while not done.is_set():
        ticks += 1
    worker.join()
    assert ticks > 1000


def test_several_python_threads_may_use_the_core_at_once(native):
    """The helper threads serve one caller at a time; the others work alone, with the same result."""
    from concurrent.futures import ThreadPoolExecutor

    kernel = tame_model("full", 4, 3, 1, 8).kernel
    law, choices = Law(4, 8), Problem(4, 8, "uniform(0,1)").choices(1000)

    def work(step):
        return native.step(kernel, law, choices, Key(0, 0, step), threads=3)

    expected = [work(step) for step in range(24)]
    with ThreadPoolExecutor(4) as pool:
        for mine, other in zip(expected, pool.map(work, range(24)), strict=True):
            assert mine.losses.tobytes() == other.losses.tobytes()
            assert mine.gradient[0].tobytes() == other.gradient[0].tobytes()


def test_odd_calls_end_in_a_result_or_an_input_error():
    """Some thousand of those that `make fuzz` makes; an error names the call that repeats it."""
    ends = fuzz_cases.run("engine", 3000, seed=1)
    assert sum(ends.values()) == 3000
    assert min(ends["result"], ends["refused"]) > 500


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_core_works_after_a_fork():
    """A forked child has none of the parent's helper threads and must not wait for them."""
    code = """
import os, sys
from ridgeformer import Problem
problem = Problem(10, 20, "fixed(1)")
before = problem.moments(5000, threads=4).moments.gram.tobytes()
child = os.fork()
if child == 0:
    os._exit(problem.moments(5000, threads=4).moments.gram.tobytes() != before)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")
