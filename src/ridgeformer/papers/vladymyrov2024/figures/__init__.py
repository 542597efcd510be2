"""The paper's figures and one more, as functions of stored measurements. Needs matplotlib.

>>> from ridgeformer.papers.vladymyrov2024.figures import FIGURES
>>> list(FIGURES)
['1', '2', '3', '4', '5', '6', '7', '8', 'layers']
"""

from ridgeformer.papers.vladymyrov2024.figures import losses, models

__all__ = ["FIGURES", "NEEDS"]

FIGURES = dict(sorted((losses.PICTURES | models.PICTURES).items()))
NEEDS = losses.NEEDS
