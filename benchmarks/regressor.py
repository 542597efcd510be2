"""Speed of the scikit-learn regressor: predictions do not depend on the number of training rows."""

from __future__ import annotations

import numpy as np

from benchmarks.clock import best_times
from benchmarks.speed import Measurement, Setup

__all__ = ["measurements"]


def measurements(setup: Setup) -> list[Measurement]:
    """Predictions with intervals for 1,000 rows; nothing where scikit-learn is not installed."""
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
    return [Measurement("prediction after 100,000 rows over 100", ratio, "x", 1.1, False, detail)]
