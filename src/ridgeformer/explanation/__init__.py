"""Reading a trained model as an algorithm."""

from ridgeformer.explanation.ablation import Ablation, Ablations, ablate
from ridgeformer.explanation.coefficients import Coefficients, diagonal_part
from ridgeformer.explanation.explanation import Explanation, explain
from ridgeformer.explanation.story import Role
from ridgeformer.explanation.symmetry import Symmetry, symmetry

__all__ = [
    "Ablation",
    "Ablations",
    "Coefficients",
    "Explanation",
    "Role",
    "Symmetry",
    "ablate",
    "diagonal_part",
    "explain",
    "symmetry",
]
