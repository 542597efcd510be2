"""The claims of the paper's experiments section, each with the numbers that support or contradict it.

Sentences are in our words; `where` says which of the paper's they stand for. A rule, stated beside the numbers,
decides.
"""

from ridgeformer.papers.vladymyrov2024.claims import further, uniform

__all__ = ["CLAIMS", "further", "uniform"]

CLAIMS = tuple(uniform.CLAIMS)  # those of `further` are the last
