"""Distributions of the noise level sigma: fixed, uniform, categorical, or any frozen scipy.stats distribution.

>>> noise = parse("uniform(0,5)")
>>> noise.second_moment  # E[sigma^2]
8.333333333333334
>>> print(Categorical([1, 3]))
categorical(1,3)
"""

from ridgeformer.noise.base import Categorical, Fixed, Noise, Uniform, as_noise, parse
from ridgeformer.noise.frozen import Frozen
from ridgeformer.noise.tokens import Student, Tokens

__all__ = ["Categorical", "Fixed", "Frozen", "Noise", "Student", "Tokens", "Uniform", "as_noise", "parse"]
