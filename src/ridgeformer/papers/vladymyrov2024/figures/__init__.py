"""The paper's figures and one more, as functions of stored measurements. Needs matplotlib.

>>> from ridgeformer.papers.vladymyrov2024.figures import FIGURES
>>> list(FIGURES)
[1, 2, 3, 4, 5, 6, 7, 8]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeformer.errors import refuse
from ridgeformer.files import make_folder
from ridgeformer.losses import EXPLODES
from ridgeformer.papers.vladymyrov2024.evidence import Evidence
from ridgeformer.papers.vladymyrov2024.figures.depth import loss_by_depth, ratio_to_floor, unadjusted
from ridgeformer.papers.vladymyrov2024.figures.inside import loss_by_layer, weights
from ridgeformer.papers.vladymyrov2024.figures.profiles import categorical_problems, profiles_by_layer, uniform_profiles
from ridgeformer.plotting.style import SUFFIXES, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Described", "chosen", "draw"]


@dataclass(frozen=True)
class Described:
    """A figure and its description.

    Attributes:
        draw: Draws the figure.
        parts: The parts of the evidence that it needs.
        caption: Its caption; `{sequences}` stands for the number of sequences at every noise level of a profile.
    """

    draw: Callable[[Evidence], Figure]
    parts: tuple[str, ...]
    caption: str

    def caption_of(self, evidence: Evidence) -> str:
        """Return the caption with the numbers of some evidence.

        Args:
            evidence: The measurements.

        Returns:
            The caption.
        """
        return self.caption.format(sequences=f"{evidence.fewer:,}")


CROSS = (
    "A cross marks a noise level at which at least one of the {sequences} sequences exploded: its loss is above "
    f"{EXPLODES} d, while always predicting zero has a loss of about d / 2. At such a level the mean is dominated by "
    "these sequences and says little about the others."
)
BLACK = "Black: the Bayes predictor, which is the best on average over the levels of training, not at every level."

FIGURES = {
    1: Described(
        loss_by_depth,
        ("table",),
        "Adjusted loss against the number of layers, for noise levels uniform on [0, sigma_max]. Each marker is a "
        "separately trained model; bars are two standard errors. Lines: the baselines, and in black the Bayes "
        "floor.",
    ),
    2: Described(
        uniform_profiles,
        ("profiles",),
        "Adjusted loss at each noise level. Top: seven-layer models for each sigma_max (the first panel, without "
        "noise, has its own scale). Bottom: models of two to seven layers at sigma_max = 5. Grey: noise levels of "
        f"training. {BLACK} {CROSS}",
    ),
    3: Described(
        categorical_problems,
        ("table", "profiles"),
        "Two or three noise levels. Top: adjusted loss against depth, and profiles of seven layers. Bottom: "
        "profiles of two to seven layers. Grey: noise levels of training. Black in the panels of loss against "
        f"depth: the Bayes floor. {BLACK.replace('Black', 'Black in the profiles')} {CROSS}",
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
        "Unadjusted and adjusted losses of the seven-layer models and the baselines. Most of the unadjusted loss "
        "cannot be avoided by any predictor, which hides the differences that the adjusted loss shows.",
    ),
    7: Described(
        profiles_by_layer,
        ("layer_profiles",),
        "Adjusted loss at each noise level after every layer of seven-layer models, uniform(0,5), mean over five "
        f"seeds. Bands: standard deviation over the seeds. Grey: noise levels of training. {CROSS}",
    ),
    8: Described(
        ratio_to_floor,
        ("table",),
        "Ratio of the loss of every model to the Bayes floor, the smallest expected loss of any predictor.",
    ),
}


def chosen(only: Iterable[int] = ()) -> list[int]:
    """Check numbers of figures.

    Args:
        only: The numbers.

    Returns:
        The numbers, each once; all if none is named.

    Raises:
        InputError: There is no such figure.
    """
    for number in only:
        if number not in FIGURES:
            refuse(f"a figure must be one of {', '.join(map(str, FIGURES))}", number, "Choose one of these.")
    return list(dict.fromkeys(only)) or list(FIGURES)


def draw(
    evidence: Evidence,
    folder: Path,
    only: Iterable[int] = (),
    *,
    suffixes: Sequence[str] = SUFFIXES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Path]:
    """Draw figures to `figure-N.pdf`, `.svg` and `.png`.

    Args:
        evidence: What they show; what is not measured yet is measured.
        folder: Where they go; it is made if it does not exist.
        only: Numbers of figures; by default all.
        suffixes: The formats.
        progress: Called with the number of figures drawn and the number of all.

    Returns:
        The files that were written.

    Raises:
        InputError: There is no such figure.
        StorageError: The folder cannot be written to.
        MissingPackageError: matplotlib is not installed.
    """
    numbers = chosen(only)
    make_folder(folder, "figures")
    written = []
    for done, number in enumerate(numbers):
        progress(done, len(numbers))
        written += save(functools.partial(FIGURES[number].draw, evidence), folder / f"figure-{number}", suffixes)
    progress(len(numbers), len(numbers))
    return written
