"""Models with many parameters (Full: two matrices per head and layer) descend by SOAP on fresh sequences.

Which start is best shows only after some thousand steps: so several race, the worse half is dropped, then all but two,
and these two descend to the end, at a rate that falls as a cosine. Between rounds of the descent, contexts are found on
which the model fails; from then on these count too. The optimum of the simpler family is not among the starts: Diag's
is symmetric in the coordinates, and what makes Full better is to break that symmetry.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.training.batch import ceiling, damped
from ridgeformer.training.job import FINISH, RACE, Outcome, Step, Steps
from ridgeformer.training.search.failures import Failures
from ridgeformer.training.search.soap import Soap
from ridgeformer.training.search.starts import SearchJob
from ridgeformer.training.vector import Vector

Array = NDArray[np.float64]
SHORT, LONG = 256, 512  # sequences of a step, in the first race and after it
ROUND = 500  # steps between two searches for failures
REPAIRS = 3  # further rounds, at most, as long as the model explodes
RATE = 0.01
SEARCHED = 1 << 17  # contexts among which failures are looked for before every round


@dataclass(frozen=True, eq=False)
class _Place:
    """Where a descent has come to: the optimiser, the failures it knows, and the loss of its last 200 steps."""

    state: Soap
    failures: Failures
    loss: float


def descend_few_starts(job: SearchJob) -> Steps:
    """Search by a race of a few starts, of which two descend to the end.

    Args:
        job: What to find.

    Yields:
        A step after every piece of descent.

    Returns:
        The best model, and whether its last steps still gained much.
    """
    work = _Work(job)
    starts = job.starts(4, 4)
    places = [work.begin(start) for start in starts]
    warm = RATE * np.minimum(1, np.arange(1, 401) / 20)
    places = yield from work.race("first", 0.0, 0.2, places, SHORT, warm, max(2, len(starts) // 2))
    places = yield from work.race("second", 0.2, 0.4, places, LONG, np.full(600, RATE), 2)
    rounds, ends = job.scaled(4 + job.spec.layers // 2), list[tuple[_Place, float]]()
    for i, place in enumerate(places):
        others = [*(end for end, _ in ends), *places[i + 1 :]]
        ends.append((yield from work.descend(i, 0.4 + 0.3 * i, 0.7 + 0.3 * i, place, rounds, others)))
    best, gain = min(ends, key=lambda end: end[0].loss)
    count = f"{len(starts)} start{'s' * (len(starts) > 1)}"
    change = f"gained {gain:.1%}" if gain >= 0 else f"raised the loss by {-gain:.1%}"
    message = f"{count}, {int(best.state.taken[0]):,} steps, of which the last {ROUND} {change}"
    return Outcome(work.model(best), abs(gain) < 0.01, message)


class _Work:
    """Pieces of stochastic descent, each kept in the journal."""

    def __init__(self, job: SearchJob) -> None:
        self.job = job
        start = job.fresh(0)
        self.vector = Vector(start, job.units)
        self.dtype = job.dtype()

    def begin(self, model: LinearTransformer) -> _Place:
        """A start."""
        soap = Soap.start(self.vector.pack(model), self.vector.matrices())
        return _Place(soap, Failures.none(self.job.problem, self.job.layout), float("inf"))

    def model(self, place: _Place) -> LinearTransformer:
        """The model that a descent has come to."""
        return self.vector.model(place.state.point)

    def race(
        self, name: str, begin: float, end: float, places: list[_Place], batch: int, rates: Array, most: int
    ) -> Generator[Step, None, list[_Place]]:
        """Go on from every place on the same sequences, and return the best."""
        reached: list[_Place] = []
        for i, place in enumerate(places):
            piece = f"{name}/{i}"
            new = self.job.journal.recall(piece) is None
            reached.append(self._piece(piece, name, place, RACE, batch, rates))
            if new:
                fraction = begin + (end - begin) * (i + 1) / len(places)
                yield Step(self.model(min(reached, key=_loss)), name, fraction, reached[-1].loss)
        return sorted(reached, key=_loss)[:most]

    def descend(
        self, number: int, begin: float, end: float, place: _Place, rounds: int, others: list[_Place]
    ) -> Generator[Step, None, tuple[_Place, float]]:
        """Rounds of descent to the end; also what the last round gained. One of the others may be better."""
        job, gain = self.job, 1.0
        fractions = np.arange(rounds * ROUND) / (rounds * ROUND)
        rates = RATE * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * fractions)))
        rates = np.append(rates, np.tile(rates[-ROUND:], REPAIRS))
        names = [f"descent/{number}/{turn}" for turn in range(rounds + REPAIRS)]
        done = [turn for turn, name in enumerate(names) if job.journal.recall(name)]
        for turn in range(min(done, default=0), rounds + REPAIRS):
            new = job.journal.recall(names[turn]) is None
            if new:
                model = self.model(place)
                failures = job.mined(model, place.failures, turn, SEARCHED)
                if turn >= rounds and not failures.exploded:
                    failures = job.checked(model, failures)
                    if not failures.exploded:
                        break
                place = _Place(place.state, failures, place.loss)
            now = rates[turn * ROUND : (turn + 1) * ROUND]
            before, place = place, self._piece(names[turn], "descent", place, FINISH, LONG, now)
            gain = 1 - place.loss / before.loss
            if new:
                fraction = begin + (end - begin) * min(turn + 1, rounds) / rounds
                yield Step(self.model(min([place, *others], key=_loss)), "descent", fraction, place.loss)
            job.journal.forget(names[turn - 2] if turn > 1 else "")
        return place, gain

    def _piece(self, name: str, phase: str, place: _Place, stream: int, batch: int, rates: Array) -> _Place:
        """One step for each rate, from a place; the result is kept in the journal."""
        stored = self.job.journal.recall(name)
        if stored is None:
            losses: list[float] = []
            state, failures = place.state, place.failures
            state.run(self._gradient(stream, batch, failures, losses), rates)
            loss = float(np.mean(losses[-200:]))
            stored = {**state.arrays(), **failures.arrays(), "loss": np.array([loss])}
            self.job.journal.note(phase, batch * len(rates), loss)
            self.job.journal.keep(name, stored)
        return _Place(Soap.restored(stored), Failures.restored(stored), float(stored["loss"][0]))

    def _gradient(
        self, stream: int, batch: int, failures: Failures, losses: list[float]
    ) -> Callable[[int, Array], Array]:
        job, limit = self.job, ceiling(self.job.problem)

        def slope(step: int, point: Array) -> Array:
            model = self.vector.model(point, self.dtype)
            evaluation = model.step(
                job.problem, batch, seed=job.seed, stream=stream, step=step, ceiling=limit, threads=job.threads
            )
            losses.append(float(damped(np.minimum(evaluation.losses, np.finfo(self.dtype).max), limit).mean()))
            slopes = model.family.pullback(evaluation.gradient)
            if len(failures):
                more = failures.value(self.vector.model(point), limit, job.threads)[1]
                slopes = {name: value + more[name] for name, value in slopes.items()}
            return self.vector.slope(slopes)

        return slope


def _loss(place: _Place) -> float:
    return place.loss
