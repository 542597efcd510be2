"""Engines: where the arithmetic happens. `engine.current()` is the native core, or NumPy where that is missing.

The environment variable RIDGEFORMER_ENGINE forces one: `avx512`, `avx2`, `baseline`, `numpy`, or `jax`, which computes
losses and gradients on an accelerator where there is one, and needs JAX.
"""

from ridgeformer.engine.choice import available as available, current as current, named as named, resolve as resolve
from ridgeformer.engine.interface import (
    Engine as Engine,
    Evaluation as Evaluation,
    Key as Key,
    SampledMoments as SampledMoments,
    Target as Target,
)
from ridgeformer.engine.kernels import Kernel as Kernel, Matrices as Matrices, Mixings as Mixings, Omegas as Omegas
from ridgeformer.engine.law import PAPER_LAYOUT as PAPER_LAYOUT, Choices as Choices, Law as Law, Layout as Layout
from ridgeformer.engine.machine import (
    default_threads as default_threads,
    limited_threads as limited_threads,
    one_blas_thread as one_blas_thread,
)
from ridgeformer.engine.reference import NumpyEngine as NumpyEngine
