"""Reading a trained model as an algorithm."""

from ridgeformer.explanation.ablation import ablate
from ridgeformer.explanation.algorithms import AlgorithmMap, compare_algorithms
from ridgeformer.explanation.coefficients import Coefficients, diagonal_part
from ridgeformer.explanation.explanation import Explanation, explain
from ridgeformer.explanation.patching import NoisePatching, patch_noise
from ridgeformer.explanation.story import Role
from ridgeformer.explanation.symmetry import Symmetry, symmetry

__all__ = [
    "AlgorithmMap",
    "Coefficients",
    "Explanation",
    "NoisePatching",
    "Role",
    "Symmetry",
    "ablate",
    "compare_algorithms",
    "diagonal_part",
    "explain",
    "patch_noise",
    "symmetry",
]
