"""Models with many parameters (Full: two matrices per head and layer) descend by SOAP on fresh sequences.

Which start is best shows only after some thousand steps: so several race, the worse half is dropped, then all but two,
and these two descend side by side until one is clearly behind, at a rate that falls as a cosine. Between rounds of the
descent, contexts are collected on which the model fails; from then on these count too. The optimum of the simpler
family is not among the starts: the optimum of Diag is symmetric in the coordinates, and what makes Full better is to
break that symmetry.

SOAP is Adam in the eigenbasis of Shampoo's preconditioner. P and Q are matrices, and the good directions in them are
not along their entries: a preconditioner for rows and one for columns finds those directions, and Adam then takes steps
of equal size along each of them. For P and Q of a linear transformer it reaches in 3,000 steps what plain Adam misses
in 12,000, and from nearly every start.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.kernels import pieces
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.batch import ceiling, damped
from ridgeformer.training.job import FINISH, RACE, Outcome, Step, Steps, Units, Vector
from ridgeformer.training.search.starts import Failures, SearchJob

Array = NDArray[np.float64]
MOMENTUM, SECOND, BASIS = 0.9, 0.95, 0.95  # forgetting factors: of the gradient, its square, the preconditioner
REFRESH = 10  # steps between two eigenbases
ROUNDING = 1e-10  # of the largest step along any direction: below that, a direction has no gradient
STATE = ("point", "momentum", "second", "rows", "columns", "usual", "taken")
CLIP = 3.0  # a gradient may be so many times longer than usual


class Soap:
    """An optimiser and its whole state, for parameters that are stacks of matrices.

    The state is a dict of arrays, which can be stored: a descent that was interrupted between two calls of `run` goes
    on as if it had not been. Of each stack of K matrices m x n it holds the `point`, the mean of past gradients g
    (`momentum`) and of their squares in the eigenbasis (`second`), [K, m, n], the mean of g g' (`rows`), [K, m, m], and
    of g' g (`columns`), [K, n, n]. The names of the second stack end in .1, and so on. `usual` is the usual length of a
    gradient, and `taken` the number of steps so far, [1].

    Args:
        arrays: The state by name; other arrays among them are left alone.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = {name: value.copy() for name, value in arrays.items() if name.partition(".")[0] in STATE}
        ends = (name.removeprefix("point") for name in self.arrays if name.startswith("point"))
        self._stacks = sorted(ends, key=lambda end: (len(end), end))  # the ends of their names
        self._bases: dict[str, tuple[Array, Array]] = {}  # found anew now and then, and not stored

    @classmethod
    def start(cls, point: Array, shapes: Sequence[tuple[int, int, int]]) -> Soap:
        """Make an optimiser without memory.

        Args:
            point: Where to start, all numbers one after another.
            shapes: What they are: stacks of K matrices m x n, as (K, m, n).

        Returns:
            The optimiser.
        """
        arrays = {"usual": np.zeros(1), "taken": np.zeros(1)}
        for i, (piece, (count, m, n)) in enumerate(zip(pieces(point, shapes), shapes, strict=True)):
            means = {"momentum": (m, n), "second": (m, n), "rows": (m, m), "columns": (n, n)}
            state = {"point": piece, **{name: np.zeros((count, *shape)) for name, shape in means.items()}}
            arrays |= {f"{name}.{i}" if i else name: value for name, value in state.items()}
        return cls(arrays)

    @property
    def taken(self) -> int:
        """How many steps were taken so far."""
        return int(self.arrays["taken"][0])

    @property
    def point(self) -> Array:
        """The parameters, all numbers one after another."""
        return np.concatenate([self.arrays[f"point{stack}"].ravel() for stack in self._stacks])

    def run(self, gradient: Callable[[int, Array], Array], rates: Array) -> None:
        """Take one step for each learning rate.

        Args:
            gradient: Is called once per step with the number of the step and the point, and returns the gradient, both
                as one vector.
            rates: Learning rates, [steps].
        """
        shapes = [self.arrays[f"point{stack}"].shape for stack in self._stacks]
        for k, rate in enumerate(rates):
            bias = (1 - MOMENTUM ** (self.taken + 1)) / np.sqrt(1 - SECOND ** (self.taken + 1))
            slopes = pieces(self._clipped(gradient(self.taken, self.point)), shapes)
            for stack, slope in zip(self._stacks, slopes, strict=True):
                self._move(stack, slope, rate / bias, k % REFRESH == 0)
            self.arrays["taken"] += 1

    def _move(self, stack: str, g: Array, rate: float, refresh: bool) -> None:
        """Take a step; now and then find the eigenbasis anew."""
        point, momentum, second, rows, columns = (self.arrays[f"{name}{stack}"] for name in STATE[:5])
        turned = g.transpose(0, 2, 1)
        rows += (1 - BASIS) * (g @ turned - rows)
        columns += (1 - BASIS) * (turned @ g - columns)
        momentum += (1 - MOMENTUM) * (g - momentum)
        if refresh:
            self._bases[stack] = np.linalg.eigh(rows)[1], np.linalg.eigh(columns)[1]
        left, right = self._bases[stack]
        left_turned = left.transpose(0, 2, 1)
        second += (1 - SECOND) * (np.square(left_turned @ g @ right) - second)
        size = np.sqrt(second)
        # Where the gradient has only rounding errors, so has the momentum: their quotient could be of any size.
        size = np.maximum(size, ROUNDING * size.max((1, 2), keepdims=True)) + np.finfo(np.float64).tiny
        point -= rate * (left @ ((left_turned @ momentum @ right) / size) @ right.transpose(0, 2, 1))

    def _clipped(self, g: Array) -> Array:
        length, usual = float(np.sqrt(np.square(g).sum())), float(self.arrays["usual"][0])
        if usual and length > CLIP * usual:
            g, length = g * (CLIP * usual / length), CLIP * usual
        self.arrays["usual"][0] = length if not usual else 0.95 * usual + 0.05 * length
        return g


SHORT, LONG = 256, 512  # sequences of a step, in the first race and after it
BEHIND = 1.06  # times the loss of the better of the final two, after a round: the other one is dropped
ROUND = 500  # steps between two searches for failures
REPAIRS = 3  # further rounds, at most, as long as the model explodes
RATE = 0.01
SEARCHED = 1 << 17  # contexts among which failures are looked for before every round
FURTHER, SLOW, WIDE = 300, 0.003, 1024  # steps without caution, their largest rate, and the sequences of each


@dataclass(frozen=True, eq=False)
class _Descent:
    """Where a descent has come to: the optimiser, the failures it knows, and the loss of its last 200 steps."""

    state: Soap
    failures: Failures
    loss: float


def descend_few_starts(job: SearchJob) -> Steps:
    """Search by a race of a few starts, of which one descends to the end.

    Args:
        job: What to find.

    Yields:
        A step after every piece of descent.

    Returns:
        The best model, and whether its last steps still gained much.
    """
    work = _SoapRace(job)
    starts = job.starts(4, 4)
    places = [work.begin(start) for start in starts]
    warm = RATE * np.minimum(1, np.arange(1, 401) / 20)
    places = yield from work.race("first", 0.0, 0.2, places, SHORT, warm, max(2, len(starts) // 2))
    places = yield from work.race("second", 0.2, 0.4, places, LONG, np.full(600, RATE), 2)
    best, gain = yield from work.descend(places, job.times_effort(4 + job.spec.layers // 2))
    count = f"{len(starts)} start{'s' * (len(starts) > 1)}"
    change = f"gained {gain:.1%}" if gain >= 0 else f"raised the loss by {-gain:.1%}"
    taken, model = best.state.taken, work.model(best)
    message = f"{count}, {taken:,} steps, of which the last {ROUND} {change}"
    reckless = model if job.caution else None
    if job.caution and len(best.failures):
        reckless = descend_without_caution(
            job.problem, model, work.dtype, job.seed, job.reduced(FURTHER), taken, job.threads
        )
    return Outcome(model, abs(gain) < 0.01, message, reckless=reckless)


def descend_without_caution(
    problem: BaseProblem,
    model: LinearTransformer,
    dtype: type,
    seed: int,
    steps: int,
    first: int = 0,
    threads: int | None = None,
) -> LinearTransformer:
    """Let a model descend further on fresh sequences, at a rate that falls as a cosine, without regard to explosions.

    The loss that it gains is an estimate of the price of caution; a whole search without caution may gain more.

    Args:
        problem: The distribution of sequences.
        model: The model.
        dtype: The precision of the descent.
        seed: The seed of the sequences.
        steps: How many steps.
        first: The number of the first step, which tells its sequences from those of earlier steps. Default: 0.
        threads: Threads of the engine; None for all.

    Returns:
        The model at the end, in float64.
    """
    vector, limit = Vector(model, Units(problem, model.layout)), ceiling(problem)

    def slope(step: int, point: Array) -> Array:
        moving = vector.passing(point, dtype)
        evaluation = moving.step(
            problem, WIDE, seed=seed, stream=FINISH, step=first + step, ceiling=limit, threads=threads
        )
        return vector.slope(moving.family.pullback(evaluation.gradient))

    descent = Soap.start(vector.pack(model), vector.matrices())
    descent.run(slope, SLOW * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * np.arange(steps) / steps))))
    return vector.model(descent.point)


class _SoapRace:
    """Pieces of stochastic descent, each kept in the journal."""

    def __init__(self, job: SearchJob) -> None:
        self.job = job
        start = job.fresh(0)
        self.vector = Vector(start, job.units)
        self.dtype = job.dtype()

    def begin(self, model: LinearTransformer) -> _Descent:
        """A start."""
        soap = Soap.start(self.vector.pack(model), self.vector.matrices())
        return _Descent(soap, Failures.none(self.job.problem, self.job.layout), float("inf"))

    def model(self, place: _Descent) -> LinearTransformer:
        """The model that a descent has come to."""
        return self.vector.model(place.state.point)

    def race(
        self, name: str, begin: float, end: float, places: list[_Descent], batch: int, rates: Array, most: int
    ) -> Generator[Step, None, list[_Descent]]:
        """Go on from every place on the same sequences, and return the best."""
        reached: list[_Descent] = []
        for i, place in enumerate(places):
            piece = f"{name}/{i}"
            new = self.job.journal.recall(piece) is None
            reached.append(self._piece(piece, name, place, RACE, batch, rates))
            if new:
                fraction = begin + (end - begin) * (i + 1) / len(places)
                yield Step(self.model(min(reached, key=_loss)), name, fraction, reached[-1].loss)
        return sorted(reached, key=_loss)[:most]

    def descend(self, starts: list[_Descent], rounds: int) -> Generator[Step, None, tuple[_Descent, float]]:
        """Rounds of descent to the end, without those who fall behind; also what the last round gained."""
        job, places, gains = self.job, dict(enumerate(starts)), dict.fromkeys(range(len(starts)), 1.0)
        fractions = np.arange(rounds * ROUND) / (rounds * ROUND)
        rates = RATE * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * fractions)))
        rates = np.append(rates, np.tile(rates[-ROUND:], REPAIRS))
        names = [[f"descent/{turn}/{i}" for i in places] for turn in range(rounds + REPAIRS)]
        done = [turn for turn, row in enumerate(names) if any(job.journal.recall(name) for name in row)]
        first = min(done, default=0)  # complete, unless it is 0: what came before is forgotten only then
        if first:
            places = {i: place for i, place in places.items() if job.journal.recall(names[first][i])}
        for turn in range(first, rounds + REPAIRS):
            for i, place in places.items():
                new = job.journal.recall(names[turn][i]) is None
                if new:
                    failures = job.mined(self.model(place), place.failures, turn, SEARCHED)
                    if turn >= rounds and not failures.exploded:
                        failures = job.checked(self.model(place), failures)
                        if not failures.exploded:
                            return place, gains[i]
                    place = _Descent(place.state, failures, place.loss)
                now = rates[turn * ROUND : (turn + 1) * ROUND]
                places[i] = self._piece(names[turn][i], "descent", place, FINISH, LONG, now)
                gains[i] = 1 - places[i].loss / place.loss
                if new:
                    fraction = 0.4 + 0.6 * min(turn + 1, rounds) / rounds
                    yield Step(self.model(min(places.values(), key=_loss)), "descent", fraction, places[i].loss)
            least = min(place.loss for place in places.values())
            most = BEHIND * least if turn + 1 < rounds else least  # one of them is mended
            places = {i: place for i, place in places.items() if place.loss <= most}
            for name in names[turn - 2] if turn > 1 else ():
                job.journal.forget(name)
        best = min(places, key=lambda i: places[i].loss)
        return places[best], gains[best]

    def _piece(self, name: str, phase: str, place: _Descent, stream: int, batch: int, rates: Array) -> _Descent:
        """One step for each rate, from a place; the result is kept in the journal."""
        stored = self.job.journal.recall(name)
        if stored is None:
            losses: list[float] = []
            state, failures = place.state, place.failures
            state.run(self._gradient(stream, batch, failures, losses), rates)
            loss = float(np.mean(losses[-200:]))
            stored = {**state.arrays, **failures.arrays(), "loss": np.array([loss])}
            self.job.journal.note(phase, batch * len(rates), loss)
            self.job.journal.keep(name, stored)
        return _Descent(Soap(stored), Failures.restored(stored), float(stored["loss"][0]))

    def _gradient(
        self, stream: int, batch: int, failures: Failures, losses: list[float]
    ) -> Callable[[int, Array], Array]:
        job, limit = self.job, ceiling(self.job.problem)

        def slope(step: int, point: Array) -> Array:
            model = self.vector.passing(point, self.dtype)
            evaluation = model.step(
                job.problem, batch, seed=job.seed, stream=stream, step=step, ceiling=limit, threads=job.threads
            )
            losses.append(float(damped(np.minimum(evaluation.losses, np.finfo(self.dtype).max), limit).mean()))
            slopes = model.family.pullback(evaluation.gradient)
            if len(failures):
                more = failures.value(self.vector.passing(point), limit, job.threads)[1]
                slopes = {name: value + more[name] for name, value in slopes.items()}
            return self.vector.slope(slopes)

        return slope


def _loss(place: _Descent) -> float:
    return place.loss
