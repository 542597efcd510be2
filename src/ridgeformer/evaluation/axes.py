"""The points at which losses are measured: one problem, or a problem along axes such as the noise level."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.evaluation.sequence_losses import TOKENS, draw_sequences
from ridgeformer.moments import Moments, share_basis
from ridgeformer.noise import Noise
from ridgeformer.problems import BaseProblem, Draw, Lengths
from ridgeformer.problems.base import check_any_problem
from ridgeformer.problems.parts import ContextRule
from ridgeformer.validation import Array, array, integer

Over = str | Mapping[str, Any] | None
LONGEST, TITLE = 60, 90  # characters of a label, and of one that is a title


class Points:
    """The points of a comparison, and the sequences of each.

    Args:
        problem: The distribution of sequences.
        over: The axes: None, the name of one with its default values, or values by name.
        layers: The numbers of layers of the predictors; None for one without layers.

    Attributes:
        axes: The values of every axis.
        in_distribution: Which of them can occur in the problem, for all axes but `layer`.
        problems: One problem for each combination of the values of all axes but `layer` and prefixes.
        prefixes: The numbers of examples, where prefixes of the same sequences are measured; else None.
        largest: The numbers in the tokens of a sequence, at most.

    Raises:
        InputError: There is no such axis, or a value is not allowed.
    """

    def __init__(self, problem: BaseProblem, over: Over, layers: Sequence[int | None]) -> None:
        requested = _given(problem, over)
        self.problem, self.prefixes = problem, _prefixes(problem, requested)
        self.axes: dict[str, tuple[Any, ...]] = {}
        self.in_distribution: dict[str, tuple[bool, ...]] = {}
        changes: dict[str, tuple[Any, ...]] = {}
        for name, values in requested.items():
            if name == "layer":
                self.axes[name] = _layers(values, layers)
            elif name == "context" and self.prefixes:
                self.axes[name] = self.prefixes
                self.in_distribution[name] = tuple(np.isin(self.prefixes, problem.lengths.values).tolist())
            else:
                rows = zip(*_values(problem, name, values), strict=True)
                self.axes[name], changes[name], self.in_distribution[name] = rows
        first = sorted(changes, key=lambda name: name != "problem")  # a problem is chosen before it is changed
        self.problems = _combined(problem, {name: changes[name] for name in first})
        self.order = [name for name in dict.fromkeys(("layer", *first, "context")) if name in self.axes]
        self.largest = max(max(self.prefixes or (p.lengths.most,)) * (p.dim + 1) for p in self.problems)

    def draws(self, seed: int, first: int, count: int, *, sums: bool, tokens: bool) -> Iterator[Draw]:
        """Draw the sequences of all points; problems that differ in the noise level alone share theirs.

        Args:
            seed: Seed of the evaluation.
            first: The number of the first sequence.
            count: How many sequences.
            sums: Whether to draw the sums of the tokens, too.
            tokens: Whether to draw the tokens, too.

        Yields:
            One draw for each problem, or for each prefix of each problem.
        """
        before: Moments | None = None
        for problem in self.problems:
            if self.prefixes:
                yield from _cut(problem, self.prefixes, seed, first, count)
                continue
            draw = draw_sequences(problem, seed, first, count, sums, tokens)
            if before is not None and problem.is_isotropic:
                share_basis(draw.moments, before)
            yield draw
            before = draw.moments

    def arranged(self, values: Array) -> Array:
        """Bring the dimensions of an array into the order of the axes.

        Args:
            values: Numbers at all points in the order of `draws`, [..., layers, points], with one layer where there is
                no such axis.

        Returns:
            The same, [..., *axes].
        """
        lead = values.ndim - 2
        shaped = values.reshape((*values.shape[:lead], *(len(self.axes[name]) for name in self.order)))
        return np.asarray(shaped.transpose((*range(lead), *(lead + self.order.index(name) for name in self.axes))))


def short_label(value: object, most: int = LONGEST) -> str:
    """Return a short text of a problem, or of a part of it: a label, where it has one, and never a whole matrix.

    Args:
        value: The problem, or the law of its features, tasks or queries.
        most: How many characters it may have. Default: 60.

    Returns:
        One line.
    """
    text = str(getattr(value, "label", value))
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _given(problem: BaseProblem, over: Over) -> dict[str, Any]:
    """The axes by name; None stands for default values."""
    axes = {} if over is None else {over: None} if isinstance(over, str) else over
    if not isinstance(axes, Mapping):
        refuse("over must be an axis or a dict of axes", kind_of(over), 'Pass over={"sigma": [0, 1, 2]}, for example.')
    allowed = list(dict.fromkeys(["layer", "sigma", "context", *problem.arguments, "problem"]))
    for name, values in axes.items():
        if name not in allowed:
            refuse(f"the axes of this problem are {', '.join(allowed)}", shown(name), "Choose one of these.")
        if values is None and name not in ("layer", "sigma", "context"):
            refuse(f"the axis {name} has no default values", "none", f'Pass over={{"{name}": [...]}}.')
    if {"sigma", "noise"} <= axes.keys():
        refuse("sigma and noise are one axis", "both", "Choose one of them.")
    return dict(axes)


def _layers(values: Any, layers: Sequence[int | None]) -> tuple[int, ...]:
    if None in layers:
        rule = "losses by layer need a LinearTransformer and no subclass, because a subclass may predict something else"
        received = "another predictor"
        refuse(rule, received, "Pass LinearTransformer(model.family, model.dim), or leave out the axis layer.")
    deepest = max(depth for depth in layers if depth is not None)
    depths = range(deepest + 1) if values is None else _listed("layer", values)
    return tuple(integer("layer", value, 0, deepest) for value in depths)


def _prefixes(problem: BaseProblem, axes: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The numbers of examples, where prefixes can be had: of numbers that fit into memory, of raw features."""
    if "context" not in axes or getattr(getattr(problem, "features", None), "standardised", False):
        return None
    if "dim" in axes:
        return None  # other sequences anyway
    values = axes["context"]
    if values is None or isinstance(values, str | Lengths | range):
        values = Lengths(range(1, problem.lengths.most + 1) if values is None else values).values.tolist()
    listed = _listed("context", values)
    if not all(isinstance(value, Integral) for value in listed):
        return None
    longest = Lengths(listed).most
    if longest * (problem.dim + 1) > TOKENS and problem.has_known_laws:
        return None
    if "context" not in problem.arguments and not (problem.lengths.fixed and longest <= problem.lengths.most):
        rule = "a problem with this context needs an argument context"
        received = f"{kind_of(problem)} with {problem.lengths} examples"
        refuse(rule, received, f"Let its __init__ take context, or ask for at most {problem.lengths.least} examples.")
    return tuple(int(value) for value in listed)


def _values(problem: BaseProblem, name: str, values: Any) -> list[tuple[Any, Any, bool]]:
    """For each value of an axis: how it is shown, what changes the problem, and whether it can occur there."""
    if name == "sigma":
        levels, noise = _levels(problem, values), problem.noise
        inside = noise.contains(levels) if isinstance(noise, Noise) else np.ones(len(levels), bool)
        return list(zip(levels.tolist(), levels.tolist(), inside.tolist(), strict=True))
    if name == "problem":
        named = values if isinstance(values, Mapping) else {short_label(p): p for p in _listed(name, values)}
        return [(str(text), check_any_problem(variant), variant == problem) for text, variant in named.items()]
    listed = _listed(name, range(2, problem.lengths.most + 1) if values is None else values)  # one has no deviation
    if name == "context" and any(ContextRule(value).depends for value in listed):  # the numbers depend on d
        usual = problem.arguments[name]
        return [(str(rule), rule, rule.depends and _within(rule, problem, usual)) for rule in map(ContextRule, listed)]
    changed = [(value, problem.replace(**{name: value})) for value in listed]
    if name == "dim":
        dims = problem.by_dimension()
        return [(variant.dim, value, variant.dim in dims) for value, variant in changed]
    return [(_shown(variant, name), value, variant == problem) for value, variant in changed]


def _within(rule: ContextRule, problem: BaseProblem, context: object) -> bool:
    """Whether the numbers of examples of a rule occur in the problem at each of its dimensions."""
    allowed = {d: ContextRule(context).at(d).values for d in problem.by_dimension()}
    return all(np.isin(rule.at(d).values, values).all() for d, values in allowed.items())


def _shown(problem: BaseProblem, name: str) -> Any:
    """The value of an argument of a problem: a number where it is one, else a short text."""
    value: Any = problem.lengths if name == "context" else getattr(problem, name)
    if isinstance(value, Lengths):
        return value.most if value.fixed else str(value)
    lower, upper = getattr(value, "lower", None), getattr(value, "upper", None)
    if name == "noise" and lower is not None and lower == upper:
        return float(upper)
    return value if isinstance(value, bool | int | float) else short_label(value)


def _listed(name: str, values: Any) -> list[Any]:
    """The values of an axis; one value alone is a list of one."""
    listed = [values] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)
    if not listed:
        refuse(f"the axis {name} needs at least one value", "none", "Name at least one.")
    return listed


def _levels(problem: BaseProblem, values: Any) -> Array:
    """Noise levels; by default from 0 to 1 above the largest, with its ends, or all of a few, among them."""
    if values is None:
        if not isinstance(problem.noise, Noise):
            refuse("noise levels of this problem have no default", "none", 'Pass over={"sigma": [0, 1, 2]}.')
        nodes, _ = problem.noise.quadrature()
        special = nodes if len(nodes) <= 16 else np.array([problem.noise.lower, problem.noise.upper])
        return np.union1d(np.linspace(0, problem.noise.upper + 1, 41), special)
    levels = array("sigma", _listed("sigma", values), ("K",)).astype(np.float64)
    if (levels < 0).any():
        refuse("sigma must not be negative", float(levels.min()), "Pass standard deviations >= 0.")
    return levels


def _combined(problem: BaseProblem, changes: Mapping[str, tuple[Any, ...]]) -> list[BaseProblem]:
    """One problem for each combination of values."""
    problems = []
    for combination in itertools.product(*changes.values()):
        changed: Any = problem
        for name, value in zip(changes, combination, strict=True):
            if name == "problem":
                changed = value
            else:
                changed = (
                    check_any_problem(changed.at_noise(value)) if name == "sigma" else changed.replace(**{name: value})
                )
        problems.append(changed)
    return problems


def _cut(problem: BaseProblem, prefixes: tuple[int, ...], seed: int, first: int, count: int) -> Iterator[Draw]:
    """The draws of the first tokens of the same sequences, one for each number of tokens."""
    longest: Any = problem
    if "context" in problem.arguments:
        longest = problem.replace(context=max(prefixes))
    uncut = draw_sequences(longest, seed, first, count, tokens=True)
    tokens = uncut.tokens
    assert tokens is not None
    e = np.concatenate([tokens.x, tokens.y[..., None]], axis=-1)
    gram, sums, before, cuts = np.zeros((count, e.shape[2], e.shape[2])), np.zeros((count, e.shape[2])), 0, {}
    for n in sorted(set(prefixes)):
        part = np.asarray(e[:, before:n])
        gram, sums, before = gram + np.swapaxes(part, 1, 2) @ part, sums + part.sum(1), n
        cuts[n] = Moments._trusted(gram.copy(), n, uncut.moments.sigma, sums.copy())
    for n in prefixes:
        if (uncut.moments.counts == n).all():  # the bits of an evaluation with as many examples
            yield uncut
        else:
            sigma = tokens.sigma if np.ndim(tokens.sigma) < 2 else tokens.sigma[:, :n]  # type: ignore[arg-type, index]
            first_tokens = replace(tokens, x=tokens.x[:, :n], y=tokens.y[:, :n], sigma=sigma, context=None)
            ridge = longest.oracle(cuts[n] if longest.has_known_laws else first_tokens) if uncut.oracle else uncut.ridge
            yield replace(uncut, moments=cuts[n], ridge=ridge)
