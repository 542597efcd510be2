"""The paper's figures and one more, as functions of stored measurements. Needs matplotlib.

>>> from ridgeformer.papers.vladymyrov2024.figures import FIGURES
>>> list(FIGURES)
['1', '2', '3', '4', '5', '6', '7', '8', 'layers']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ridgeformer.losses import EXPLODES
from ridgeformer.papers.paper import Picture
from ridgeformer.papers.vladymyrov2024.evidence import Evidence
from ridgeformer.papers.vladymyrov2024.figures.losses import (
    categorical_problems,
    loss_by_depth,
    profiles_by_layer,
    ratio_to_floor,
    unadjusted,
    uniform_profiles,
)
from ridgeformer.papers.vladymyrov2024.figures.models import draw_layers_needed, loss_by_layer, weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "NEEDS"]


def _picture(draw: Callable[[Evidence], Figure], caption: str) -> Picture:
    return Picture(lambda results: draw(Evidence(results)), caption)


CROSS = (
    "A cross marks a noise level at which at least one sequence exploded: its loss is above "
    f"{EXPLODES} d, while always predicting zero has a loss of about d / 2. At such a level the mean is dominated by "
    "these sequences and says little about the others."
)
BLACK = "Black: the Bayes predictor, which is the best on average over the levels of training, not at every level."

FIGURES = {
    "1": _picture(
        loss_by_depth,
        "Adjusted loss against the number of layers, for noise levels uniform on [0, sigma_max]. Each marker is a "
        "separately trained model; bars are two standard errors. Lines: the baselines, and in black the Bayes "
        "floor.",
    ),
    "2": _picture(
        uniform_profiles,
        "Adjusted loss at each noise level. Top: seven-layer models for each sigma_max (the first panel, without "
        "noise, has its own scale). Bottom: models of two to seven layers at sigma_max = 5. Grey: noise levels of "
        f"training. {BLACK} {CROSS}",
    ),
    "3": _picture(
        categorical_problems,
        "Two or three noise levels. Top: adjusted loss against depth, and profiles of seven layers. Bottom: "
        "profiles of two to seven layers. Grey: noise levels of training. Black in the panels of loss against "
        f"depth: the Bayes floor. {BLACK.replace('Black', 'Black in the profiles')} {CROSS}",
    ),
    "4": _picture(
        weights,
        "Q and P of every layer of the four-layer Full model on categorical(1,3), scaled to equal norms. The last "
        "row and column belong to y.",
    ),
    "5": _picture(
        loss_by_layer,
        "Adjusted loss of the readout after every layer, uniform(0,5), for models of every depth. Bars: standard "
        "deviation over five seeds. Black: the Bayes floor.",
    ),
    "6": _picture(
        unadjusted,
        "Unadjusted and adjusted losses of the seven-layer models and the baselines. Most of the unadjusted loss "
        "cannot be avoided by any predictor, which hides the differences that the adjusted loss shows.",
    ),
    "7": _picture(
        profiles_by_layer,
        "Adjusted loss at each noise level after every layer of seven-layer models, uniform(0,5), mean over five "
        f"seeds. Bands: standard deviation over the seeds. Grey: noise levels of training. {CROSS}",
    ),
    "8": _picture(
        ratio_to_floor,
        "Ratio of the loss of every model to the Bayes floor, the smallest expected loss of any predictor.",
    ),
    "layers": Picture(
        lambda results: draw_layers_needed(),
        "Layers that GD++ needs to solve least squares, and steps of classical methods, for the worst spectrum with "
        "condition number kappa.",
    ),
}
NEEDS = {  # the parts of the evidence that each figure shows
    "1": ("tuned", "table"),
    "2": ("tuned", "profiles"),
    "3": ("tuned", "table", "profiles"),
    "4": ("weights",),
    "5": ("tuned", "table", "layers"),
    "6": ("tuned", "table"),
    "7": ("layer_profiles",),
    "8": ("tuned", "table"),
    "layers": (),
}
