"""Many runs at once: a grid, a folder to keep them, and an executor."""

from ridgeformer.sweeps.execute import Failure as Failure, State as State, Sweep as Sweep, sweep as sweep
from ridgeformer.sweeps.grid import Grid as Grid, read_grid as read_grid
