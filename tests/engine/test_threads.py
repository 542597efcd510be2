"""Threads: how many, and that BLAS does not fight with ours."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from ridgeformer import Problem, train
from ridgeformer.engine import one_blas_thread
from ridgeformer.training import Search, objective


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_as_many_as_before_outside():
    with threadpool_limits(2, "blas"):
        with one_blas_thread():
            assert blas_threads() == {1}
            with one_blas_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_blocks_that_overlap_in_several_threads_leave_nothing_behind():
    def work(_):
        with one_blas_thread():
            np.linalg.eigh(np.eye(20))

    before = blas_threads()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(50)))
        assert blas_threads() == before
        with one_blas_thread():
            assert pool.submit(blas_threads).result() == {1}
    assert blas_threads() == before


def test_training_limits_blas(monkeypatch):
    seen = set()
    real = objective.SampleAverage.__call__

    def spy(self, model):
        seen.update(blas_threads())
        return real(self, model)

    monkeypatch.setattr(objective.SampleAverage, "__call__", spy)
    with threadpool_limits(2, "blas"):
        train(Problem(2, 4, "fixed(1)"), "diag", 1, protocol=Search(effort=0.1), sequences=100)
    assert seen == {1}
