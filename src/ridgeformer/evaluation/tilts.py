"""Moments of tokens under changes of their law, and the densities of these changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.moments import Moments, bordered
from ridgeformer.validation import Array, Float

Index = NDArray[np.intp]
Ratio = Callable[[Index], Array]
LEAST = 1e-6  # the smallest factor of a variance: a smaller one would enlarge rounding
NODES, REACH = 18, 8.5  # of the contour integral, in standard deviations of its Gaussian part
STEPS = 60  # at most, of Newton's method for its saddle point


@dataclass(eq=False)
class TokenMoments:
    """Moments of (x, xi), where labels are y = <w, x> + sigma xi.

    Attributes:
        S: The sums of x x', [B, d, d].
        e: The sums of x xi, [B, d].
        r: The sums of xi^2, [B].
        x: The sums of x, [B, d].
        xi: The sums of xi, [B].
    """

    S: Array
    e: Array
    r: Array
    x: Array
    xi: Array

    def centred(self, n: Any) -> TokenMoments:
        """Return the moments of features minus their mean in the context.

        Args:
            n: The numbers of tokens, [B].

        Returns:
            The moments.
        """
        mean = self.x / n[:, None]
        S = self.S - np.einsum("bi,bj->bij", self.x, mean)
        return TokenMoments(S, self.e - mean * self.xi[:, None], self.r, np.zeros_like(self.x), self.xi)

    def stretched(self, root: Array | None, v: Array, u: Array) -> TokenMoments:
        """Return the moments of x + (sqrt(v) - 1) p <q, x>, stretched along directions u of whitened features.

        Args:
            root: A root of the features' covariance, [d, d] or [B, d, d]; None for the identity.
            v: The factors of variance along u, [B].
            u: Unit vectors, [B, d].

        Returns:
            The moments.
        """
        p: Any = u
        q: Any = u
        if root is not None:
            p = np.einsum("...ij,...j->...i", root, u)
            q = np.linalg.solve(np.swapaxes(root, -1, -2), u[..., None])[..., 0]
        move, Sq = (np.sqrt(v) - 1)[:, None] * p, np.einsum("bij,bj->bi", self.S, q)
        cross = np.einsum("bi,bj->bij", move, Sq + 0.5 * (q * Sq).sum(1, keepdims=True) * move)
        e, x = (value + move * (q * value).sum(1, keepdims=True) for value in (self.e, self.x))
        return TokenMoments(self.S + cross + np.swapaxes(cross, 1, 2), e, self.r, x, self.xi)

    def scaled(self, by: Array) -> TokenMoments:
        """Return the moments of features that are multiplied.

        Args:
            by: The factors, [B, d].

        Returns:
            The moments.
        """
        return TokenMoments(self.S * by[:, :, None] * by[:, None, :], self.e * by, self.r, self.x * by, self.xi)

    def moments(self, w: Array, sigma: Array, context: Any) -> Moments:
        """Return the moments of (x, y).

        Args:
            w: The tasks, [B, d].
            sigma: The noise levels, [B].
            context: The number of tokens, one for all or [B].

        Returns:
            The moments.
        """
        Sw, e = np.einsum("bij,bj->bi", self.S, w), self.e * sigma[:, None]
        gram = bordered(self.S, Sw + e, (w * (Sw + 2 * e)).sum(1) + sigma**2 * self.r)
        labels = (self.x * w).sum(1) + sigma * self.xi
        return Moments._trusted(gram, context, sigma, np.column_stack([self.x, labels]))


def multiple(cost: ArrayLike, freedom: ArrayLike) -> Array:
    """Return the multiple v of a variance with this cost: chi2(n) is v times its mean with a chance of about e^-|cost|.

    It solves n/2 (v - 1 - log v) = |cost|, with v > 1 for positive and v < 1 for negative costs.

    Args:
        cost: The costs, of any shape that broadcasts with the degrees of freedom; 0 for no change.
        freedom: The degrees of freedom n.

    Returns:
        The multiples.
    """
    from scipy.special import lambertw

    costs, which = np.unique(cost, return_inverse=True)
    levels, place = np.unique(freedom, return_inverse=True)
    each = costs[:, None]
    v = -lambertw(-np.exp(-1 - 2 * np.abs(each) / np.maximum(levels, 1)), np.where(each > 0, -1, 0)).real
    table = np.where(each == 0, 1.0, np.maximum(v, LEAST))
    return np.asarray(table[which.reshape(np.shape(cost)), place.reshape(np.shape(freedom))])


def whitened(S: Float, root: Float | None) -> Array:
    """Return matrices S in the coordinates of whitened features.

    Args:
        S: The matrices, [B, d, d].
        root: A root of the features' covariance, [d, d] or [B, d, d]; None for the identity.

    Returns:
        The matrices, [B, d, d].
    """
    if root is not None:
        S = np.linalg.solve(root, np.swapaxes(np.linalg.solve(root, S), 1, 2))
    return np.asarray(S, np.float64)


def log_stretch(values: Array, v: Array, freedom: Any) -> Array:
    """Compute log q / p of contexts that are stretched along a direction, averaged over all directions.

    Args:
        values: The eigenvalues of S in whitened features, [H, d].
        v: The factors of variance along the direction, [H].
        freedom: The degrees of freedom of the context, one number or [H].

    Returns:
        The logarithms, [H].
    """
    return np.asarray(log_sphere_average((0.5 * (1 - 1 / v))[:, None] * values) - 0.5 * freedom * np.log(v))


def log_sphere_average(values: Array) -> Array:
    """Compute log E exp(sum_i values_i u_i^2) for u uniform on the unit sphere.

    It is Gamma(d/2) / (2 pi i) times the integral of e^z prod_i (z - values_i)^(-1/2) around all values. The path is a
    parabola through the saddle point, near that of steepest descent, so that the trapezoidal rule is exact to rounding.

    Args:
        values: The values, [H, d].

    Returns:
        The logarithms, [H].

    >>> round(float(log_sphere_average(np.array([[2.0]]))[0]), 5)  # in one dimension u^2 = 1
    2.0
    """
    from scipy.special import gammaln

    top, d = values.max(1), values.shape[1]
    gaps = top[:, None] - values  # the saddle is at z with sum 1 / (z + gaps) = 2, from 1/2 to d/2
    z = np.full(len(values), 0.5)
    for _ in range(STEPS):
        inverse = 1 / (z[:, None] + gaps)
        move = (0.5 * inverse.sum(1) - 1) / (0.5 * np.square(inverse).sum(1))
        z += move
        if not (np.abs(move) > 1e-9 * z).any():
            break
    inverse = 1 / (z[:, None] + gaps)
    curvature = 0.5 * np.square(inverse).sum(1)
    bend = (inverse**3).sum(1) / (6 * curvature)
    base = z - 0.5 * np.log(z[:, None] + gaps).sum(1)
    t = np.linspace(0, REACH, NODES)[:, None] / np.sqrt(curvature)  # [NODES, H]
    move = 1j * t - bend * t**2
    terms = np.exp(move) * (1 + 2j * bend * t)
    for i in range(d):
        terms /= np.sqrt(1 + move * inverse[:, i])
    terms = terms.real
    integral = (terms.sum(0) - 0.5 * terms[0]) * t[1] / np.pi
    return np.asarray(top + gammaln(d / 2) + base + np.log(integral))


def unit_vectors(vectors: Array) -> Array:
    """Divide vectors by their lengths; the largest entry comes out first, because squares may overflow.

    Args:
        vectors: The vectors, [B, r].

    Returns:
        Vectors of length 1, [B, r], and 0 for 0.
    """
    vectors = vectors / np.maximum(np.abs(vectors).max(1, keepdims=True), 1e-300)
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300))


@dataclass(eq=False)
class LabelStrengths:
    """The strengths of the axis `labels` for contexts with given features and noise levels.

    Attributes:
        root: Singular values of the features in the coordinates of the tasks, [B, r]; 0 for tasks that are drawn first.
        sigma: The noise levels, [B].
        there: Which singular vectors there are, [B, r].
        n: The numbers of tokens, [B].
    """

    root: Array
    sigma: Array
    there: NDArray[np.bool_]
    n: Any

    @property
    def freedoms(self) -> tuple[Array, ...]:
        """How many normals are behind the noise along the features, the noise across them, and the tasks, [B] each.

        The last two are one each: of noise and tasks along a direction.
        """
        along = self.there.sum(1).astype(np.float64)
        single = np.ones_like(along)
        return along, self.n - along, single * self.there.shape[1], single, single

    def kappas(self, along: Array, across: Array, task: Array, tilt: Array) -> tuple[Array, Array, Array]:
        """Compute the variances of labels, and how far their law is tilted.

        Args:
            along: Factors of the noise along the features, [B].
            across: Factors of the noise across them, [B].
            task: Factors of the tasks, [B].
            tilt: 2 theta, times the largest variance, [B].

        Returns:
            The variances along the features, [B, r], and across them, [B], and theta, [B].
        """
        kappa = task[:, None] * self.root**2 + (along * self.sigma**2)[:, None] * self.there
        beyond = across * self.sigma**2 * (self.freedoms[1] > 0)
        most = np.maximum(kappa.max(1), beyond)
        return kappa, beyond, np.where(most > 0, 0.5 * tilt / np.where(most > 0, most, 1.0), 0.0)

    def ratio(self, labels: Array, sums: list[Array], squares: Array) -> Ratio:
        """A function for log q / p for each strength.

        Args:
            labels: The strengths, [K, 6].
            sums: Sums of squares of noise along and across the features and of tasks, [B] each; where there is a
                direction, also of noise and tasks along it.
            squares: The sums of squared labels, [B].

        Returns:
            The function: of the indices of sequences, [b], to [b, K].
        """

        def compute(index: Index) -> Array:
            part = LabelStrengths(self.root[index], self.sigma[index], self.there[index], self.n[index])
            summed, result = [values[index] for values in sums], np.empty((len(index), len(labels)))
            for k, (tilt, *costs) in enumerate(labels):
                factors = [multiple(cost, freedom) for cost, freedom in zip(costs, part.freedoms, strict=True)]
                log = np.zeros(len(index))
                for v, freedom, square in zip(factors[:3], part.freedoms, summed, strict=False):
                    log += (1 - 1 / v) * square - freedom * np.log(v)
                for v, base, square in zip(factors[3:], (factors[0], factors[2]), summed[3:], strict=False):
                    log += (1 - 1 / v) * square / base - np.log(v)
                kappa, beyond, theta = part.kappas(factors[0], factors[1], factors[2], np.full(len(index), tilt))
                log += 2 * theta * squares[index] + np.log1p(-2 * theta[:, None] * kappa).sum(1)
                result[:, k] = 0.5 * (log + part.freedoms[1] * np.log1p(-2 * theta * beyond))
            return result

        return compute
