"""A problem of one's own in a module that worker processes can import."""

from ridgeformer import CustomProblem
from ridgeformer.problems import Sequences


class HeavyTails(CustomProblem):
    """Labels with the noise of Student's t distribution."""

    name = "heavy-tails"

    def __init__(self, dim=3, context=8, freedom=3.0):
        self.dim, self.context, self.freedom = dim, context, freedom

    def draw(self, rng, count):
        """See `CustomProblem.draw`."""
        x = rng.standard_normal((count, self.context + 4, self.dim))
        w = rng.standard_normal((count, self.dim))
        clean = (x @ w[..., None])[..., 0]
        y = clean[:, :-4] + rng.standard_t(self.freedom, (count, self.context))
        return Sequences(x[:, :-4], y, queries=x[:, -4:], answers=clean[:, -4:], task=w)
