"""A trained model as an algorithm: what each layer's parameters are, what it does, and that in words.

>>> from ridgeformer import Diag, LinearTransformer, Problem
>>> step = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)
>>> found = explain(step, Problem(noise="fixed(1)"), sequences=2000)
>>> [role.kind for role in found.roles], round(float(found.noise.step[0, 0]), 6)
(['solves'], 0.03)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation import compare
from ridgeformer.explanation.ablation import without_layer
from ridgeformer.explanation.behaviour import Behaviour, ByNoise, behaviour, by_noise, levels
from ridgeformer.explanation.coefficients import Coefficients, check, coefficients
from ridgeformer.explanation.readings import read
from ridgeformer.explanation.story import Role, roles, summary
from ridgeformer.explanation.symmetry import Symmetry, symmetry
from ridgeformer.jsonable import jsonable
from ridgeformer.models.families import Full
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.ridge import check_problem
from ridgeformer.problems import Problem
from ridgeformer.validation import array, integer

__all__ = ["Explanation", "explain"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a model does on a problem.

    Attributes:
        model: The model.
        problem: The problem.
        coefficients: The parameters of every layer, as four omegas and what these leave out.
        behaviour: What the layers do, averaged over the problem's noise.
        noise: What they do at fixed noise levels.
        removed: The loss without each layer, which counts as at most 1e12, over the loss of the whole model, [L].
        symmetry: Of a Full model, whether it treats all directions alike; else None.
        roles: What each layer does, with a sentence that carries its numbers.
    """

    model: LinearTransformer
    problem: Problem
    coefficients: list[Coefficients]
    behaviour: Behaviour
    noise: ByNoise
    removed: Array
    symmetry: Symmetry | None
    roles: list[Role]

    @property
    def summary(self) -> list[str]:
        """Which layers estimate the noise, solve, shrink, and where the noise acts."""
        return summary(self.behaviour, self.roles)

    def __str__(self) -> str:
        return "\n".join([*self.summary, *(role.sentence for role in self.roles)])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold; numbers that are not finite or do not exist are None."""
        return {
            "model": repr(self.model),
            "problem": str(self.problem),
            "coefficients": [asdict(layer) for layer in self.coefficients],
            "behaviour": jsonable(vars(self.behaviour)),
            "by_noise": jsonable(vars(self.noise)),
            "removed": jsonable(self.removed),
            "symmetry": None if self.symmetry is None else jsonable(asdict(self.symmetry)),
            "roles": [role._asdict() for role in self.roles],
            "summary": self.summary,
        }


def explain(
    model: LinearTransformer,
    problem: Problem,
    *,
    sigma: Sequence[float] | Array | None = None,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Explanation:
    """Read a model as an algorithm: its parameters, and what its layers do on fresh sequences of a problem.

    Args:
        model: The model.
        problem: The problem.
        sigma: Fixed noise levels to look at, [K]. By default those of a discrete distribution, or six over the range of
            a continuous one.
        sequences: How many sequences, at least 100; a fifth as many are used at each fixed noise level.
        seed: Seed of the sequences.
        progress: Is called with the number of sequences done and of all.

    Returns:
        The explanation. Printed, it is a list of sentences. A model with attention by mean is explained as the model
        with attention by sum that is the same function at the problem's n.

    Raises:
        InputError: The model and the problem do not fit, an argument is not allowed, or the model explodes on every
            sequence. Tasks must be N(0, I) and n fixed, because layers are compared with ridge regression for such
            tasks; features and queries may have any law.
    """
    model = _explainable(model, problem)
    sequences, seed = integer("sequences", sequences, 100), integer("seed", seed, 0)
    chosen = levels(problem.noise) if sigma is None else np.unique(array("sigma", sigma, ("K",)).astype(np.float64))
    if chosen[0] < 0:
        refuse("sigma must not be negative", float(chosen[0]), "Pass standard deviations >= 0.")
    each, done = max(sequences // 5, 100), 0
    total = sequences + each * len(chosen)

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    found = behaviour(
        read(model, problem, problem.noise, sequences=sequences, seed=seed, progress=step), problem.signal
    )
    fixed = [problem.at_noise(level) for level in chosen]
    readings = [read(model, one, problem.noise, sequences=each, seed=seed, progress=step) for one in fixed]
    noise = by_noise(chosen, readings, problem.signal)
    variants = {str(layer): without_layer(model, layer) for layer in range(model.layers)}
    losses = compare({"whole": model, **variants}, problem, sequences=sequences, seed=seed, with_floor=False)
    whole = losses["whole"].loss
    removed = np.array([losses[name].loss / whole if whole > 0 else np.inf for name in variants])
    alike = isinstance(model.family, Full) and problem.is_isotropic
    directions = symmetry(model, problem, seed=seed) if alike else None
    told = roles(found, noise, removed)
    return Explanation(model, problem, coefficients(model), found, noise, removed, directions, told)


def _explainable(model: LinearTransformer, problem: Problem) -> LinearTransformer:
    """The model with attention by sum, if what is read of it makes sense on this problem."""
    check(model, problem)
    known = check_problem(problem)
    if known.has_pool or not known.prior.is_standard:
        refuse(
            "an explanation compares layers with ridge regression for tasks from N(0, I)",
            f"tasks {known.tasks}",
            "Use a problem with tasks='gaussian()', or measure the model with evaluate, profile, by_layer or ablate.",
        )
    if not known.lengths.fixed:
        refuse(
            "an explanation needs contexts of one length",
            f"n = {known.lengths}",
            "Choose one, for example problem.replace(context=20), on the command line --context 20.",
        )
    return model.to_attention("sum", known.context)
