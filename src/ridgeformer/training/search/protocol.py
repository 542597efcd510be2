"""Our protocol: from a problem, a family and a depth to a model, with nothing to tune.

Local minima are the obstacle, not the number of steps. So: many cheap starts, fresh ones and ones grown from the best
shallower model by a small random layer; the losers are dropped early; the winner is finished on many sequences and on
those where it fails. At the end the shallower model and that of the simpler family, embedded, are candidates too: on
the sequences that select, the result is never worse than they are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import refuse
from ridgeformer.evaluation import explosion_probability
from ridgeformer.exact import exact_loss, least_excess_loss
from ridgeformer.losses import capped, exploded
from ridgeformer.models.families import GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import Problem
from ridgeformer.training.batch import ceiling, damped
from ridgeformer.training.job import SELECT, Job, Outcome, Parent, Price, Step, follow
from ridgeformer.training.search.few_starts import descend_few_starts
from ridgeformer.training.search.many_starts import descend_many_starts
from ridgeformer.training.search.starts import SELECTION, SearchJob
from ridgeformer.training.spec import Protocol, Spec
from ridgeformer.validation import choice, keywords, number

Array = NDArray[np.float64]
LossesOf = Callable[[LinearTransformer], Array]
FEW_PARAMETERS = 256  # parameters, up to which descent is by BFGS
SMALLEST = 1e-36  # a signal, and what float32 can multiply by a number of order one
RARE = 20_000  # sequences of a wider law that an explosion probability is measured on
ORACLE = 1 << 14  # sequences that the loss of an oracle is measured on which no engine computes
COSTLY = 0.05  # a share of the loss from which on the message states the price of caution


@keywords()
@dataclass(frozen=True, kw_only=True)
class Search(Protocol):
    """Our protocol; nothing in it needs tuning.

    Attributes:
        effort: How many starts and steps, relative to the default.
        caution: How much contexts on which a model explodes count in the objective, relative to the default. With 0
            they are ignored: losses are then a few percent lower on nearly every sequence, and huge on one in a
            million.
        tolerated: The largest probability of an explosion that the chosen model may have, such as 1e-9: candidates are
            then compared by `explosion_probability`, with its upper bound of 95 %. In a search that runs to its end,
            the best model found without regard to explosions is a candidate too. Where every candidate explodes more
            often, the one that does so least often is chosen. It costs about two seconds per candidate, and needs a
            built-in problem; GD++ on isotropic problems has one candidate only. None, the default, counts explosions on
            the sequences that select.
        precision: What descents compute in: `float32`, `float64` or `auto`. With `auto` BFGS (few parameters) uses
            float64 after the race, and other descents use it where losses come near float32's rounding. Selection and
            the reported loss are always float64.
        seconds: Stop after this time, with the best model so far; None for no limit. Such a run cannot be repeated bit
            for bit. Every model it is grown from gets a part of the time. The last model may still explode, and is
            then not chosen.

    Raises:
        InputError: A value is outside its range.
    """

    name: ClassVar[str] = "search"
    remedy: ClassVar[str] = "; more effort may gain more"

    effort: float = 1.0
    caution: float = 1.0
    precision: str = "auto"
    seconds: float | None = None
    tolerated: float | None = None

    def __post_init__(self) -> None:
        if not 0 < number("effort", self.effort) <= 1000:
            refuse("effort must lie in (0, 1000]", self.effort, "Pass 1 for the default.")
        if not number("caution", self.caution) <= 1000:
            refuse("caution must lie in [0, 1000]", self.caution, "Pass 1 for the default.")
        choice("precision", self.precision, ("auto", "float32", "float64"))
        if self.seconds is not None and not number("seconds", self.seconds) > 0:
            refuse("seconds must be positive", self.seconds, "Pass the time that training may take, or None.")
        if self.tolerated is not None and not 0 < number("tolerated", self.tolerated) < 1:
            refuse("tolerated must lie in (0, 1)", self.tolerated, "Pass a probability, such as 1e-9, or None.")

    def as_dict(self) -> dict[str, Any]:
        """See `Protocol.as_dict`; `tolerated` is left out where it is None, as runs were named before there was one."""
        facts = super().as_dict()
        return {name: value for name, value in facts.items() if name != "tolerated" or value is not None}

    @property
    def time_limit(self) -> float | None:
        """See `Protocol.time_limit`."""
        return self.seconds

    def complete(self, spec: Spec) -> Spec:
        """See `Protocol.complete`."""
        if self.tolerated is not None and not spec.problem.has_known_laws:
            refuse(
                "tolerated needs a built-in problem of one dimension, because explosion probabilities need its density",
                spec.problem,
                "Leave it out: explosions are then counted.",
            )
        if spec.init is not None and (like := spec.example().arrays).keys() != spec.init.family.arrays.keys():
            refuse(
                f"a search starts from models given by {' and '.join(like)}",
                f"one given by {' and '.join(spec.init.family.arrays)}",
                "Convert it, or use a protocol that starts from one model, such as GradientDescent.",
            )
        return spec

    def needs(self, spec: Spec) -> list[Spec]:
        """See `Protocol.needs`: one layer less, and the simpler family that the family contains."""
        spec = dataclasses.replace(spec, init=None)
        parents = []
        simpler, dim = spec.family.contains, spec.problem.dim
        layout = dataclasses.replace(spec.layout, scratch=0)
        if simpler is not None and spec.layout == spec.family.layout_for(layout, dim):
            heads = spec.heads if simpler.useful_heads is None else min(spec.heads, simpler.useful_heads)
            room = layout if simpler.further_scalars != 0 else Layout(layout.attention)
            tokens = simpler.layout_for(room, dim)
            parents.append(dataclasses.replace(spec, family=simpler, heads=heads, layout=tokens))
        if spec.layers > 1:
            parents.append(dataclasses.replace(spec, layers=spec.layers - 1))
        return parents

    def cost(self, spec: Spec) -> float:
        """See `Protocol.cost`."""
        size = spec.problem.dim**2 / 100
        seconds = {"gdpp": 0.15, "diag": 0.85 * spec.layers * (0.6 + 0.4 * size)}
        return self.effort * seconds.get(spec.family.name, 2 + 1.2 * spec.layers * spec.heads * (0.4 + 0.6 * size))

    def run(self, job: Job) -> Outcome:
        """See `Protocol.run`."""
        problem = job.problem
        if problem.signal and not SMALLEST < problem.signal < 1 / SMALLEST / problem.lengths.most:
            rule = "a search computes in float32, which needs labels of a moderate size"
            received = f"a problem whose answers have a mean square of {problem.signal:.3g}"
            refuse(rule, received, "Divide labels, tasks and noise by their size.")
        exact = job.spec.family is GDpp and job.layout == PAPER_LAYOUT
        if exact and problem.is_isotropic:
            return _by_quadrature(job, cast("Problem", problem))
        work = SearchJob(**vars(job), effort=self.effort, caution=self.caution, precision=self.precision)
        parameters = sum(value.size for value in job.fresh(0).family.arrays.values())
        descend = descend_many_starts if parameters <= FEW_PARAMETERS else descend_few_starts
        outcome = follow(descend(work), job)
        family = job.spec.family.name
        initial = [] if job.spec.init is None else [Parent(job.spec.init, family)]
        candidates = [*initial, *work.ancestors(), Parent(outcome.model, family)]
        losses = functools.cache(functools.partial(_losses, work))
        if self.tolerated is None:
            winner, why = _select(work, candidates, losses)
        else:
            reckless = [] if outcome.reckless is None else [Parent(outcome.reckless, family)]
            winner, why = _tolerable(work, [*candidates, *reckless], losses, self.tolerated)
        price = None
        if outcome.reckless is not None and self.caution:
            both = losses(outcome.reckless), losses(winner.model)
            price = Price.between(*both, job.problem.signal, _oracle_loss(work, winner.model))
        if price is not None and price.exploded and price.worse > COSTLY:
            why += f"; caution costs {price.worse:.0%}: a model of loss {price.loss:.3g} explodes"
            why += _often(price.exploded, price.sequences)
        return Outcome(winner.model, outcome.converged, outcome.message + why, family=winner.family, price=price)


def _oracle_loss(job: SearchJob, model: LinearTransformer) -> float:
    """The mean loss of the oracle, where training does not adjust losses because no engine computes this oracle."""
    if job.problem.has_ridge_oracle or not job.problem.has_oracle:
        return 0.0
    settings: dict[str, Any] = {"seed": job.seed, "stream": SELECT, "gradient": False, "threads": job.threads}
    count = job.problem.affordable(ORACLE)
    evaluation = model.astype(np.float64).step(job.problem, count, target="ridge", unadjusted=True, **settings)
    calm = ~exploded(evaluation.losses, job.problem.signal)
    assert evaluation.unadjusted is not None
    return float((evaluation.unadjusted - evaluation.losses)[calm].mean())


def _by_quadrature(job: Job, problem: Problem) -> Outcome:
    arrays, spec = job.journal.recall("quadrature"), job.spec
    shallower = None if job.shallower is None else job.shallower.model
    if arrays is None:
        best = least_excess_loss(
            problem, spec.layers, heads=spec.heads, seed=spec.seed, shallower=shallower, start=spec.init
        )
        arrays = {name: value.astype(np.float64) for name, value in best.arrays.items()}
        loss = exact_loss(problem, job.model(best))
        job.journal.note("quadrature", 0, loss)
        job.journal.keep("quadrature", arrays)
        job.report(Step(job.model(best), "quadrature", 1.0, loss))
    return Outcome(job.model(GDpp(**arrays)), True, "optimum by quadrature over the eigenvalues, without sampling")


def _select(job: SearchJob, candidates: list[Parent], losses_of: LossesOf) -> tuple[Parent, str]:
    """The one that explodes least often; among equals the one of least loss, a later one only if clearly better.

    Without caution, explosions count no more than any other large loss, by their logarithm. Also why, in words, where
    it is not simply that the last one, which was trained, is the best.
    """
    best, best_losses, why = candidates[0], losses_of(candidates[0].model), ""
    for candidate in candidates[1:]:
        losses = losses_of(candidate.model)
        explosions, fewest = (int(exploded(x, job.problem.signal).sum()) for x in (losses, best_losses))
        difference = losses - best_losses
        if not job.caution:
            explosions = fewest = 0
            difference = damped(losses, ceiling(job.problem)) - damped(best_losses, ceiling(job.problem))
        better = difference.mean() < -difference.std() / np.sqrt(len(difference))
        if explosions < fewest or (explosions == fewest and better):
            best, best_losses = candidate, losses
            often = _often(fewest, len(losses))
            why = f"; preferred to one of less loss that explodes{often}" if difference.mean() > 0 else ""
        else:
            why = "; a model it was grown from was as good and was kept"
            if explosions > fewest:
                why = f"; it explodes{_often(explosions, len(losses))}, so that a model it was grown from was kept"
    return best, why


def _tolerable(job: SearchJob, candidates: list[Parent], losses_of: LossesOf, most: float) -> tuple[Parent, str]:
    """The one of least loss among those that explode with a tolerated probability, else the one that does so least.

    A later one only if it is clearly better. Also how often it explodes, in words.
    """
    best: tuple[Parent, Array, float, str] | None = None
    for candidate in candidates:
        losses = losses_of(candidate.model)
        rare = explosion_probability(cast("Problem", job.problem), candidate.model, sequences=RARE, seed=job.seed)
        often = max(rare.upper, float(exploded(losses, job.problem.signal).mean()))
        if best is not None:
            difference = losses - best[1]
            better = difference.mean() < -difference.std() / np.sqrt(len(difference))
            if not (better if max(often, best[2]) <= most else often < best[2]):
                continue
        best = candidate, losses, often, str(rare)
    assert best is not None
    above = "" if best[2] <= most else f", above the tolerated {most:g}, but less often than the other candidates"
    return best[0], f"; of {len(candidates)} candidates, its explosion probability is {best[3]}{above}"


def _often(exploded: int, sequences: int) -> str:
    return f" on {exploded} of {sequences:,} sequences"


def _losses(job: SearchJob, model: LinearTransformer) -> Array:
    """The losses on the sequences that select."""
    evaluation = model.astype(np.float64).step(
        job.problem,
        job.problem.affordable(job.sized(SELECTION)),
        seed=job.seed,
        stream=SELECT,
        gradient=False,
        threads=job.threads,
    )
    return capped(evaluation.losses.astype(np.float64), job.problem.signal)
