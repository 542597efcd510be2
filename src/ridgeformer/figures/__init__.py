"""The paper's figures and one more, as functions of stored measurements. Needs matplotlib.

>>> from ridgeformer.figures import FIGURES
>>> list(FIGURES)
[1, 2, 3, 4, 5, 6, 7, 8]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeformer.errors import refuse
from ridgeformer.experiments.evidence import Evidence
from ridgeformer.figures.depth import loss_by_depth, ratio_to_floor, unadjusted
from ridgeformer.figures.inside import loss_by_layer, weights
from ridgeformer.figures.profiles import categorical_problems, profiles_by_layer, uniform_profiles
from ridgeformer.figures.style import SUFFIXES, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Described", "chosen", "draw"]


@dataclass(frozen=True)
class Described:
    """A figure: how it is drawn, the parts of the evidence it needs, and its caption."""

    draw: Callable[[Evidence], Figure]
    parts: tuple[str, ...]
    caption: str


FIGURES = {
    1: Described(
        loss_by_depth,
        ("table",),
        "Adjusted loss against the number of layers, for noise levels uniform on [0, sigma_max]. Each marker is a "
        "model trained for itself; bars are two standard errors. Lines: the baselines, and in black the Bayes "
        "floor.",
    ),
    2: Described(
        uniform_profiles,
        ("profiles",),
        "Adjusted loss at each noise level. Above: seven-layer models for each sigma_max (the scale of the first "
        "panel, without noise, is its own). Below: models of two to seven layers at sigma_max = 5. Grey: levels "
        "met in training. Black: the Bayes predictor, the best on average over these levels, not at each of them.",
    ),
    3: Described(
        categorical_problems,
        ("table", "profiles"),
        "Two or three noise levels. Above: adjusted loss against depth, and profiles of seven layers. Below: "
        "profiles of two to seven layers. Grey: the levels met in training. Black: the Bayes predictor, the best on "
        "average over these levels, not at each of them.",
    ),
    4: Described(
        weights,
        (),
        "Q and P of every layer of the four-layer Full model on categorical(1,3), scaled to equal norms. The last "
        "row and column belong to y.",
    ),
    5: Described(
        loss_by_layer,
        ("table", "layers"),
        "Adjusted loss of the readout after every layer, uniform(0,5), for models of every depth. Bars: standard "
        "deviation over five seeds. Black: the Bayes floor.",
    ),
    6: Described(
        unadjusted,
        ("table",),
        "The seven-layer models and the baselines by both losses. The unadjusted one is nearly all noise that "
        "nobody can predict; it hides what the adjusted one shows.",
    ),
    7: Described(
        profiles_by_layer,
        ("layer_profiles",),
        "Adjusted loss at each noise level after every layer of seven-layer models, uniform(0,5). Bands: standard "
        "deviation over five seeds.",
    ),
    8: Described(
        ratio_to_floor,
        ("table",),
        "Every model's loss over the Bayes floor, the least that any predictor can have.",
    ),
}


def chosen(only: Iterable[int] = ()) -> list[int]:
    """The numbers of figures, checked; all if none is named."""
    for number in only:
        if number not in FIGURES:
            refuse(f"a figure must be one of {', '.join(map(str, FIGURES))}", number, "Choose one of these.")
    return list(dict.fromkeys(only)) or list(FIGURES)


def draw(
    evidence: Evidence,
    folder: Path,
    only: Iterable[int] = (),
    suffixes: Sequence[str] = SUFFIXES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Draw figures, by default all, to `figure-N.pdf`, `.svg` and `.png`."""
    numbers = chosen(only)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for done, number in enumerate(numbers):
        progress(done, len(numbers))
        written += save(FIGURES[number].draw, evidence, folder / f"figure-{number}", suffixes)
    progress(len(numbers), len(numbers))
    return written
