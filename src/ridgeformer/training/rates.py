"""The rate and the clip of descents that name no rate, from the sizes of the problem.

In natural units (`training.vector.Units`) parameters are of the order of one, and a loss is measured in signals, the
mean square of what is to be predicted. There one rate and one clip suit all numbers of examples, dimensions and kinds
of attention. With a parameter of natural size s, a gradient of size signal / s moves it by its own size if the rate is
s^2 / signal; the steps of Adam are as long as its rate whatever the gradient is.
"""

from __future__ import annotations

import dataclasses

from ridgeformer.engine import Layout
from ridgeformer.models.family import Family
from ridgeformer.problems import BaseProblem
from ridgeformer.training.protocols import Adam, GradientDescent
from ridgeformer.training.vector import Units

__all__ = ["suited"]

RATE, ADAM_RATE = 0.1, 0.002  # in natural units
CLIP = 0.1


def suited(recipe: GradientDescent, problem: BaseProblem, layout: Layout, family: Family) -> GradientDescent:
    """Return a descent with the rate that suits a problem, and with the clip unless one was chosen.

    Args:
        recipe: The descent, which names no rate.
        problem: What the model is trained on.
        layout: The layout of its tokens.
        family: Parameters of its family, of any number of layers.

    Returns:
        The descent.
    """
    units = Units(problem, layout)
    size = min([1.0, *(float(abs(f).min()) for f in units.factors(family).values())]) / units.scale
    plain = RATE * (1 - recipe.momentum) * size**2 / problem.signal
    rate = ADAM_RATE * size if isinstance(recipe, Adam) else plain
    clip = _rounded(CLIP * problem.signal / size) if recipe.clip is None else recipe.clip
    return dataclasses.replace(recipe, rate=_rounded(rate), clip=clip)


def _rounded(value: float) -> float:
    """Three digits: last bits of a sampled signal must not decide the name of a run."""
    return float(f"{value:.3g}")
