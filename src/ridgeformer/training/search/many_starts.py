"""Models with few parameters (Diag: four numbers per layer) descend by BFGS on fixed sequences.

A descent takes a tenth of a second, so there are dozens of them. Each stage drops the losers and uses more sequences;
the last one adds the contexts on which the winner fails. The race is in float32: it only has to find good starts.
BFGS measures curvature by differences of gradients: to the end, float32 would cost more iterations than it saves time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ridgeformer.bfgs import BfgsState, descend
from ridgeformer.engine import Key
from ridgeformer.training.job import RACE, Outcome, Step, Steps, Vector
from ridgeformer.training.search.starts import Failures, SampleAverage, SearchJob

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]
EARLY, LATE, WIDE, LAST = 1024, 2048, 8192, 32_768  # sequences: of the race, of its best, of the final two, of the end
HOPELESS = 2.0  # times the best loss of the heats: starts above it are dropped, but not more than half of them
LEAST = 20  # iterations of the end; half as many as there are parameters, where these are more
TURNS = 6  # of searching for failures and finishing, at most; beyond three only if the model still explodes
SEARCHED = 1 << 18  # contexts among which failures are looked for


def descend_many_starts(job: SearchJob) -> Steps:
    """Search by many descents from different starts.

    Args:
        job: What to find.

    Yields:
        A step after every descent.

    Returns:
        The best model, and whether its last descent converged.
    """
    work = _BfgsRace(job)
    starts = [*job.starts(6, 3 * job.spec.layers), *(parent.model for parent in job.ancestors()[-1:])]
    points = [BfgsState.at(work.vector.pack(start)) for start in starts]
    early = job.problem.race_precision(job.dtype())
    heats = yield from work.stage("heats", 0.0, 0.15, EARLY, points, 20, dtype=early)
    heats.sort(key=_value)
    hopeful = sum(place.value <= HOPELESS * heats[0].value for place in heats)
    race = yield from work.stage("race", 0.15, 0.3, EARLY, heats[: max(hopeful, len(heats) // 2)], 40, dtype=early)
    best = yield from work.stage("best", 0.3, 0.6, LATE, _distinct(race, 6), 300)
    sound = work.finite(_distinct(best, 6), 2) or work.finite(_distinct(race, 6), 2) or _distinct(best, 2)
    final = yield from work.stage("final", 0.6, 0.8, WIDE, sound, 80)
    first = winner = min(final, key=_value)
    failures = Failures.none(job.problem, job.layout)
    iterations, sequences = job.reduced(max(LEAST, len(winner.point) // 2)), job.reduced(LAST)
    for turn in range(TURNS):
        failures_before = len(failures)
        model = work.vector.model(winner.point)
        failures = job.mined(model, failures, turn, job.reduced(SEARCHED))
        if turn and not failures.exploded and (len(failures) == failures_before or turn > 2):
            failures = job.checked(model, failures)
            if not failures.exploded:
                break
        begin, end = 1 - 0.2 * 0.6**turn, 1 - 0.2 * 0.6 ** (turn + 1)
        (winner,) = yield from work.stage(f"finish {turn + 1}", begin, end, sequences, [winner], iterations, failures)
    state = "converged" if winner.rested else "was still improving"
    message = f"{len(starts)} start{'s' * (len(starts) > 1)}; the last descent {state}"
    reckless = work.vector.model(first.point)
    return Outcome(work.vector.model(winner.point), winner.rested, message, reckless=reckless)


class _BfgsRace:
    """Stages of descents, each kept in the journal."""

    def __init__(self, job: SearchJob) -> None:
        self.job = job
        self.vector = Vector(job.fresh(0), job.units)
        self.dtype = np.float32 if job.precision == "float32" else np.float64

    def stage(
        self,
        name: str,
        begin: float,
        end: float,
        sequences: int,
        starts: Sequence[BfgsState],
        iterations: int,
        failures: Failures | None = None,
        dtype: type | None = None,
    ) -> Generator[Step, None, list[BfgsState]]:
        """Descend from every start on the same sequences."""
        job, reached = self.job, list[BfgsState]()
        sequences = job.sized(sequences)
        objective = self._objective(sequences, failures, dtype or self.dtype)
        tolerance = 1e-5 if failures is None else 1e-4  # what remains is smaller than the error of the sequences
        for i, start in enumerate(starts):
            stored, new = job.journal.recall(f"{name}/{i}"), False
            if stored is None:
                minimum, new = descend(objective, start, iterations, tolerance), True
                stored = minimum.arrays()
                job.journal.note(name, sequences * (minimum.evaluations - start.evaluations), minimum.value)
                job.journal.keep(f"{name}/{i}", stored)
            reached.append(BfgsState.restored(stored))
            if new:
                best = self.vector.model(min(reached, key=_value).point)
                yield Step(best, name, begin + (end - begin) * (i + 1) / len(starts), reached[-1].value)
        return reached

    def finite(self, descents: Sequence[BfgsState], most: int) -> list[BfgsState]:
        """The first descents whose loss is finite on the sequences of the final two: BFGS cannot leave others."""
        objective = self._objective(self.job.sized(WIDE), None, self.dtype)
        return list(islice((descent for descent in descents if np.isfinite(objective(descent.point)[0])), most))

    def _objective(self, sequences: int, failures: Failures | None, dtype: type) -> Objective:
        key = Key(self.job.seed, RACE, sequences)
        average = SampleAverage(self.job.problem, sequences, key, dtype, failures, self.job.threads)

        def value(point: Array) -> tuple[float, Array]:
            if not np.isfinite(point.astype(dtype)).all():
                return np.inf, np.zeros_like(point)
            loss, slope = average(self.vector.passing(point, dtype))
            return loss, self.vector.slope(slope)

        return value


def _value(descent: BfgsState) -> float:
    return descent.value


def _distinct(descents: Sequence[BfgsState], most: int) -> list[BfgsState]:
    """The best of them, one for each minimum: equal losses mean the same place."""
    distinct: list[BfgsState] = []
    for descent in sorted(descents, key=_value):
        if all(abs(descent.value - earlier.value) > 2e-3 * earlier.value for earlier in distinct):
            distinct.append(descent)
    return distinct[:most]
