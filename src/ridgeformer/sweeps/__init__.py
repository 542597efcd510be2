"""Many runs at once: a grid, a folder to keep them, and an executor."""

from ridgeformer.sweeps.execute import Failure, State, Sweep, sweep
from ridgeformer.sweeps.grid import Grid
from ridgeformer.sweeps.grid_file import read_grid
from ridgeformer.sweeps.listing import Entry, list_runs

__all__ = ["Entry", "Failure", "Grid", "State", "Sweep", "list_runs", "read_grid", "sweep"]
