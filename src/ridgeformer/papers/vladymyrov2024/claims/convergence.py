"""On iterations, layers and the unadjusted loss."""

from __future__ import annotations

import numpy as np

from ridgeformer.papers.vladymyrov2024.claims.claim import Array, Finding, claim, loss
from ridgeformer.papers.vladymyrov2024.evidence import SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.paper import COLUMNS, FAMILIES, LABELS, Row

__all__ = ["early_stopping", "falls_by_layer", "few_layers", "iterations", "unadjusted"]

NEAR = 0.02  # of AdaRR's loss: settled


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
        away = [count for count in counts if abs(losses[count] / losses[0] - 1) > NEAR]
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
        (family, noise): 1 - loss(evidence, family, 7, noise) / loss(evidence, family, 6, noise)
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
