"""GD++ sees only E[sigma^2]: on any noise distribution it solves the fixed-noise problem of that variance, exactly.

The paper observes that GD++ ends as if there were one noise level; this is why. No flow leaves y in GD++, so w = f(S) a
with a polynomial f that no label touches. With e = 1 - lambda f(lambda) its risk is

    1/2 E |w - w_task|^2 = 1/2 E sum over eigenvalues ( e^2 + sigma^2 (1 - e)^2 / lambda ),

linear in sigma^2; so averaged over any distribution it is that at sigma^2 = E[sigma^2]. There the best f at all is
ridge regression with this variance: ConstRR bounds every GD++ model from below, at any depth, on any noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.errors import refuse
from ridgeformer.exact import eigenvalues
from ridgeformer.models.families import GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound, trained_gdpp
from ridgeformer.predictors.ridge import ConstRR
from ridgeformer.problems import Draw, Problem
from ridgeformer.validation import Float, real

NOISES = ["uniform(0,5)", "categorical(1,3)", "expon(scale=2)"]
SEQUENCES = 100_000


def filtered(model: LinearTransformer, values: Float) -> Float:
    """Compute the share of the task w that a GD++ model recovers along eigenvectors of S: lambda f(lambda).

    Along each eigenvector GD++ is a model of dimension one; this runs it there, with S = a = lambda.

    Args:
        model: A GD++ model.
        values: Eigenvalues lambda, [K].

    Returns:
        The shares, [K].

    Raises:
        InputError: The model is not a GD++ model.
    """
    if not isinstance(model.family, GDpp):
        refuse("the filter of eigenvalues is defined for GD++ models only", model, "Use evaluate for other models.")
    gram = np.broadcast_to(np.asarray(values, np.float64)[:, None, None], (len(values), 2, 2))
    return np.asarray(LinearTransformer(model.family, 1).weights(Moments(gram, 1))[:, 0], np.float64)


def risk(problem: Problem, model: LinearTransformer, variances: ArrayLike) -> Float:
    """Compute the risk 1/2 E |w_hat - w|^2 of a GD++ model by quadrature over the eigenvalues of S.

    Args:
        problem: The problem, with n >= d.
        model: A GD++ model.
        variances: Noise variances, of any shape.

    Returns:
        The risk at every variance, of the same shape.

    Raises:
        InputError: The context is shorter than d, or the model is not a GD++ model.
    """
    if problem.context < problem.dim:
        refuse("the risk by quadrature needs n >= d", problem, "Use evaluate for shorter contexts.")
    values, weights = _nodes(problem)
    share = filtered(model, values)
    return np.asarray(0.5 * ((1 - share) ** 2 + real("variances", variances)[..., None] * share**2 / values) @ weights)


def ridge_risk(problem: Problem) -> float:
    """Compute the risk of ridge regression with the variance E[sigma^2], ConstRR: 1/2 E sum v / (lambda + v).

    Args:
        problem: The problem.

    Returns:
        The risk.
    """
    values, weights = _nodes(problem)
    level = problem.noise.second_moment
    return 0.5 * float(weights @ (level / (values + level)))


def variance(noise: Noise) -> float:
    """Return E[sigma^2], all that GD++ sees of a noise distribution.

    Args:
        noise: The noise distribution.

    Returns:
        The mean variance.
    """
    return noise.second_moment


def risk_of_noise(problem: Problem, model: LinearTransformer) -> float:
    """Compute the risk of a GD++ model over the problem's distribution of sigma.

    Args:
        problem: The problem.
        model: A GD++ model.

    Returns:
        The risk.
    """
    return float(risk(problem, model, variance(problem.noise)))


def check(seed: int = 0) -> list[Bound]:
    """Check that GD++ only sees E[sigma^2].

    Quadrature is compared with random sequences, the average over sigma with E[sigma^2], and ConstRR with GD++ models.

    Args:
        seed: Seed of the sequences.

    Returns:
        The checks.
    """
    problems = [Problem(noise=noise) for noise in NOISES]
    models = [trained_gdpp(problem, layers) for problem, layers in zip(problems, (1, 2, 3), strict=True)]
    pairs = list(zip(models, problems, strict=True))
    wrong = max(abs(_averaged(m, p) / risk_of_noise(p, m) - 1) for m, p in pairs)
    return [
        Bound("average over sigma = risk at E[sigma^2], three noise distributions", wrong, 1e-7),
        *_sampled(pairs, seed),
        _below(problems[0], seed),
    ]


def _averaged(model: LinearTransformer, problem: Problem) -> float:
    """The risk at every sigma apart, averaged over the distribution: no use of linearity."""
    sigma, chance = problem.noise.quadrature()
    return float(chance @ risk(problem, model, sigma**2))


def _sampled(pairs: list[tuple[LinearTransformer, Problem]], seed: int) -> list[Bound]:
    """The risk and the adjusted loss by quadrature against a Monte Carlo estimate, in its standard errors."""
    from ridgeformer.exact import const_loss, exact_loss

    away: dict[str, list[float]] = {"risk of GD++": [], "adjusted loss of GD++": [], "adjusted loss of ConstRR": []}
    for model, problem in pairs:
        draw = problem.moments(SEQUENCES, seed=seed)
        const = 0.5 * np.square(ConstRR.tune(problem).weights(draw.moments) - draw.ridge).sum(1)
        away["risk of GD++"].append(_deviation(risk_of_noise(problem, model), model, draw, draw.task))
        away["adjusted loss of GD++"].append(_deviation(exact_loss(problem, model), model, draw, draw.ridge))
        deviation = float((const_loss(problem) - const.mean()) / const.std() * np.sqrt(SEQUENCES))
        away["adjusted loss of ConstRR"].append(deviation)
    what, bounds = f"agrees with {SEQUENCES:,} sequences: difference in standard errors", []
    for name, values in away.items():
        facts = {"by noise": dict(zip(NOISES, values, strict=True))}
        bounds.append(Bound(f"{name} {what}", float(np.abs(values).max()), 5.0, facts))
    return bounds


def _deviation(exact: float, model: LinearTransformer, draw: Draw, target: Float) -> float:
    losses = model.evaluate(draw.moments, target).losses
    return float((exact - losses.mean()) / losses.std() * np.sqrt(len(losses)))


def _below(problem: Problem, seed: int) -> Bound:
    """Check how far any GD++ model is below ConstRR's risk, over d/2; facts say how far trained ones are above."""
    from ridgeformer import zoo

    shape: dict[str, Any] = {"dim": 10, "layers": 3, "context": 20, "scale": 0.5}
    pairs = [(LinearTransformer.random("gdpp", **shape, seed=100 * seed + k), problem) for k in range(50)]
    shipped = sorted({cell for cell, _ in zoo.shipped().models if cell[0] == "gdpp"})
    pairs += [(zoo.shipped().model(*cell), Problem(noise=cell[2])) for cell in shipped]
    lowest = min((risk_of_noise(p, m) - ridge_risk(p)) / (p.dim / 2) for m, p in pairs)
    above = {
        f"{layers} layers": risk_of_noise(problem, trained_gdpp(problem, layers)) / ridge_risk(problem) - 1
        for layers in (1, 2, 3, 4)
    }
    facts = {"models": len(pairs), "trained, above ConstRR's risk": above}
    what = "no GD++ model, random or of the zoo, has a lower loss than ConstRR"
    return Bound(what, max(-lowest, 0.0), 1e-12, facts)


def _nodes(problem: Problem) -> tuple[Float, Float]:
    """Eigenvalues of S and their weights; where the density has vanished, a polynomial has not, so these are left."""
    if not problem.is_isotropic:
        refuse("the eigenvalues of S are known for isotropic problems", problem, "Use evaluate for others.")
    values, weights = eigenvalues(problem.dim, problem.context)
    relevant = weights > 1e-12
    return values[relevant], weights[relevant]
