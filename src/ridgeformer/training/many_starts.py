"""Models with few parameters (Diag: four numbers a layer) descend by BFGS on fixed sequences.

A descent takes a tenth of a second, so there are dozens of them. Each stage drops the losers and uses more sequences;
the last one adds the contexts on which the winner fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ridgeformer.bfgs import Descent, descend
from ridgeformer.engine import Key
from ridgeformer.training.job import RACE, SEARCH, Task
from ridgeformer.training.objective import Hard, SampleAverage, mine
from ridgeformer.training.vector import Vector

__all__ = ["descend_many_starts"]

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]
EARLY, LATE, WIDE, LAST = 1024, 2048, 8192, 32_768  # sequences: of the race, of its best, of the final two, of the end
TURNS = 6  # of searching for hard contexts and finishing, at most; beyond three only if the model still explodes
SEARCHED = 1 << 18  # contexts among which hard ones are looked for


def descend_many_starts(task: Task) -> tuple[bool, str]:
    """Leave the best model in `task.best`; say whether its descent came to rest, and how it was found."""
    work = _Work(task)
    starts = [*task.starts(6, 3 * task.layers), *task.ancestors()[-1:]]
    points = [work.vector.pack(start) for start in starts]
    race = work.stage("race", 0.0, 0.3, EARLY, points, 60)
    best = work.stage("best", 0.3, 0.6, LATE, _distinct(race, 6), 300)
    final = work.stage("final", 0.6, 0.8, WIDE, _distinct(best, 2), 80)
    winner, hard = min(final, key=_value), Hard.none(task.problem)
    for turn in range(TURNS):
        known = len(hard)
        model, key = work.vector.model(winner.point), Key(task.seed, SEARCH, turn)
        hard = mine(model, task.problem, hard, key, SEARCHED, task.caution, task.threads)
        if turn and not hard.exploded and (len(hard) == known or turn > 2):
            break
        begin, end = 1 - 0.2 * 0.6**turn, 1 - 0.2 * 0.6 ** (turn + 1)
        (winner,) = work.stage(f"finish {turn + 1}", begin, end, LAST, [winner], 40, hard)
    rest = "came to rest" if winner.rested else "was still gaining"
    return winner.rested, f"{len(starts)} starts; the last descent {rest}"


class _Work:
    """Stages of descents, each kept in the journal."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.vector = Vector(task.fresh(0), task.problem.context)
        # BFGS measures curvature by differences of gradients: float32 costs it more iterations than it saves time.
        self.dtype = np.float32 if task.precision == "float32" else np.float64

    def stage(
        self,
        name: str,
        begin: float,
        end: float,
        sequences: int,
        starts: Sequence[Descent | Array],
        iterations: int,
        hard: Hard | None = None,
    ) -> list[Descent]:
        """Descend from every start on the same sequences, and leave the best in `task.best`."""
        task, found = self.task, []
        objective = self._objective(sequences, hard)
        for i, start in enumerate(starts):
            kept = task.journal.recall(f"{name}/{i}")
            if kept is None:
                reached = descend(objective, start, iterations, 1e-5)
                used = reached.evaluations - (start.evaluations if isinstance(start, Descent) else 0)
                facts = np.array([reached.value, reached.evaluations, reached.rested])
                kept = {"point": reached.point, "inverse": reached.inverse, "facts": facts}
                task.best = task.best or self.vector.model(reached.point)
                fraction = begin + (end - begin) * (i + 1) / len(starts)
                task.done(f"{name}/{i}", kept, name, fraction, sequences * used, reached.value)
            value, evaluations, rested = kept["facts"].tolist()
            found.append(Descent(kept["point"], value, kept["inverse"], int(evaluations), bool(rested)))
        task.best = self.vector.model(min(found, key=_value).point)
        return found

    def _objective(self, sequences: int, hard: Hard | None) -> Objective:
        key = Key(self.task.seed, RACE, sequences)
        average = SampleAverage(self.task.problem, sequences, key, self.dtype, hard, self.task.threads)

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
