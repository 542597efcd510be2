"""Models with many parameters (Full: two matrices a head and layer) descend by SOAP on fresh sequences.

Which start is best shows only after some thousand steps: so several race, the worse half is dropped, then all but two,
and these two descend to the end, at a rate that falls as a cosine. Between rounds of the descent, contexts are found on
which the model fails; from then on these count too. The optimum of the poorer family is not among the starts: Diag's
is symmetric in the coordinates, and what makes Full better is to break that symmetry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Key
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.training.job import FINISH, RACE, SEARCH, Task
from ridgeformer.training.objective import Hard, ceiling, damped, mine
from ridgeformer.training.soap import Soap
from ridgeformer.training.vector import Vector

__all__ = ["descend_few_starts"]

Array = NDArray[np.float64]
SHORT, LONG = 256, 512  # sequences of a step, in the first race and after it
ROUND = 500  # steps between two searches for hard contexts
REPAIRS = 3  # further rounds, at most, as long as the model explodes
RATE = 0.01
SEARCHED = 1 << 17  # contexts among which hard ones are looked for before every round


@dataclass(frozen=True, eq=False)
class _Place:
    """Where a descent has come to: the optimiser, the hard contexts it knows, and the loss of its last 200 steps."""

    state: Soap
    hard: Hard
    loss: float


def descend_few_starts(task: Task) -> tuple[bool, str]:
    """Leave the best model in `task.best`; say whether its descent came to rest, and how it was found."""
    work = _Work(task)
    starts = task.starts(4, 4)
    places = [work.begin(start) for start in starts]
    warm = RATE * np.minimum(1, np.arange(1, 401) / 20)
    places = work.race("first", 0.0, 0.2, places, SHORT, warm, max(2, len(starts) // 2))
    places = work.race("second", 0.2, 0.4, places, LONG, np.full(600, RATE), 2)
    rounds = task.many(4 + task.layers // 2)
    ends = [work.descend(i, 0.4 + 0.3 * i, 0.7 + 0.3 * i, place, rounds) for i, place in enumerate(places)]
    best, gain = min(ends, key=lambda end: end[0].loss)
    task.best = work.model(best)
    steps = len(warm) + 600 + rounds * ROUND
    return gain < 0.01, f"{len(starts)} starts, {steps:,} steps, of which the last {ROUND} gained {gain:.1%}"


class _Work:
    """Pieces of stochastic descent, each kept in the journal."""

    def __init__(self, task: Task) -> None:
        self.task = task
        start = task.fresh(0)
        self.vector = Vector(start, task.problem.context)
        self.shape = next(iter(start.family.arrays.values())).shape[-2:]
        self.dtype = task.dtype()

    def begin(self, model: LinearTransformer) -> _Place:
        """A start."""
        point = self.vector.pack(model).reshape(-1, *self.shape)
        return _Place(Soap.start(point), Hard.none(self.task.problem), float("inf"))

    def model(self, place: _Place) -> LinearTransformer:
        """The model that a descent has come to."""
        return self.vector.model(place.state.point.ravel())

    def race(
        self, name: str, begin: float, end: float, places: list[_Place], batch: int, rates: Array, most: int
    ) -> list[_Place]:
        """Go on from every place on the same sequences, and keep the best; also in `task.best`."""
        reached = []
        for i, place in enumerate(places):
            fraction = begin + (end - begin) * (i + 1) / len(places)
            reached.append(self._piece(f"{name}/{i}", name, fraction, place, RACE, batch, rates))
        reached = sorted(reached, key=lambda place: place.loss)[:most]
        self.task.best = self.model(reached[0])
        return reached

    def descend(self, number: int, begin: float, end: float, place: _Place, rounds: int) -> tuple[_Place, float]:
        """Rounds of descent to the end; also what the last round gained."""
        task, gain = self.task, 1.0
        fractions = np.arange(rounds * ROUND) / (rounds * ROUND)
        rates = RATE * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * fractions)))
        rates = np.append(rates, np.tile(rates[-ROUND:], REPAIRS))
        names = [f"descent/{number}/{turn}" for turn in range(rounds + REPAIRS)]
        kept = [turn for turn, name in enumerate(names) if task.journal.recall(name)]
        for turn in range(min(kept, default=0), rounds + REPAIRS):
            if task.journal.recall(names[turn]) is None:
                key = Key(task.seed, SEARCH, turn)
                hard = mine(self.model(place), task.problem, place.hard, key, SEARCHED, task.caution, task.threads)
                place = _Place(place.state, hard, place.loss)
                if turn >= rounds and not hard.exploded:
                    break
            fraction = begin + (end - begin) * min(turn + 1, rounds) / rounds
            now = rates[turn * ROUND : (turn + 1) * ROUND]
            before, place = place, self._piece(names[turn], "descent", fraction, place, FINISH, LONG, now)
            gain = 1 - place.loss / before.loss
            task.journal.forget(names[turn - 2] if turn > 1 else "")
        return place, gain

    def _piece(
        self, name: str, phase: str, fraction: float, place: _Place, stream: int, batch: int, rates: Array
    ) -> _Place:
        """So many steps from a place, kept in the journal."""
        task = self.task
        kept = task.journal.recall(name)
        if kept is None:
            losses: list[float] = []
            state, hard = place.state, place.hard
            state.run(self._gradient(stream, batch, hard, losses), rates)
            loss = float(np.mean(losses[-200:]))
            kept = {**state.arrays(), **hard.arrays(), "loss": np.array([loss])}
            task.done(name, kept, phase, fraction, batch * len(rates), loss)
        others = {*place.hard.arrays(), "loss"}
        state = Soap(**{key: value.copy() for key, value in kept.items() if key not in others})
        return _Place(state, Hard.restored(kept), float(kept["loss"][0]))

    def _gradient(self, stream: int, batch: int, hard: Hard, losses: list[float]) -> Callable[[int, Array], Array]:
        task, limit = self.task, ceiling(self.task.problem)

        def slope(step: int, point: Array) -> Array:
            model = self.vector.model(point.ravel(), self.dtype)
            found = model.step(
                task.problem, batch, seed=task.seed, stream=stream, step=step, ceiling=limit, threads=task.threads
            )
            losses.append(float(damped(np.minimum(found.losses, np.finfo(self.dtype).max), limit).mean()))
            slopes = model.family.pullback(found.gradient)
            if len(hard):
                more = hard.value(self.vector.model(point.ravel()), task.problem, task.threads)[1]
                slopes = {name: value + more[name] for name, value in slopes.items()}
            return self.vector.slope(slopes).reshape(point.shape)

        return slope
