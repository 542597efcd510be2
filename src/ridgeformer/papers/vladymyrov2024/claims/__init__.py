"""The claims of the paper's experiments section, each with the numbers that support or contradict it.

Sentences are in our words; `where` says which of the paper's they stand for. A rule, stated beside the numbers,
decides.
"""

from __future__ import annotations

from collections.abc import Callable

from ridgeformer.papers.check import Check
from ridgeformer.papers.vladymyrov2024.claims import by_level, categorical, convergence, uniform
from ridgeformer.papers.vladymyrov2024.evidence import Evidence

__all__ = ["CLAIMS"]

CLAIMS: tuple[Callable[[Evidence], Check], ...] = (
    convergence.iterations,
    convergence.few_layers,
    uniform.alike,
    uniform.gdpp_is_constant,
    uniform.advantage_grows,
    uniform.beats_ada,
    uniform.matches_tuned,
    uniform.only_tuned_is_near,
    by_level.mirrors_constant,
    by_level.ada_profile,
    by_level.tuned_middle,
    by_level.alike_everywhere,
    by_level.two_layers,
    uniform.gdpp_stops,
    categorical.gap_on_two,
    categorical.extrapolates,
    categorical.heavy_diagonal,
    categorical.fluctuates,
    convergence.unadjusted,
    convergence.falls_by_layer,
    convergence.early_stopping,
)
