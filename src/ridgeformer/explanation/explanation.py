"""A trained model as an algorithm: the parameters of each layer, its effect in numbers, and its jobs in words.

>>> from ridgeformer import Diag, LinearTransformer, Problem
>>> step = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)
>>> explanation = explain(Problem(noise="fixed(1)"), step, sequences=2000)
>>> [role.kind for role in explanation.roles], round(float(explanation.noise.step[0, 0]), 6)
(['solves'], 0.03)
"""

from __future__ import annotations

import functools
import html
import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.evaluation import ExplosionProbability, Losses, compare, explosion_probability, floor
from ridgeformer.evaluation.sequence_losses import how_many
from ridgeformer.evaluation.table import lines
from ridgeformer.explanation.algorithms import AlgorithmMap, compare_algorithms
from ridgeformer.explanation.behaviour import Behaviour, ByNoise, levels
from ridgeformer.explanation.coefficients import Coefficients, Symmetry, check, coefficients, symmetry
from ridgeformer.explanation.further import Channel, channels
from ridgeformer.explanation.interventions import NoisePatching, ablate, patch_noise, without_layer
from ridgeformer.explanation.readings import read
from ridgeformer.explanation.story import Role, findings, roles, summary
from ridgeformer.files import jsonable
from ridgeformer.models.families import FLOWS
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.validation import array, integer, keywords
from ridgeformer.values import Array

RARE = 20_000  # sequences of a wider law that explosion probabilities are measured on
GOALS = {"ridge": "ridge", "oracle": "the oracle", "task": "the task"}
LEFT_OUT = (
    "There is no oracle: losses are not adjusted, and the estimate is compared with the task of each sequence.",
    "The floor is left out: the problem does not say which weights are the best ones.",
    "Errors of shrinkage are left out, as parts of those of direction: sequences have no noise levels.",
    "Measurements at fixed noise levels are left out, and averages over all sequences take their place: the problem "
    "has no distribution of noise levels with a method at_noise.",
    "Rotations of x are left out: they are for isotropic problems with one context length.",
    "The omegas concern x and y only: they leave out what further coordinates of the tokens do.",
)


@dataclass(frozen=True, eq=False)
class Explanation:
    """The algorithm of a model on a problem. Printed, it is a list of sentences, the most important ones first.

    Attributes:
        model: The model.
        problem: The problem.
        coefficients: The parameters of every layer, as four omegas and what these leave out.
        behaviour: The effect of the layers, averaged over the problem's noise.
        noise: The effect of the layers at fixed noise levels.
        removed: The loss without each layer, in which a sequence counts as at most 1e12 or 1e6 times the signal, over
            the loss of the whole model, [L].
        symmetry: Whether the model treats all directions alike; None on problems that are not isotropic, and for
            families that do so by their form, such as Diag.
        channels: Contents of further scalars and vectors of the tokens; empty where tokens are (x, y).
        roles: The jobs of each layer, with a sentence that carries its numbers.
        goal: The weights that w is compared with: `ridge`, `oracle` where tasks are not Gaussian, or `task` where there
            is no oracle.
        left_out: Sentences about measurements that are not possible on this problem.
        seed: Seed of the sequences.
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
    seed: int = 0

    @property
    def goal_words(self) -> str:
        """The goal as a part of a sentence."""
        return GOALS[self.goal]

    @property
    def summary(self) -> list[str]:
        """Three sentences: the jobs of the layers, the layer that matters most, and where the noise level acts."""
        return summary(self.behaviour, self.roles, self.removed)

    @property
    def findings(self) -> list[str]:
        """Sentences with numbers: which layers estimate the noise, solve and shrink, and where the noise acts."""
        return findings(self.behaviour, self.roles)

    def __repr__(self) -> str:
        return f"Explanation({self.model}, {self.problem}: loss {self.behaviour.loss[-1]:.4g})"

    def __str__(self) -> str:
        texts = (self.summary, self.findings, [role.sentence for role in self.roles], self.contents, self.left_out)
        return "\n".join(sentence for text in texts for sentence in text)

    def _repr_html_(self) -> str:
        """The sentences as a notebook shows them."""
        return "<ul>" + "".join(f"<li>{html.escape(sentence)}</li>" for sentence in str(self).splitlines()) + "</ul>"

    @functools.cached_property
    def explosions(self) -> ExplosionProbability | None:
        """The probability that a sequence explodes; None where it cannot be measured: see `evaluation.why_unknown`.

        It is measured when it is first asked for, which takes about two seconds: see `explosion_probability`.
        """
        if not self.problem.has_known_laws:
            return None
        return explosion_probability(self.problem, self.model, sequences=RARE, seed=self.seed)

    @property
    def contents(self) -> list[str]:
        """Sentences about the further scalars and vectors of the tokens."""
        return [channel.sentence for channel in self.channels]

    def ablation(self, sequences: int = 20_000) -> Losses:
        """Measure the loss without each part of the model; see `ridgeformer.explanation.ablate`.

        Args:
            sequences: How many sequences.

        Returns:
            The losses by the name of the part that was removed; `nothing` is the whole model.
        """
        return ablate(self.problem, self.model, sequences=sequences, seed=self.seed)

    def patching(self, low: float | None = None, high: float | None = None, sequences: int = 2000) -> NoisePatching:
        """Find the layers that carry the noise level; see `ridgeformer.explanation.patch_noise`.

        Args:
            low: The lower noise level; None for the 20 % quantile of the problem's noise.
            high: The higher noise level; None for the 80 % quantile.
            sequences: How many pairs of contexts.

        Returns:
            The shares of the change in shrinkage that patches restore.
        """
        return patch_noise(self.problem, self.model, low=low, high=high, sequences=sequences, seed=self.seed)

    def algorithms(self, iterations: int = 200, sequences: int = 1000) -> AlgorithmMap:
        """Compare the layers with classical algorithms; see `ridgeformer.explanation.compare_algorithms`.

        Args:
            iterations: How many iterations of each algorithm; at most 60 of Newton's.
            sequences: How many sequences.

        Returns:
            The cosines and relative errors by algorithm, layer and iteration.
        """
        return compare_algorithms(self.problem, self.model, iterations=iterations, sequences=sequences, seed=self.seed)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per state: `layer` 0 is the input, and has no parameters and no update."""
        b, omega = self.behaviour, np.array([np.ravel(layer.omega) for layer in self.coefficients])
        parameters = dict(zip((f"omega_{flow}" for flow in FLOWS), omega.T, strict=True))
        parameters["diagonal"] = np.array([layer.share for layer in self.coefficients])
        states = {"loss": b.loss, "direction": b.direction, "shrinkage": b.shrinkage, "size": b.size}
        states |= {"known": b.known, "moved": b.moved, "condition": b.condition}
        states |= {f"{q} %": b.spectrum[:, k] for k, q in ((0, 5), (2, 50), (4, 95))}
        updates = {"momentum": b.momentum, "1 - beta": b.kept, "noise through it": b.through}
        updates |= {"without it": self.removed, "acting": b.diagonal}
        before, after = ({n: np.append(np.nan, values) for n, values in of.items()} for of in (parameters, updates))
        return lines({"layer": np.arange(self.model.layers + 1), **before, **states, **after})

    def rows_by_noise(self) -> list[dict[str, Any]]:
        """Return one row per quantity and layer, with one column per noise level."""
        n, tables = self.noise, {f"OLS to {self.goal}": (self.noise.shrinkage[None], 0)}
        tables |= {"factor": (n.factor, 1), "best factor before": (n.best, 1), "step size": (n.step, 1)}
        tables |= {"step to OLS": (n.newton_step, 1), "|w - w_OLS|^2": (n.to_ols, 0)}
        tables |= {f"|w - w_{self.goal}|^2": (n.to_goal, 0)}
        tables |= {"|w - w_Bayes|^2": (n.to_bayes, 0)} if self.behaviour.floor >= 0 else {}
        heads = ["all" if np.isnan(sigma) else f"sigma={sigma:.3g}" for sigma in n.sigma]
        return [
            {"quantity": name, "layer": layer, **dict(zip(heads, row.tolist(), strict=True))}
            for name, (values, first) in tables.items()
            for layer, row in enumerate(values, first)
        ]

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
            **({"explosions": self.explosions and self.explosions.as_dict()} if "explosions" in vars(self) else {}),
            "summary": self.summary,
            "findings": self.findings,
        }


@keywords()
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
    sequences, seed = how_many(problem, integer("sequences", sequences, 100)), integer("seed", seed, 0)
    levels, each = _levels(problem, sigma), max(sequences // 5, 100)
    step = _counted(progress, sequences + each * len(levels))
    best = predictor if hasattr(predictor := problem.best_predictor(), "weights") else None  # some only predict
    readings = read(problem, model, best, sequences=sequences, seed=seed, progress=step)
    fixed = [read(problem.at_noise(s), model, best, sequences=each, seed=seed, progress=step) for s in levels]
    least = None if predictor is best else floor(problem, sequences=sequences, seed=seed).loss
    average = Behaviour(readings, problem.signal, least)
    noise = ByNoise(levels if fixed else np.array([np.nan]), fixed or [readings], problem.signal)
    removed = _removed(model, problem, sequences, seed)
    turned = not model.family.isotropic and problem.is_isotropic
    goal = "task" if not problem.has_oracle else "ridge" if problem.has_ridge_oracle else "oracle"
    return Explanation(
        model=model,
        problem=problem,
        coefficients=coefficients(model),
        behaviour=average,
        noise=noise,
        removed=removed,
        symmetry=symmetry(cast("Problem", problem), model, seed=seed) if turned else None,
        channels=channels(problem, model, each, seed),
        roles=roles(average, noise, removed, GOALS[goal], further=model.layout.extra > 0),
        goal=goal,
        left_out=_left_out(model, problem, average, bool(fixed)),
        seed=seed,
    )


def _counted(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """A function that is called with how many sequences were done since, and reports how many are done."""
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    return step


def _levels(problem: BaseProblem, sigma: Sequence[float] | Array | None) -> Array:
    """The fixed noise levels to look at; none where the problem cannot be had at one level."""
    if sigma is None:
        return levels(problem.noise) if problem.noise is not None and problem.has_at_noise else np.empty(0)
    sigmas = np.unique(array("sigma", sigma, ("K",)).astype(np.float64))
    if sigmas[0] < 0:
        refuse("sigma must not be negative", float(sigmas[0]), "Pass standard deviations >= 0.")
    return sigmas


def _removed(model: LinearTransformer, problem: BaseProblem, sequences: int, seed: int) -> Array:
    """The loss without each layer over that of the whole model, [L]."""
    variants = {str(layer): without_layer(model, layer) for layer in range(model.layers)}
    losses = compare(problem, {"whole": model, **variants}, sequences=sequences, seed=seed, with_floor=False)
    full_loss = losses["whole"].loss
    return np.array([losses[name].loss / full_loss if full_loss > 0 else np.inf for name in variants])


def _left_out(model: LinearTransformer, problem: BaseProblem, average: Behaviour, fixed: bool) -> tuple[str, ...]:
    """Sentences about measurements that are not possible on this problem."""
    missing = (not problem.has_oracle, np.isnan(average.floor), not average.has_levels, not fixed)
    turned = model.family.isotropic or problem.is_isotropic
    return tuple(itertools.compress(LEFT_OUT, (*missing, not turned, model.layout.extra)))
