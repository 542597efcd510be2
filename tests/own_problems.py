"""Problems of one's own in a module that worker processes can import."""

import numpy as np

from ridgeformer import CustomProblem
from ridgeformer.problems import Sequences


class HeavyTails(CustomProblem):
    """Labels with the noise of Student's t distribution."""

    name = "heavy-tails"

    def __init__(self, dim=3, context=8, freedom=3.0):
        self.dim, self.context, self.freedom = dim, context, freedom

    def draw(self, rng, count):
        """See `CustomProblem.draw`."""
        x = rng.standard_normal((count, self.context + 4, self.dim))
        w = rng.standard_normal((count, self.dim))
        clean = (x @ w[..., None])[..., 0]
        y = clean[:, :-4] + rng.standard_t(self.freedom, (count, self.context))
        return Sequences(x[:, :-4], y, queries=x[:, -4:], answers=clean[:, -4:], task=w)


class Uneven(CustomProblem):
    """Tokens with noise levels of their own, which the oracle knows; losses are those of the queries unless `exact`."""

    def __init__(self, context=6, queries=1, exact=True):
        self.dim, self.context, self.queries, self.metric = 2, context, queries, np.eye(2) if exact else None

    def draw(self, rng, count):
        """See `CustomProblem.draw`."""
        n, w = self.context, rng.standard_normal((count, 2))
        x, sigma = rng.standard_normal((count, n + self.queries, 2)), rng.uniform(0.1, 2, (count, n))
        y, noise = np.einsum("bnd,bd->bn", x, w), sigma * rng.standard_normal(sigma.shape)
        return Sequences(x[:, :n], y[:, :n] + noise, x[:, n:], y[:, n:], w, sigma, metric=self.metric)

    def oracle(self, drawn):
        """See `CustomProblem.oracle`."""
        weighed = drawn.x / drawn.sigma[..., None] ** 2
        gram = np.swapaxes(weighed, 1, 2) @ drawn.x + np.eye(2)
        return np.linalg.solve(gram, np.einsum("bnd,bn->bd", weighed, drawn.y)[..., None])[..., 0]


class Varying(CustomProblem):
    """Contexts that may have different numbers of examples, which are given for all of them; without noise."""

    def __init__(self, context="4..8"):
        self.dim, self.context = 2, context

    def draw(self, rng, count):
        """See `CustomProblem.draw`."""
        n, lengths = self.lengths.most, self.lengths.quantile(rng.random(count))
        x, w = rng.standard_normal((count, n + 2, 2)), rng.standard_normal((count, 2))
        x[:, :n] *= (np.arange(n) < lengths[:, None])[..., None]
        y = np.einsum("bnd,bd->bn", x, w)
        return Sequences(x[:, :n], y[:, :n], x[:, n:], y[:, n:], w, context=lengths)
