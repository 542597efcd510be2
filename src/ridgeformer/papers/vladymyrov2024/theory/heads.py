"""Heads of diagonal layers: one obeys a constraint, two reach everything that more heads reach.

A layer's omega, [[xx, xy], [yx, yy]], is the sum over heads of p q'. One head makes it of rank one, so that

    omega_xx omega_yy = omega_xy omega_yx,

and any omega at all is the sum of two such terms. w is read from y, so xx and xy of the last layer never matter, and
there the constraint costs nothing: a second head frees one number in every layer but the last.

`Diag(p, q)` with one head obeys the constraint, trained or not; `Diag(omega=...)` has two heads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.families import Diag
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound, random_model, relative_error
from ridgeformer.problems import Problem
from ridgeformer.validation import Float

ROUNDING = 1e-12
LAYERS, EFFORT = 3, 0.3  # of the models that `second_head` trains


def departure(family: Diag) -> Float:
    """Measure how far each layer is from one that a single head can have.

    Args:
        family: Parameters of a Diag model.

    Returns:
        |xx yy - xy yx| of every layer, relative to the larger product, [L]: 0 for one head.
    """
    (xx, xy), (yx, yy) = np.moveaxis(family.omega.astype(np.float64), 0, -1)
    size = np.maximum(np.abs(xx * yy), np.abs(xy * yx))
    return np.asarray(np.abs(xx * yy - xy * yx) / np.where(size > 0, size, 1.0))


def merge(family: Diag) -> Diag:
    """Return the same model with two heads, from any number of them: the singular vectors of every omega.

    Args:
        family: Parameters of a Diag model.

    Returns:
        Parameters with the same omegas and two heads.

    Raises:
        InputError: It is not a Diag model.

    >>> merge(Diag(np.ones((1, 5, 2)), np.ones((1, 5, 2))))
    Diag(p (1, 2, 2), q (1, 2, 2))
    """
    if not isinstance(family, Diag):
        refuse("heads are merged in Diag models", kind_of(family), "Use to_diag() for GD++.")
    left, sizes, right = np.linalg.svd(family.omega.astype(np.float64))
    root = np.sqrt(sizes)[:, :, None]
    return Diag(np.swapaxes(left, 1, 2) * root, right * root)


def one_head_last(family: Diag) -> Diag:
    """Return a model with the same predictions, whose last layer has one head: without xx and xy, which nothing reads.

    Args:
        family: Parameters of a Diag model.

    Returns:
        The new parameters.
    """
    omega = family.omega.copy()
    omega[-1, 0] = 0
    return Diag(omega=omega)


def second_head(problem: Problem, *, layers: int = LAYERS, effort: float = EFFORT, seed: int = 0) -> dict[str, float]:
    """Measure what a second head gains: train models with one and two heads, and compare their losses.

    Args:
        problem: The problem.
        layers: Layers of the models.
        effort: The effort of training.
        seed: Seed of training and of the sequences.

    Returns:
        The losses, the gain with its standard error, the floor, and how far the models' layers depart from what one
        head can have, by name.
    """
    from ridgeformer.evaluation import compare
    from ridgeformer.training import Search, train

    models = {
        str(heads): train(
            problem, "diag", layers, heads, seed=seed, protocol=Search(effort=effort), sequences=10_000
        ).model
        for heads in (1, 2)
    }
    losses = compare(problem, models, sequences=50_000, seed=seed)
    gain, error = losses.difference("1", "2")
    return {
        "one head": losses["1"].loss,
        "two heads": losses["2"].loss,
        "gain": gain,
        "standard error": error,
        "floor": losses["1"].floor,
        "departure, one head": float(departure(_diag(models["1"])).max()),
        "departure, two heads": float(departure(_diag(models["2"]))[:-1].max(initial=0.0)),
    }


def random_head(seed: int = 0) -> Diag:
    """Make seven random layers of one head.

    Args:
        seed: Seed of the parameters.

    Returns:
        The parameters.
    """
    return _diag(random_model("diag", dim=4, context=9, layers=7, seed=seed))


def check(seed: int = 0) -> list[Bound]:
    """Check the constraint of one head, two heads for five, the last layer, and what training makes of a second head.

    Args:
        seed: Seed of the models and sequences.

    Returns:
        The checks.
    """
    trained = second_head(Problem(noise="categorical(1,3)"), seed=seed)
    return [
        Bound("one head: xx yy = xy yx in 7 random layers", float(departure(random_head(seed)).max()), ROUNDING),
        Bound("five heads are equivalent to two, 4 layers", _changed(seed, 5, merge), ROUNDING),
        Bound("the last layer needs only one head, 4 layers", _changed(seed, 2, one_head_last), ROUNDING),
        Bound("one head, trained: xx yy = xy yx in the zoo's 70 Diag models", _zoo(), ROUNDING),
        Bound(
            "3 layers on categorical(1,3): loss with two heads / loss with one head",
            trained["two heads"] / trained["one head"],
            0.99 - 2 * trained["standard error"] / trained["one head"],
            trained,
        ),
    ]


def _zoo() -> float:
    """The largest departure of the trained one-head models that ship with the package."""
    from ridgeformer import zoo

    cells = sorted({cell for cell, _ in zoo.shipped().models if cell[0] == "diag"})
    return max(float(departure(_diag(zoo.shipped().model(*cell))).max()) for cell in cells)


def _changed(seed: int, heads: int, change: Callable[[Diag], Diag]) -> float:
    """Predictions of a random model against those with changed parameters, token by token."""
    model = random_model("diag", dim=4, context=9, layers=4, heads=heads, seed=seed)
    changed = LinearTransformer(change(_diag(model)), 4)
    s = Problem(4, 9, "uniform(0,1)").sequences(20, seed=seed, queries=3)
    return relative_error(changed.predict(s.x, s.y, s.queries), model.predict(s.x, s.y, s.queries), apart=1)


def _diag(model: LinearTransformer) -> Diag:
    family = model.family
    if not isinstance(family, Diag):
        refuse("heads are those of Diag models", model, "Use to_diag() for GD++.")
    return family
