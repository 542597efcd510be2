"""Watch one layer learn: with separate keys and queries the loss falls in steps, with merged ones it drops once.

The setting is that of "Training dynamics of in-context learning in linear attention" (Zhang and others, 2025):
gradient descent on the exact expected loss, from a small start. Run it: python examples/plateaus.py
"""

from itertools import pairwise
from pathlib import Path

import numpy as np

from ridgeformer import Layout, Problem, train
from ridgeformer.models import LowRank
from ridgeformer.plotting.dynamics import draw_curves
from ridgeformer.training import GradientDescent

spectrum, n = np.array([0.4, 0.3, 0.2, 0.1]), 31
problem = Problem(dim=4, context=n, noise="fixed(0)", features="spectrum(0.4,0.3,0.2,0.1)")
protocol = GradientDescent(rate=0.2, steps=75_000, scale=0.01, record=50, snapshots=100)
options = {"layers": 1, "protocol": protocol, "layout": Layout("mean"), "sequences": 10_000}

# Five heads whose keys and queries have rank one, and one head with a matrix Q for both.
separate = train(problem, LowRank(rank=1), heads=5, **options)
merged = train(problem, "full", **options)

# Theory: learning the direction with variance lambda takes lambda / (1 + (1 + 1/lambda) / n) off the squared error.
plateaus = np.append(1.0, 1 - np.cumsum(spectrum / (1 + (1 + 1 / spectrum) / n)))


def step_counts(run):
    """How many of all steps are spent within 2 % of each plateau. A squared error is twice our loss."""
    errors, steps = 2 * run.history.loss, np.diff(run.history.step, append=run.history.step[-1])
    return [int(steps[np.abs(errors - level) < 0.02 * level].sum()) for level in plateaus]


print(f"{'plateau':>8} {'separate: steps there':>22} {'merged: steps there':>20}")
for level, one, other in zip(plateaus, step_counts(separate), step_counts(merged), strict=True):
    print(f"{level:8.3f} {one:22,} {other:20,}")

# The history is a table, also as a pandas DataFrame: separate.history.to_pandas().
print(separate.history)
falls = all(b <= a + 1e-12 for a, b in pairwise(separate.history.loss))
print("the exact loss never rises" if falls else "the exact loss rises somewhere: the rate is too large")

draw_curves({"separate": separate, "merged": merged}, Path("plateaus.png"), levels=plateaus, quantity="squared_error")
