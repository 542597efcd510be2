"""Bordelon, Letey and Pehlevan: when depth helps, for isotropic, fixed and rotated covariances.

Theory of scaling laws for in-context regression: depth, width, context and time
Blake Bordelon, Mary I. Letey and Cengiz Pehlevan, 2025
https://arxiv.org/abs/2510.01098

How much depth helps a linear transformer depends on the features. If their covariance is isotropic or the same in all
sequences, parameters can store it, and depth helps only while the context is short. If every sequence has a covariance
of its own, depth helps at any context length.

Models are trained in three settings: isotropic features, one fixed covariance that parameters can know, and a
covariance that is rotated anew for every sequence. What depth gains over one layer, as a share of the signal, falls as
1 / n where the covariance can be known, and stays where it cannot. The paper's statement holds in that sense. Relative
to the loss that is left it does not: the best loss falls as 1 / n too, so that one layer stays behind by a factor that
grows with the context.

Not checked here: Scaling laws in width and training time, for power-law spectra in the limit of large dimensions.
"""

from __future__ import annotations

import numpy as np

from ridgeformer.papers import CHANCE, Check, Erratum, Paper, Part, Picture, Results, Rows, Work
from ridgeformer.plotting.panels import Line, Panel
from ridgeformer.problems import Problem
from ridgeformer.training import Search
from ridgeformer.validation import Array

SIGMA = 0.5
FEATURES = {"isotropic": None, "fixed": "powerlaw(1)", "rotated": "rotated(powerlaw(1))"}
FAMILY = {"isotropic": "diag", "fixed": "preconditioned", "rotated": "diag"}  # a fixed covariance can be learned


def _problem_of(setting: str, d: int, context: int) -> Problem:
    """The problem of a setting, whose noise has half the size of the signal per feature."""
    return Problem(d, context, SIGMA, features=FEATURES[setting])


def depth(
    work: Work,
    *,
    d: int = 5,
    lengths: tuple[int, ...] = (5, 20, 80, 320),
    depths: tuple[int, ...] = (1, 2, 3),
    effort: float = 0.01,
    sequences: int = 50_000,
) -> Rows:
    """Train models of every depth and context length in the three settings.

    Args:
        work: The folder of runs and the progress.
        d: The dimension.
        lengths: The numbers of examples.
        depths: The depths.
        effort: As for `training.Search`.
        sequences: How many fresh sequences losses are measured on.

    Yields:
        For every setting, length and depth: the unadjusted loss and its error.
    """
    for setting, n, layers in work.each(FEATURES, lengths, depths):
        problem, how = _problem_of(setting, d, n), Search(effort=effort)
        model = work.train(problem, FAMILY[setting], layers, protocol=how, sequences=1000).model
        yield {"setting": setting, "n": n, "layers": layers, **work.loss(problem, model, sequences)}


def _losses(results: Results, setting: str) -> Array:
    """Losses, without the noise of the query, [lengths, depths]."""
    return np.array([rows.loss for _, rows in results.depth.where(setting=setting).by("n")])


def _share(results: Results, setting: str) -> Array:
    """The loss of one layer minus that of the deepest model, over the loss of predicting 0, one for each length."""
    loss = _losses(results, setting)
    return np.asarray((loss[:, 0] - loss[:, -1]) / (results.depth.d / 2))


def _power(lengths: list[int], gain: Array) -> float:
    """The power of n with which a gain changes over the two longest contexts: -1 where it falls as 1 / n."""
    return float(np.diff(np.log(gain[-2:]))[0] / np.diff(np.log(lengths[-2:]))[0])


def _powers(results: Results, *settings: str) -> tuple[str, dict[str, float]]:
    """The gains in words, and the power with which they change, by setting."""
    lengths, words, powers = results.depth.lengths, [], {}
    for setting in settings:
        gain = _share(results, setting)
        powers[setting] = _power(lengths, gain)
        values = ", ".join(f"{x:.3f} at n = {n}" for n, x in zip(lengths, gain, strict=True))
        words.append(f"{setting}: {values}, power {powers[setting]:.2f}")
    return "gain over one layer, as a share of the signal: " + "; ".join(words), powers


def known(results: Results) -> Check:
    """Decide whether depth gains nothing at long context where parameters can know the covariance. See `Paper`.

    With an isotropic or fixed covariance, depth helps only at short context: relative to the signal, its gain falls to
    0 as the context grows.

    Expected: a gain that falls as n^-1
    Tolerance: a power below -1/2
    Reason: One layer leaves a share of order d / n of the signal, so that the gain falls as 1 / n if the claim is
        true, and stays if it is not; -1/2 is midway.
    Rule: rejected where the gain of the deepest model over one layer falls more slowly than n^-1/2 at long context
    """
    words, powers = _powers(results, "isotropic", "fixed")
    falls = ", ".join(f"n^{value:.2f} ({setting})" for setting, value in powers.items())
    _, rotated = _powers(results, "rotated")
    brief = f"gain / signal falls as {falls}; rotated n^{rotated['rotated']:.2f}"
    return Check(words, holds=[value < -0.5 for value in powers.values()], brief=brief)


def rotated(results: Results) -> Check:
    """Decide whether depth always helps where the covariance is rotated. See `Paper`.

    With a covariance that is rotated for every sequence, depth helps at every context length, however long.

    Expected: a gain at every length, which stays as n grows
    Tolerance: 4 standard errors, and a power above -1/2
    Reason: Chance; and midway between a gain that stays and one that falls as 1 / n.
    Rule: rejected where depth gains nothing at a length, or its gain falls faster than n^-1/2 at long context
    """
    words, powers = _powers(results, "rotated")
    rows = [group for _, group in results.depth.where(setting="rotated").by("n")]
    clear = [group.loss[0] - group.loss[-1] > CHANCE * np.hypot(group.error[0], group.error[-1]) for group in rows]
    return Check(words, holds=[*clear, powers["rotated"] > -0.5])


def relative(results: Results) -> Check:
    """Decide the claim on fixed covariances relative to the loss that is left, not to the signal. See `Paper`.

    The same relative to the loss that is left: with a fixed covariance, one layer comes closer to the deepest model as
    the context grows.

    Expected: falling to 1
    Tolerance: none
    Reason: Only the direction counts. The best loss also falls as 1 / n, as the noise is averaged out, so that the
        ratio need not fall.
    Rule: rejected where the ratio grows from one length to the next
    """
    loss = _losses(results, "fixed")
    factor = loss[:, 0] / loss[:, -1]
    values = ", ".join(f"{x:.2f} at n = {n}" for n, x in zip(results.depth.lengths, factor, strict=True))
    return Check(f"loss of one layer over the deepest: {values}", holds=np.diff(factor) < 0)


def draw(results: Results) -> list[Panel]:
    """Draw losses against depth, for every setting and length. See `Paper`.

    Loss against depth in the three settings.
    """
    figure = []
    for setting, rows in results.depth.by("setting"):
        shown = [Line(f"n = {n}", group.layers, group.loss, i) for i, (n, group) in enumerate(rows.by("n"))]
        figure.append(Panel(setting, "layers", "loss", shown, False, True))
    return figure


PAPER = Paper(
    id="bordelon2025",
    about=__doc__,
    problems={setting: _problem_of(setting, 5, 20) for setting in FEATURES},
    parts=(Part(depth, {"d": 3, "lengths": (6, 24, 96), "depths": (1, 2), "effort": 0.01, "sequences": 10_000}),),
    checks=(known, rotated, relative),
    version=2,
    pictures={"depth": Picture(draw)},
    errata=(
        Erratum(
            "the statement on fixed covariances",
            "depth helps only at short context",
            "that is so for the gain as a share of the signal; as a factor of the loss that is left, the gain grows "
            "with the context, because the loss of deep models falls as 1 / n too",
            "check `relative`",
        ),
    ),
)
