"""The claims of the paper's experiments section, each with the numbers that support or contradict it.

Sentences are in our words; `Where` says which of the paper's they stand for. A rule, stated beside the numbers,
decides. Here are claims about uniform noise (iterations and layers, losses by depth, profiles, and where GD++ stops),
categorical noise, the unadjusted loss, and the readout of every layer, in the order of the paper.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import numpy as np

from ridgeformer.papers.paper import Check, Results, listed, texts_of
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence, of_evidence
from ridgeformer.papers.vladymyrov2024.paper import BASELINES, COLUMNS, DEPTHS, FAMILIES, LABELS, UNIFORM, name_of
from ridgeformer.papers.vladymyrov2024.render import column_name

Finding = tuple[str, Any]  # the numbers in words, and whether each part of the rule holds
ALIKE = 1.25  # losses within this factor are called alike
SLACK = 1.01  # 'at least as good' allows a percent: the size of a standard error
SETTLED = 0.02  # of the loss of AdaRR: converged
NEAR = 1.5  # a loss within this factor of a model's is comparable
LITTLE = 1.5  # a loss that is lower by less than this factor is a little lower
NOISY, UNSURE = COLUMNS[1:], UNIFORM[1:]  # the problems with noise
TWO, THREE = "categorical(1,3)", "categorical(1,3,5)"
ADAPTIVE = ("diag", "full")  # the families that adapt to the noise


def _percent(shares: Iterable[float], form: str) -> str:
    return ", ".join(f"{100 * share:{form}} %" for share in shares)


def iterations(evidence: Evidence) -> Finding:
    """Decide what the paper says of AdaRR without a matrix inverse. See `Paper`.

    AdaRR computed by gradient descent, without a matrix inverse, takes about 100 iterations to converge.

    Where: Baseline estimates, last paragraph
    Expected: of the numbers of iterations that were tried, the first from which on the loss stays within 2 % of AdaRR's
        lies between 50 and 200
    """
    texts, holds = [], []
    for noise, rows in evidence.iterations.by("noise"):
        (_, *counts), (ada, *losses) = rows.iterations, rows.loss
        away = [count for count, loss in zip(counts, losses, strict=True) if abs(loss / ada - 1) > SETTLED]
        settled = next((count for count in counts if count > max(away, default=0)), None)
        shown = ", ".join(f"{count} {loss:.3g}" for count, loss in zip(counts, losses, strict=True))
        texts.append(f"{noise}: {shown} (AdaRR {ada:.3g}), converged at {settled or 'none of these'}")
        holds.append(settled is not None and 50 <= settled <= 200)
    return "number of iterations and loss: " + "; ".join(texts), holds


def few_layers(evidence: Evidence) -> Finding:
    """Decide what the paper says of the depth that is needed. See `Paper`.

    Linear transformers converge in fewer than 10 layers.

    Where: Baseline estimates, last sentence
    Expected: the seventh layer lowers the loss by less than 5 %, for Diag and Full on every problem with noise
    """
    gains = 1 - evidence.losses(ADAPTIVE, 7, NOISY) / evidence.losses(ADAPTIVE, 6, NOISY)
    texts = (f"{LABELS[f]} {_percent(gain, '.1f')}" for f, gain in zip(ADAPTIVE, gains, strict=True))
    numbers = (
        f"reduction of the loss by the seventh layer on sigma_max 1 to 7, {{1,3}} and {{1,3,5}}: {'; '.join(texts)}; "
        f"{(gains < 0.05).sum()} of {gains.size} satisfy the rule"
    )
    return numbers, gains < 0.05


def alike(evidence: Evidence) -> Finding:
    """Decide whether Full and Diag are alike, whatever the depth. See `Paper`.

    On uniform noise Full and Diag perform equally well for every depth and sigma_max.

    Where: Uniform noise, 1st sentence; caption of figure 1
    Expected: Diag's loss at most 1.25 times Full's in every cell with noise
    """
    ratios = evidence.losses("diag", DEPTHS, UNSURE) / evidence.losses("full", DEPTHS, UNSURE)
    (worst, *_), within = np.argwhere(ratios == ratios.max()), ratios <= ALIKE
    numbers = (
        f"loss of Diag / loss of Full: median {np.median(ratios):.3f}, largest {ratios.max():.2f} at "
        f"{DEPTHS[worst[0]]} layers, {UNSURE[worst[1]]}; {within.sum()} of {within.size} cells satisfy the rule. At 7 "
        "layers: " + ", ".join(f"{column_name(n)} {ratio:.2f}" for n, ratio in zip(UNSURE, ratios[-1], strict=True))
    )
    return numbers, within


def gdpp_is_constant(evidence: Evidence) -> Finding:
    """Decide whether GD++ is no better than ConstRR. See `Paper`.

    GD++ converges to a higher loss, close to that of ConstRR, and is not better than ConstRR.

    Where: Uniform noise, 2nd sentence
    Expected: the loss of seven layers is within 1 % of that of ConstRR, and at no depth is it lower by more than 0.01 %
        (the size of chance)
    """
    every = evidence.losses("gdpp", DEPTHS, NOISY) / evidence.losses("ConstRR", None, NOISY)
    ratios, lowest = every[-1], every.min()
    numbers = (
        f"GD++ with 7 layers / ConstRR: {min(ratios):.5f} to {max(ratios):.5f}; smallest over all depths and columns: "
        f"{lowest:.6f}. That it cannot be lower is a theorem: GD++ solves the problem of fixed noise E[sigma^2]."
    )
    return numbers, [max(ratios) < SLACK, lowest > 1 - 1e-4]


def advantage_grows(evidence: Evidence) -> Finding:
    """Decide whether the advantage over the baselines grows with sigma_max. See `Paper`.

    The advantage of linear transformers over the baselines grows with sigma_max.

    Where: Uniform noise, 3rd sentence
    Expected: loss of the best baseline / loss of Full with 7 layers is larger at sigma_max = 7 than at 1, and above 1
    """
    gains = (evidence.losses(BASELINES, None, UNSURE) / evidence.losses("full", 7, UNSURE)).min(0)
    return "best baseline / Full, sigma_max 1 to 7: " + listed(gains, ".2f"), [gains[-1] > gains[0], gains[-1] > 1]


def beats_ada(evidence: Evidence) -> Finding:
    """Decide whether four layers beat AdaRR. See `Paper`.

    With 4 or more layers, Full and Diag are better than AdaRR for sigma_max of 4 or more.

    Where: Uniform noise, 4th sentence
    Expected: loss below AdaRR's, 4 to 7 layers, sigma_max 4 to 7
    """
    ratios = evidence.losses(ADAPTIVE, DEPTHS[3:], UNIFORM[4:]) / evidence.losses("AdaRR", None, UNIFORM[4:])
    four = ", ".join(
        f"{LABELS[f]} {ratio.min():.2f} to {ratio.max():.2f}" for f, (ratio, *_) in zip(ADAPTIVE, ratios, strict=True)
    )
    return f"loss / loss of AdaRR with 4 layers: {four}; with 4 to 7 layers: at most {ratios.max():.2f}", ratios < 1


def matches_tuned(evidence: Evidence) -> Finding:
    """Decide whether five layers match TunedRR. See `Paper`.

    With 5 or more layers, Full and Diag match or beat TunedRR.

    Where: Uniform noise, 5th sentence
    Expected: loss at most 1.01 times TunedRR's, 5 to 7 layers, every sigma_max with noise
    """
    ratios = evidence.losses(ADAPTIVE, DEPTHS[4:], UNSURE) / evidence.losses("TunedRR", None, UNSURE)
    places = zip(itertools.product(ADAPTIVE, DEPTHS[4:], UNSURE), ratios.ravel(), strict=True)
    failing = [f"{name_of(f, depth)}, {noise} {ratio:.2f}" for (f, depth, noise), ratio in places if ratio > SLACK]
    worst = "; worse: " + ", ".join(failing) if failing else ""
    numbers = (
        f"loss / loss of TunedRR: {ratios.min():.2f} to {ratios.max():.2f}; {ratios.size - len(failing)} of "
        f"{ratios.size} cells{worst}"
    )
    return numbers, ratios <= SLACK


def only_tuned_is_near(evidence: Evidence) -> Finding:
    """Decide whether TunedRR alone is comparable with the models. See `Paper`.

    Among the baselines, only TunedRR is comparable with linear transformers.

    Where: Caption of figure 1, last sentence
    Expected: for every sigma_max with noise, the loss of TunedRR is less than 1.5 times that of Full with 7
        layers, and those of the other baselines are more
    """
    ratios = dict(
        zip(BASELINES, evidence.losses(BASELINES, None, UNSURE) / evidence.losses("full", 7, UNSURE), strict=True)
    )
    numbers = "loss / loss of Full with 7 layers, sigma_max 1 to 7: " + "; ".join(
        f"{name} {listed(values, '.2f')}" for name, values in ratios.items()
    )
    return numbers, [ratios["TunedRR"] < NEAR, ratios["ConstRR"] > NEAR, ratios["AdaRR"] > NEAR]


def mirrors_constant(evidence: Evidence) -> Finding:
    """Decide whether GD++'s profile is ConstRR's. See `Paper`.

    At every noise level GD++ behaves like ConstRR: it assumes one constant noise variance.

    Where: Uniform noise, per-variance profiles, 3rd and 4th sentence
    Expected: at every level, the profile of seven layers is within 5 % of that of ConstRR
    """
    pairs = ((evidence.curve(noise, "ConstRR"), evidence.curve(noise, "gdpp", 7)) for noise in UNSURE)
    gaps = np.array([np.abs(gdpp / constant - 1).max() for constant, gdpp in pairs])
    return f"largest difference of the profiles, sigma_max 1 to 7: {_percent(gaps, '.2g')}", gaps < 0.05


def ada_profile(evidence: Evidence) -> Finding:
    """Decide what the paper says of AdaRR by noise level. See `Paper`.

    AdaRR is perfect without noise and gets worse as the noise grows.

    Where: Uniform noise, per-variance profiles, 5th sentence
    Expected: the loss is 0, up to rounding, at sigma = 0, and rises over sigma = 0, 1, 2, 3, 4 and 5
    """
    sigmas, _ = evidence.levels(SHOWN)
    at = [int(np.argmin(np.abs(sigmas - level))) for level in (0, 1, 2, 3, 4, 5)]
    ada, bayes = evidence.curve(SHOWN, "AdaRR")[at], evidence.curve(SHOWN, BAYES)[at]
    numbers = f"AdaRR on uniform(0,5) at sigma 0 to 5: {listed(ada)}; the Bayes predictor there: {listed(bayes)}"
    return numbers, [ada[0] < 1e-20, np.diff(ada) > 0]


def tuned_middle(evidence: Evidence) -> Finding:
    """Decide what the paper says of TunedRR by noise level. See `Paper`.

    TunedRR is a little better than AdaRR, and weak in the middle of the range.

    Where: Uniform noise, per-variance profiles, 6th sentence
    Expected: the loss of AdaRR is 1 to 1.5 times that of TunedRR; the loss of TunedRR / that of Full (7 layers) is
        larger for sigma from 1.5 to 4 than below and above
    """
    sigmas, _ = evidence.levels(SHOWN)
    tuned, full = evidence.curve(SHOWN, "TunedRR"), evidence.curve(SHOWN, "full", 7)
    bands = sigmas <= 1.5, (sigmas > 1.5) & (sigmas < 4), (sigmas >= 4) & (sigmas <= 5)
    low, middle, high = (float(tuned[band].mean() / full[band].mean()) for band in bands)
    gain = float(evidence.losses("AdaRR", None, SHOWN) / evidence.losses("TunedRR", None, SHOWN))
    numbers = (
        f"uniform(0,5): AdaRR / TunedRR {gain:.2f}; TunedRR / Full, of mean losses: {low:.2f} below 1.5, "
        f"{middle:.2f} from 1.5 to 4, {high:.2f} from 4 to 5"
    )
    return numbers, [1 < gain < LITTLE, middle > max(low, high)]


def alike_everywhere(evidence: Evidence) -> Finding:
    """Decide whether Full and Diag are alike at every noise level. See `Paper`.

    Full and Diag perform alike at every noise level.

    Where: Uniform noise, per-variance profiles, 7th sentence
    Expected: the profiles of seven layers are within a factor of 1.5 at every level of training
    """
    texts, holds = [], []
    for noise in UNSURE:
        _, inside = evidence.levels(noise)
        ratio = (evidence.curve(noise, "diag", 7) / evidence.curve(noise, "full", 7))[inside]
        texts.append(f"{column_name(noise)} {ratio.min():.2f} to {ratio.max():.2f}")
        holds.append(ratio.max() < 1.5 and ratio.min() > 1 / 1.5)
    where = "The largest differences are near sigma = 0, where both losses are small."
    return f"Diag / Full: {'; '.join(texts)}. {where}", holds


def two_layers(evidence: Evidence) -> Finding:
    """Decide what the paper says of two layers against three. See `Paper`.

    With two layers Full and Diag behave like GD++ and fit one noise level in the middle of the range; with three or
    more layers they improve over the whole range.

    Where: Uniform noise, bottom of figure 2, 2nd and 3rd sentence
    Expected: with two layers the smallest loss lies between sigma = 0.3 and 4.7; with 3 to 7 layers the loss is lower
        at every level of training
    """
    sigmas, inside = evidence.levels(SHOWN)
    levels, two = sigmas[inside], {f: evidence.curve(SHOWN, f, 2)[inside] for f in FAMILIES}
    places = {f: levels[np.argmin(two[f])] for f in FAMILIES}
    better = np.array([evidence.curve(SHOWN, f, k)[inside] <= two[f] for f in ADAPTIVE for k in DEPTHS[2:]])
    worse = levels[~better.all(0)]
    where = f"the exceptions lie from sigma = {worse[0]:.2f} to {worse[-1]:.2f}" if len(worse) else "without exception"
    diag, full = evidence.losses("gdpp", 2, SHOWN) / evidence.losses(ADAPTIVE, 2, SHOWN)
    numbers = (
        f"smallest loss at sigma = {places['gdpp']:.2f} (GD++), {places['diag']:.2f} (Diag), {places['full']:.2f} "
        f"(Full); with two layers GD++ / Diag {diag:.2f}, GD++ / Full {full:.2f}; more layers are better at "
        f"{better.mean():.0%} of levels and depths, {where}"
    )
    return numbers, [*(0.3 < places[f] < 4.7 for f in ADAPTIVE), better.all(1)]


def gdpp_stops(evidence: Evidence) -> Finding:
    """Decide whether GD++ gains nothing from depth. See `Paper`.

    GD++ converges quickly to a suboptimal solution.

    Where: Uniform noise, bottom of figure 2, last sentence
    Expected: for sigma_max of 3 or more, layers 4 to 7 lower the loss by less than 1 %
    """
    gain = evidence.losses("gdpp", 3, UNIFORM[3:]) / evidence.losses("gdpp", 7, UNIFORM[3:])
    return f"loss of three layers / loss of seven, sigma_max 3 to 7: {listed(gain, '.4f')}", gain < 1.01


def gap_on_two(evidence: Evidence) -> Finding:
    """Decide whether Full is better than Diag with two noise levels. See `Paper`.

    On categorical(1,3) Full is clearly better than Diag.

    Where: Categorical noise, 1st sentence
    Expected: with 3 or more layers, the loss of Diag is more than 1.25 times that of Full
    """
    ratios = evidence.losses("diag", DEPTHS, TWO) / evidence.losses("full", DEPTHS, TWO)
    return f"Diag / Full, 1 to 7 layers: {listed(ratios, '.2f')}", ratios[2:] > ALIKE


def extrapolates(evidence: Evidence) -> Finding:
    """Decide whether Diag is better than Full at levels that it was not trained on. See `Paper`.

    Diag extrapolates better than Full to noise levels not seen in training; Full is better on the levels of training.

    Where: Categorical noise, 3rd sentence
    Expected: with seven layers, the mean loss of Diag is below that of Full for sigma from 0 to 1, from 1 to 3 and from
        3 to 4, and that of Full is below that of Diag at 1 and 3
    """
    sigmas, inside = evidence.levels(TWO)
    diag, full = (evidence.curve(TWO, family, 7) for family in ADAPTIVE)
    ranges = {"below 1": sigmas < 1, "between": (sigmas > 1) & (sigmas < 3), "above 3": sigmas > 3}
    means = {name: (diag[where].mean(), full[where].mean()) for name, where in ranges.items()}
    texts = "; ".join(f"{name} {diag_mean:.3g} and {full_mean:.3g}" for name, (diag_mean, full_mean) in means.items())
    exploded = [evidence.exploded(TWO, family, 7).sum() for family in ADAPTIVE]
    numbers = (
        f"Diag and Full: {texts}; at 1 and 3 {diag[inside].mean():.3g} and {full[inside].mean():.3g}; "
        f"sequences that exploded: {exploded[0]} and {exploded[1]} of {evidence.fewer * len(sigmas):,}"
    )
    diag_is_better = [diag_mean < full_mean for diag_mean, full_mean in means.values()]
    return numbers, [*diag_is_better, full[inside].mean() < diag[inside].mean()]


def heavy_diagonal(evidence: Evidence) -> Finding:
    """Decide whether Full's weights lie on the diagonal. See `Paper`.

    The weights of the four-layer Full model are concentrated on the diagonal.

    Where: Categorical noise, 5th sentence
    Expected: the diagonal holds more than half of the squared norm of every matrix; if it were spread evenly, 9 %
    """
    squares = {name: np.square(matrices) for name, matrices in evidence.weights.items()}
    shares = {
        f"{name}{layer}": np.trace(square) / square.sum()
        for name, layers in squares.items()
        for layer, square in enumerate(layers)
    }
    even = 1 / squares["Q"].shape[-1]
    numbers = (
        f"share of the squared norm on the diagonal: {', '.join(f'{k} {v:.0%}' for k, v in shares.items())} "
        f"(evenly spread: {even:.0%})"
    )
    return numbers, [share > 0.5 for share in shares.values()]


def fluctuates(evidence: Evidence) -> Finding:
    """Decide what the paper says of Full's profile with three noise levels. See `Paper`.

    On categorical(1,3,5) the profile of Full fluctuates more than that of Diag, but its loss is not better.

    Where: Categorical noise, last two sentences
    Expected: Full has more turning points from 0 to 5, and the loss of Diag is at most that of Full
    """
    sigmas, _ = evidence.levels(THREE)
    slopes = (np.diff(np.log(evidence.curve(THREE, family, 7)[sigmas <= 5])) for family in ADAPTIVE)
    diag, full = ((np.diff(np.sign(slope)) != 0).sum() for slope in slopes)
    ratio = float(evidence.losses("diag", 7, THREE) / evidence.losses("full", 7, THREE))
    numbers = (
        f"turning points: Full {full}, Diag {diag}; Diag / Full at 7 layers {ratio:.2f} (the paper's own table: "
        f"{0.046 / 0.035:.2f})"
    )
    return numbers, [full > diag, ratio <= SLACK]


def unadjusted(evidence: Evidence) -> Finding:
    """Decide whether the unadjusted loss can tell the methods apart. See `Paper`.

    In terms of the unadjusted loss the methods can hardly be distinguished.

    Where: More experiments, 1st paragraph
    Expected: the unadjusted losses of Diag, Full, AdaRR and TunedRR lie within 5 %, and their adjusted losses differ by
        more than 20 %
    """
    rows = ("diag", 7), ("full", 7), ("AdaRR", None), ("TunedRR", None)
    cells = [evidence.table[method, layers, SHOWN] for method, layers in rows]
    unadjusted, adjusted = [cell.unadjusted for cell in cells], [cell.loss for cell in cells]
    numbers = (
        f"uniform(0,5), seven layers: unadjusted {min(unadjusted):.3f} to {max(unadjusted):.3f}, "
        f"adjusted {min(adjusted):.4f} to {max(adjusted):.4f}"
    )
    return numbers, [max(unadjusted) / min(unadjusted) < 1.05, max(adjusted) / min(adjusted) > 1.2]


def falls_by_layer(evidence: Evidence) -> Finding:
    """Decide whether the loss falls from layer to layer. See `Paper`.

    The loss of the readout falls consistently from layer to layer.

    Where: Caption of the figure of losses by layer (our figure 5)
    Expected: for each family, the loss of seven-layer models on uniform(0,5), averaged over seeds, falls at every layer
    """
    means = {family: evidence.layers[name_of(family, 7)].mean(0) for family in FAMILIES}
    texts = "; ".join(f"{LABELS[family]} {listed(mean, '.3g')}" for family, mean in means.items())
    return f"after layer 0 to 7: {texts}", [(np.diff(mean) < 0).all() for mean in means.values()]


def early_stopping(evidence: Evidence) -> Finding:
    """Decide what the paper says of profiles layer by layer. See `Paper`.

    The early layers of GD++ are best at high noise and the later ones at lower noise; Diag starts in the same way and
    then improves strongly at low noise; Full improves at low noise first, and becomes less accurate at high noise in
    its last layer.

    Where: More experiments, 2nd paragraph
    Expected: the noise level with the smallest loss moves down from layer 1 to 7 (GD++) and from layer 1 to 4 (Diag);
        the loss of Diag below sigma = 1 halves at some later layer; that of Full falls by a larger factor below 1
        than above 4 in its first three layers, and rises above 4 in the last one
    """
    curves = evidence.layer_profiles
    sigmas, inside, mean = curves.sigmas, curves.inside, {f: curves.losses[f].mean(0) for f in FAMILIES}
    high = (sigmas > 4) & (sigmas <= 5)
    low_of, high_of = ({f: mean[f][:, band].mean(1) for f in FAMILIES} for band in (sigmas < 1, high))
    best = {f: sigmas[inside][np.argmin(mean[f][:, inside], 1)] for f in FAMILIES}  # by layer, in distribution
    text = "; ".join(
        f"{LABELS[f]}: below 1 {listed(low_of[f][1:], '.2g')}, above 4 {listed(high_of[f][1:], '.2g')}"
        for f in FAMILIES
    )
    explosions = ", ".join(f"{LABELS[f]} {curves.exploded[f][:, -1, high].sum()}" for f in FAMILIES)
    diag_low, full_low, full_high = low_of["diag"], low_of["full"], high_of["full"]
    numbers = (
        f"best level of GD++ {best['gdpp'][1]:.2f} after layer 1, {best['gdpp'][7]:.2f} after layer 7; of Diag "
        f"{best['diag'][1]:.2f} after layer 1, {best['diag'][4]:.2f} after layer 4. Mean losses after layers 1 to "
        f"7: {text}. Sequences that exploded in the last layer, above 4: {explosions}"
    )
    return numbers, [
        best["gdpp"][7] < best["gdpp"][1],
        best["diag"][4] < best["diag"][1],
        (diag_low[5:] < 0.5 * diag_low[4:-1]).any(),
        full_low[0] / full_low[3] > full_high[0] / full_high[3],
        full_high[7] > full_high[6],
    ]


def _claim(read: Callable[[Evidence], Finding]) -> Callable[[Results], Check]:
    """The check of a claim, from the function that reads the numbers which decide it."""

    @wraps(read)
    def check(results: Results) -> Check:
        numbers, holds = of_evidence(read)(results)
        reason = "The paper states the claim in words; the rule says what it means in numbers."
        rule = f"rejected unless: {texts_of(read)['expected']}"
        return Check(numbers, tolerance="none", reason=reason, rule=rule, holds=holds)

    return check


BY_DEPTH = (iterations, few_layers, alike, gdpp_is_constant, advantage_grows, beats_ada, matches_tuned)
PROFILES = (only_tuned_is_near, mirrors_constant, ada_profile, tuned_middle, alike_everywhere, two_layers, gdpp_stops)
CATEGORICAL = (gap_on_two, extrapolates, heavy_diagonal, fluctuates)
MORE = (unadjusted, falls_by_layer, early_stopping)
CLAIMS = tuple(map(_claim, (*BY_DEPTH, *PROFILES, *CATEGORICAL, *MORE)))  # in the order of the paper
