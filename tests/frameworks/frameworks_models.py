"""Small models of all families and layouts, for the tests of PyTorch and JAX."""

import numpy as np

from ridgeformer import Diag, Layout, LinearTransformer
from ridgeformer.models import GDpp
from ridgeformer.models.family import FAMILIES, Family
from support import tame_model

LAYOUTS = [Layout("mean"), Layout("mean", "length"), Layout("sum", "constant", 2), Layout("sum", "none", 3)]
SIZED = ("looped(diag,3)", "looped(full,2)", "looped(channels(1,2),2)", "lowrank(2)", "preconditioned", "registers(2)")
SIZED += ("channels(1,3)", "channels(2,2)")


class Halves(Family):
    """A family of a user: Diag with one head and p = q, [2, L]."""

    name = "halves-of-frameworks"
    layer_axis = -1
    heads = 1

    def __init__(self, half):
        self._arrays = {"half": np.asarray(half)}

    @property
    def arrays(self):
        return self._arrays

    def _diag(self):
        return Diag(self.arrays["half"].T[:, None], self.arrays["half"].T[:, None])

    def dense(self, dim):
        return self._diag().dense(dim)

    def kernel(self, dim):
        return self._diag().kernel(dim)

    def pullback(self, gradient):
        found = self._diag().pullback(gradient)
        return {"half": (found["p"] + found["q"])[:, 0].T}

    @classmethod
    def random(cls, width, layers, heads, scale, rng):
        return cls(scale * rng.standard_normal((2, layers)))

    def identity_layer(self):
        return {"half": np.zeros(2)}


def models():
    """Models whose predictions stay of order one."""
    found = [tame_model(kind, 4, 3, heads, 9) for kind in ("full", "diag", "gdpp") for heads in (1, 2)]
    omega = 0.01 * np.random.default_rng(0).standard_normal((3, 2, 2))
    found += [LinearTransformer(Diag(omega=omega), dim=4), LinearTransformer(GDpp(omega=omega[:, 0]), dim=4)]
    options = {"dim": 4, "layers": 3, "scale": 0.1, "context": 90}
    found += [LinearTransformer.random("full", layout=layout, **options) for layout in LAYOUTS]
    found += [LinearTransformer.random(kind, **options) for kind in (Halves, *SIZED)]
    assert Halves.name in FAMILIES
    return found
