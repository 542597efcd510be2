"""On uniform noise."""

from __future__ import annotations

import numpy as np

from ridgeformer.papers.vladymyrov2024.claims.claim import ALIKE, SLACK, Finding, claim, loss
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


@claim(
    "Uniform noise, 1st sentence; caption of figure 1",
    "On uniform noise Full and Diag perform equally well for every depth and sigma_max.",
    f"Diag's loss at most {ALIKE} times Full's in every cell with noise",
)
def alike(evidence: Evidence) -> Finding:
    """Decide whether Full and Diag are alike, whatever the depth. See `claim`."""
    ratios = {
        (depth, noise): loss(evidence, "diag", depth, noise) / loss(evidence, "full", depth, noise)
        for depth in DEPTHS
        for noise in UNIFORM[1:]
    }
    worst = max(ratios, key=lambda place: ratios[place])
    within = [ratio <= ALIKE for ratio in ratios.values()]
    numbers = (
        f"loss of Diag / loss of Full: median {np.median([*ratios.values()]):.3f}, largest {ratios[worst]:.2f} at "
        f"{worst[0]} layers, {worst[1]}; {sum(within)} of {len(within)} cells satisfy the rule. At 7 layers: "
        + ", ".join(f"{column_name(n)} {ratios[7, n]:.2f}" for n in UNIFORM[1:])
    )
    return numbers, within


@claim(
    "Uniform noise, 2nd sentence",
    "GD++ converges to a higher loss, close to that of ConstRR, and is not better than ConstRR.",
    "the loss of seven layers is within 1 % of that of ConstRR, and at no depth is it lower by more than 0.01 % "
    "(the size of chance)",
)
def gdpp_is_constant(evidence: Evidence) -> Finding:
    """Decide whether GD++ is no better than ConstRR. See `claim`."""
    ratios = [loss(evidence, "gdpp", 7, noise) / loss(evidence, "ConstRR", None, noise) for noise in NOISY]
    lowest = min(
        loss(evidence, "gdpp", depth, noise) / loss(evidence, "ConstRR", None, noise)
        for depth in DEPTHS
        for noise in NOISY
    )
    numbers = (
        f"GD++ with 7 layers / ConstRR: {min(ratios):.5f} to {max(ratios):.5f}; smallest over all depths and columns: "
        f"{lowest:.6f}. That it cannot be lower is a theorem: GD++ solves the problem of fixed noise E[sigma^2]."
    )
    return numbers, [max(ratios) < SLACK, lowest > 1 - 1e-4]


@claim(
    "Uniform noise, 3rd sentence",
    "The advantage of linear transformers over the baselines grows with sigma_max.",
    "loss of the best baseline / loss of Full with 7 layers is larger at sigma_max = 7 than at 1, and above 1",
)
def advantage_grows(evidence: Evidence) -> Finding:
    """Decide whether the advantage over the baselines grows with sigma_max. See `claim`."""
    gains = [
        min(loss(evidence, name, None, noise) for name in BASELINES) / loss(evidence, "full", 7, noise)
        for noise in UNIFORM[1:]
    ]
    numbers = "best baseline / Full, sigma_max 1 to 7: " + ", ".join(f"{gain:.2f}" for gain in gains)
    return numbers, [gains[-1] > gains[0], gains[-1] > 1]


@claim(
    "Uniform noise, 4th sentence",
    "With 4 or more layers, Full and Diag are better than AdaRR for sigma_max of 4 or more.",
    "loss below AdaRR's, 4 to 7 layers, sigma_max 4 to 7",
)
def beats_ada(evidence: Evidence) -> Finding:
    """Decide whether four layers beat AdaRR. See `claim`."""
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
    numbers = f"loss / loss of AdaRR with 4 layers: {four}; with 4 to 7 layers: at most {max(ratios.values()):.2f}"
    return numbers, [ratio < 1 for ratio in ratios.values()]


@claim(
    "Caption of figure 1, last sentence",
    "Among the baselines, only TunedRR is comparable with linear transformers.",
    f"for every sigma_max with noise, the loss of TunedRR is less than {NEAR} times that of Full with 7 layers, "
    "and those of the other baselines are more",
)
def only_tuned_is_near(evidence: Evidence) -> Finding:
    """Decide whether TunedRR alone is comparable with the models. See `claim`."""
    ratios = {
        name: [loss(evidence, name, None, noise) / loss(evidence, "full", 7, noise) for noise in UNIFORM[1:]]
        for name in BASELINES
    }
    holds = [ratio < NEAR for ratio in ratios["TunedRR"]]
    holds += [ratio > NEAR for name in ("ConstRR", "AdaRR") for ratio in ratios[name]]
    numbers = "loss / loss of Full with 7 layers, sigma_max 1 to 7: " + "; ".join(
        f"{name} {', '.join(f'{ratio:.2f}' for ratio in values)}" for name, values in ratios.items()
    )
    return numbers, holds


@claim(
    "Uniform noise, 5th sentence",
    "With 5 or more layers, Full and Diag match or beat TunedRR.",
    f"loss at most {SLACK} times TunedRR's, 5 to 7 layers, every sigma_max with noise",
)
def matches_tuned(evidence: Evidence) -> Finding:
    """Decide whether five layers match TunedRR. See `claim`."""
    ratios = {
        (family, depth, noise): loss(evidence, family, depth, noise) / loss(evidence, "TunedRR", None, noise)
        for family in ("diag", "full")
        for depth in DEPTHS[4:]
        for noise in UNIFORM[1:]
    }
    failing = [f"{CellKey(*place)} {ratio:.2f}" for place, ratio in ratios.items() if ratio > SLACK]
    worst = "; worse: " + ", ".join(failing) if failing else ""
    numbers = (
        f"loss / loss of TunedRR: {min(ratios.values()):.2f} to {max(ratios.values()):.2f}; "
        f"{len(ratios) - len(failing)} of {len(ratios)} cells{worst}"
    )
    return numbers, [ratio <= SLACK for ratio in ratios.values()]


@claim(
    "Uniform noise, bottom of figure 2, last sentence",
    "GD++ converges quickly to a suboptimal solution.",
    "for sigma_max of 3 or more, layers 4 to 7 lower the loss by less than 1 %",
)
def gdpp_stops(evidence: Evidence) -> Finding:
    """Decide whether GD++ gains nothing from depth. See `claim`."""
    gain = [loss(evidence, "gdpp", 3, noise) / loss(evidence, "gdpp", 7, noise) for noise in UNIFORM[3:]]
    numbers = f"loss of three layers / loss of seven, sigma_max 3 to 7: {', '.join(f'{value:.4f}' for value in gain)}"
    return numbers, [value < 1.01 for value in gain]
