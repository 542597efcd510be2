"""Ctrl-C ends a call of the native core within a second or so, however long the call would last."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ridgeformer import Problem, engine
from ridgeformer.engine import Choices, Key, Law
from support import NATIVE, each, tame_model, unmeasured

pytestmark = pytest.mark.skipif(not NATIVE or os.name != "posix", reason="needs the native core and signals")

# Every call would last more than two minutes, and an interrupted one ends within half a second, on an idle machine.
SOON = 60  # seconds, on a machine where others compute too
CODE = """
import sys, numpy as np
from ridgeformer import engine
from ridgeformer.engine import Choices, Key, Law, Layout, Matrices, Mixings, Omegas
method, kind, dim, count, threads, layers = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
vectors, scalars = {"channels": (1, 3), "vectors": (2, 3), "many": (1, 40)}.get(kind, (1, 1))
core, D = engine.current(), vectors * dim + scalars
layout = Layout(scratch=D - dim - 1)
if kind in ("channels", "vectors", "many"):
    kernel = Mixings(*(np.full((layers, 1, k, k), 1e-6, np.float32) for k in (vectors, vectors, scalars, scalars)))
elif kind == "full":
    kernel = Matrices(*(np.full((layers, 1, D, D), 1e-6, np.float32),) * 2)
else:
    kernel = Omegas(np.full((layers, 2, 2), 1e-6, np.float32))
gram = np.ones((D, D, count if method == "evaluate" else 1), np.float32).transpose(2, 0, 1)
target, sigma = np.zeros((len(gram), dim), np.float32), np.ones(1 if method == "uniforms" else count)
print("ready", flush=True)
try:
    if method == "uniforms":
        while True:
            core.uniforms(Key(), count)
    elif method == "sample":
        while True:
            core.sample(Law(dim, 2 * dim), Choices(sigma), Key(), dtype=np.float32, threads=threads)
    elif method == "evaluate":
        core.evaluate(kernel, gram, target, counted=dim, threads=threads)
    else:
        core.step(kernel, Law(dim, 2 * dim), Choices(sigma), Key(), layout=layout, threads=threads)
except KeyboardInterrupt:
    print("interrupted")
"""


@each(
    ("step", "full", 300, 20_000, 3, 7),
    ("step", "diag", 12, 2_000_000, 2, 2000),
    ("step", "channels", 10, 2_000_000, 2, 2000),
    ("step", "many", 12, 2_000_000, 2, 200),
    ("step", "vectors", 150, 20_000, 2, 20),
    ("evaluate", "full", 300, 500, 2, 40),
    ("sample", "diag", 1200, 64, 1, 1),
    ("uniforms", "diag", 1, 100_000_000, 1, 1),
)
def test_ctrl_c_ends_a_long_call(method, kind, dim, count, threads, layers):
    arguments = [method, kind, *map(str, (dim, count, threads, layers))]
    command = [sys.executable, "-c", CODE, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unmeasured())
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=SOON)
        assert (out, error, process.returncode) == ("interrupted\n", "", 0)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def alarm():
    """Calls a handler again and again while a test runs, but not while the handler itself does."""
    before = signal.getsignal(signal.SIGALRM)

    def start(handler):
        def handle(*_):
            handler()
            signal.setitimer(signal.ITIMER_REAL, 0.05)

        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_handler_may_itself_compute(alarm, threads):
    """Its call comes in the middle of another one, whose threads it cannot have; neither disturbs the other."""
    core = engine.current()
    kernel = tame_model("full", 40, 5, 1, 80).kernel
    law, choices = Law(40, 80), Problem(40, 80, "fixed(1)").choices(1500)

    def work(count):
        return core.step(kernel, law, choices.chosen(slice(count)), Key(3), threads=threads)

    expected, inner = work(1500), work(200)
    found = []
    alarm(lambda: found.append(work(200)))
    mine = work(1500)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert found
    assert mine.losses.tobytes() == expected.losses.tobytes()
    for other in found:
        assert other.losses.tobytes() == inner.losses.tobytes()
        assert other.gradient[0].tobytes() == inner.gradient[0].tobytes()


@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_handler_raises_is_raised_and_the_core_still_works(alarm, threads):
    class Enough(Exception):
        pass

    def stop():
        raise Enough

    core = engine.current()
    kernel = tame_model("diag", 60, 6, 1, 120).kernel
    law, few, many = Law(60, 120), Choices(np.ones(300)), Choices(np.ones(100_000))
    small = core.step(kernel, law, few, Key(), threads=threads)
    alarm(stop)
    with pytest.raises(Enough):
        core.step(kernel, law, many, Key(), threads=threads)
    again = core.step(kernel, law, few, Key(), threads=threads)
    assert small.losses.tobytes() == again.losses.tobytes()
    assert small.gradient[0].tobytes() == again.gradient[0].tobytes()
