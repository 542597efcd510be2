"""The loss of one layer without sampling: a quadratic form, whose coefficients are moments of Gaussians.

One layer is linear in the Gram matrix G of the tokens z = (x, y): with p_h the last row of P_h, the prediction for a
query x is <w_hat, x> with

    w_hat_i = -sum_ab Theta_abi G_ab,      Theta_abi = sum_h (p_h)_a (Q_h)_bi,

so the unadjusted loss is

    1/2 E (w_hat - w)' Lambda_q (w_hat - w) = 1/2 tr(Lambda_q [Theta' M Theta + Theta' c + c' Theta + E w w'])

with M = E[G_ab G_cd] and c = E[G_ab w_j]. Given the task and sigma, G is a sum of n independent z z' with z ~ N(0, C):
E[G_ab] = n C_ab and E[G_ab G_cd] = n^2 C_ab C_cd + n (C_ac C_bd + C_ad C_bc) by Isserlis' theorem. C is quadratic in w,
so the average over w and sigma needs moments of w up to the fourth, and E sigma^2 and E sigma^4. The same form with
averages over given contexts instead of expectations is the loss on a fixed sample.

>>> from ridgeformer import LinearTransformer, Problem
>>> from ridgeformer.theory import one_layer
>>> problem = Problem(dim=3, context=8, noise=1)
>>> model = one_layer.model_of(one_layer.optimum(problem))
>>> loss, gradient = Quadratic.of_problem(problem)(model)
>>> round(loss, 4), bool(abs(gradient["Q"][0, 0, :3, :3]).max() < 1e-12)
(0.5769, True)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import cast

import numpy as np

from ridgeformer.engine import PAPER_LAYOUT, Kernel, Layout, Matrices, Mixings, Omegas
from ridgeformer.errors import refuse
from ridgeformer.models.families import Full
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.validation import Array, Float

LARGEST = 64  # dimensions, beyond which the D^4 moments fill the memory
FIXED = "Use a fixed sample (batch='sample(8192)' in Python, --batch 'sample(8192)' on the command line)"
REMEDY = FIXED + ", or fresh sequences in every step (batch=512, or --batch 512)."


def has_population(problem: BaseProblem, layers: int, layout: Layout = PAPER_LAYOUT) -> bool:
    """Whether the population loss has a closed form.

    Args:
        problem: The distribution of sequences.
        layers: How many layers the model has.
        layout: The layout of its tokens.

    Returns:
        Whether `check_population` passes.
    """
    return _obstacle(problem, layers, layout) is None


def check_population(problem: BaseProblem, layers: int, layout: Layout = PAPER_LAYOUT, remedy: str = REMEDY) -> Problem:
    """Refuse a model or a problem whose population loss has no closed form.

    Args:
        problem: The distribution of sequences.
        layers: How many layers the model has.
        layout: The layout of its tokens.
        remedy: What to do about it, for the error message.

    Returns:
        The problem.

    Raises:
        InputError: There is more than one layer, the covariance of the features varies, the tokens have a further
            coordinate that is not zero, the problem is not a `Problem`, or its dimension is above 64.
    """
    obstacle = _obstacle(problem, layers, layout)
    if obstacle is not None:
        refuse(f"the population gradient is known in closed form for {obstacle[0]}", obstacle[1], remedy)
    return cast("Problem", problem)


def _obstacle(problem: BaseProblem, layers: int, layout: Layout) -> tuple[str, object] | None:
    """The condition of the closed form, and the remedy, in words; None where there is a closed form."""
    if layers != 1:
        return "one layer", f"{layers} layers"
    if not problem.one_covariance:
        return "Gaussian features with one covariance for all sequences", problem.label
    if problem.noise is not None and problem.noise.per_token:
        return "one noise level for each sequence", problem.noise
    if problem.noise is not None and not np.isfinite(problem.noise.fourth_moment):
        return "noise with a finite E[sigma^4]", problem.noise
    if layout.coordinate != "none":
        return "tokens (x, y)", f"tokens with the coordinate {layout.coordinate}"
    return (f"at most {LARGEST} dimensions", problem.dim) if problem.dim > LARGEST else None


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best one-layer model with any number of heads.

    Attributes:
        loss: Its loss.
        theta: The minimiser Theta, [D, D, d].
        certificate: The smallest eigenvalue of the second moments of the entries of G, each scaled to mean square 1,
            over the largest. Where it is positive, all minimisers make the same predictions.
    """

    loss: float
    theta: Array
    certificate: float

    @property
    def heads(self) -> int:
        """How many heads this minimiser needs: the rank of Theta as a matrix [D, D d]."""
        values = np.linalg.svd(self.theta.reshape(len(self.theta), -1), compute_uv=False)
        return max(int((values > 1e-7 * values[0]).sum()), 1)

    def model(self) -> LinearTransformer:
        """Return the Full model with a number of heads."""
        D, d, H = len(self.theta), self.theta.shape[2], self.heads
        left, values, right = np.linalg.svd(self.theta.reshape(D, -1), full_matrices=False)
        P, Q = np.zeros((2, 1, H, D, D))
        P[0, :, -1] = (left * np.sqrt(values)).T[:H]
        Q[0, :, :, :d] = (np.sqrt(values)[:, None] * right)[:H].reshape(H, D, d)
        return LinearTransformer(Full(P, Q))


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The loss of a one-layer model as a quadratic form in Theta, see the module.

    Called with a model, it returns the loss and the gradient with respect to the arrays of its family, by name.

    Attributes:
        second: M, [D^2, D^2] with D = d + 1.
        first: c, [D^2, d].
        metric: Lambda_q, [d, d].
        constant: The loss of predicting 0.
    """

    second: Array
    first: Array
    metric: Array
    constant: float

    @classmethod
    def of_problem(cls, problem: BaseProblem, layout: Layout = PAPER_LAYOUT) -> Quadratic:
        """Return the expectation over all sequences of a problem.

        Args:
            problem: A problem whose features have the same covariance in all sequences.
            layout: The layout of the model's tokens.

        Returns:
            The unadjusted loss.

        Raises:
            InputError: There is no closed form.
        """
        law = check_population(problem, 1, layout)
        products, first = _token_moments(law)
        n = law.lengths.values.astype(np.float64)
        one, two, some = (n.mean(), np.mean(n * n), n.mean()) if layout.attention == "sum" else (1, 1, np.mean(1 / n))
        swapped = np.einsum("acbd->abcd", products) + np.einsum("adbc->abcd", products)
        size = (law.dim + 1) ** 2
        second = (two * products + some * swapped).reshape(size, size)
        tasks = law.tasks.second_moment(law.dim)
        metric = np.array(law.query_covariance)
        return cls(second, one * first.reshape(size, law.dim), metric, 0.5 * float((metric * tasks).sum()))

    @classmethod
    def of_sample(cls, gram: Array, target: Array, metric: Array | None = None) -> Quadratic:
        """Return the mean over given contexts.

        Args:
            gram: Gram matrices of tokens (x, y), divided by n if attention is a mean, [B, D, D].
            target: What w_hat is compared with, [B, d].
            metric: The covariance of the queries, [d, d]; None for the identity.

        Returns:
            The mean of 1/2 (w_hat - target)' metric (w_hat - target).
        """
        flat, count = gram.reshape(len(gram), -1), len(gram)
        weight = np.eye(target.shape[1]) if metric is None else np.asarray(metric, np.float64)
        constant = 0.5 * float((weight * (target.T @ target)).sum()) / count
        return cls(flat.T @ flat / count, flat.T @ target / count, weight, constant)

    def minimum(self) -> Minimum:
        """Find the least loss of one layer with any number of heads: a least-squares problem in Theta.

        G is symmetric, so only the sum of Theta_abi and Theta_bai counts. The products x_a y are given to the row of y.

        Returns:
            The minimiser, its loss, the number of heads it needs, and a certificate that it is the only one.
        """
        d, D = len(self.metric), len(self.metric) + 1
        upper = [(a, b) for a in range(D) for b in range(a, D)]
        fold = np.zeros((D * D, len(upper)))  # from products to the entries of G
        for column, (a, b) in enumerate(upper):
            fold[a * D + b, column] = fold[b * D + a, column] = 1.0 if a == b else 0.5
        second, first = fold.T @ self.second @ fold, fold.T @ self.first
        size = np.sqrt(np.diag(second))
        values = np.linalg.eigvalsh(second / size[:, None] / size)
        solution = -np.linalg.lstsq(second / size[:, None], first / size[:, None], rcond=None)[0]
        theta = (fold @ solution).reshape(D, D, d)
        theta[d, :d] += theta[:d, d]
        theta[:d, d] = 0.0
        loss = self._form(theta.reshape(D * D, d))[0]
        return Minimum(loss, theta, float(values[0] / values[-1]))

    def __call__(self, model: LinearTransformer) -> tuple[float, dict[str, Array]]:
        """Return the loss, and its gradient with respect to the arrays of the model's family."""
        return self.of_family(model.family)

    def of_family(self, family: Family) -> tuple[float, dict[str, Array]]:
        """Return the loss and its gradient for parameters alone.

        Args:
            family: The parameters of one layer.

        Returns:
            The loss, and the gradient by the names of the arrays.

        Raises:
            InputError: There is more than one layer.
        """
        kernel = family.kernel(len(self.metric))
        if len(kernel[0]) != 1:
            refuse("the loss is a quadratic form for one layer", f"{len(kernel[0])} layers", REMEDY)
        loss, gradient = self._dense(*kernel) if isinstance(kernel, Matrices) else self._by_channels(kernel)
        return loss, family.pullback(gradient)

    def _dense(self, P: Float, Q: Float) -> tuple[float, Kernel]:
        """Value and gradient for P and Q, [1, H, D', D']; coordinates between x and y are zero."""
        d, D, H = len(self.metric), len(self.metric) + 1, P.shape[1]
        only_xy = P.shape[-1] == D
        p, q = P[0, :, -1], Q[0, :, :, :d]
        if not only_xy:
            p, q = np.delete(p, np.s_[d:-1], 1), np.delete(q, np.s_[d:-1], 1)
        q = q.reshape(H, D * d)
        loss, slope = self._form((p.T @ q).reshape(D * D, d))
        wide = slope.reshape(D, D * d)
        dp, dq = (wide @ q.T).T, (p @ wide).reshape(H, D, d)
        gP, gQ = np.zeros(P.shape), np.zeros(Q.shape)
        if only_xy:
            gP[0, :, -1], gQ[0, :, :, :d] = dp, dq
        else:
            gP[0, :, -1, :d], gP[0, :, -1, -1] = dp[:, :-1], dp[:, -1]
            gQ[0, :, :d, :d], gQ[0, :, -1, :d] = dq[:, :-1], dq[:, -1]
        return loss, Matrices(gP, gQ)

    def _by_channels(self, kernel: Omegas | Mixings) -> tuple[float, Kernel]:
        """The same for omegas (xx, xy; yx, yy), and for channels (P and Q of vectors, P and Q of scalars).

        Then w_hat = -r a with one number r: omega_yx, or the sum over heads of P's entry of y times Q's entry of x.
        """
        d, D = len(self.metric), len(self.metric) + 1
        unit = np.zeros((D, D, d))
        unit[d, np.arange(d), np.arange(d)] = 1.0
        if isinstance(kernel, Omegas):
            r = float(kernel.omega[0, 1, 0])
        else:
            up, across = kernel.Ps[0, :, -1, -1], kernel.Qv[0, :, 0, 0]
            r = float(up @ across)
        loss, slope = self._form(r * unit.reshape(D * D, d))
        dr = float((slope * unit.reshape(D * D, d)).sum())
        gradient = type(kernel)(*(np.zeros(value.shape) for value in kernel))
        if isinstance(gradient, Omegas):
            gradient.omega[0, 1, 0] = dr
        else:
            gradient.Ps[0, :, -1, -1], gradient.Qv[0, :, 0, 0] = dr * across, dr * up
        return loss, gradient

    def _form(self, theta: Array) -> tuple[float, Array]:
        """The quadratic form and its gradient, for Theta as a matrix [D^2, d]."""
        half = self.second @ theta + self.first
        slope = half @ self.metric
        # <Theta, (M Theta + 2 c) Lambda_q>, as the sum of <Theta, slope> and <c Lambda_q, Theta>.
        flat = theta.ravel()
        return self.constant + 0.5 * float(flat @ slope.ravel() + self._linear @ flat), slope

    @functools.cached_property
    def _linear(self) -> Array:
        """C Lambda_q, flattened."""
        return (self.first @ self.metric).ravel()


def _token_moments(problem: Problem) -> tuple[Array, Array]:
    """E[C_ab C_cd], [D, D, D, D], and E[C_ab w_j], [D, D, d], for C the covariance of a token given w and sigma."""
    d, L = problem.dim, problem.features.mean_covariance(problem.dim)
    s, s2 = problem.noise.second_moment, problem.noise.fourth_moment
    m1, m2, m3, power, power2 = problem.tasks.moments(problem.dim, L)
    Lw, yy = L @ m1, power + s  # E of the blocks xy and yy of C
    x, y = slice(0, d), d
    E = np.zeros((d + 1,) * 4)
    E[x, x, x, x] = np.einsum("ab,cd->abcd", L, L)
    E[x, x, y, y] = E[y, y, x, x] = yy * L
    E[y, y, y, y] = power2 + 2 * power * s + s2
    xy_yy = L @ m3 + s * Lw
    crossed, pairs = np.einsum("ab,c->abc", L, Lw), L @ m2 @ L
    E[x, x, x, y] = E[x, x, y, x] = crossed
    E[x, y, x, x] = E[y, x, x, x] = np.moveaxis(crossed, 2, 0)
    E[x, y, x, y] = E[x, y, y, x] = E[y, x, x, y] = E[y, x, y, x] = pairs
    E[x, y, y, y] = E[y, x, y, y] = E[y, y, x, y] = E[y, y, y, x] = xy_yy
    first = np.zeros((d + 1, d + 1, d))
    first[x, x] = np.einsum("ab,j->abj", L, m1)
    first[x, y] = first[y, x] = L @ m2
    first[y, y] = m3 + s * m1
    return E, first
