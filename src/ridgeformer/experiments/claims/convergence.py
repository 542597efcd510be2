"""On iterations, layers and the unadjusted loss."""

from __future__ import annotations

import numpy as np

from ridgeformer.experiments.claims.claim import Array, Claim, decide, loss
from ridgeformer.experiments.evidence import SHOWN, Evidence
from ridgeformer.experiments.paper import FAMILIES, UNIFORM, Key

__all__ = ["early_stopping", "falls_by_layer", "few_layers", "iterations", "unadjusted"]


def iterations(evidence: Evidence) -> Claim:
    """AdaRR without an inverse."""
    texts, holds = [], []
    for noise, losses in evidence.iterations.items():
        near = [count for count, loss in sorted(losses.items()) if count and loss <= 1.05 * losses[0]]
        texts.append(
            f"{noise}: {', '.join(f'{k} {v:.3g}' for k, v in sorted(losses.items()) if k)} (AdaRR {losses[0]:.3g})"
        )
        holds.append(bool(near) and 50 <= near[0] <= 200)
    return Claim(
        "Baseline estimates, last paragraph",
        "AdaRR by gradient descent, without an inverse, takes about 100 iterations to converge.",
        "within 5 % of AdaRR first at 50 to 200 iterations, of those tried",
        "loss after so many iterations, " + "; ".join(texts),
        decide(holds),
    )


def few_layers(evidence: Evidence) -> Claim:
    """Depth needed."""
    gains = [1 - loss(evidence, "full", 7, noise) / loss(evidence, "full", 6, noise) for noise in UNIFORM[1:]]
    floors = [evidence.table["full", 7, noise].over_floor for noise in UNIFORM[1:]]
    return Claim(
        "Baseline estimates, last sentence",
        "Linear transformers converge in fewer than 10 layers.",
        "the seventh layer of Full gains less than 5 % on uniform noise",
        f"gain of the seventh layer, sigma_max 1 to 7: {', '.join(f'{100 * gain:.1f} %' for gain in gains)}; loss over "
        f"the floor then: {', '.join(f'{value:.2f}' for value in floors)}",
        decide(gain < 0.05 for gain in gains),
    )


def unadjusted(evidence: Evidence) -> Claim:
    """What the unadjusted loss shows."""
    table = evidence.table
    cells = [table[method, 7 if method in FAMILIES else None, SHOWN] for method in ("diag", "full", "AdaRR", "TunedRR")]
    plain, adjusted = [cell.unadjusted for cell in cells], [cell.loss for cell in cells]
    return Claim(
        "More experiments, 1st paragraph",
        "By the unadjusted loss the methods can hardly be told apart.",
        "Diag, Full, AdaRR and TunedRR within 5 % by the unadjusted loss and more than 20 % apart by the adjusted one",
        f"uniform(0,5), seven layers: unadjusted {min(plain):.3f} to {max(plain):.3f}, adjusted {min(adjusted):.4f} to "
        f"{max(adjusted):.4f}",
        decide([max(plain) / min(plain) < 1.05, max(adjusted) / min(adjusted) > 1.2]),
    )


def falls_by_layer(evidence: Evidence) -> Claim:
    """The loss falls from layer to layer."""
    holds, texts = [], []
    for family in FAMILIES:
        mean = evidence.layers[Key(family, 7, SHOWN).row].mean(0)
        holds.append(bool((np.diff(mean) < 0).all()))
        texts.append(f"{Key(family, None, '').row} {', '.join(f'{value:.3g}' for value in mean)}")
    return Claim(
        "Caption of the figure of losses by layer (our figure 5)",
        "The loss of the readout falls consistently from layer to layer.",
        "falling at every layer of seven-layer models on uniform(0,5), averaged over seeds, for each family",
        "after layer 0 to 7: " + "; ".join(texts),
        decide(holds),
    )


def early_stopping(evidence: Evidence) -> Claim:
    """Profiles layer by layer."""
    found = evidence.layer_profiles
    sigmas = np.array(found["sigmas"])
    low, high = sigmas < 1, (sigmas > 4) & (sigmas <= 5)
    parts: dict[str, tuple[Array, Array]] = {}
    for family in FAMILIES:
        mean = found["losses"][family].mean(0)
        parts[family] = mean[:, low].mean(1), mean[:, high].mean(1)
    after = {layer: float(sigmas[np.argmin(found["losses"]["gdpp"].mean(0)[layer])]) for layer in (1, 7)}
    text = "; ".join(
        f"{Key(f, None, '').row}: below 1 {', '.join(f'{v:.2g}' for v in parts[f][0][1:])}, above 4 "
        f"{', '.join(f'{v:.2g}' for v in parts[f][1][1:])}"
        for f in FAMILIES
    )
    diag_low, full_high = parts["diag"][0], parts["full"][1]
    return Claim(
        "More experiments, 2nd paragraph",
        "GD++'s early layers suit high noise and later ones lower noise; Diag does so first and then improves much at "
        "low noise; Full improves at low noise first, and loses accuracy at high noise in its last layer.",
        "GD++'s best level moves down from layer 1 to 7; Diag's loss below sigma = 1 halves at some late layer; Full's "
        "loss above 4 rises in the last layer",
        f"GD++'s best level {after[1]:.2f} after layer 1, {after[7]:.2f} after layer 7. Mean losses after layers "
        f"1 to 7: {text}",
        decide(
            [
                after[7] < after[1],
                bool((diag_low[4:] < 0.5 * diag_low[3:-1]).any()),
                bool(full_high[7] > full_high[6]),
            ]
        ),
    )
