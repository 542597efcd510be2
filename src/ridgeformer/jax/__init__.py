"""Models in JAX: parameters as a pytree, a pure function that predicts, and a fast loss.

>>> from ridgeformer import load
>>> parameters, apply = to_jax(load("zoo:diag/3/uniform(0,5)"))
>>> sorted(parameters.arrays)
['p', 'q']
"""

from ridgeformer.errors import optional

optional("ridgeformer.jax needs JAX", "jax")

from ridgeformer.jax.model import JaxParameters, apply, from_jax, moment_loss, to_jax  # noqa: E402

__all__ = ["JaxParameters", "apply", "from_jax", "moment_loss", "to_jax"]
