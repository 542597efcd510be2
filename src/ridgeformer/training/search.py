"""Our protocol: from a problem, a family and a depth to a model, with nothing to tune.

Local minima are the obstacle, not the number of steps. So: many cheap starts, fresh ones and ones grown from the best
shallower model by a small random layer; the losers are dropped early; the winner is finished on many sequences and on
those where it fails. At the end the shallower model and that of the simpler family, embedded, are candidates too: on
the sequences that select, the result is never worse than they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import PAPER_LAYOUT
from ridgeformer.exact import exact_loss, least_excess_loss
from ridgeformer.losses import CAP, exploded
from ridgeformer.models.families import GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import Problem
from ridgeformer.training.batch import ceiling, damped
from ridgeformer.training.few_starts import descend_few_starts
from ridgeformer.training.job import SELECT, SELECTION, Found, Job, Report, Step, follow
from ridgeformer.training.many_starts import descend_many_starts
from ridgeformer.training.objective import fewer

__all__ = ["search"]

Array = NDArray[np.float64]
FEW = 256  # parameters, up to which descent is by BFGS


def search(job: Job, report: Report, deadline: float | None = None) -> Found:
    """Find the best model that the protocol can.

    Args:
        job: What to find.
        report: Is called after every piece of work.
        deadline: When to stop, by `time.monotonic()`; None for no limit.

    Returns:
        The chosen model, and how it was found.
    """
    problem = job.problem
    if job.family is GDpp and isinstance(problem, Problem) and problem.is_isotropic and job.layout == PAPER_LAYOUT:
        return _by_quadrature(job, problem, report)
    parameters = sum(value.size for value in job.fresh(0).family.arrays.values())
    descend = descend_many_starts if parameters <= FEW else descend_few_starts
    found = follow(descend(job), report, deadline)
    given = [] if job.init is None else [job.init]
    chosen, why = _select(job, [*given, *job.ancestors(), found.model])
    return Found(chosen, found.converged, found.message + why)


def _by_quadrature(job: Job, problem: Problem, report: Report) -> Found:
    kept = job.journal.recall("quadrature")
    if kept is None:
        best = least_excess_loss(
            problem, job.layers, heads=job.heads, seed=job.seed, shallower=job.shallower, start=job.init
        )
        kept = {name: value.astype(np.float64) for name, value in best.arrays.items()}
        model = LinearTransformer(best, job.problem.dim)
        loss = exact_loss(problem, model)
        job.journal.note("quadrature", 0, loss)
        job.journal.keep("quadrature", kept)
        report(Step(model, "quadrature", 1.0, loss))
    model = LinearTransformer(GDpp(**kept), job.problem.dim)
    return Found(model, True, "optimum by quadrature over the eigenvalues, without sampling")


def _select(job: Job, candidates: list[LinearTransformer]) -> tuple[LinearTransformer, str]:
    """The one that explodes least often; among equals the one of least loss, a later one only if clearly better.

    Without caution, explosions count no more than any other large loss, by their logarithm. Also why, in words, where
    it is not simply that the last one, which was trained, is the best.
    """
    best, best_losses, why = candidates[0], _losses(candidates[0], job), ""
    for model in candidates[1:]:
        losses = _losses(model, job)
        wild, best_wild = (int(exploded(x, job.problem.signal).sum()) for x in (losses, best_losses))
        difference = losses - best_losses
        if not job.caution:
            wild = best_wild = 0
            difference = damped(losses, ceiling(job.problem)) - damped(best_losses, ceiling(job.problem))
        better = difference.mean() < -difference.std() / np.sqrt(len(difference))
        if wild < best_wild or (wild == best_wild and better):
            best, best_losses = model, losses
            often = _often(best_wild, len(losses))
            why = f"; preferred to one of less loss that explodes{often}" if difference.mean() > 0 else ""
        else:
            why = "; a model it was grown from was as good and was kept"
            if wild > best_wild:
                why = f"; it explodes{_often(wild, len(losses))}, so that a model it was grown from was kept"
    return best, why


def _often(exploded: int, sequences: int) -> str:
    return f" on {exploded} of {sequences:,} sequences"


def _losses(model: LinearTransformer, job: Job) -> Array:
    found = model.astype(np.float64).step(
        job.problem, fewer(job.problem, SELECTION), seed=job.seed, stream=SELECT, gradient=False, threads=job.threads
    )
    return np.minimum(found.losses.astype(np.float64), CAP)
