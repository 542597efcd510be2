"""What the paper's experiments section claims, each with the numbers that bear it out or contradict it.

Sentences are in our words; `where` says which of the paper's they stand for. A rule, stated beside the numbers,
decides.
"""

from __future__ import annotations

from collections.abc import Callable

from ridgeformer.papers.vladymyrov2024.claims import by_level, categorical, convergence, uniform
from ridgeformer.papers.vladymyrov2024.claims.claim import Claim
from ridgeformer.papers.vladymyrov2024.evidence import Evidence

__all__ = ["CLAIMS", "Claim", "check_claims"]

CLAIMS: tuple[Callable[[Evidence], Claim], ...] = (
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


def check_claims(evidence: Evidence) -> list[Claim]:
    """Decide all claims, in the order of the paper's text.

    Args:
        evidence: The measurements; what is not measured yet is measured.

    Returns:
        The claims with their verdicts.
    """
    return [claim(evidence) for claim in CLAIMS]
