"""Models with many parameters (Full: two matrices a head and layer) descend by SOAP on fresh sequences.

A short race of a few starts, then one long descent whose rate falls as a cosine. Between its rounds, contexts are found
on which the model fails; from then on these count too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Key
from ridgeformer.model import LinearTransformer
from ridgeformer.training.objective import Hard, ceiling, damped, mine
from ridgeformer.training.soap import Soap
from ridgeformer.training.task import FINISH, RACE, SEARCH, Task
from ridgeformer.training.vector import Vector

__all__ = ["descend_one_start"]

Array = NDArray[np.float64]
ROUND, SHORT, LONG = 500, 256, 512  # steps of a round, and sequences of a step in the race and after it
RATE = 0.01
SEARCHED = 1 << 17  # contexts among which hard ones are looked for before every round


def descend_one_start(task: Task) -> tuple[bool, str]:
    """Leave the best model in `task.best`; say whether its descent came to rest, and how it was found."""
    work = _Work(task)
    starts = task.starts(3, 3)
    nothing = Hard.none(task.problem)
    warm = RATE * np.minimum(1, np.arange(1, 301) / 20)
    race = []
    for i, start in enumerate(starts):
        state = Soap.start(work.vector.pack(start).reshape(-1, *work.shape))
        race.append(work.piece(f"race/{i}", 0.2 * (i + 1) / len(starts), state, RACE, SHORT, nothing, warm))
    state, _, hard = min(race, key=lambda entry: entry[1])
    state.taken[:] = 0
    task.best = work.model(state)
    rounds = task.many(4 + task.layers // 2)
    fractions = np.arange(rounds * ROUND) / (rounds * ROUND)
    rates = RATE * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * fractions)))
    losses = []
    done = [turn for turn in range(rounds) if task.journal.recall(f"round/{turn}")]
    for turn in range(min(done, default=0), rounds):
        if task.journal.recall(f"round/{turn}") is None:
            model, key = work.model(state), Key(task.seed, SEARCH, turn)
            hard = mine(model, task.problem, hard, key, SEARCHED, task.threads)
        now = rates[turn * ROUND : (turn + 1) * ROUND]
        fraction = 0.2 + 0.8 * (turn + 1) / rounds
        state, loss, hard = work.piece(f"round/{turn}", fraction, state, FINISH, LONG, hard, now)
        losses.append(loss)
        task.best = work.model(state)
        task.journal.forget(f"round/{turn - 2}")
    gain = 1 - losses[-1] / losses[-2] if rounds > 1 else 1.0
    return gain < 0.01, f"{len(starts)} starts, {rounds * ROUND:,} steps, of which the last {ROUND} gained {gain:.1%}"


class _Work:
    """Pieces of stochastic descent, each kept in the journal."""

    def __init__(self, task: Task) -> None:
        self.task = task
        start = task.fresh(0)
        self.vector = Vector(start, task.problem.context)
        self.shape = next(iter(start.family.arrays.values())).shape[-2:]

    def model(self, state: Soap) -> LinearTransformer:
        """The model that a descent has come to."""
        return self.vector.model(state.point.ravel())

    def piece(
        self, name: str, fraction: float, state: Soap, stream: int, batch: int, hard: Hard, rates: Array
    ) -> tuple[Soap, float, Hard]:
        """So many steps from a state: the new one, the loss at its end, and the hard contexts that were used."""
        task = self.task
        kept = task.journal.recall(name)
        if kept is None:
            losses: list[float] = []
            state.run(self._gradient(stream, batch, hard, losses), rates)
            loss = float(np.mean(losses[-50:]))
            facts = {"loss": np.array([loss, hard.share]), "gram": hard.gram, "target": hard.target}
            kept = task.journal.keep(name, {**state.arrays(), **facts})
            task.done(name, fraction, batch * len(rates), loss)
        facts = {key: kept[key] for key in ("loss", "gram", "target")}
        state = Soap(**{key: value.copy() for key, value in kept.items() if key not in facts})
        return state, float(facts["loss"][0]), Hard(facts["gram"], facts["target"], float(facts["loss"][1]))

    def _gradient(self, stream: int, batch: int, hard: Hard, losses: list[float]) -> Callable[[int, Array], Array]:
        task, limit = self.task, ceiling(self.task.problem)

        def slope(step: int, point: Array) -> Array:
            model = self.vector.model(point.ravel(), np.float32)
            found = model.step(
                task.problem, batch, seed=task.seed, stream=stream, step=step, ceiling=limit, threads=task.threads
            )
            losses.append(float(damped(np.minimum(found.losses, np.finfo(np.float32).max), limit).mean()))
            slopes = model.family.pullback(found.gradient)
            if len(hard):
                more = hard.value(self.vector.model(point.ravel()), task.problem, task.threads)[1]
                slopes = {name: value + more[name] for name, value in slopes.items()}
            return self.vector.slope(slopes).reshape(point.shape)

        return slope
