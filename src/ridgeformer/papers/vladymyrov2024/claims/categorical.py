"""On categorical noise."""

from __future__ import annotations

import numpy as np

from ridgeformer.papers.vladymyrov2024.claims.claim import ALIKE, SLACK, Finding, claim, curve, exploded, levels, loss
from ridgeformer.papers.vladymyrov2024.evidence import Evidence
from ridgeformer.papers.vladymyrov2024.paper import DEPTHS

__all__ = ["extrapolates", "fluctuates", "gap_on_two", "heavy_diagonal"]

TWO, THREE = "categorical(1,3)", "categorical(1,3,5)"


@claim(
    "Categorical noise, 1st sentence",
    "On categorical(1,3) Full is clearly better than Diag.",
    f"with 3 or more layers, the loss of Diag is more than {ALIKE} times that of Full",
)
def gap_on_two(evidence: Evidence) -> Finding:
    """Decide whether Full is better than Diag with two noise levels. See `claim`."""
    ratios = [loss(evidence, "diag", depth, TWO) / loss(evidence, "full", depth, TWO) for depth in DEPTHS]
    numbers = f"Diag / Full, 1 to 7 layers: {', '.join(f'{ratio:.2f}' for ratio in ratios)}"
    return numbers, [ratio > ALIKE for ratio in ratios[2:]]


@claim(
    "Categorical noise, 3rd sentence",
    "Diag extrapolates better than Full to noise levels not seen in training; Full is better on the "
    "levels of training.",
    "with seven layers, the mean loss of Diag is below that of Full for sigma from 0 to 1, from 1 to 3 and from 3 "
    "to 4, and that of Full is below that of Diag at 1 and 3",
)
def extrapolates(evidence: Evidence) -> Finding:
    """Decide whether Diag is better than Full at levels that it was not trained on. See `claim`."""
    sigmas, inside = levels(evidence, TWO)
    diag, full = (curve(evidence, TWO, family, 7) for family in ("diag", "full"))
    ranges = {"below 1": sigmas < 1, "between": (sigmas > 1) & (sigmas < 3), "above 3": sigmas > 3}
    texts = [f"{name} {diag[where].mean():.3g} and {full[where].mean():.3g}" for name, where in ranges.items()]
    counts = exploded(evidence, TWO, "diag", 7), exploded(evidence, TWO, "full", 7)
    numbers = (
        f"Diag and Full: {'; '.join(texts)}; at 1 and 3 {diag[inside].mean():.3g} and {full[inside].mean():.3g}; "
        f"sequences that exploded: {counts[0].sum()} and {counts[1].sum()} of {evidence.fewer * len(sigmas):,}"
    )
    better = [bool(diag[where].mean() < full[where].mean()) for where in ranges.values()]
    return numbers, [*better, bool(full[inside].mean() < diag[inside].mean())]


@claim(
    "Categorical noise, 5th sentence",
    "The weights of the four-layer Full model are concentrated on the diagonal.",
    "the diagonal holds more than half of the squared norm of every matrix; if it were spread evenly, 9 %",
)
def heavy_diagonal(evidence: Evidence) -> Finding:
    """Decide whether Full's weights lie on the diagonal. See `claim`."""
    shares = {}
    for name, matrices in evidence.weights.items():
        for layer, square in enumerate(np.square(matrices)):
            shares[f"{name}{layer}"] = float(np.trace(square) / square.sum())
    even = 1 / matrices.shape[-1]
    numbers = (
        f"share of the squared norm on the diagonal: {', '.join(f'{k} {v:.0%}' for k, v in shares.items())} "
        f"(evenly spread: {even:.0%})"
    )
    return numbers, [share > 0.5 for share in shares.values()]


@claim(
    "Categorical noise, last two sentences",
    "On categorical(1,3,5) the profile of Full fluctuates more than that of Diag, but its loss is not better.",
    "Full has more turning points from 0 to 5, and the loss of Diag is at most that of Full",
)
def fluctuates(evidence: Evidence) -> Finding:
    """Decide what the paper says of Full's profile with three noise levels. See `claim`."""
    sigmas, _ = levels(evidence, THREE)
    range_ = sigmas <= 5

    def turns(family: str) -> int:
        slope = np.diff(np.log(curve(evidence, THREE, family, 7)[range_]))
        return int((np.diff(np.sign(slope)) != 0).sum())

    ratio = loss(evidence, "diag", 7, THREE) / loss(evidence, "full", 7, THREE)
    numbers = (
        f"turning points: Full {turns('full')}, Diag {turns('diag')}; Diag / Full at 7 layers {ratio:.2f} "
        f"(the paper's own table: {0.046 / 0.035:.2f})"
    )
    return numbers, [turns("full") > turns("diag"), ratio <= SLACK]
