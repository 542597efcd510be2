"""Threads: how many, and that BLAS does not fight with ours."""

import sys
import threading

from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from ridgeformer import Problem, train
from ridgeformer.engine import machine, one_blas_thread
from ridgeformer.training import Search
from ridgeformer.training.search import starts


def blas_threads_by_library():
    import scipy.linalg  # noqa: F401  has a BLAS of its own, which counts from the beginning

    return {one["filepath"]: one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def blas_threads():
    return set(blas_threads_by_library().values())


def test_blas_has_one_thread_inside_and_as_many_as_before_outside():
    with threadpool_limits(2, "blas"):
        before = blas_threads()  # {2} wherever BLAS is built with threads
        with one_blas_thread():
            assert blas_threads() == {1}
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before


def test_a_block_that_another_thread_leaves_last_leaves_nothing_behind():
    """This thread enters first and leaves first; the limit is lifted by the thread that leaves last."""
    before = blas_threads_by_library()
    entered, leave = threading.Event(), threading.Event()

    def work():
        with one_blas_thread():
            entered.set()
            leave.wait()

    other = threading.Thread(target=work)
    with one_blas_thread():
        other.start()
        entered.wait()
    assert blas_threads() == {1}
    leave.set()
    other.join()
    assert blas_threads_by_library() == before


def test_libraries_that_are_loaded_later_are_limited_too(monkeypatch):
    """As with PyTorch, which may bring a BLAS of its own: libraries are listed again when modules were added."""
    listed = []
    real = ThreadpoolController
    with one_blas_thread():
        pass
    monkeypatch.setattr("threadpoolctl.ThreadpoolController", lambda: listed.append(1) or real())
    with one_blas_thread():
        assert listed == []
    monkeypatch.setitem(sys.modules, "a_module_that_was_imported_later", sys)
    with one_blas_thread():
        assert listed == [1]


def test_training_limits_blas(monkeypatch):
    seen = set()
    real = starts.SampleAverage.__call__

    def spy(self, model):
        seen.update(blas_threads())
        return real(self, model)

    monkeypatch.setattr(starts.SampleAverage, "__call__", spy)
    with threadpool_limits(2, "blas"):
        train(Problem(2, 4, "fixed(1)"), "diag", 1, protocol=Search(effort=0.1), sequences=100)
    assert seen == {1}


def test_libraries_are_not_listed_in_the_main_thread(monkeypatch):
    """There, Ctrl-C would be lost in threadpoolctl's callback from C."""
    seen = []
    monkeypatch.setattr("threadpoolctl.ThreadpoolController", lambda: seen.append(threading.current_thread()))
    machine._controller.__wrapped__(0)
    assert len(seen) == 1
    assert seen[0] is not threading.main_thread()
