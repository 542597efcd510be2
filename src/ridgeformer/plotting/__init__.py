"""Every picture: one style, one writer. Needs matplotlib: pip install 'ridgeformer[plot]'."""
