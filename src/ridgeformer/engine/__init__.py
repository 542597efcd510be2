"""Engines: where the arithmetic happens. `engine.current()` is the native core, or NumPy where that is missing.

The environment variable RIDGEFORMER_ENGINE forces one: `avx512`, `avx2`, `baseline`, `numpy`, or `jax`, which computes
losses and gradients on an accelerator where there is one, and needs JAX.
"""

from ridgeformer.engine.choice import available, current, named, resolve
from ridgeformer.engine.interface import Engine, Evaluation, Key, SampledMoments, Target
from ridgeformer.engine.kernels import Kernel, Matrices, Mixings, Omegas
from ridgeformer.engine.law import PAPER_LAYOUT, Choices, Law, Layout
from ridgeformer.engine.machine import default_threads, limited_threads, one_blas_thread
from ridgeformer.engine.reference import NumpyEngine

__all__ = [
    "PAPER_LAYOUT",
    "Choices",
    "Engine",
    "Evaluation",
    "Kernel",
    "Key",
    "Law",
    "Layout",
    "Matrices",
    "Mixings",
    "NumpyEngine",
    "Omegas",
    "SampledMoments",
    "Target",
    "available",
    "current",
    "default_threads",
    "limited_threads",
    "named",
    "one_blas_thread",
    "resolve",
]
