"""Models in JAX: parameters as a pytree, a pure function that predicts, and a fast loss.

>>> from ridgeformer import load
>>> parameters, apply = to_jax(load("zoo:diag/3/uniform(0,5)"))
>>> sorted(parameters.arrays)
['p', 'q']
"""

from ridgeformer.errors import optional

optional("ridgeformer.jax needs JAX", "jax")

from ridgeformer.jax.model import (  # noqa: E402
    JaxParameters as JaxParameters,
    apply as apply,
    from_jax as from_jax,
    moment_loss as moment_loss,
    to_jax as to_jax,
)
