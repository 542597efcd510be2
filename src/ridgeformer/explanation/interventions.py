"""Models without one of their parts, and states of noisy contexts patched into the same contexts with less noise.

Patching shows which layer carries the noise estimate. Two contexts share x, w and all random numbers, and differ in
sigma. A model that adapts to the noise predicts with smaller weights where sigma is high. The shrinkage is measured as
<w_hat, w> / <w, w> with the task w, summed over sequences. The trace of the context with little noise is then continued
from parts of the state of the noisy one, and the share of the change in shrinkage that this restores says what the part
carries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation import Losses, compare
from ridgeformer.evaluation.sequence_losses import blocks, draw_sequences, how_many, needs_sums
from ridgeformer.evaluation.table import Table, lines
from ridgeformer.explanation.coefficients import check, diagonal_part
from ridgeformer.explanation.readings import inner
from ridgeformer.losses import exploded as has_exploded
from ridgeformer.models.families import FLOWS, Full, with_more_heads
from ridgeformer.models.trace import PATCHES, Trace
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.validation import choice, integer, number
from ridgeformer.values import Array


def ablate(
    problem: BaseProblem,
    model: LinearTransformer,
    *,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Losses:
    """Measure the loss without each layer, and without each flow of each layer, on the same sequences.

    To take away a flow such as xy, from y to x, omega_xy = 0 is set in a diagonal layer, and that block of T - I in a
    Full one. A term that is 0 already is left out. Layers of a Full model are also replaced by their diagonal parts.

    Args:
        problem: The problem.
        model: The model.
        sequences: How many sequences.
        seed: Seed of the sequences.
        progress: Is called with the number of sequences done and of all.

    Returns:
        The losses by the name of the part that was taken away, with the numbers of exploded sequences; `nothing` is the
        whole model.

    Raises:
        InputError: The model and the problem do not fit, or an argument is not allowed.
    """
    check(model, problem)
    variants = {"nothing": model}
    for layer in range(model.layers):
        variants[f"layer {layer + 1}"] = without_layer(model, layer)
        for flow in FLOWS:
            if (less := without_flow(model, layer, flow)) is not None:
                variants[f"layer {layer + 1}, {flow}"] = less
        if isinstance(model.family, Full) and model.layers > 1:
            variants[f"layer {layer + 1}, all but its diagonal part"] = diagonal_part(model, {layer})
    if isinstance(model.family, Full):
        variants["all layers, all but their diagonal parts"] = diagonal_part(model)
    return compare(problem, variants, sequences=sequences, seed=seed, progress=progress)


def without_layer(model: LinearTransformer, layer: int) -> LinearTransformer:
    """Return the model with one layer made the identity: the function of `model.without`, also for a single layer.

    Args:
        model: The model.
        layer: The layer, from 0.

    Returns:
        The new model; a Full one unless it is Diag or GD++.
    """
    return model.edit(layer, **{"omega" if "omega" in model.family.editable else "P": 0})


def without_flow(model: LinearTransformer, layer: int, flow: str) -> LinearTransformer | None:
    """Return the model without one flow of one layer.

    Args:
        model: The model.
        layer: The layer, from 0.
        flow: `xx`, `xy` (from y to x), `yx` or `yy`.

    Returns:
        The new model; None where there is no such flow.

    Raises:
        InputError: No flow has this name.
    """
    # Rows of P are where a flow goes, columns of Q where it comes from: two heads for each hold all blocks but one.
    x_and_y = slice(model.dim), slice(model.width, None)
    rows, columns = (x_and_y[index] for index in FLOWS[choice("a flow", flow, FLOWS)])
    if not (model.P[layer][:, rows].any((1, 2)) & model.Q[layer][:, :, columns].any((1, 2))).any():
        return None
    if "omega" in model.family.editable:
        return model.edit(layer, **{f"omega_{flow}": 0})
    heads, Q = model.heads, np.concatenate([model.Q, model.Q], 1)
    P = with_more_heads(model.P, 2 * heads, 0.0)
    P[layer, :heads, rows], P[layer, heads:, rows] = 0, model.P[layer][:, rows]
    Q[layer, heads:, :, columns] = 0
    return LinearTransformer(Full(P, Q), layout=model.layout)


BLOCK = 2048  # sequences at a time
LEVELS = "Pass low=1 and high=4, for example; on the command line --low 1 --high 4."
QUANTILES = (0.2, 0.8)  # of the noise: the two levels by default
HARDLY, CARRIES, USES = 0.1, 0.5, 0.25  # of the oracle's change; of the model's change, from a layer on and by it alone
MOST_EXPLODED = 0.01  # of the sequences: above it, a share is not given


@dataclass(frozen=True, eq=False, repr=False)
class NoisePatching(Table):
    """Share of the change in shrinkage between two noise levels that patches restore.

    Attributes:
        name: The model.
        low: The noise level of the contexts that are patched.
        high: The noise level of the contexts from which states are taken.
        shrinkage: <w_hat, w> / <w, w> of the model at both levels, [2].
        oracle: The same of ridge regression that knows sigma, [2]; NaN where the problem has no oracle.
        part: [K], the parts that were patched; see `Trace.patched`.
        layer: [L], the layer that reads the patched state, counted from 1.
        restored: [K, L], share of the change that a patch restores, which this layer and all later ones see. NaN where
            the model explodes on more than 1 % of the sequences.
        error: [K, L], standard errors of `restored`.
        once: [K, L], the same for patches that this layer alone sees: the next layer reads the context's own Gram
            matrix again. NaN for `query`, which is not a state of the context.
        exploded: [K, L], on how many sequences the patched model explodes; they are left out.
        sequences: How many pairs of contexts were used.
    """

    name: str
    low: float
    high: float
    shrinkage: Array
    oracle: Array
    part: tuple[str, ...]
    layer: NDArray[np.int64]
    restored: Array
    error: Array
    once: Array
    exploded: NDArray[np.int64]
    sequences: int

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per part and layer."""
        columns = ("restored", "error", "once", "exploded")
        return [
            {"name": self.name, "low": self.low, "high": self.high, "part": part, **row, "sequences": self.sequences}
            for k, part in enumerate(self.part)
            for row in lines({"layer": self.layer, **{c: getattr(self, c)[k] for c in columns}})
        ]

    def _title(self) -> str:
        return (
            f"Share of the change in shrinkage that is restored by patching states at sigma = {self.high:g} into\n"
            f"contexts at sigma = {self.low:g}: {self.name}, {self.sequences:,} pairs of contexts"
        )

    def _printed(self) -> list[dict[str, Any]]:
        """One row per layer."""
        shares = dict(zip(self.part, self.restored, strict=True))
        if "gram" in self.part:
            shares["gram, once"] = self.once[self.part.index("gram")]
        if self._hardly_changes():
            shares = {name: np.full(share.shape, np.nan) for name, share in shares.items()}
        return [
            {"layer": layer, **{name.rjust(8): _three_digits(value) for name, value in row.items()}}
            for layer, row in zip(self.layer.tolist(), lines(shares), strict=True)
        ]

    @property
    def _changes(self) -> tuple[float, float]:
        """The change of the shrinkage from one level to the other: of the model, and of the oracle."""
        return float(self.shrinkage[0] - self.shrinkage[1]), float(self.oracle[0] - self.oracle[1])

    def _hardly_changes(self) -> bool:
        """Whether the shrinkage changes, up or down, by less than a tenth of the oracle's: shares of it say nothing."""
        change, best = self._changes
        return bool(np.isfinite(best)) and abs(change) < HARDLY * best

    def _note(self) -> str:
        change, best = self._changes
        words = f"The shrinkage factor of the model goes from {self.shrinkage[0]:.3f} to {self.shrinkage[1]:.3f}"
        if np.isfinite(best):
            words += f";\nthat of the oracle goes from {self.oracle[0]:.3f} to {self.oracle[1]:.3f}"
            words += f" ({100 * change / best:.0f} % of the oracle's change)" if best else ""
        if self._hardly_changes():
            words += f".\nShares of a change below {HARDLY:.0%} of the oracle's say nothing; they are shown as -"
        elif self.exploded.any():
            words += ".\nSequences on which a patched model explodes are left out; - where they are more than 1 %"
        return f"{words}.{self._carrier()}"

    def _carrier(self) -> str:
        """Which layers use the noise level of the context, by the rule of docs/explanations/interventions.md."""
        if "gram" not in self.part or not np.isfinite(self.once[self.part.index("gram")]).any():
            return ""
        if self._changes[0] <= 0 or self._hardly_changes():
            return "\nThe model hardly adapts to the noise level, so that no layer is named."
        gram = self.part.index("gram")
        carries, once = self.layer[self.restored[gram] >= CARRIES], np.nan_to_num(self.once[gram])
        order = np.argsort(-np.abs(once), kind="stable")
        users = [f"layer {self.layer[i]} {once[i]:.0%}" for i in order if abs(once[i]) >= USES]
        alone = f"No layer alone restores {USES:.0%} or more of the change (gram, once)."
        if users:
            alone = f"Shares of the change that one layer alone restores (gram, once): {', '.join(users)}."
        return (
            f"\nThe context carries the noise level up to layer {carries.max(initial=1)}, the last before which gram "
            f"restores {CARRIES:.0%} or more.\n{alone}"
        )

    def __repr__(self) -> str:
        return f"NoisePatching({self.name!r}, sigma = {self.low:g} and {self.high:g}, {len(self.layer)} layers)"


def patch_noise(
    problem: BaseProblem,
    model: LinearTransformer,
    *,
    low: float | None = None,
    high: float | None = None,
    parts: Sequence[str] | None = None,
    sequences: int = 2000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> NoisePatching:
    """Measure which layers' states carry the noise level, by patching them between contexts of two noise levels.

    Args:
        problem: The problem, which must have `at_noise`. Sequences of built-in problems share everything but sigma.
        model: The model.
        low: The lower noise level; None for the 20 % quantile of the problem's noise.
        high: The higher noise level; None for the 80 % quantile.
        parts: The parts to patch, each alone; see `Trace.patched`. None for all that the tokens of the model have.
        sequences: How many pairs of contexts.
        seed: Seed of the sequences.
        progress: Is called with the number of sequences done and of all.

    Returns:
        The shares that patches restore.

    Raises:
        InputError: The model and the problem do not fit, the levels are not two different ones, or a part or another
            argument is not allowed.
    """
    check(model, problem)
    sequences, seed = how_many(problem, sequences), integer("seed", seed, 0)
    levels, names = _levels(problem, low, high), _parts(model, parts)
    pieces = []
    for first, count in blocks(sequences, problem.dim, BLOCK):
        draws = [draw_sequences(problem.at_noise(s), seed, first, count, needs_sums(model)) for s in levels]
        pieces.append(_block(model, draws, names, problem.signal))
        progress(first + count, sequences)
    sizes, oracle, restored, once = (np.concatenate(parts, -1) for parts in zip(*pieces, strict=True))
    shares, errors, lost = _shares(restored, sizes)
    task = sizes[2].sum()
    return NoisePatching(
        name=repr(model),
        low=levels[0],
        high=levels[1],
        shrinkage=sizes[:2].sum(1) / task,
        oracle=oracle.sum(1) / task,
        part=tuple(names),
        layer=np.arange(1, model.layers + 1),
        restored=shares,
        error=errors,
        once=_shares(once, sizes)[0],
        exploded=lost,
        sequences=sequences,
    )


def _parts(model: LinearTransformer, parts: Sequence[str] | None) -> list[str]:
    """The parts to patch."""
    allowed = [part for part in PATCHES if part != "further" or model.width > model.dim]
    names = allowed if parts is None else list(parts)
    if not names or not set(names) <= set(allowed):
        wrong = ", ".join(str(part) for part in names if part not in allowed) or "none"
        refuse(f"the parts that can be patched in this model are {', '.join(allowed)}", wrong, "Choose some of these.")
    return names


def _levels(problem: BaseProblem, low: float | None, high: float | None) -> tuple[float, float]:
    if low is None or high is None:
        if problem.noise is None:
            refuse("two noise levels are needed", "a problem without a noise distribution", LEVELS)
        usual = problem.noise.quantile(np.array(QUANTILES)).tolist()
    first = number("low", usual[0] if low is None else low)
    second = number("high", usual[1] if high is None else high)
    if low is None and high is None and first == second:
        refuse("patching needs two noise levels", f"a problem with one, {first:g}", LEVELS)
    if not first < second < np.inf:
        refuse("the lower noise level must be below the higher one", f"{first:g} and {second:g}", LEVELS)
    return first, second


def _block(model: LinearTransformer, draws: list[Draw], parts: list[str], signal: float) -> tuple[Array, ...]:
    """Products with the task: of w_hat and of the oracle at both levels, and of all patched w_hat."""
    here, there = (model.trace(draw).compute("G", "C", "w") for draw in draws)
    task, metric = np.asarray(draws[0].task, np.float64), draws[0].metric

    def sizes(trace: Trace) -> Array:
        """The product of the last w_hat with the task, [B]; NaN where it explodes."""
        lost = has_exploded(trace.losses[-1], signal)
        with np.errstate(all="ignore"):
            return np.where(lost, np.nan, inner(np.asarray(trace.weights[-1], np.float64), task, metric))

    def every(patch: Callable[[int, str], Trace | None]) -> Array:
        empty = np.full(len(task), np.nan)
        traces = ((patch(layer, part) for layer in range(model.layers)) for part in parts)
        return np.array([[empty if trace is None else sizes(trace) for trace in row] for row in traces])

    def once(layer: int, part: str) -> Trace | None:
        patched = here.patched(layer, there, part)
        if part == "query":
            return None
        return patched if layer == model.layers - 1 else patched.patched(layer + 1, here)

    projections = np.stack([sizes(here), sizes(there), inner(task, task, metric)])
    finite = np.isfinite(projections).all(0)
    oracle = np.stack([inner(np.asarray(d.ridge, np.float64), task, metric) for d in draws])
    oracle = oracle if draws[0].oracle else np.full_like(oracle, np.nan)
    products = (projections, oracle, every(lambda layer, part: here.patched(layer, there, part)), every(once))
    return tuple(values[..., finite] for values in products)


def _three_digits(value: float) -> str:
    """A share as text."""
    return f"{round(value, 3) + 0.0:8.3f}" if np.isfinite(value) else "-".rjust(8)


def _shares(patched: Array, sizes: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    """Shares of the change, their standard errors, and how many sequences are left out, [K, L] each."""
    good = np.isfinite(patched)
    moved, change = np.where(good, patched - sizes[0], 0.0), np.where(good, sizes[1] - sizes[0], 0.0)
    with np.errstate(all="ignore"):
        share = moved.sum(-1) / change.sum(-1)
        error = np.sqrt(np.square(moved - share[..., None] * change).sum(-1)) / np.abs(change.sum(-1))
    lost = (~good).sum(-1)
    few = lost <= MOST_EXPLODED * patched.shape[-1]
    return np.where(few, share, np.nan), np.where(few, error, np.nan), lost
