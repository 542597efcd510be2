"""Profiles: adjusted loss against the noise level, of one predictor or of several on the same sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.sequence_losses import (
    AnyPredictor,
    Progress,
    adjusted_losses,
    check_predictor,
    check_predictors,
    draw_sequences,
    how_many,
    needed,
)
from ridgeformer.evaluation.statistics import Running
from ridgeformer.evaluation.table import Table, lines, named
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.spectrum import share_basis
from ridgeformer.validation import array

__all__ = [
    "LEVEL_BLOCK",
    "LevelLosses",
    "Profile",
    "Profiles",
    "describe_levels",
    "measure_levels",
    "note_on_explosions",
    "profile",
    "profiles",
]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]
LEVEL_BLOCK = 4096  # sequences at a time: the Gram matrices of a block stay in the cache for all predictors


@dataclass(frozen=True, eq=False, repr=False)
class LevelLosses(Table):
    """Adjusted loss against the noise level, of what has one loss at each level or several.

    Attributes:
        name: What was evaluated.
        sigma: [K], the noise levels.
        loss: [..., K], the mean adjusted losses.
        error: [..., K], the standard errors of `loss`.
        exploded: [..., K], how many sequences exploded. Where any did, they dominate the mean, which says little about
            the other sequences.
        in_distribution: [K], which noise levels can occur in the problem.
        sequences: How many sequences were used at each level.
    """

    name: str
    sigma: Array
    loss: Array
    error: Array
    exploded: Counts
    in_distribution: Mask
    sequences: int

    def _levels(self, loss: int | EllipsisType = ...) -> list[dict[str, Any]]:
        """One row per noise level, with one of the losses."""
        columns = {name: getattr(self, name)[loss] for name in ("loss", "error", "exploded")}
        return lines({"sigma": self.sigma, **columns, "in_distribution": self.in_distribution})


class Profile(LevelLosses):
    """Adjusted loss against the noise level; `loss`, `error` and `exploded` have the shape [K]. See `LevelLosses`."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per noise level."""
        return [{"name": self.name, **row, "sequences": self.sequences} for row in self._levels()]

    def _title(self) -> str:
        return f"Adjusted loss of {self.name} on {self.sequences:,} sequences per noise level"

    def _printed(self) -> list[dict[str, Any]]:
        return self._levels()

    def __repr__(self) -> str:
        return f"Profile({self.name!r}, {describe_levels(self.sigma)})"


@dataclass(frozen=True, eq=False, repr=False)
class Profiles(Table, Mapping[str, Profile]):
    """Profiles of several predictors on the same sequences, by name.

    Attributes:
        profiles: The profiles by name, which all have the same noise levels.
    """

    profiles: dict[str, Profile]

    def __getitem__(self, name: str) -> Profile:
        return named(self.profiles, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.profiles)

    def __len__(self) -> int:
        return len(self.profiles)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per predictor and noise level."""
        return [row for profile in self.profiles.values() for row in profile.rows()]

    def as_dict(self) -> dict[str, Any]:
        """Return the profiles as a dict of dicts by name, ready for JSON."""
        return {"profiles": {name: profile.as_dict() for name, profile in self.profiles.items()}}

    def _title(self) -> str:
        first = next(iter(self.profiles.values()))
        return f"Adjusted loss on {first.sequences:,} sequences per noise level"

    def _printed(self) -> list[dict[str, Any]]:
        """One row per noise level, with the loss of every predictor."""
        first = next(iter(self.profiles.values()))
        losses = {name: profile.loss for name, profile in self.profiles.items()}
        return lines({"sigma": first.sigma, **losses, "in_distribution": first.in_distribution})

    def _note(self) -> str:
        return note_on_explosions(np.stack([profile.exploded for profile in self.profiles.values()]))

    def __repr__(self) -> str:
        levels = describe_levels(next(iter(self.profiles.values())).sigma)
        return f"Profiles({', '.join(map(repr, self.profiles))}, {levels})"


def profile(
    problem: BaseProblem,
    predictor: AnyPredictor,
    *,
    sigma: Sequence[float] | Array | None = None,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Profile:
    """Measure the adjusted loss of one predictor at each noise level.

    Args:
        problem: The dimension, the context length, and which noise levels can occur.
        predictor: A model, a baseline, or anything else with `weights(moments)` or
            `predict(x, y, queries)`.
        sigma: [K], the noise levels, which are standard deviations. The default is about 40 levels from 0 to the
            largest level that can occur plus 1.
        sequences: How many fresh sequences to use at each level, at least 2. Fewer than the default can miss the rare
            sequences on which a deep model explodes.
        seed: Seed of these sequences. The levels share them: only sigma differs.
        progress: Called with the number of steps done and the number of all.

    Returns:
        Losses, standard errors and numbers of explosions at every level.

    Raises:
        InputError: The predictor is not a predictor, or a number is out of range.

    >>> from ridgeformer import AdaRR, Problem
    >>> print(profile(Problem(noise="uniform(0,5)"), AdaRR(), sigma=[2, 6], sequences=20))
    Adjusted loss of AdaRR() on 20 sequences per noise level
    <BLANKLINE>
    sigma     loss    error  exploded  in_distribution
    2.000  0.05968  0.03321         0              yes
    6.000   0.2631   0.1743         0               no
    """
    check_predictor("predictor", predictor, problem)
    name = repr(predictor)
    return profiles(problem, {name: predictor}, sigma=sigma, sequences=sequences, seed=seed, progress=progress)[name]


def profiles(
    problem: BaseProblem,
    predictors: Mapping[str, AnyPredictor],
    *,
    sigma: Sequence[float] | Array | None = None,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Profiles:
    """Measure several predictors as `profile` does, on the same sequences, which are drawn and decomposed once.

    Args:
        problem: The dimension, the context length, and which noise levels can occur.
        predictors: What to evaluate, by name.
        sigma: [K], the noise levels, which are standard deviations. The default is about 40 levels from 0 to the
            largest level that can occur plus 1.
        sequences: How many fresh sequences to use at each level, at least 2.
        seed: Seed of these sequences. The levels share them: only sigma differs.
        progress: Called with the number of steps done and the number of all.

    Returns:
        The profiles by name.

    Raises:
        InputError: There is no predictor, one of them is not a predictor, or a number is out of range.
    """
    check_predictors("profiles need a dict of at least one predictor", predictors, problem)

    def losses(draw: Draw) -> Array:
        return np.stack([adjusted_losses(predictor, draw) for predictor in predictors.values()], 1)

    needs = needed(predictors.values())
    found = measure_levels(losses, len(predictors), problem, needs, sigma, sequences, seed, progress)

    def column(i: int) -> dict[str, Any]:
        return found | {name: found[name][i] for name in ("loss", "error", "exploded")}

    return Profiles({name: Profile(name=name, **column(i)) for i, name in enumerate(predictors)})


def measure_levels(
    losses: Callable[[Draw], Array],
    columns: int,
    problem: BaseProblem,
    needs: Mapping[str, bool],
    sigma: Sequence[float] | Array | None,
    sequences: int,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Average the losses of random sequences at every noise level; `profile` describes the options.

    Args:
        losses: Computes the losses of a draw, [b, columns].
        columns: How many losses each sequence has.
        problem: The distribution of sequences.
        needs: What draws need beside moments, as `needed` gives it.
        sigma: The noise levels, [K]; None for the default ones.
        sequences: How many sequences to use at each level.
        seed: Seed of these sequences.
        progress: Called with the number of finished blocks and the number of all of them.

    Returns:
        The attributes of `LevelLosses` except its name; means, standard errors and explosions are [columns, K].

    Raises:
        InputError: A noise level is negative, or a number is out of range.
    """
    levels = array("sigma", _default_levels(problem) if sigma is None else sigma, ("K",)).astype(np.float64)
    if (levels < 0).any():
        refuse("sigma must not be negative", float(levels.min()), "Pass standard deviations >= 0.")
    sequences = how_many(problem, sequences)
    fixed = [problem.at_noise(float(level)) for level in levels]
    running = [Running(columns, problem.signal) for _ in fixed]
    done, blocks = 0, range(0, sequences, LEVEL_BLOCK)
    for first in blocks:
        before: Moments | None = None
        for one, level in zip(running, fixed, strict=True):
            draw = draw_sequences(level, seed, first, min(LEVEL_BLOCK, sequences - first), **needs)
            if before is not None and problem.is_isotropic:
                share_basis(draw.moments, before)
            one.add(losses(draw))
            before, done = draw.moments, done + 1
            progress(done, len(levels) * len(blocks))
    means, errors, wild = (np.stack([getattr(one, n) for one in running], -1) for n in ("mean", "errors", "exploded"))
    inside = problem.noise.contains(levels) if isinstance(problem.noise, Noise) else np.ones(len(levels), bool)
    return {
        "sigma": levels,
        "loss": means,
        "error": errors,
        "exploded": wild,
        "in_distribution": inside,
        "sequences": sequences,
    }


def describe_levels(sigma: Array) -> str:
    """Describe noise levels in a few words, for a `repr`.

    Args:
        sigma: The noise levels, [K].

    Returns:
        The text.
    """
    return f"{len(sigma)} noise levels from {sigma.min():g} to {sigma.max():g}"


def note_on_explosions(exploded: Counts) -> str:
    """Write a line for tables that show losses only, where sequences exploded.

    Args:
        exploded: How many sequences exploded at each level, [..., K].

    Returns:
        The line, empty if none exploded.
    """
    levels = int((exploded.reshape(-1, exploded.shape[-1]) > 0).any(0).sum())
    return f"Sequences exploded at {levels} of {exploded.shape[-1]} noise levels: see `exploded`." if levels else ""


def _default_levels(problem: BaseProblem) -> Array:
    """From 0 to one past the distribution's end, with both of its ends, or the levels of a discrete one, among them."""
    if not isinstance(problem.noise, Noise):
        refuse("a profile of this problem needs noise levels", "none", "Pass sigma=[0, 1, 2], for example.")
    nodes, _ = problem.noise.quadrature()
    special = nodes if len(nodes) <= 16 else np.array([problem.noise.lower, problem.noise.upper])
    return np.union1d(np.linspace(0, problem.noise.upper + 1, 41), special)
