"""Quasi-Newton descent for models with few parameters: SciPy's BFGS, with a rule when to stop and a way to go on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BAD = 700.0  # the logarithm of a loss that is not finite


@dataclass(frozen=True, eq=False)
class BfgsState:
    """Where a descent has come to.

    Attributes:
        point: The parameters, [k].
        value: The objective there.
        inverse: The estimate of the inverse Hessian, [k, k].
        evaluations: How many evaluations of the objective were used so far.
        rested: Whether it ended because there was nothing more to gain, not because its iterations were over.
    """

    point: Array
    value: float
    inverse: Array
    evaluations: int
    rested: bool

    @classmethod
    def at(cls, point: Array) -> BfgsState:
        """Return a start.

        Args:
            point: The parameters, [k].

        Returns:
            The place of a descent that has not begun.
        """
        return cls(point, np.inf, np.eye(len(point)), 0, False)

    @classmethod
    def restored(cls, arrays: Mapping[str, Array]) -> BfgsState:
        """Return what `arrays` stored.

        Args:
            arrays: The arrays by name.

        Returns:
            The place.
        """
        value, evaluations, rested = arrays["facts"].tolist()
        return cls(arrays["point"], value, arrays["inverse"], int(evaluations), bool(rested))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, to be stored."""
        facts = np.array([self.value, self.evaluations, self.rested])
        return {"point": self.point, "inverse": self.inverse, "facts": facts}


def descend(
    objective: Callable[[Array], tuple[float, Array]], start: BfgsState, iterations: int, tolerance: float = 1e-6
) -> BfgsState:
    """Minimise the logarithm of an objective until ten iterations gain less than a tolerance.

    The logarithm makes losses of 1 and of 1e-12 alike.

    Args:
        objective: Maps parameters [k] to the value and the gradient [k].
        start: Where to begin: `BfgsState.at(parameters)`, or the end of an earlier descent, which is then continued.
        iterations: Iterations of BFGS, at most.
        tolerance: The descent ends when ten iterations gain less than this in the logarithm of the objective.

    Returns:
        Where it has come to. The value is exp(700) where the objective is not finite and positive.
    """
    from scipy import optimize

    minimize: Any = optimize.minimize

    def logarithm(point: Array) -> tuple[float, Array]:
        value, slope = objective(point)
        if not (np.isfinite(value) and value > 0):
            return BAD, np.zeros_like(point)
        return float(np.log(value)), slope / value

    best: list[float] = []

    def enough(intermediate_result: Any) -> None:
        best.append(float(intermediate_result.fun))
        if len(best) > 10 and best[-11] - best[-1] < tolerance:
            raise StopIteration

    options: dict[str, Any] = {"maxiter": iterations, "gtol": 1e-9}
    point = start.point
    if start.evaluations:
        options["hess_inv0"] = (start.inverse + start.inverse.T) / 2
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # SciPy warns where a line search ends; what counts is the value
        try:
            result = minimize(logarithm, point, jac=True, method="BFGS", callback=enough, options=options)
        except (ValueError, np.linalg.LinAlgError):  # the inverse Hessian lost its positivity to rounding
            options.pop("hess_inv0", None)
            result = minimize(logarithm, point, jac=True, method="BFGS", callback=enough, options=options)
    inverse = np.asarray(result.hess_inv, np.float64)
    if not np.isfinite(inverse).all():
        inverse = np.eye(len(point))
    value, rested = float(np.exp(min(result.fun, BAD))), result.status != 1 and result.fun < BAD
    return BfgsState(np.asarray(result.x, np.float64), value, inverse, start.evaluations + int(result.nfev), rested)
