"""Distributions of the noise level sigma: fixed, uniform, categorical, or any frozen scipy.stats distribution.

>>> noise = parse("uniform(0,5)")
>>> noise.second_moment  # E[sigma^2]
8.333333333333334
>>> print(Categorical([1, 3]))
categorical(1,3)
"""

from ridgeformer.noise.base import (
    Categorical as Categorical,
    Fixed as Fixed,
    Noise as Noise,
    Uniform as Uniform,
    as_noise as as_noise,
    parse as parse,
)
from ridgeformer.noise.frozen import Frozen as Frozen
from ridgeformer.noise.tokens import Student as Student, Tokens as Tokens
