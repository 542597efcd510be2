"""Reading a trained model as an algorithm."""

from ridgeformer.explanation.algorithms import AlgorithmMap, compare_algorithms
from ridgeformer.explanation.coefficients import Coefficients, Symmetry, diagonal_part, symmetry
from ridgeformer.explanation.explanation import Explanation, explain
from ridgeformer.explanation.interventions import NoisePatching, ablate, patch_noise
from ridgeformer.explanation.story import Role

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
