"""Everything that decides the bits of a run: the problem, the family, the sizes, the seed and the protocol."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.models.family import Family, check_registered, family_named
from ridgeformer.models.file import fingerprint
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, problem_from_dict
from ridgeformer.problems.base import check_any_problem
from ridgeformer.validation import choice, integer

if TYPE_CHECKING:
    from ridgeformer.training.job import Job, Outcome

PROTOCOLS: dict[str, type[Protocol]] = {}  # by name; a subclass of Protocol enters itself


@dataclass(frozen=True, kw_only=True)
class Protocol(ABC):
    """A way to train: what it runs, what it completes in a spec, what it needs first and what it costs.

    Subclasses are frozen dataclasses, whose fields are the settings.

    Attributes:
        name: The name in specs and on the command line.
        adjusted: Whether the losses that it records while training are adjusted ones.
        axis: What the steps of its history are counted in: `step`, or `time` for gradient flow.
        remedy: A remark for runs that did not converge.
    """

    name: ClassVar[str]
    adjusted: ClassVar[bool] = True
    axis: ClassVar[str] = "step"
    remedy: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            PROTOCOLS[cls.name] = cls

    def as_dict(self) -> dict[str, Any]:
        """Return the name and the settings by name, as values that JSON can hold."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"name": self.name, **values}

    def complete(self, spec: Spec) -> Spec:
        """Return a spec with what this protocol leaves open, such as a learning rate.

        Args:
            spec: The spec, with this protocol.

        Returns:
            The spec that names the run.

        Raises:
            InputError: The protocol cannot train this model on this problem.
        """
        return spec

    def needs(self, spec: Spec) -> list[Spec]:
        """Return the runs that a run is grown from, which are trained first.

        Args:
            spec: The run.

        Returns:
            Their specs.
        """
        return []

    @property
    def time_limit(self) -> float | None:
        """Seconds that training may take; None for no limit."""
        return None

    @abstractmethod
    def cost(self, spec: Spec) -> float:
        """Estimate what a run costs without the runs that it needs, for progress and for sharing out time.

        Args:
            spec: The run.

        Returns:
            Seconds, up to a factor that is the same for all runs of one protocol.
        """

    @abstractmethod
    def run(self, job: Job) -> Outcome:
        """Train.

        Args:
            job: What to train, and what helps to train it.

        Returns:
            The model, and how it was found.
        """

    def kept(self) -> NDArray[np.int64]:
        """Return the steps whose parameters are kept, ascending; none unless steps are recorded."""
        return np.empty(0, np.int64)

    def advice(self) -> str:
        """Return what may help a run that diverged, as the end of a sentence; empty where there is nothing to say."""
        return ""


def as_protocol(value: object) -> Protocol:
    """Return a protocol from one or from its name.

    Args:
        value: A protocol, or the name of one with default settings: `search`, `paper`, `descent`, `sgd`, `adam` or
            `flow`.

    Returns:
        The protocol.

    Raises:
        InputError: It is none of these.
    """
    if isinstance(value, Protocol):
        return value
    if isinstance(value, str) and value in PROTOCOLS:
        return PROTOCOLS[value]()
    names, classes = ", ".join(PROTOCOLS), ", ".join(kind.__name__ for kind in PROTOCOLS.values())
    refuse(f"the protocol must be one of {names}, or a {classes}", shown(value), "Choose one of these.")


@dataclass(frozen=True)
class Spec:
    """Everything that decides a run's bits.

    Attributes:
        problem: What the model is trained on.
        family: The parametrisation, as a class.
        layers: Layers of the model.
        heads: Heads per layer.
        seed: Seed of the starts and of the sequences.
        protocol: How to train, such as a `Search` or a `GradientDescent`.
        sequences: How many fresh sequences the reported loss is measured on.
        layout: What tokens hold beside (x, y), and whether attention is a sum or a mean.
        init: The model that training starts from; None for random starts.
    """

    problem: BaseProblem
    family: type[Family]
    layers: int
    heads: int
    seed: int
    protocol: Protocol
    sequences: int
    layout: Layout = PAPER_LAYOUT
    init: LinearTransformer | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the spec as values that JSON can hold; `parse_spec` reads them.

        Returns:
            One entry per attribute; the problem gives its own, such as `dim`, `context` and `noise`. What has its
            default is left out. A model to start from is named by its checksum.
        """
        init = {} if self.init is None else {"init": fingerprint(self.init)}
        usual = self.layout == self.family.layout_for(PAPER_LAYOUT, self.problem.dim)
        layout = {} if usual else {"layout": dataclasses.asdict(self.layout)}
        return {
            **self.problem.as_dict(),
            **layout,
            **init,
            "family": self.family.name,
            **{name: getattr(self, name) for name in ("layers", "heads", "seed")},
            "protocol": self.protocol.as_dict(),
            "sequences": self.sequences,
        }

    @functools.cached_property
    def name(self) -> str:
        """The name of the run's folder: readable, with a hash of the whole spec."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        noise = re.sub(r"[^a-z0-9.]+", "-", self.problem.stem.lower()).strip("-")[:40]
        size = f"d{self.problem.dim}n{str(self.problem.lengths)[:20]}"
        family = re.sub(r"[^a-z0-9_-]+", "-", self.family.name).strip("-")
        seal = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{family}-{self.layers}x{self.heads}-{noise}-{size}-s{self.seed}-{seal}"

    def example(self) -> Family:
        """Return parameters of one layer, as the family makes them by itself."""
        width = self.problem.dim + self.layout.extra
        return self.family.random(width, 1, self.heads, 1.0, np.random.default_rng(0))

    def describe_model(self) -> str:
        """Return the family, the size and the layout of the model in words, such as `full, 3 layers, scratch=2`."""
        heads = "" if self.heads == 1 else f", {self.heads} heads"
        repeated = "" if self.family.loops == 1 else f" repeated {self.family.loops} times"
        room = self.layout if self.family.further_scalars is None else dataclasses.replace(self.layout, scratch=0)
        tokens = (f", {name}={value}" for name, value in vars(room).items() if value != getattr(PAPER_LAYOUT, name))
        return f"{self.family.name}, {self.layers} layer{'s' * (self.layers > 1)}{repeated}{heads}{''.join(tokens)}"

    def describe(self) -> str:
        """Return the model and the problem in words, such as `diag, 3 layers, d=10, n=20, uniform(0,5)`."""
        return f"{self.describe_model()}, {self.problem.label}"


def make_spec(
    problem: BaseProblem,
    family: str | type[Family],
    *,
    layers: int,
    heads: int = 1,
    seed: int = 0,
    protocol: str | Protocol = "search",
    sequences: int,
    layout: Layout | Mapping[str, Any] | None = None,
    init: LinearTransformer | None = None,
) -> Spec:
    """Make a spec of checked values.

    Args:
        problem: What to train on.
        family: The name of a family (`gdpp`, `diag`, `full`, or one of your own), or its class.
        layers: Layers of the model, from 1 to 1000.
        heads: Heads per layer, from 1 to 64.
        seed: Seed of the run, from 0 to 2^63 - 1.
        protocol: The name of a protocol, such as `search`, or a protocol, such as `Search(effort=2)`.
        sequences: How many fresh sequences the reported loss is measured on, at least 2.
        layout: What tokens hold beside (x, y), and whether attention is a sum or a mean: a `Layout`, or some of its
            attributes by name, such as `{"attention": "mean"}`. What is not given follows from `init` or, without one,
            from the problem: sums where all contexts have the same length; otherwise means, and where the family has
            room for it, the coordinate that shows the length.
        init: A model to start from, of the same family, dimension, layers, heads and layout; None for random starts.

    Returns:
        The spec.

    Raises:
        InputError: An argument is not one of these.
    """
    check_any_problem(problem)
    family = family_named(family)
    check_registered(family)
    layers, heads = integer("layers", layers, 1, 1000), integer("heads", heads, 1, 64)
    seed, sequences = integer("seed", seed, 0, (1 << 63) - 1), integer("sequences", sequences, 2)
    if layout is None and isinstance(init, LinearTransformer):
        layout = init.layout
    tokens = _layout(problem, family, layout)
    spec = Spec(problem, family, layers, heads, seed, as_protocol(protocol), sequences, tokens, init)
    if len(problem.by_dimension()) > 1 and spec.example().width is not None:
        rule = "a model for every dimension needs a family without d in its parameters"
        received = f"{family.name}, whose parameters are for d = {problem.dim}"
        refuse(rule, received, "Use channels(1,4), diag or gdpp.")
    if init is not None:
        _check_start(spec, init)
    return spec.protocol.complete(spec)


def _check_start(spec: Spec, init: object) -> None:
    """Refuse a model to start from that is not of the shape of the one to be trained."""
    if not isinstance(init, LinearTransformer):
        refuse("a start must be a LinearTransformer", kind_of(init), "Pass a model, such as run.model.")
    asked = (spec.family.name, spec.problem.dim, spec.layers, spec.heads, spec.layout)
    actual = (init.family.name, init.dim, init.layers // init.family.loops, init.heads, init.layout)
    names = ("family", "dimension", "layers", "heads", "layout")
    if wrong := [f"{name} {b}, not {a}" for name, a, b in zip(names, asked, actual, strict=True) if a != b]:
        rule = "a start must have the family, dimension, layers, heads and layout of the model to be trained"
        refuse(rule, ", ".join(wrong), "Pass another start, or train a model of its shape.")


def _layout(problem: BaseProblem, family: type[Family], layout: Layout | Mapping[str, Any] | None) -> Layout:
    """The layout of tokens: the given one, or the given attributes and what the problem suggests for the others."""
    if isinstance(layout, Layout):
        return family.layout_for(layout, problem.dim)
    if layout is not None and not isinstance(layout, Mapping):
        refuse("layout must be a Layout", kind_of(layout), 'Pass Layout("mean"), for example.')
    for name in layout or ():
        choice("an attribute of a layout", name, [field.name for field in dataclasses.fields(Layout)])
    varies = not problem.lengths.fixed
    shown = "ratio" if len(problem.by_dimension()) > 1 else "length"
    coordinate = shown if varies and family.further_scalars != 0 else "none"
    usual = {"attention": "mean", "coordinate": coordinate} if varies else {}
    return family.layout_for(Layout(**{**usual, **(layout or {})}), problem.dim)


def parse_spec(spec: dict[str, Any], init: LinearTransformer | None = None) -> Spec:
    """Make a spec from what `Spec.as_dict` returned.

    Args:
        spec: The values by name.
        init: The model that the run starts from, where the spec names one.

    Returns:
        The spec.

    Raises:
        InputError: A value is not allowed.
        KeyError: A value is missing.
        TypeError: A value is of another type.
    """
    protocol = dict(spec["protocol"])
    kind = PROTOCOLS[protocol.pop("name")]
    if (spec.get("init") or None) != (init and fingerprint(init)):
        remedy = "Pass the model that the run started from, init=model."
        refuse("a run that starts from a given model needs that model", "another one, or none", remedy)
    return make_spec(
        problem_from_dict(spec),
        spec["family"],
        **{name: spec[name] for name in ("layers", "heads", "seed", "sequences")},
        protocol=kind(**protocol),
        layout=Layout(**spec.get("layout", {})),
        init=init,
    )


def with_ancestors(spec: Spec) -> list[Spec]:
    """Return a run and all that it is grown from, each once, in an order in which they can be trained.

    Args:
        spec: The run.

    Returns:
        The specs, parents before children; the last is `spec` itself.
    """
    ordered: dict[str, Spec] = {}
    waiting = [spec]
    while waiting:
        last = waiting[-1]
        missing = [parent for parent in last.protocol.needs(last) if parent.name not in ordered]
        if missing:
            waiting.append(missing[0])
        else:
            ordered[last.name] = waiting.pop()
    return list(ordered.values())
