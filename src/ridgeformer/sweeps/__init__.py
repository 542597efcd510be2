"""Many runs at once: a grid, a folder to keep them, and an executor."""

from ridgeformer.sweeps.execute import Failure, State, Sweep, sweep
from ridgeformer.sweeps.grid import Grid, read_grid

__all__ = ["Failure", "Grid", "State", "Sweep", "read_grid", "sweep"]
