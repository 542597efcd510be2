"""A trained model as an algorithm: what each layer's parameters are, what it does, and that in words.

>>> from ridgeformer import Diag, LinearTransformer, Problem
>>> step = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)
>>> found = explain(Problem(noise="fixed(1)"), step, sequences=2000)
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
from ridgeformer.evaluation.sequence_losses import how_many
from ridgeformer.explanation.ablation import without_layer
from ridgeformer.explanation.behaviour import Behaviour, ByNoise, behaviour, by_noise, levels
from ridgeformer.explanation.coefficients import Coefficients, check, coefficients
from ridgeformer.explanation.further import Channel, channels
from ridgeformer.explanation.readings import read
from ridgeformer.explanation.story import Role, roles, summary
from ridgeformer.explanation.symmetry import Symmetry, symmetry
from ridgeformer.jsonable import jsonable
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.bayes import best_predictor
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.validation import array, integer

__all__ = ["Explanation", "explain"]

Array = NDArray[np.float64]
GOALS = {"ridge": "ridge", "oracle": "the oracle", "task": "the task"}


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
        symmetry: Whether the model treats all directions alike; None on problems that are not isotropic, and for
            families that do so by their form, such as Diag.
        channels: What further scalars and vectors of the tokens hold; empty where tokens are (x, y).
        roles: What each layer does, with a sentence that carries its numbers.
        goal: What w is compared with: `ridge`, `oracle` where tasks are not Gaussian, or `task` where there is no
            oracle.
        left_out: What is left out on this problem, and why, in sentences.
    """

    model: LinearTransformer
    problem: BaseProblem
    coefficients: list[Coefficients]
    behaviour: Behaviour
    noise: ByNoise
    removed: Array
    symmetry: Symmetry | None
    channels: list[Channel]
    roles: list[Role]
    goal: str = "ridge"
    left_out: tuple[str, ...] = ()

    @property
    def goal_words(self) -> str:
        """The goal as a part of a sentence."""
        return GOALS[self.goal]

    @property
    def summary(self) -> list[str]:
        """Which layers estimate the noise, solve, shrink, and where the noise acts."""
        return summary(self.behaviour, self.roles)

    def __str__(self) -> str:
        return "\n".join([*self.summary, *(role.sentence for role in self.roles), *self.contents, *self.left_out])

    @property
    def contents(self) -> list[str]:
        """What each further scalar and vector of the tokens holds, in sentences."""
        return [channel.sentence for channel in self.channels]

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
            "channels": [jsonable({"name": channel.name, **vars(channel)}) for channel in self.channels],
            "roles": [role._asdict() for role in self.roles],
            "goal": self.goal,
            "left_out": list(self.left_out),
            "summary": self.summary,
        }


def explain(
    problem: BaseProblem,
    model: LinearTransformer,
    *,
    sigma: Sequence[float] | Array | None = None,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Explanation:
    """Read a model as an algorithm: its parameters, and what its layers do on fresh sequences of a problem.

    Args:
        problem: The problem.
        model: The model.
        sigma: Fixed noise levels to look at, [K]. By default those of a discrete distribution, or six over the range of
            a continuous one. A problem of your own needs a method `at_noise` for them.
        sequences: How many sequences, at least 100 and at most those of a data set; a fifth as many are used at each
            fixed noise level.
        seed: Seed of the sequences.
        progress: Is called with the number of sequences done and of all.

    Returns:
        The explanation. Printed, it is a list of sentences; the last ones say what is left out on this problem. If all
        contexts have the same length, a model with attention by mean is explained as the model with attention by sum
        that is the same function there.

    Raises:
        InputError: The model and the problem do not fit, an argument is not allowed, or the model explodes on every
            sequence.
    """
    check(model, problem)
    if problem.lengths.fixed:
        model = model.to_attention("sum", problem.lengths.most)
    wanted, seed = integer("sequences", sequences, 100), integer("seed", seed, 0)
    sequences, chosen = how_many(problem, wanted), _levels(problem, sigma)
    each, done = max(sequences // 5, 100), 0
    total = sequences + each * len(chosen)

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    best = best_predictor(problem)
    whole = read(problem, model, best, sequences=sequences, seed=seed, progress=step)
    found = behaviour(whole, problem.signal)
    fixed = [problem.at_noise(level) for level in chosen]
    readings = [read(one, model, best, sequences=each, seed=seed, progress=step) for one in fixed]
    noise = by_noise(chosen if fixed else np.array([np.nan]), readings or [whole], problem.signal)
    removed = _removed(model, problem, sequences, seed)
    directions = None
    if not model.family.isotropic and isinstance(problem, Problem) and problem.is_isotropic:
        directions = symmetry(problem, model, seed=seed)
    goal, left_out = _goal(problem), _left_out(model, problem, found, bool(fixed))
    told = roles(found, noise, removed, GOALS[goal], further=model.layout.extra > 0)
    held = channels(problem, model, each, seed)
    return Explanation(
        model, problem, coefficients(model), found, noise, removed, directions, held, told, goal, left_out
    )


def _levels(problem: BaseProblem, sigma: Sequence[float] | Array | None) -> Array:
    """The fixed noise levels to look at; none where the problem cannot be had at one level."""
    if sigma is None:
        return levels(problem.noise) if problem.noise is not None and problem.has_at_noise else np.empty(0)
    chosen = np.unique(array("sigma", sigma, ("K",)).astype(np.float64))
    if chosen[0] < 0:
        refuse("sigma must not be negative", float(chosen[0]), "Pass standard deviations >= 0.")
    return chosen


def _removed(model: LinearTransformer, problem: BaseProblem, sequences: int, seed: int) -> Array:
    """The loss without each layer over that of the whole model, [L]."""
    variants = {str(layer): without_layer(model, layer) for layer in range(model.layers)}
    losses = compare(problem, {"whole": model, **variants}, sequences=sequences, seed=seed, with_floor=False)
    whole = losses["whole"].loss
    return np.array([losses[name].loss / whole if whole > 0 else np.inf for name in variants])


def _goal(problem: BaseProblem) -> str:
    """What w is compared with."""
    if not isinstance(problem, Problem):
        return "task"
    return "oracle" if problem.has_pool else "ridge"


def _left_out(model: LinearTransformer, problem: BaseProblem, found: Behaviour, fixed: bool) -> tuple[str, ...]:
    """What cannot be measured on this problem, and why, in sentences."""
    said = []
    if not isinstance(problem, Problem):
        said.append("There is no oracle, so losses are not adjusted, and w is compared with the task of each sequence.")
    if np.isnan(found.floor):
        said.append("The floor is left out: the problem does not say which predictor is the best one.")
    if not found.has_levels:
        said.append("Errors of shrinkage are left out, as parts of those of direction: sequences have no noise levels.")
    if not fixed:
        said.append(
            "Measurements at fixed noise levels are left out, and averages over all sequences take their place: the "
            "problem has no distribution of noise levels with a method at_noise."
        )
    if not model.family.isotropic and not problem.is_isotropic:
        said.append("Rotations of x are left out: they are for isotropic problems with one context length.")
    if model.layout.extra:
        said.append("The omegas concern x and y only: they leave out what further coordinates of the tokens do.")
    return tuple(said)
