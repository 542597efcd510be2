"""Reading a trained model as an algorithm."""

from ridgeformer.explanation.algorithms import AlgorithmMap as AlgorithmMap, compare_algorithms as compare_algorithms
from ridgeformer.explanation.coefficients import (
    Coefficients as Coefficients,
    Symmetry as Symmetry,
    diagonal_part as diagonal_part,
    symmetry as symmetry,
)
from ridgeformer.explanation.explanation import Explanation as Explanation, explain as explain
from ridgeformer.explanation.interventions import (
    NoisePatching as NoisePatching,
    ablate as ablate,
    patch_noise as patch_noise,
)
from ridgeformer.explanation.story import Role as Role
