"""The best predictor where each token has a noise level of its own: a Gibbs sampler of levels and weights.

Given the levels, weights are Gaussian with the mean of weighted ridge regression; given weights, the levels of tokens
are independent. The average of that mean over many scans is E[w | tokens]. Two chains for each context give an estimate
that has the error |w_1 - w_2|^2 / 8 in the loss, on average, where the chains have forgotten their start.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.errors import refuse
from ridgeformer.noise import Noise, as_noise
from ridgeformer.noise.tokens import Tokens
from ridgeformer.problems import Prior
from ridgeformer.validation import array, integer

__all__ = ["TokenBayes"]

Array = NDArray[np.float64]
BLOCK = 256  # contexts at a time
BURN = 0.2  # of the scans are left out at the start


class TokenBayes:
    """The posterior mean of Gaussian tasks where each token has a noise level of its own, which it needs tokens for.

    Its loss exceeds the floor by the error of two chains, which `errors` estimates: about one or two per cent of the
    adjusted loss for levels that vary continuously, and more for few levels that are far apart, between which chains
    move rarely.

    Args:
        noise: The law of the levels: `Tokens`, `Student`, or their text.
        prior: The law of the tasks; None for N(0, I).
        scans: How many scans each of two chains makes; a fifth of them is left out.
        seed: Seed of the sampler.

    Raises:
        InputError: The noise has one level for each sequence.
    """

    def __init__(self, noise: Noise | str, prior: Prior | None = None, *, scans: int = 160, seed: int = 0) -> None:
        given = as_noise(noise)
        if not isinstance(given, Tokens):
            refuse("this predictor is for noise that differs from token to token", given, "Use BayesRR instead.")
        self.noise, self.prior = given, Prior() if prior is None else prior
        self.scans, self.seed = integer("scans", scans, 10), integer("seed", seed, 0)

    def chains(self, x: Array, y: Array) -> Array:
        """Run two chains.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].

        Returns:
            The estimates of E[w | tokens] by each chain, [2, B, d].
        """
        features = array("x", x, ("B", "n", "d")).astype(np.float64)
        labels = array("y", y, features.shape[:2]).astype(np.float64)
        found = np.empty((2, len(features), features.shape[2]))

        def work(start: int) -> None:
            part = slice(start, start + BLOCK)
            rng = np.random.default_rng([self.seed, start, 11])
            found[:, part] = self._two(features[part], labels[part], rng)

        with one_blas_thread(), ThreadPoolExecutor(default_threads()) as workers:
            list(workers.map(work, range(0, len(features), BLOCK)))
        return found

    def _two(self, x: Array, y: Array, rng: np.random.Generator) -> Array:
        prior, count = self.prior, len(x)
        y = y if prior.mean is None else y - x @ prior.mean
        x = x if prior.factor is None else x @ prior.factor
        x, y = np.concatenate([x, x]), np.concatenate([y, y])
        levels, rank = self.noise.quantile(rng.random(y.shape)), x.shape[2]
        levels = np.maximum(levels, 1e-4 * self.noise.upper)
        mean, burn, turned = np.zeros((2 * count, rank)), int(BURN * self.scans), np.swapaxes(x, 1, 2)
        for scan in range(self.scans):
            weighted = turned * levels[:, None, :] ** -2.0
            root = np.linalg.cholesky(weighted @ x + np.eye(rank))
            inverse = np.linalg.inv(root)
            right = np.einsum("bij,bj->bi", inverse, (weighted @ y[..., None])[..., 0])
            centre = np.einsum("bji,bj->bi", inverse, right)
            if scan >= burn:
                mean += centre
            weights = centre + np.einsum("bji,bj->bi", inverse, rng.standard_normal(centre.shape))
            levels = self.noise.drawn(y - (x @ weights[..., None])[..., 0], rng)
        back = prior.back(mean / (self.scans - burn))
        return back.reshape(2, count, -1)

    def token_weights(self, x: Array, y: Array) -> Array:
        """Estimate E[w | tokens].

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].

        Returns:
            The weights, [B, d].
        """
        return np.asarray(self.chains(x, y).mean(0))

    def predict(self, x: Array, y: Array, queries: Array) -> Array:
        """Predict the labels of queries.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].
            queries: Features of the queries, [B, m, d].

        Returns:
            The predictions, [B, m].
        """
        return np.asarray(np.einsum("bmd,bd->bm", queries, self.token_weights(x, y)))

    def errors(self, x: Array, y: Array) -> Array:
        """Estimate by how much the squared error of the weights exceeds that of the exact posterior mean.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].

        Returns:
            Estimates of |w - E[w | tokens]|^2, whose mean has no bias, [B].
        """
        one, other = self.chains(x, y)
        return np.asarray(np.square(one - other).sum(1) / 4)

    def __repr__(self) -> str:
        return f"TokenBayes({self.noise})"
