"""Speed of the scikit-learn regressor: CPU times of fits beside BayesianRidge, and times of predictions."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.clock import best_times
from benchmarks.speed import Measurement, Setup

FITS = [
    (20, 10),
    (20, 30),
    (20, 100),
    (1000, 10),
    (1000, 30),
    (1000, 100),
    (200_000, 10),
    (200_000, 30),
    (200_000, 100),
]
BARS = {(20, 10): 20.0, (20, 100): 200.0, (1000, 100): 200.0}  # milliseconds


def measurements(setup: Setup) -> list[Measurement]:
    """Fits of tables of several sizes, and predictions with intervals; nothing where scikit-learn is not installed."""
    try:
        from ridgeformer.sklearn import InContextRegressor
    except ImportError:
        return []
    rng, work = np.random.default_rng(0), {}
    new = rng.standard_normal((1000, 10))
    for rows in (100, 100_000):
        x = rng.standard_normal((rows, 10))
        fitted = InContextRegressor().fit(x, x.sum(1) + rng.standard_normal(rows))
        work[str(rows)] = lambda fitted=fitted: fitted.predict(new, return_std=True)
    times = best_times(work, setup.rounds, dict.fromkeys(work, 20))
    detail = f"{1e3 * times['100000']:.2f} ms against {1e3 * times['100']:.2f} ms"
    ratio = times["100000"] / times["100"]
    found = [Measurement("prediction after 100,000 rows over 100", ratio, "x", 1.1, False, detail)]
    return found + [_fit(setup, rows, dim) for rows, dim in FITS if rows <= 1000 or not setup.quick]


def _fit(setup: Setup, rows: int, dim: int) -> Measurement:
    """The time of a fit in which a third of the features matter."""
    from sklearn.linear_model import BayesianRidge

    from ridgeformer.sklearn import InContextRegressor

    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, dim))
    y = x[:, : dim // 3].sum(1) + np.sqrt(dim // 3) * rng.standard_normal(rows)
    work = {"ours": lambda: InContextRegressor().fit(x, y), "theirs": lambda: BayesianRidge().fit(x, y)}
    repeats = dict.fromkeys(work, 1 if rows > 1000 else 5)
    times = best_times(work, min(setup.rounds, 3), repeats, time.process_time)
    detail = f"BayesianRidge {1e3 * times['theirs']:.1f} ms"
    bar = BARS.get((rows, dim))
    return Measurement(f"fit, n = {rows:,}, d = {dim}", 1e3 * times["ours"], "ms", bar, False, detail)
