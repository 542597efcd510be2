"""Claims about profiles on uniform noise, and about categorical noise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ridgeformer.papers.vladymyrov2024.claims.claim import ALIKE, SLACK, Finding, claim
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.paper import DEPTHS, FAMILIES, UNIFORM
from ridgeformer.papers.vladymyrov2024.render import column_name

LITTLE = 1.5  # a loss that is lower by less than this factor is a little lower


@claim(
    "Uniform noise, per-variance profiles, 3rd and 4th sentence",
    "At every noise level GD++ behaves like ConstRR: it assumes one constant noise variance.",
    "at every level, the profile of seven layers is within 5 % of that of ConstRR",
)
def mirrors_constant(evidence: Evidence) -> Finding:
    """Decide whether GD++'s profile is ConstRR's. See `claim`."""
    gaps = []
    for noise in UNIFORM[1:]:
        known, own = evidence.curve(noise, "ConstRR"), evidence.curve(noise, "gdpp", 7)
        gaps.append(float(np.abs(own / known - 1).max()))
    numbers = f"largest difference of the profiles, sigma_max 1 to 7: {', '.join(f'{100 * gap:.2g} %' for gap in gaps)}"
    return numbers, [gap < 0.05 for gap in gaps]


@claim(
    "Uniform noise, per-variance profiles, 5th sentence",
    "AdaRR is perfect without noise and gets worse as the noise grows.",
    "the loss is 0, up to rounding, at sigma = 0, and rises over sigma = 0, 1, 2, 3, 4 and 5",
)
def ada_profile(evidence: Evidence) -> Finding:
    """Decide what the paper says of AdaRR by noise level. See `claim`."""
    sigmas, _ = evidence.levels(SHOWN)
    ada, bayes = evidence.curve(SHOWN, "AdaRR"), evidence.curve(SHOWN, BAYES)
    at = [int(np.argmin(np.abs(sigmas - level))) for level in (0, 1, 2, 3, 4, 5)]
    numbers = (
        "AdaRR on uniform(0,5) at sigma 0 to 5: "
        + ", ".join(f"{ada[i]:.3g}" for i in at)
        + "; the Bayes predictor there: "
        + ", ".join(f"{bayes[i]:.3g}" for i in at)
    )
    return numbers, [ada[at[0]] < 1e-20, *(ada[i] < ada[j] for i, j in pairwise(at))]


@claim(
    "Uniform noise, per-variance profiles, 6th sentence",
    "TunedRR is a little better than AdaRR, and weak in the middle of the range.",
    f"the loss of AdaRR is 1 to {LITTLE} times that of TunedRR; the loss of TunedRR / that of Full (7 layers) is "
    "larger for sigma from 1.5 to 4 than below and above",
)
def tuned_middle(evidence: Evidence) -> Finding:
    """Decide what the paper says of TunedRR by noise level. See `claim`."""
    sigmas, _ = evidence.levels(SHOWN)
    tuned, full = evidence.curve(SHOWN, "TunedRR"), evidence.curve(SHOWN, "full", 7)
    bands = sigmas <= 1.5, (sigmas > 1.5) & (sigmas < 4), (sigmas >= 4) & (sigmas <= 5)
    low, middle, high = (float(tuned[band].mean() / full[band].mean()) for band in bands)
    gain = evidence.loss("AdaRR", None, SHOWN) / evidence.loss("TunedRR", None, SHOWN)
    numbers = (
        f"uniform(0,5): AdaRR / TunedRR {gain:.2f}; TunedRR / Full, of mean losses: {low:.2f} below 1.5, "
        f"{middle:.2f} from 1.5 to 4, {high:.2f} from 4 to 5"
    )
    return numbers, [1 < gain < LITTLE, middle > max(low, high)]


@claim(
    "Uniform noise, per-variance profiles, 7th sentence",
    "Full and Diag perform alike at every noise level.",
    "the profiles of seven layers are within a factor of 1.5 at every level of training",
)
def alike_everywhere(evidence: Evidence) -> Finding:
    """Decide whether Full and Diag are alike at every noise level. See `claim`."""
    texts, holds = [], []
    for noise in UNIFORM[1:]:
        _, inside = evidence.levels(noise)
        ratio = (evidence.curve(noise, "diag", 7) / evidence.curve(noise, "full", 7))[inside]
        texts.append(f"{column_name(noise)} {ratio.min():.2f} to {ratio.max():.2f}")
        holds.append(bool(ratio.max() < 1.5 and ratio.min() > 1 / 1.5))
    numbers = (
        "Diag / Full: "
        + "; ".join(texts)
        + ". The largest differences are near sigma = 0, where both losses are small."
    )
    return numbers, holds


@claim(
    "Uniform noise, bottom of figure 2, 2nd and 3rd sentence",
    "With two layers Full and Diag behave like GD++ and fit one noise level in the middle of the range; with three "
    "or more layers they improve over the whole range.",
    "with two layers the smallest loss lies between sigma = 0.3 and 4.7; with 3 to 7 layers the loss is lower at "
    "every level of training",
)
def two_layers(evidence: Evidence) -> Finding:
    """Decide what the paper says of two layers against three. See `claim`."""
    sigmas, inside = evidence.levels(SHOWN)
    lowest = {
        (family, depth): float(sigmas[inside][np.argmin(evidence.curve(SHOWN, family, depth)[inside])])
        for family in FAMILIES
        for depth in (2,)
    }
    better = {
        (f, depth): (evidence.curve(SHOWN, f, depth) <= evidence.curve(SHOWN, f, 2))[inside]
        for f in ("diag", "full")
        for depth in DEPTHS[2:]
    }
    worse = sorted({float(sigma) for lower in better.values() for sigma in sigmas[inside][~lower]})
    where = f"the exceptions lie from sigma = {worse[0]:.2f} to {worse[-1]:.2f}" if worse else "without exception"
    ratio = {f: evidence.loss("gdpp", 2, SHOWN) / evidence.loss(f, 2, SHOWN) for f in ("diag", "full")}
    places = {f: lowest[f, 2] for f in FAMILIES}
    numbers = (
        f"smallest loss at sigma = {places['gdpp']:.2f} (GD++), {places['diag']:.2f} (Diag), {places['full']:.2f} "
        f"(Full); with two layers GD++ / Diag {ratio['diag']:.2f}, GD++ / Full {ratio['full']:.2f}; more "
        f"layers are better at {np.mean([*better.values()]):.0%} of levels and depths, {where}"
    )
    return numbers, [0.3 < places[f] < 4.7 for f in ("diag", "full")] + [bool(lower.all()) for lower in better.values()]


TWO, THREE = "categorical(1,3)", "categorical(1,3,5)"


@claim(
    "Categorical noise, 1st sentence",
    "On categorical(1,3) Full is clearly better than Diag.",
    f"with 3 or more layers, the loss of Diag is more than {ALIKE} times that of Full",
)
def gap_on_two(evidence: Evidence) -> Finding:
    """Decide whether Full is better than Diag with two noise levels. See `claim`."""
    ratios = [evidence.loss("diag", depth, TWO) / evidence.loss("full", depth, TWO) for depth in DEPTHS]
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
    sigmas, inside = evidence.levels(TWO)
    diag, full = (evidence.curve(TWO, family, 7) for family in ("diag", "full"))
    ranges = {"below 1": sigmas < 1, "between": (sigmas > 1) & (sigmas < 3), "above 3": sigmas > 3}
    texts = [f"{name} {diag[where].mean():.3g} and {full[where].mean():.3g}" for name, where in ranges.items()]
    counts = evidence.exploded(TWO, "diag", 7), evidence.exploded(TWO, "full", 7)
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
    sigmas, _ = evidence.levels(THREE)
    range_ = sigmas <= 5

    def turns(family: str) -> int:
        slope = np.diff(np.log(evidence.curve(THREE, family, 7)[range_]))
        return int((np.diff(np.sign(slope)) != 0).sum())

    ratio = evidence.loss("diag", 7, THREE) / evidence.loss("full", 7, THREE)
    numbers = (
        f"turning points: Full {turns('full')}, Diag {turns('diag')}; Diag / Full at 7 layers {ratio:.2f} "
        f"(the paper's own table: {0.046 / 0.035:.2f})"
    )
    return numbers, [turns("full") > turns("diag"), ratio <= SLACK]
