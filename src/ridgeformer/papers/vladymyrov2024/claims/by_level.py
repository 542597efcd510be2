"""By noise level, on uniform noise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ridgeformer.papers.vladymyrov2024.claims.claim import Finding, claim, curve, levels, loss
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.paper import DEPTHS, FAMILIES, UNIFORM
from ridgeformer.papers.vladymyrov2024.render import column_name

__all__ = ["ada_profile", "alike_everywhere", "mirrors_constant", "tuned_middle", "two_layers"]

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
        known, own = curve(evidence, noise, "ConstRR"), curve(evidence, noise, "gdpp", 7)
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
    sigmas, _ = levels(evidence, SHOWN)
    ada, bayes = curve(evidence, SHOWN, "AdaRR"), curve(evidence, SHOWN, BAYES)
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
    sigmas, _ = levels(evidence, SHOWN)
    tuned, full = curve(evidence, SHOWN, "TunedRR"), curve(evidence, SHOWN, "full", 7)
    bands = sigmas <= 1.5, (sigmas > 1.5) & (sigmas < 4), (sigmas >= 4) & (sigmas <= 5)
    low, middle, high = (float(tuned[band].mean() / full[band].mean()) for band in bands)
    gain = loss(evidence, "AdaRR", None, SHOWN) / loss(evidence, "TunedRR", None, SHOWN)
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
        _, inside = levels(evidence, noise)
        ratio = (curve(evidence, noise, "diag", 7) / curve(evidence, noise, "full", 7))[inside]
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
    sigmas, inside = levels(evidence, SHOWN)
    lowest = {
        (family, depth): float(sigmas[inside][np.argmin(curve(evidence, SHOWN, family, depth)[inside])])
        for family in FAMILIES
        for depth in (2,)
    }
    better = {
        (f, depth): (curve(evidence, SHOWN, f, depth) <= curve(evidence, SHOWN, f, 2))[inside]
        for f in ("diag", "full")
        for depth in DEPTHS[2:]
    }
    worse = sorted({float(sigma) for lower in better.values() for sigma in sigmas[inside][~lower]})
    where = f"the exceptions lie from sigma = {worse[0]:.2f} to {worse[-1]:.2f}" if worse else "without exception"
    ratio = {f: loss(evidence, "gdpp", 2, SHOWN) / loss(evidence, f, 2, SHOWN) for f in ("diag", "full")}
    places = {f: lowest[f, 2] for f in FAMILIES}
    numbers = (
        f"smallest loss at sigma = {places['gdpp']:.2f} (GD++), {places['diag']:.2f} (Diag), {places['full']:.2f} "
        f"(Full); with two layers GD++ / Diag {ratio['diag']:.2f}, GD++ / Full {ratio['full']:.2f}; more "
        f"layers are better at {np.mean([*better.values()]):.0%} of levels and depths, {where}"
    )
    return numbers, [0.3 < places[f] < 4.7 for f in ("diag", "full")] + [bool(lower.all()) for lower in better.values()]
