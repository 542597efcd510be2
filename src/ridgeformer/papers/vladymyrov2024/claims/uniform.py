"""Claims about uniform noise: iterations and layers, losses by depth, and profiles."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ridgeformer.papers.paper import Check, Results, listed, said
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.paper import BASELINES, COLUMNS, DEPTHS, FAMILIES, LABELS, UNIFORM, CellKey
from ridgeformer.papers.vladymyrov2024.render import column_name

Finding = tuple[str, Iterable[bool]]  # the numbers in words, and whether each part of the rule holds
Decision = Callable[[Results], Check]
CLAIMS: list[Decision] = []  # in the order of the paper
ALIKE = 1.25  # losses within this factor are called alike
SLACK = 1.01  # 'at least as good' allows a percent: the size of a standard error
SETTLED = 0.02  # of the loss of AdaRR: converged
NEAR = 1.5  # a loss within this factor of a model's is comparable
LITTLE = 1.5  # a loss that is lower by less than this factor is a little lower
NOISY = COLUMNS[1:]
ADAPTIVE = ("diag", "full")  # the families that adapt to the noise


def claim(rule: str = "") -> Callable[[Callable[[Evidence], Finding]], Decision]:
    """Decorate a function that reads the numbers which decide a claim: it then returns the check, one of `CLAIMS`.

    Args:
        rule: The rule that the numbers must satisfy; empty where the docstring says it.

    Returns:
        The decorator. The decorated function takes the results; its docstring states the claim after its first line,
        then its place in the paper and the rule; see `said`.
    """

    def decorate(read: Callable[[Evidence], Finding]) -> Decision:
        @functools.wraps(read)
        def check(results: Results) -> Check:
            numbers, holds = read(Evidence(results))
            needed = rule or said(read)["rule"]
            reason = "The paper states the claim in words; the rule says what it means in numbers."
            return Check(numbers, needed, "none", reason, f"rejected unless: {needed}", tuple(holds))

        CLAIMS.append(check)
        return check

    return decorate


def ratios_to(
    baseline: str, evidence: Evidence, families: Iterable[str], depths: Sequence[int], noises: Sequence[str]
) -> dict[tuple[str, int, str], float]:
    """Return losses of models over the loss of a baseline on the same problem.

    Args:
        baseline: The baseline.
        evidence: The measurements.
        families: The families.
        depths: The depths.
        noises: The problems, by their noise.

    Returns:
        The ratios by family, depth and noise.
    """
    places = itertools.product(families, depths, noises)
    return {place: evidence.ratio(place[:2], (baseline, None), place[2]) for place in places}


@claim()
def iterations(evidence: Evidence) -> Finding:
    """Decide what the paper says of AdaRR without a matrix inverse. See `claim`.

    AdaRR computed by gradient descent, without a matrix inverse, takes about 100 iterations to converge.

    Where: Baseline estimates, last paragraph
    Rule: of the numbers of iterations that were tried, the first from which on the loss stays within 2 % of AdaRR's
        lies between 50 and 200
    """
    texts, holds = [], []
    for noise, losses in evidence.iterations.items():
        counts = sorted(count for count in losses if count)
        away = [count for count in counts if abs(losses[count] / losses[0] - 1) > SETTLED]
        settled = next((count for count in counts if count > max(away, default=0)), None)
        shown = ", ".join(f"{count} {losses[count]:.3g}" for count in counts)
        texts.append(f"{noise}: {shown} (AdaRR {losses[0]:.3g}), converged at {settled or 'none of these'}")
        holds.append(settled is not None and 50 <= settled <= 200)
    return "number of iterations and loss: " + "; ".join(texts), holds


@claim()
def few_layers(evidence: Evidence) -> Finding:
    """Decide what the paper says of the depth that is needed. See `claim`.

    Linear transformers converge in fewer than 10 layers.

    Where: Baseline estimates, last sentence
    Rule: the seventh layer lowers the loss by less than 5 %, for Diag and Full on every problem with noise
    """
    gains = {(f, noise): 1 - evidence.ratio((f, 7), (f, 6), noise) for f in ADAPTIVE for noise in NOISY}
    texts = [
        f"{LABELS[f]} {', '.join(f'{100 * gain:.1f} %' for (g, _), gain in gains.items() if g == f)}" for f in ADAPTIVE
    ]
    numbers = (
        f"reduction of the loss by the seventh layer on sigma_max 1 to 7, {{1,3}} and {{1,3,5}}: {'; '.join(texts)}; "
        f"{sum(gain < 0.05 for gain in gains.values())} of {len(gains)} satisfy the rule"
    )
    return numbers, [gain < 0.05 for gain in gains.values()]


@claim(f"Diag's loss at most {ALIKE} times Full's in every cell with noise")
def alike(evidence: Evidence) -> Finding:
    """Decide whether Full and Diag are alike, whatever the depth. See `claim`.

    On uniform noise Full and Diag perform equally well for every depth and sigma_max.

    Where: Uniform noise, 1st sentence; caption of figure 1
    """
    ratios = {(k, noise): evidence.ratio(("diag", k), ("full", k), noise) for k in DEPTHS for noise in UNIFORM[1:]}
    worst = max(ratios, key=lambda place: ratios[place])
    within = [ratio <= ALIKE for ratio in ratios.values()]
    numbers = (
        f"loss of Diag / loss of Full: median {np.median([*ratios.values()]):.3f}, largest {ratios[worst]:.2f} at "
        f"{worst[0]} layers, {worst[1]}; {sum(within)} of {len(within)} cells satisfy the rule. At 7 layers: "
        + ", ".join(f"{column_name(n)} {ratios[7, n]:.2f}" for n in UNIFORM[1:])
    )
    return numbers, within


@claim()
def gdpp_is_constant(evidence: Evidence) -> Finding:
    """Decide whether GD++ is no better than ConstRR. See `claim`.

    GD++ converges to a higher loss, close to that of ConstRR, and is not better than ConstRR.

    Where: Uniform noise, 2nd sentence
    Rule: the loss of seven layers is within 1 % of that of ConstRR, and at no depth is it lower by more than 0.01 %
        (the size of chance)
    """
    every = ratios_to("ConstRR", evidence, ["gdpp"], DEPTHS, NOISY)
    ratios, lowest = [every["gdpp", 7, noise] for noise in NOISY], min(every.values())
    numbers = (
        f"GD++ with 7 layers / ConstRR: {min(ratios):.5f} to {max(ratios):.5f}; smallest over all depths and columns: "
        f"{lowest:.6f}. That it cannot be lower is a theorem: GD++ solves the problem of fixed noise E[sigma^2]."
    )
    return numbers, [max(ratios) < SLACK, lowest > 1 - 1e-4]


@claim()
def advantage_grows(evidence: Evidence) -> Finding:
    """Decide whether the advantage over the baselines grows with sigma_max. See `claim`.

    The advantage of linear transformers over the baselines grows with sigma_max.

    Where: Uniform noise, 3rd sentence
    Rule: loss of the best baseline / loss of Full with 7 layers is larger at sigma_max = 7 than at 1, and above 1
    """
    gains = [min(evidence.ratio((name, None), ("full", 7), noise) for name in BASELINES) for noise in UNIFORM[1:]]
    return "best baseline / Full, sigma_max 1 to 7: " + listed(gains, ".2f"), [gains[-1] > gains[0], gains[-1] > 1]


@claim()
def beats_ada(evidence: Evidence) -> Finding:
    """Decide whether four layers beat AdaRR. See `claim`.

    With 4 or more layers, Full and Diag are better than AdaRR for sigma_max of 4 or more.

    Where: Uniform noise, 4th sentence
    Rule: loss below AdaRR's, 4 to 7 layers, sigma_max 4 to 7
    """
    ratios = ratios_to("AdaRR", evidence, ADAPTIVE, DEPTHS[3:], UNIFORM[4:])
    of_four = {LABELS[f]: [ratios[f, 4, noise] for noise in UNIFORM[4:]] for f in ADAPTIVE}
    four = ", ".join(f"{name} {min(values):.2f} to {max(values):.2f}" for name, values in of_four.items())
    numbers = f"loss / loss of AdaRR with 4 layers: {four}; with 4 to 7 layers: at most {max(ratios.values()):.2f}"
    return numbers, [ratio < 1 for ratio in ratios.values()]


@claim(f"loss at most {SLACK} times TunedRR's, 5 to 7 layers, every sigma_max with noise")
def matches_tuned(evidence: Evidence) -> Finding:
    """Decide whether five layers match TunedRR. See `claim`.

    With 5 or more layers, Full and Diag match or beat TunedRR.

    Where: Uniform noise, 5th sentence
    """
    ratios = ratios_to("TunedRR", evidence, ADAPTIVE, DEPTHS[4:], UNIFORM[1:])
    failing = [f"{CellKey(*place)} {ratio:.2f}" for place, ratio in ratios.items() if ratio > SLACK]
    worst = "; worse: " + ", ".join(failing) if failing else ""
    numbers = (
        f"loss / loss of TunedRR: {min(ratios.values()):.2f} to {max(ratios.values()):.2f}; "
        f"{len(ratios) - len(failing)} of {len(ratios)} cells{worst}"
    )
    return numbers, [ratio <= SLACK for ratio in ratios.values()]


@claim(
    f"for every sigma_max with noise, the loss of TunedRR is less than {NEAR} times that of Full with 7 layers, "
    "and those of the other baselines are more"
)
def only_tuned_is_near(evidence: Evidence) -> Finding:
    """Decide whether TunedRR alone is comparable with the models. See `claim`.

    Among the baselines, only TunedRR is comparable with linear transformers.

    Where: Caption of figure 1, last sentence
    """
    ratios = {name: [evidence.ratio((name, None), ("full", 7), noise) for noise in UNIFORM[1:]] for name in BASELINES}
    holds = [ratio < NEAR for ratio in ratios["TunedRR"]]
    holds += [ratio > NEAR for name in ("ConstRR", "AdaRR") for ratio in ratios[name]]
    numbers = "loss / loss of Full with 7 layers, sigma_max 1 to 7: " + "; ".join(
        f"{name} {listed(values, '.2f')}" for name, values in ratios.items()
    )
    return numbers, holds


@claim()
def mirrors_constant(evidence: Evidence) -> Finding:
    """Decide whether GD++'s profile is ConstRR's. See `claim`.

    At every noise level GD++ behaves like ConstRR: it assumes one constant noise variance.

    Where: Uniform noise, per-variance profiles, 3rd and 4th sentence
    Rule: at every level, the profile of seven layers is within 5 % of that of ConstRR
    """
    gaps = []
    for noise in UNIFORM[1:]:
        known, own = evidence.curve(noise, "ConstRR"), evidence.curve(noise, "gdpp", 7)
        gaps.append(float(np.abs(own / known - 1).max()))
    numbers = f"largest difference of the profiles, sigma_max 1 to 7: {', '.join(f'{100 * gap:.2g} %' for gap in gaps)}"
    return numbers, [gap < 0.05 for gap in gaps]


@claim()
def ada_profile(evidence: Evidence) -> Finding:
    """Decide what the paper says of AdaRR by noise level. See `claim`.

    AdaRR is perfect without noise and gets worse as the noise grows.

    Where: Uniform noise, per-variance profiles, 5th sentence
    Rule: the loss is 0, up to rounding, at sigma = 0, and rises over sigma = 0, 1, 2, 3, 4 and 5
    """
    sigmas, _ = evidence.levels(SHOWN)
    ada, bayes = evidence.curve(SHOWN, "AdaRR"), evidence.curve(SHOWN, BAYES)
    at = [int(np.argmin(np.abs(sigmas - level))) for level in (0, 1, 2, 3, 4, 5)]
    numbers = (
        f"AdaRR on uniform(0,5) at sigma 0 to 5: {listed(ada[at])}; the Bayes predictor there: {listed(bayes[at])}"
    )
    return numbers, [ada[at[0]] < 1e-20, *(ada[i] < ada[j] for i, j in itertools.pairwise(at))]


@claim(
    f"the loss of AdaRR is 1 to {LITTLE} times that of TunedRR; the loss of TunedRR / that of Full (7 layers) is "
    "larger for sigma from 1.5 to 4 than below and above"
)
def tuned_middle(evidence: Evidence) -> Finding:
    """Decide what the paper says of TunedRR by noise level. See `claim`.

    TunedRR is a little better than AdaRR, and weak in the middle of the range.

    Where: Uniform noise, per-variance profiles, 6th sentence
    """
    sigmas, _ = evidence.levels(SHOWN)
    tuned, full = evidence.curve(SHOWN, "TunedRR"), evidence.curve(SHOWN, "full", 7)
    bands = sigmas <= 1.5, (sigmas > 1.5) & (sigmas < 4), (sigmas >= 4) & (sigmas <= 5)
    low, middle, high = (float(tuned[band].mean() / full[band].mean()) for band in bands)
    gain = evidence.ratio(("AdaRR", None), ("TunedRR", None), SHOWN)
    numbers = (
        f"uniform(0,5): AdaRR / TunedRR {gain:.2f}; TunedRR / Full, of mean losses: {low:.2f} below 1.5, "
        f"{middle:.2f} from 1.5 to 4, {high:.2f} from 4 to 5"
    )
    return numbers, [1 < gain < LITTLE, middle > max(low, high)]


@claim()
def alike_everywhere(evidence: Evidence) -> Finding:
    """Decide whether Full and Diag are alike at every noise level. See `claim`.

    Full and Diag perform alike at every noise level.

    Where: Uniform noise, per-variance profiles, 7th sentence
    Rule: the profiles of seven layers are within a factor of 1.5 at every level of training
    """
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


@claim()
def two_layers(evidence: Evidence) -> Finding:
    """Decide what the paper says of two layers against three. See `claim`.

    With two layers Full and Diag behave like GD++ and fit one noise level in the middle of the range; with three or
    more layers they improve over the whole range.

    Where: Uniform noise, bottom of figure 2, 2nd and 3rd sentence
    Rule: with two layers the smallest loss lies between sigma = 0.3 and 4.7; with 3 to 7 layers the loss is lower
        at every level of training
    """
    sigmas, inside = evidence.levels(SHOWN)
    two = {f: evidence.curve(SHOWN, f, 2)[inside] for f in FAMILIES}
    places = {f: float(sigmas[inside][np.argmin(two[f])]) for f in FAMILIES}
    better = {(f, k): evidence.curve(SHOWN, f, k)[inside] <= two[f] for f in ADAPTIVE for k in DEPTHS[2:]}
    worse = sorted({float(sigma) for lower in better.values() for sigma in sigmas[inside][~lower]})
    where = f"the exceptions lie from sigma = {worse[0]:.2f} to {worse[-1]:.2f}" if worse else "without exception"
    ratio = {f: evidence.ratio(("gdpp", 2), (f, 2), SHOWN) for f in ADAPTIVE}
    numbers = (
        f"smallest loss at sigma = {places['gdpp']:.2f} (GD++), {places['diag']:.2f} (Diag), {places['full']:.2f} "
        f"(Full); with two layers GD++ / Diag {ratio['diag']:.2f}, GD++ / Full {ratio['full']:.2f}; more "
        f"layers are better at {np.mean([*better.values()]):.0%} of levels and depths, {where}"
    )
    return numbers, [0.3 < places[f] < 4.7 for f in ADAPTIVE] + [bool(lower.all()) for lower in better.values()]
