"""Every picture: one style, one writer. Needs matplotlib: pip install 'ridgeformer[plot]'.

`draw_...` writes a file, `..._figure` returns a matplotlib figure. Import them from their modules:

- `profiles`: `draw_profile`, `profile_figure`
- `explanation`: `draw_explanation`
- `shifts`: `draw_shifts`, `shifts_figure`, `draw_prefixes`, `prefixes_figure`
- `training`: `draw_training`, `training_figure`, of a search or the paper's protocol
- `dynamics`: `draw_curves`, `draw_trajectories`, `draw_animation`, of descents
- `interventions`: `patching_figure`, `algorithms_figure`
- `problems`: `draw_problem`, `problem_figure`
- `attention`: `draw_attention`, `attention_figure`
- `theory`: `draw_layers_needed`
"""
