"""The claims of the paper's experiments section, each with the numbers that support or contradict it.

Sentences are in our words; `where` says which of the paper's they stand for. A rule, stated beside the numbers,
decides.
"""

from __future__ import annotations

from collections.abc import Callable

from ridgeformer.papers.check import Check
from ridgeformer.papers.vladymyrov2024.claims import by_depth, by_level
from ridgeformer.papers.vladymyrov2024.evidence import Evidence

__all__ = ["CLAIMS"]

CLAIMS: tuple[Callable[[Evidence], Check], ...] = (
    by_depth.iterations,
    by_depth.few_layers,
    by_depth.alike,
    by_depth.gdpp_is_constant,
    by_depth.advantage_grows,
    by_depth.beats_ada,
    by_depth.matches_tuned,
    by_depth.only_tuned_is_near,
    by_level.mirrors_constant,
    by_level.ada_profile,
    by_level.tuned_middle,
    by_level.alike_everywhere,
    by_level.two_layers,
    by_depth.gdpp_stops,
    by_level.gap_on_two,
    by_level.extrapolates,
    by_level.heavy_diagonal,
    by_level.fluctuates,
    by_depth.unadjusted,
    by_depth.falls_by_layer,
    by_depth.early_stopping,
)
