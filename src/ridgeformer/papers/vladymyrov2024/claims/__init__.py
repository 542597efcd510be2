"""The claims of the paper's experiments section, each with the numbers that support or contradict it.

Sentences are in our words; `where` says which of the paper's they stand for. A rule, stated beside the numbers,
decides. Here are claims about where GD++ stops, categorical noise, the unadjusted loss, and the readout of every
layer; those about uniform noise, which come first, are in `uniform`.
"""

from __future__ import annotations

import numpy as np

from ridgeformer.papers.paper import listed
from ridgeformer.papers.vladymyrov2024.claims.uniform import ALIKE, CLAIMS as CLAIMS, SLACK, Finding, claim
from ridgeformer.papers.vladymyrov2024.evidence import SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.paper import DEPTHS, FAMILIES, LABELS, UNIFORM, Row
from ridgeformer.validation import Array

TWO, THREE = "categorical(1,3)", "categorical(1,3,5)"


@claim()
def gdpp_stops(evidence: Evidence) -> Finding:
    """Decide whether GD++ gains nothing from depth. See `claim`.

    GD++ converges quickly to a suboptimal solution.

    Where: Uniform noise, bottom of figure 2, last sentence
    Rule: for sigma_max of 3 or more, layers 4 to 7 lower the loss by less than 1 %
    """
    gain = [evidence.ratio(("gdpp", 3), ("gdpp", 7), noise) for noise in UNIFORM[3:]]
    numbers = f"loss of three layers / loss of seven, sigma_max 3 to 7: {listed(gain, '.4f')}"
    return numbers, [value < 1.01 for value in gain]


@claim(f"with 3 or more layers, the loss of Diag is more than {ALIKE} times that of Full")
def gap_on_two(evidence: Evidence) -> Finding:
    """Decide whether Full is better than Diag with two noise levels. See `claim`.

    On categorical(1,3) Full is clearly better than Diag.

    Where: Categorical noise, 1st sentence
    """
    ratios = [evidence.ratio(("diag", depth), ("full", depth), TWO) for depth in DEPTHS]
    return f"Diag / Full, 1 to 7 layers: {listed(ratios, '.2f')}", [ratio > ALIKE for ratio in ratios[2:]]


@claim()
def extrapolates(evidence: Evidence) -> Finding:
    """Decide whether Diag is better than Full at levels that it was not trained on. See `claim`.

    Diag extrapolates better than Full to noise levels not seen in training; Full is better on the levels of training.

    Where: Categorical noise, 3rd sentence
    Rule: with seven layers, the mean loss of Diag is below that of Full for sigma from 0 to 1, from 1 to 3 and from
        3 to 4, and that of Full is below that of Diag at 1 and 3
    """
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


@claim()
def heavy_diagonal(evidence: Evidence) -> Finding:
    """Decide whether Full's weights lie on the diagonal. See `claim`.

    The weights of the four-layer Full model are concentrated on the diagonal.

    Where: Categorical noise, 5th sentence
    Rule: the diagonal holds more than half of the squared norm of every matrix; if it were spread evenly, 9 %
    """
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


@claim()
def fluctuates(evidence: Evidence) -> Finding:
    """Decide what the paper says of Full's profile with three noise levels. See `claim`.

    On categorical(1,3,5) the profile of Full fluctuates more than that of Diag, but its loss is not better.

    Where: Categorical noise, last two sentences
    Rule: Full has more turning points from 0 to 5, and the loss of Diag is at most that of Full
    """
    sigmas, _ = evidence.levels(THREE)
    range_ = sigmas <= 5

    def turns(family: str) -> int:
        slope = np.diff(np.log(evidence.curve(THREE, family, 7)[range_]))
        return int((np.diff(np.sign(slope)) != 0).sum())

    ratio = evidence.ratio(("diag", 7), ("full", 7), THREE)
    numbers = (
        f"turning points: Full {turns('full')}, Diag {turns('diag')}; Diag / Full at 7 layers {ratio:.2f} "
        f"(the paper's own table: {0.046 / 0.035:.2f})"
    )
    return numbers, [turns("full") > turns("diag"), ratio <= SLACK]


@claim()
def unadjusted(evidence: Evidence) -> Finding:
    """Decide whether the unadjusted loss can tell the methods apart. See `claim`.

    In terms of the unadjusted loss the methods can hardly be distinguished.

    Where: More experiments, 1st paragraph
    Rule: the unadjusted losses of Diag, Full, AdaRR and TunedRR lie within 5 %, and their adjusted losses differ by
        more than 20 %
    """
    table = evidence.table
    cells = [table[method, 7 if method in FAMILIES else None, SHOWN] for method in ("diag", "full", "AdaRR", "TunedRR")]
    unadjusted, adjusted = [cell.unadjusted for cell in cells], [cell.loss for cell in cells]
    numbers = (
        f"uniform(0,5), seven layers: unadjusted {min(unadjusted):.3f} to {max(unadjusted):.3f}, "
        f"adjusted {min(adjusted):.4f} to {max(adjusted):.4f}"
    )
    return numbers, [max(unadjusted) / min(unadjusted) < 1.05, max(adjusted) / min(adjusted) > 1.2]


@claim()
def falls_by_layer(evidence: Evidence) -> Finding:
    """Decide whether the loss falls from layer to layer. See `claim`.

    The loss of the readout falls consistently from layer to layer.

    Where: Caption of the figure of losses by layer (our figure 5)
    Rule: for each family, the loss of seven-layer models on uniform(0,5), averaged over seeds, falls at every layer
    """
    holds, texts = [], []
    for family in FAMILIES:
        mean = evidence.layers[Row(family, 7).name].mean(0)
        holds.append(bool((np.diff(mean) < 0).all()))
        texts.append(f"{LABELS[family]} {listed(mean, '.3g')}")
    return "after layer 0 to 7: " + "; ".join(texts), holds


@claim()
def early_stopping(evidence: Evidence) -> Finding:
    """Decide what the paper says of profiles layer by layer. See `claim`.

    The early layers of GD++ are best at high noise and the later ones at lower noise; Diag starts in the same way and
    then improves strongly at low noise; Full improves at low noise first, and becomes less accurate at high noise in
    its last layer.

    Where: More experiments, 2nd paragraph
    Rule: the noise level with the smallest loss moves down from layer 1 to 7 (GD++) and from layer 1 to 4 (Diag);
        the loss of Diag below sigma = 1 halves at some later layer; that of Full falls by a larger factor below 1
        than above 4 in its first three layers, and rises above 4 in the last one
    """
    curves = evidence.layer_profiles
    sigmas, inside = np.array(curves["sigmas"]), np.array(curves["inside"])
    low, high = sigmas < 1, (sigmas > 4) & (sigmas <= 5)
    parts: dict[str, tuple[Array, Array]] = {}
    for family in FAMILIES:
        mean = curves["losses"][family].mean(0)
        parts[family] = mean[:, low].mean(1), mean[:, high].mean(1)

    def best(family: str, layer: int) -> float:
        """The level in distribution at which the readout after a layer is best."""
        return float(sigmas[inside][np.argmin(curves["losses"][family].mean(0)[layer][inside])])

    levels = {(f, layer): best(f, layer) for f, layer in (("gdpp", 1), ("gdpp", 7), ("diag", 1), ("diag", 4))}
    text = "; ".join(
        f"{LABELS[f]}: below 1 {listed(parts[f][0][1:], '.2g')}, above 4 {listed(parts[f][1][1:], '.2g')}"
        for f in FAMILIES
    )
    explosions = ", ".join(f"{LABELS[f]} {curves['exploded'][f][:, -1, high].sum()}" for f in FAMILIES)
    diag_low, (full_low, full_high) = parts["diag"][0], parts["full"]
    numbers = (
        f"best level of GD++ {levels['gdpp', 1]:.2f} after layer 1, {levels['gdpp', 7]:.2f} after layer 7; of Diag "
        f"{levels['diag', 1]:.2f} after layer 1, {levels['diag', 4]:.2f} after layer 4. Mean losses after layers 1 to "
        f"7: {text}. Sequences that exploded in the last layer, above 4: {explosions}"
    )
    return numbers, [
        levels["gdpp", 7] < levels["gdpp", 1],
        levels["diag", 4] < levels["diag", 1],
        bool((diag_low[5:] < 0.5 * diag_low[4:-1]).any()),
        bool(full_low[0] / full_low[3] > full_high[0] / full_high[3]),
        bool(full_high[7] > full_high[6]),
    ]
