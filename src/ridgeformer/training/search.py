"""Our protocol: from a problem, a family and a depth to a model, with nothing to tune.

Local minima are the obstacle, not the number of steps. So: many cheap starts, fresh ones and ones grown from the best
shallower model by a small random layer; the losers are dropped early; the winner is finished on many sequences and on
those where it fails. At the end the shallower model and that of the poorer family, embedded, are candidates too: on
the sequences that select, nothing comes out worse than they are.
"""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import NDArray

from ridgeformer.exact import exact_loss, least_excess
from ridgeformer.losses import CAP, exploded
from ridgeformer.models.families import GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.training.few_starts import descend_few_starts
from ridgeformer.training.job import SELECT, Found, OutOfTime, Task
from ridgeformer.training.many_starts import descend_many_starts
from ridgeformer.training.objective import ceiling, damped

__all__ = ["search"]

Array = NDArray[np.float64]
FEW = 256  # parameters, up to which descent is by BFGS
SELECTION = 1 << 17  # sequences that decide between candidates


def search(task: Task) -> Found:
    """Find the best model that the protocol can."""
    if task.family is GDpp:
        return _by_quadrature(task)
    ancestors = task.ancestors()
    fresh = task.fresh(0)
    task.best = ancestors[-1] if ancestors else fresh
    parameters = sum(value.size for value in fresh.family.arrays.values())
    try:
        converged, message = (descend_many_starts if parameters <= FEW else descend_few_starts)(task)
    except OutOfTime:
        task.journal.write()
        converged, message = False, "the time given was over"
    chosen, why = _select(task, [*ancestors, task.best])
    return Found(chosen, converged, message + why)


def _by_quadrature(task: Task) -> Found:
    kept = task.journal.recall("quadrature")
    if kept is None:
        best = least_excess(task.problem, task.layers, task.heads, task.seed, task.shallower)
        kept = {name: value.astype(np.float64) for name, value in best.arrays.items()}
        model = LinearTransformer(best, task.problem.dim)
        with contextlib.suppress(OutOfTime):  # it is finished
            task.done("quadrature", kept, "quadrature", 1.0, 0, exact_loss(model, task.problem))
    model = LinearTransformer(GDpp(**kept), task.problem.dim)
    return Found(model, True, "optimum by quadrature over the eigenvalues, without sampling")


def _select(task: Task, candidates: list[LinearTransformer]) -> tuple[LinearTransformer, str]:
    """The one that explodes least often; among equals the one of least loss, a later one only if clearly better.

    Without caution, explosions count no more than any other large loss, by their logarithm. Also why, in words, where
    it is not simply that the last one, which was trained, is the best.
    """
    best, best_losses, why = candidates[0], _losses(candidates[0], task), ""
    for model in candidates[1:]:
        losses = _losses(model, task)
        wild, best_wild = (int(exploded(x, task.problem.dim).sum()) for x in (losses, best_losses))
        difference = losses - best_losses
        if not task.caution:
            wild = best_wild = 0
            difference = damped(losses, ceiling(task.problem)) - damped(best_losses, ceiling(task.problem))
        better = difference.mean() < -difference.std() / np.sqrt(len(difference))
        if wild < best_wild or (wild == best_wild and better):
            best, best_losses = model, losses
            why = f"; preferred to one of less loss that explodes{_often(best_wild)}" if difference.mean() > 0 else ""
        else:
            reason = f"explodes less often, not{_often(wild)}," if wild > best_wild else "was as good"
            why = f"; a model it was grown from {reason} and was kept"
    return best, why


def _often(exploded: int) -> str:
    return f" on {exploded} of {SELECTION:,} sequences"


def _losses(model: LinearTransformer, task: Task) -> Array:
    found = model.astype(np.float64).step(
        task.problem, SELECTION, seed=task.seed, stream=SELECT, gradient=False, threads=task.threads
    )
    return np.minimum(found.losses.astype(np.float64), CAP)
