"""Every picture: one style, one writer. Needs matplotlib: pip install matplotlib.

`draw_...(result, path=None, *, title=None)` returns a matplotlib figure, and writes it to a file if one is named.
Import them from their modules:

- `losses`: `draw_losses`, which is `Losses.plot`
- `explanation`: `draw_explanation`, `draw_patching`, `draw_algorithms`
- `training`: `draw_training`, of a search or the paper's protocol; `draw_runs`, of several runs
- `dynamics`: `draw_curves`, `draw_trajectories`, `draw_animation`, of descents
- `problems`: `draw_problem`
- `regression`: `draw_weights`, `draw_predictions`, of a fitted `InContextRegressor`
"""
