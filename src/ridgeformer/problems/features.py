"""Features x ~ N(0, Lambda): one covariance for all sequences, or one drawn for each of them.

>>> PowerLaw(1).mean_covariance(3).diagonal().round(4).tolist()  # proportional to 1, 1/2, 1/3; the trace is d
[1.6364, 0.8182, 0.5455]
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.errors import refuse
from ridgeformer.problems.parts import Lengths, PartOfProblem
from ridgeformer.validation import Array, array, check_covariance, fitting, integer, number, real


class Features(PartOfProblem):
    """The law of the features. `law(dim)` says it to an engine; `covariances` draws it for NumPy.

    Attributes:
        fixed: Whether all sequences have the same covariance.
        standardised: Whether features are standardised within each context.
    """

    plural, usual = "features", "isotropic"
    examples = (
        "Write isotropic(), spectrum(1,0.5,0.25), powerlaw(1), covariance([[1,0.5],[0.5,1]]), rotated(powerlaw(1)), "
        "factors(2), scales(0.5) or standardised(factors(2))."
    )
    known: ClassVar[dict[str, Any]] = {}
    fixed: ClassVar[bool] = True
    standardised: ClassVar[bool] = False

    @classmethod
    def from_covariance(cls, value: object) -> Features:
        """See `PartOfProblem.from_covariance`."""
        values = real("features", value)  # type: ignore[arg-type]
        return Spectrum(*values.tolist()) if values.ndim == 1 else Covariance(values)

    @abstractmethod
    def mean_covariance(self, dim: int) -> Array:
        """Return E[Lambda]: the average over sequences of the features' covariance.

        Args:
            dim: The dimension d of the features.

        Returns:
            The matrix, [d, d].
        """

    def covariances(self, dim: int, count: int, rng: np.random.Generator) -> Array:
        """Draw the covariance of each sequence.

        Args:
            dim: The dimension d of the features.
            count: How many sequences, B.
            rng: The random numbers.

        Returns:
            The matrices, [B, d, d].
        """
        return np.broadcast_to(self.mean_covariance(dim), (count, dim, dim))

    @property
    def unscaled(self) -> Features:
        """The features before they have random scales; the same where they have none."""
        return self

    def query_moment(self, dim: int, context: int) -> Array:
        """Return E[x x'] of a query, which may depend on the number of examples.

        Args:
            dim: The dimension d of the features.
            context: The number of examples n.

        Returns:
            The matrix, [d, d].
        """
        return self.mean_covariance(dim)

    def check(self, query: Features | None, lengths: Lengths) -> None:
        """Refuse queries and numbers of examples that do not go together with these features.

        Args:
            query: The law of the queries; None for that of the features.
            lengths: The numbers of examples.

        Raises:
            InputError: They do not go together.
        """
        if query is not None and not query.fixed:
            refuse("queries have one covariance for all sequences", query, "Pass a matrix or a spectrum.")
        if self.standardised and lengths.least < 2:
            refuse("standardising needs at least two examples", f"context {lengths}", "Pass a larger context.")


class _Diagonal(Features):
    """Independent features; `values(dim)` are their variances."""

    @abstractmethod
    def values(self, dim: int) -> Array:
        """Return the eigenvalues of Lambda.

        Args:
            dim: The dimension d of the features.

        Returns:
            The variances of the features, [d].
        """

    def law(self, dim: int) -> dict[str, Any]:
        """See `PartOfProblem.law`."""
        return {"factor": np.diag(np.sqrt(self.values(dim)))}

    def mean_covariance(self, dim: int) -> Array:
        """See `Features.mean_covariance`."""
        return np.diag(self.values(dim))


class Isotropic(_Diagonal):
    """x ~ N(0, I), as in the seed paper."""

    name = "isotropic"
    words = "x is N(0, I) in {dim} dimensions"

    def law(self, dim: int) -> dict[str, Any]:
        """See `PartOfProblem.law`."""
        return {}

    def values(self, dim: int) -> Array:
        """See `_Diagonal.values`."""
        return np.ones(dim)


ISOTROPIC = Isotropic()


class Covariance(Features):
    """Features x ~ N(0, Lambda) with a given matrix Lambda.

    Args:
        matrix: Lambda, [d, d], symmetric and positive definite.
    """

    name = "covariance"
    words = "x is N(0, Lambda) with a given {dim} x {dim} matrix Lambda"

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = check_covariance("the covariance of features", matrix, definite=True)

    def law(self, dim: int) -> dict[str, Any]:
        """See `PartOfProblem.law`."""
        return {"factor": np.linalg.cholesky(self.mean_covariance(dim))}

    def mean_covariance(self, dim: int) -> Array:
        """See `Features.mean_covariance`."""
        return fitting("the covariance of features", self.matrix, dim)


class Spectrum(_Diagonal):
    """x ~ N(0, diag(values)): independent features with given variances, all positive.

    Args:
        *values: The variances, all positive, as many as there are dimensions.
    """

    name = "spectrum"
    words = "x has independent coordinates with {dim} given variances"

    def __init__(self, *values: float) -> None:
        self._values = array("the spectrum of features", np.array(values, float), ("d",)).astype(np.float64)
        if not (self._values > 0).all():
            refuse("a spectrum must be positive", f"{self._values.min():g} in it", "Pass variances above 0.")

    def values(self, dim: int) -> Array:
        """See `_Diagonal.values`."""
        return fitting("the spectrum of features", self._values, dim)


class PowerLaw(_Diagonal):
    """x ~ N(0, diag(values)) with values proportional to i^-exponent, i = 1 to d, and a sum of d.

    Args:
        exponent: The exponent, 0 to 10.
    """

    name = "powerlaw"
    words = "x has independent coordinates with variances in proportion to i^-{exponent:g}, their sum is {dim}"

    def __init__(self, exponent: float) -> None:
        self.exponent = number("the exponent of a power law", exponent, most=10)

    def values(self, dim: int) -> Array:
        """See `_Diagonal.values`."""
        raw = np.arange(1.0, dim + 1) ** -self.exponent
        return np.asarray(raw * dim / raw.sum())


class Rotated(Features):
    """A fixed spectrum in a basis that is drawn for each sequence, uniformly among all orthonormal ones.

    Args:
        spectrum: `Spectrum`, `PowerLaw` or `Isotropic`, or the variances themselves.
    """

    name = "rotated"
    fixed = False
    words = "Each sequence has a random rotation of the same law: {spectrum}"

    def __init__(self, *spectrum: Features | float) -> None:
        single = spectrum[0] if len(spectrum) == 1 else None
        law = single if isinstance(single, Features) else Spectrum(*spectrum)  # type: ignore[arg-type]
        if not isinstance(law, _Diagonal):
            refuse("what is rotated must be a spectrum", law, "Pass rotated(powerlaw(1)), for example.")
        self.spectrum = law

    def law(self, dim: int) -> dict[str, Any]:
        """See `PartOfProblem.law`."""
        return {"covariance": "rotated", "factor": np.sqrt(self.spectrum.values(dim))}

    def mean_covariance(self, dim: int) -> Array:
        """See `Features.mean_covariance`."""
        return np.asarray(np.eye(dim) * self.spectrum.values(dim).sum() / dim)

    def covariances(self, dim: int, count: int, rng: np.random.Generator) -> Array:
        """See `Features.covariances`."""
        basis = np.linalg.qr(rng.standard_normal((count, dim, dim)))[0]
        return np.asarray(basis * self.spectrum.values(dim) @ np.swapaxes(basis, 1, 2))


class Factors(Features):
    """Random correlations of a factor model with few factors, as real tables have them.

    Each sequence draws loadings L [d, count] from N(0, 1 / count); Lambda is the correlation matrix of L L' + unique I.

    Args:
        count: How many common factors, 1 to d.
        unique: The variance of each feature that it shares with no other; smaller means stronger correlations.
    """

    name = "factors"
    named = ("unique",)
    fixed = False
    words = (
        "Each sequence has random correlations from {count} common factors, with a unique variance of {unique:g}; "
        "every feature has variance 1"
    )

    def __init__(self, count: int, unique: float = 0.5) -> None:
        self.count = integer("the number of factors", count, 1, 4096)
        self.unique = number("the unique variance", unique, 1e-3, 1e6)

    def law(self, dim: int) -> dict[str, Any]:
        """See `PartOfProblem.law`."""
        if self.count > dim:
            refuse(f"there can be at most d = {dim} factors", self.count, f"Pass {dim} or less.")
        return {"covariance": "factors", "factors": self.count, "unique": self.unique}

    def describe(self, dim: int) -> str:
        """See `PartOfProblem.describe`."""
        return super().describe(dim).replace(" 1 common factors", " 1 common factor")

    def mean_covariance(self, dim: int) -> Array:
        """See `Features.mean_covariance`."""
        return np.eye(dim)

    def covariances(self, dim: int, count: int, rng: np.random.Generator) -> Array:
        """See `Features.covariances`."""
        L = rng.standard_normal((count, dim, self.count)) / np.sqrt(self.count)
        raw = L @ np.swapaxes(L, 1, 2) + self.unique * np.eye(dim)
        scale = np.sqrt(np.einsum("bii->bi", raw))
        return np.asarray(raw / scale[:, :, None] / scale[:, None, :])


class Scales(Features):
    """Features whose scales differ from sequence to sequence.

    Feature i of a sequence is multiplied by exp(spread g - spread^2) with g ~ N(0, 1), whose mean square is 1.

    Args:
        spread: The standard deviation of the logarithm of a scale.
        base: The law of the features before they are scaled.
    """

    name = "scales"
    fixed = False
    words = "{base}; each sequence then has random scales, whose logarithms have a spread of {spread:g}"

    def __init__(self, spread: float, base: Features = ISOTROPIC) -> None:
        self.spread, self.base = number("the spread of scales", spread), Features.of(base)
        if not 0 < self.spread <= 3:
            refuse("the spread of scales must lie in (0, 3]", self.spread, "Pass 0.5, for example.")
        if self.base.unscaled is not self.base or self.base.standardised:
            rule = "features are scaled once, before they are standardised"
            refuse(rule, self.base, "Pass a base that is neither scaled nor standardised.")

    def law(self, dim: int) -> dict[str, Any]:
        """See `PartOfProblem.law`."""
        return {**self.base.law(dim), "spread": self.spread}

    @property
    def unscaled(self) -> Features:
        """See `Features.unscaled`."""
        return self.base

    def mean_covariance(self, dim: int) -> Array:
        """See `Features.mean_covariance`."""
        base = self.base.mean_covariance(dim)
        shrink = np.exp(-(self.spread**2))  # the square of E[scale]
        return np.asarray(np.where(np.eye(dim) > 0, base, shrink * base))

    def covariances(self, dim: int, count: int, rng: np.random.Generator) -> Array:
        """See `Features.covariances`."""
        by = np.exp(self.spread * rng.standard_normal((count, dim)) - self.spread**2)
        return np.asarray(self.base.covariances(dim, count, rng) * by[:, :, None] * by[:, None, :])


class Standardised(Features):
    """Features that are standardised within each context, as a user of real data does.

    Each feature is shifted and scaled to mean 0 and variance 1 over the tokens of its context, and queries are shifted
    and scaled by the same numbers. The task acts on the standardised features: y = <w, x> + noise.

    Args:
        base: The law of the features before that.
    """

    name = "standardised"
    fixed, standardised = False, True
    words = "{base}; features are then shifted and scaled to mean 0 and variance 1 within each context"

    def __init__(self, base: Features = ISOTROPIC) -> None:
        self.base = Features.of(base)
        if self.base.standardised:
            refuse("features are standardised once", self.base, "Pass the law that they have before.")

    def law(self, dim: int) -> dict[str, Any]:
        """See `PartOfProblem.law`."""
        return {**self.base.law(dim), "standardised": True}

    def mean_covariance(self, dim: int) -> Array:
        """See `Features.mean_covariance`. These are the correlations before: those in a context differ a little."""
        base = self.base.unscaled.mean_covariance(dim)
        scale = np.sqrt(np.diag(base))
        return np.asarray(base / scale[:, None] / scale)

    def query_moment(self, dim: int, context: int) -> Array:
        """Return E[x x'] of a query x that is shifted and scaled by the means and deviations of a context.

        For two features with the correlation r and m = n - 1, E[1 / (s_1 s_2)] of the sums of squares s^2 is
        F(1/2, 1/2; m/2; r^2) / 2 times the square of Gamma((m-1)/2) / Gamma(m/2), with the hypergeometric function F.

        Args:
            dim: The dimension d of the features.
            context: The number of examples n. The moment is infinite for n <= 3, where it is that for n = 4.

        Returns:
            The matrix, [d, d].
        """
        from scipy.special import gammaln, hyp2f1

        n, r = max(context, 4), self.mean_covariance(dim)
        m = n - 1
        size = np.exp(2 * (gammaln((m - 1) / 2) - gammaln(m / 2))) / 2
        second = r * (n + 1) * size * hyp2f1(0.5, 0.5, m / 2, np.minimum(r**2, 1.0))
        np.fill_diagonal(second, (n + 1) / (n - 3))
        return np.asarray(second)

    def covariances(self, dim: int, count: int, rng: np.random.Generator) -> Array:
        """See `Features.covariances`. These are the covariances before standardising."""
        return self.base.covariances(dim, count, rng)
