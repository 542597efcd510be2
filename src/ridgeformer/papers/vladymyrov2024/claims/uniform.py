"""On uniform noise."""

from __future__ import annotations

import numpy as np

from ridgeformer.papers.vladymyrov2024.claims.claim import ALIKE, SLACK, Claim, decide, loss
from ridgeformer.papers.vladymyrov2024.evidence import Evidence
from ridgeformer.papers.vladymyrov2024.paper import BASELINES, COLUMNS, DEPTHS, UNIFORM, CellKey
from ridgeformer.papers.vladymyrov2024.render import column_name

__all__ = [
    "advantage_grows",
    "alike",
    "beats_ada",
    "gdpp_is_constant",
    "gdpp_stops",
    "matches_tuned",
    "only_tuned_is_near",
]

NOISY = COLUMNS[1:]
NEAR = 1.5  # a loss within this factor of a model's is comparable


def alike(evidence: Evidence) -> Claim:
    """Decide whether Full and Diag are alike, whatever the depth.

    Args:
        evidence: The measurements.

    Returns:
        The claim with its verdict.
    """
    ratios = {
        (depth, noise): loss(evidence, "diag", depth, noise) / loss(evidence, "full", depth, noise)
        for depth in DEPTHS
        for noise in UNIFORM[1:]
    }
    worst = max(ratios, key=lambda place: ratios[place])
    within = [ratio <= ALIKE for ratio in ratios.values()]
    return Claim(
        "Uniform noise, 1st sentence; caption of figure 1",
        "On uniform noise Full and Diag perform equally well for every depth and sigma_max.",
        f"Diag's loss at most {ALIKE} times Full's in every cell with noise",
        f"loss of Diag / loss of Full: median {np.median([*ratios.values()]):.3f}, largest {ratios[worst]:.2f} at "
        f"{worst[0]} layers, {worst[1]}; {sum(within)} of {len(within)} cells satisfy the rule. At 7 layers: "
        + ", ".join(f"{column_name(n)} {ratios[7, n]:.2f}" for n in UNIFORM[1:]),
        decide(within),
    )


def gdpp_is_constant(evidence: Evidence) -> Claim:
    """Decide whether GD++ is no better than ConstRR.

    Args:
        evidence: The measurements.

    Returns:
        The claim with its verdict.
    """
    ratios = [loss(evidence, "gdpp", 7, noise) / loss(evidence, "ConstRR", None, noise) for noise in NOISY]
    lowest = min(
        loss(evidence, "gdpp", depth, noise) / loss(evidence, "ConstRR", None, noise)
        for depth in DEPTHS
        for noise in NOISY
    )
    return Claim(
        "Uniform noise, 2nd sentence",
        "GD++ converges to a higher loss, close to that of ConstRR, and is not better than ConstRR.",
        "the loss of seven layers is within 1 % of that of ConstRR, and at no depth is it lower by more than 0.01 % "
        "(the size of chance)",
        f"GD++ with 7 layers / ConstRR: {min(ratios):.5f} to {max(ratios):.5f}; smallest over all depths and columns: "
        f"{lowest:.6f}. That it cannot be lower is a theorem: GD++ solves the problem of fixed noise E[sigma^2].",
        decide([max(ratios) < SLACK, lowest > 1 - 1e-4]),
    )


def advantage_grows(evidence: Evidence) -> Claim:
    """Decide whether the advantage over the baselines grows with sigma_max.

    Args:
        evidence: The measurements.

    Returns:
        The claim with its verdict.
    """
    gains = [
        min(loss(evidence, name, None, noise) for name in BASELINES) / loss(evidence, "full", 7, noise)
        for noise in UNIFORM[1:]
    ]
    return Claim(
        "Uniform noise, 3rd sentence",
        "The advantage of linear transformers over the baselines grows with sigma_max.",
        "loss of the best baseline / loss of Full with 7 layers is larger at sigma_max = 7 than at 1, and above 1",
        "best baseline / Full, sigma_max 1 to 7: " + ", ".join(f"{gain:.2f}" for gain in gains),
        decide([gains[-1] > gains[0], gains[-1] > 1]),
    )


def beats_ada(evidence: Evidence) -> Claim:
    """Decide whether four layers beat AdaRR.

    Args:
        evidence: The measurements.

    Returns:
        The claim with its verdict.
    """
    ratios = {
        (family, depth, most): loss(evidence, family, depth, UNIFORM[most])
        / loss(evidence, "AdaRR", None, UNIFORM[most])
        for family in ("diag", "full")
        for depth in DEPTHS[3:]
        for most in range(4, 8)
    }
    four = ", ".join(
        f"{name} {min(v for k, v in ratios.items() if k[:2] == (f, 4)):.2f} to "
        f"{max(v for k, v in ratios.items() if k[:2] == (f, 4)):.2f}"
        for f, name in (("diag", "Diag"), ("full", "Full"))
    )
    return Claim(
        "Uniform noise, 4th sentence",
        "With 4 or more layers, Full and Diag are better than AdaRR for sigma_max of 4 or more.",
        "loss below AdaRR's, 4 to 7 layers, sigma_max 4 to 7",
        f"loss / loss of AdaRR with 4 layers: {four}; with 4 to 7 layers: at most {max(ratios.values()):.2f}",
        decide(ratio < 1 for ratio in ratios.values()),
    )


def only_tuned_is_near(evidence: Evidence) -> Claim:
    """Decide whether TunedRR alone is comparable with the models.

    Args:
        evidence: The measurements.

    Returns:
        The claim with its verdict.
    """
    ratios = {
        name: [loss(evidence, name, None, noise) / loss(evidence, "full", 7, noise) for noise in UNIFORM[1:]]
        for name in BASELINES
    }
    holds = [ratio < NEAR for ratio in ratios["TunedRR"]]
    holds += [ratio > NEAR for name in ("ConstRR", "AdaRR") for ratio in ratios[name]]
    return Claim(
        "Caption of figure 1, last sentence",
        "Among the baselines, only TunedRR is comparable with linear transformers.",
        f"for every sigma_max with noise, the loss of TunedRR is less than {NEAR} times that of Full with 7 layers, "
        "and those of the other baselines are more",
        "loss / loss of Full with 7 layers, sigma_max 1 to 7: "
        + "; ".join(f"{name} {', '.join(f'{ratio:.2f}' for ratio in found)}" for name, found in ratios.items()),
        decide(holds),
    )


def matches_tuned(evidence: Evidence) -> Claim:
    """Decide whether five layers match TunedRR.

    Args:
        evidence: The measurements.

    Returns:
        The claim with its verdict.
    """
    ratios = {
        (family, depth, noise): loss(evidence, family, depth, noise) / loss(evidence, "TunedRR", None, noise)
        for family in ("diag", "full")
        for depth in DEPTHS[4:]
        for noise in UNIFORM[1:]
    }
    failing = [f"{CellKey(*place)} {ratio:.2f}" for place, ratio in ratios.items() if ratio > SLACK]
    worst = "; worse: " + ", ".join(failing) if failing else ""
    return Claim(
        "Uniform noise, 5th sentence",
        "With 5 or more layers, Full and Diag match or beat TunedRR.",
        f"loss at most {SLACK} times TunedRR's, 5 to 7 layers, every sigma_max with noise",
        f"loss / loss of TunedRR: {min(ratios.values()):.2f} to {max(ratios.values()):.2f}; "
        f"{len(ratios) - len(failing)} of {len(ratios)} cells{worst}",
        decide(ratio <= SLACK for ratio in ratios.values()),
    )


def gdpp_stops(evidence: Evidence) -> Claim:
    """Decide whether GD++ gains nothing from depth.

    Args:
        evidence: The measurements.

    Returns:
        The claim with its verdict.
    """
    gain = [loss(evidence, "gdpp", 3, noise) / loss(evidence, "gdpp", 7, noise) for noise in UNIFORM[3:]]
    return Claim(
        "Uniform noise, bottom of figure 2, last sentence",
        "GD++ converges quickly to a suboptimal solution.",
        "for sigma_max of 3 or more, layers 4 to 7 lower the loss by less than 1 %",
        f"loss of three layers / loss of seven, sigma_max 3 to 7: {', '.join(f'{value:.4f}' for value in gain)}",
        decide(value < 1.01 for value in gain),
    )
