"""Models with few parameters (Diag: four numbers per layer) descend by BFGS on fixed sequences.

A descent takes a tenth of a second, so there are dozens of them. Each stage drops the losers and uses more sequences;
the last one adds the contexts on which the winner fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ridgeformer.bfgs import Descent, descend
from ridgeformer.engine import Key
from ridgeformer.training.hard import Hard
from ridgeformer.training.job import RACE, Found, Job, Step, Steps
from ridgeformer.training.objective import SampleAverage
from ridgeformer.training.vector import Vector

__all__ = ["descend_many_starts"]

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]
EARLY, LATE, WIDE, LAST = 1024, 2048, 8192, 32_768  # sequences: of the race, of its best, of the final two, of the end
LEAST = 40  # iterations of the end; as many as there are parameters, where these are more
TURNS = 6  # of searching for hard contexts and finishing, at most; beyond three only if the model still explodes
COSTLY = 1.2  # a factor of the loss from which on the message says what avoiding explosions costs
SEARCHED = 1 << 18  # contexts among which hard ones are looked for


def descend_many_starts(job: Job) -> Steps:
    """Search by many descents from different starts.

    Args:
        job: What to find.

    Yields:
        A step after every descent.

    Returns:
        The best model, and whether its last descent converged.
    """
    work = _Work(job)
    starts = [*job.starts(6, 3 * job.layers), *job.ancestors()[-1:]]
    points = [work.vector.pack(start) for start in starts]
    race = yield from work.stage("race", 0.0, 0.3, EARLY, points, 60)
    best = yield from work.stage("best", 0.3, 0.6, LATE, _distinct(race, 6), 300)
    sound = work.finite(_distinct(best, 6), 2) or work.finite(_distinct(race, 6), 2) or _distinct(best, 2)
    final = yield from work.stage("final", 0.6, 0.8, WIDE, sound, 80)
    first = winner = min(final, key=_value)
    hard = Hard.none(job.problem, job.layout)
    iterations = max(LEAST, len(winner.point))
    for turn in range(TURNS):
        known = len(hard)
        model = work.vector.model(winner.point)
        hard = job.mined(model, hard, turn, SEARCHED)
        if turn and not hard.exploded and (len(hard) == known or turn > 2):
            hard = job.checked(model, hard)
            if not hard.exploded:
                break
        begin, end = 1 - 0.2 * 0.6**turn, 1 - 0.2 * 0.6 ** (turn + 1)
        (winner,) = yield from work.stage(f"finish {turn + 1}", begin, end, LAST, [winner], iterations, hard)
    rest = "converged" if winner.rested else "was still improving"
    message = f"{len(starts)} start{'s' * (len(starts) > 1)}; the last descent {rest}"
    if winner.value > COSTLY * first.value:
        message += f"; avoiding explosions raised its training loss from {first.value:.3g} to {winner.value:.3g}"
    return Found(work.vector.model(winner.point), winner.rested, message)


class _Work:
    """Stages of descents, each kept in the journal."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.vector = Vector(job.fresh(0), job.units)
        # BFGS measures curvature by differences of gradients: float32 costs it more iterations than it saves time.
        self.dtype = np.float32 if job.precision == "float32" else np.float64

    def stage(
        self,
        name: str,
        begin: float,
        end: float,
        sequences: int,
        starts: Sequence[Descent | Array],
        iterations: int,
        hard: Hard | None = None,
    ) -> Generator[Step, None, list[Descent]]:
        """Descend from every start on the same sequences."""
        job, found = self.job, list[Descent]()
        objective = self._objective(sequences, hard)
        for i, start in enumerate(starts):
            kept, new = job.journal.recall(f"{name}/{i}"), False
            if kept is None:
                reached, new = descend(objective, start, iterations, 1e-5), True
                used = reached.evaluations - (start.evaluations if isinstance(start, Descent) else 0)
                facts = np.array([reached.value, reached.evaluations, reached.rested])
                kept = {"point": reached.point, "inverse": reached.inverse, "facts": facts}
                job.journal.note(name, sequences * used, reached.value)
                job.journal.keep(f"{name}/{i}", kept)
            value, evaluations, rested = kept["facts"].tolist()
            found.append(Descent(kept["point"], value, kept["inverse"], int(evaluations), bool(rested)))
            if new:
                best = self.vector.model(min(found, key=_value).point)
                yield Step(best, name, begin + (end - begin) * (i + 1) / len(starts), value)
        return found

    def finite(self, descents: Sequence[Descent], most: int) -> list[Descent]:
        """The first descents whose loss is finite on the sequences of the final two: BFGS cannot leave others."""
        objective = self._objective(WIDE, None)
        return list(islice((descent for descent in descents if np.isfinite(objective(descent.point)[0])), most))

    def _objective(self, sequences: int, hard: Hard | None) -> Objective:
        key = Key(self.job.seed, RACE, sequences)
        average = SampleAverage(self.job.problem, sequences, key, self.dtype, hard, self.job.threads)

        def value(point: Array) -> tuple[float, Array]:
            found, slope = average(self.vector.model(point))
            return found, self.vector.slope(slope)

        return value


def _value(descent: Descent) -> float:
    return descent.value


def _distinct(descents: Sequence[Descent], most: int) -> list[Descent]:
    """The best of them, one for each minimum: equal losses mean the same place."""
    chosen: list[Descent] = []
    for descent in sorted(descents, key=_value):
        if all(abs(descent.value - other.value) > 2e-3 * other.value for other in chosen):
            chosen.append(descent)
    return chosen[:most]
