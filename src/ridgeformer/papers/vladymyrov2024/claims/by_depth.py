"""Claims about losses on uniform noise, and about layers and iterations."""

from __future__ import annotations

import numpy as np

from ridgeformer.papers.vladymyrov2024.claims.claim import ALIKE, SLACK, Array, Finding, claim
from ridgeformer.papers.vladymyrov2024.evidence import SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.paper import BASELINES, COLUMNS, DEPTHS, FAMILIES, LABELS, UNIFORM, CellKey, Row
from ridgeformer.papers.vladymyrov2024.render import column_name

NOISY = COLUMNS[1:]
SETTLED = 0.02  # of the loss of AdaRR: converged
NEAR = 1.5  # a loss within this factor of a model's is comparable


@claim(
    "Uniform noise, 1st sentence; caption of figure 1",
    "On uniform noise Full and Diag perform equally well for every depth and sigma_max.",
    f"Diag's loss at most {ALIKE} times Full's in every cell with noise",
)
def alike(evidence: Evidence) -> Finding:
    """Decide whether Full and Diag are alike, whatever the depth. See `claim`."""
    ratios = {
        (depth, noise): evidence.loss("diag", depth, noise) / evidence.loss("full", depth, noise)
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
    ratios = [evidence.loss("gdpp", 7, noise) / evidence.loss("ConstRR", None, noise) for noise in NOISY]
    lowest = min(
        evidence.loss("gdpp", depth, noise) / evidence.loss("ConstRR", None, noise)
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
        min(evidence.loss(name, None, noise) for name in BASELINES) / evidence.loss("full", 7, noise)
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
        (family, depth, most): evidence.loss(family, depth, UNIFORM[most]) / evidence.loss("AdaRR", None, UNIFORM[most])
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
        name: [evidence.loss(name, None, noise) / evidence.loss("full", 7, noise) for noise in UNIFORM[1:]]
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
        (family, depth, noise): evidence.loss(family, depth, noise) / evidence.loss("TunedRR", None, noise)
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
    gain = [evidence.loss("gdpp", 3, noise) / evidence.loss("gdpp", 7, noise) for noise in UNIFORM[3:]]
    numbers = f"loss of three layers / loss of seven, sigma_max 3 to 7: {', '.join(f'{value:.4f}' for value in gain)}"
    return numbers, [value < 1.01 for value in gain]


@claim(
    "Baseline estimates, last paragraph",
    "AdaRR computed by gradient descent, without a matrix inverse, takes about 100 iterations to converge.",
    "of the numbers of iterations that were tried, the first from which on the loss stays within 2 % of AdaRR's "
    "lies between 50 and 200",
)
def iterations(evidence: Evidence) -> Finding:
    """Decide what the paper says of AdaRR without a matrix inverse. See `claim`."""
    texts, holds = [], []
    for noise, losses in evidence.iterations.items():
        counts = sorted(count for count in losses if count)
        away = [count for count in counts if abs(losses[count] / losses[0] - 1) > SETTLED]
        settled = next((count for count in counts if count > max(away, default=0)), None)
        shown = ", ".join(f"{count} {losses[count]:.3g}" for count in counts)
        texts.append(f"{noise}: {shown} (AdaRR {losses[0]:.3g}), converged at {settled or 'none of these'}")
        holds.append(settled is not None and 50 <= settled <= 200)
    numbers = "number of iterations and loss: " + "; ".join(texts)
    return numbers, holds


@claim(
    "Baseline estimates, last sentence",
    "Linear transformers converge in fewer than 10 layers.",
    "the seventh layer lowers the loss by less than 5 %, for Diag and Full on every problem with noise",
)
def few_layers(evidence: Evidence) -> Finding:
    """Decide what the paper says of the depth that is needed. See `claim`."""
    gains = {
        (family, noise): 1 - evidence.loss(family, 7, noise) / evidence.loss(family, 6, noise)
        for family in ("diag", "full")
        for noise in COLUMNS[1:]
    }
    texts = [
        f"{LABELS[f]} {', '.join(f'{100 * gain:.1f} %' for (g, _), gain in gains.items() if g == f)}"
        for f in ("diag", "full")
    ]
    numbers = (
        f"reduction of the loss by the seventh layer on sigma_max 1 to 7, {{1,3}} and {{1,3,5}}: {'; '.join(texts)}; "
        f"{sum(gain < 0.05 for gain in gains.values())} of {len(gains)} satisfy the rule"
    )
    return numbers, [gain < 0.05 for gain in gains.values()]


@claim(
    "More experiments, 1st paragraph",
    "In terms of the unadjusted loss the methods can hardly be distinguished.",
    "the unadjusted losses of Diag, Full, AdaRR and TunedRR lie within 5 %, and their adjusted losses differ by "
    "more than 20 %",
)
def unadjusted(evidence: Evidence) -> Finding:
    """Decide whether the unadjusted loss can tell the methods apart. See `claim`."""
    table = evidence.table
    cells = [table[method, 7 if method in FAMILIES else None, SHOWN] for method in ("diag", "full", "AdaRR", "TunedRR")]
    unadjusted, adjusted = [cell.unadjusted for cell in cells], [cell.loss for cell in cells]
    numbers = (
        f"uniform(0,5), seven layers: unadjusted {min(unadjusted):.3f} to {max(unadjusted):.3f}, "
        f"adjusted {min(adjusted):.4f} to {max(adjusted):.4f}"
    )
    return numbers, [max(unadjusted) / min(unadjusted) < 1.05, max(adjusted) / min(adjusted) > 1.2]


@claim(
    "Caption of the figure of losses by layer (our figure 5)",
    "The loss of the readout falls consistently from layer to layer.",
    "for each family, the loss of seven-layer models on uniform(0,5), averaged over seeds, falls at every layer",
)
def falls_by_layer(evidence: Evidence) -> Finding:
    """Decide whether the loss falls from layer to layer. See `claim`."""
    holds, texts = [], []
    for family in FAMILIES:
        mean = evidence.layers[Row(family, 7).name].mean(0)
        holds.append(bool((np.diff(mean) < 0).all()))
        texts.append(f"{LABELS[family]} {', '.join(f'{value:.3g}' for value in mean)}")
    numbers = "after layer 0 to 7: " + "; ".join(texts)
    return numbers, holds


@claim(
    "More experiments, 2nd paragraph",
    "The early layers of GD++ are best at high noise and the later ones at lower noise; Diag starts in the same "
    "way and then improves strongly at low noise; Full improves at low noise first, and becomes less accurate at "
    "high noise in its last layer.",
    "the noise level with the smallest loss moves down from layer 1 to 7 (GD++) and from layer 1 to 4 (Diag); the "
    "loss of Diag below sigma = 1 halves at some later layer; that of Full falls by a larger factor below 1 than "
    "above 4 in its first three layers, and rises above 4 in the last one",
)
def early_stopping(evidence: Evidence) -> Finding:
    """Decide what the paper says of profiles layer by layer. See `claim`."""
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
        f"{LABELS[f]}: below 1 {', '.join(f'{v:.2g}' for v in parts[f][0][1:])}, above 4 "
        f"{', '.join(f'{v:.2g}' for v in parts[f][1][1:])}"
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
