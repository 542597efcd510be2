"""What decides the bits of a run: the problem, the family, the sizes, the seed and the protocol."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.family import Family
from ridgeformer.models.file import fingerprint
from ridgeformer.models.names import check_registered, family_named
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.population import FIXED, REMEDY, check_population, has_population
from ridgeformer.predictors.base import check_any_problem
from ridgeformer.problems import BaseProblem, Problem, problem_from_dict
from ridgeformer.training.protocols import (
    NAMES,
    GradientDescent,
    GradientFlow,
    Paper,
    Protocol,
    Search,
    as_protocol,
    describe,
)
from ridgeformer.training.rates import suited
from ridgeformer.validation import integer

__all__ = ["Spec", "default_layout", "estimate_seconds", "make_spec", "parents", "parse_spec", "with_ancestors"]

SAMPLE = "sample(8192)"  # what a descent follows by default where the population gradient is not known


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
        usual = self.layout == self.family.fitted(PAPER_LAYOUT, self.problem.dim)
        layout = {} if usual else {"layout": dataclasses.asdict(self.layout)}
        return {
            **self.problem.as_dict(),
            **layout,
            **init,
            "family": self.family.name,
            "layers": self.layers,
            "heads": self.heads,
            "seed": self.seed,
            "protocol": describe(self.protocol),
            "sequences": self.sequences,
        }

    @functools.cached_property
    def name(self) -> str:
        """The name of the run's folder: readable, with a hash of the whole spec."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        law = self.problem.noise if isinstance(self.problem, Problem) else self.problem.as_dict()["problem"]
        noise = re.sub(r"[^a-z0-9.]+", "-", str(law).lower()).strip("-")[:40]
        size = f"d{self.problem.dim}n{str(self.problem.lengths)[:20]}"
        parts = [
            re.sub(r"[^a-z0-9_-]+", "-", self.family.name).strip("-"),
            f"{self.layers}x{self.heads}",
            noise,
            size,
            f"s{self.seed}",
        ]
        return "-".join(parts) + "-" + hashlib.sha256(text.encode()).hexdigest()[:10]

    def describe_model(self) -> str:
        """Return the family, the size and the layout of the model in words, such as `full, 3 layers, scratch=2`."""
        heads = "" if self.heads == 1 else f", {self.heads} heads"
        repeated = "" if self.family.loops == 1 else f" repeated {self.family.loops} times"
        room = self.layout if self.family.further_scalars is None else dataclasses.replace(self.layout, scratch=0)
        tokens = (f", {name}={value}" for name, value in vars(room).items() if value != getattr(PAPER_LAYOUT, name))
        return f"{self.family.name}, {self.layers} layer{'s' * (self.layers > 1)}{repeated}{heads}{''.join(tokens)}"

    def describe(self) -> str:
        """Return the model and the problem in words, such as `diag, 3 layers, d=10, n=20, uniform(0,5)`."""
        return f"{self.describe_model()}, {self.problem}"


def make_spec(
    problem: BaseProblem,
    family: str | type[Family],
    *,
    layers: int,
    heads: int = 1,
    seed: int = 0,
    protocol: str | Protocol = "search",
    sequences: int,
    layout: Layout | None = None,
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
        layout: What tokens hold beside (x, y), and whether attention is a sum or a mean. None for what
            `default_layout` returns, or the layout of `init`.
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
    recipe = as_protocol(protocol)
    if isinstance(recipe, Paper) and not problem.is_isotropic:
        refuse("the paper's protocol is for the paper's problem", problem, "Use the protocol search.")
    if layout is None and isinstance(init, LinearTransformer):
        layout = init.layout
    tokens = _layout(problem, family, layout)
    if init is not None and isinstance(recipe, GradientDescent | GradientFlow):
        recipe = dataclasses.replace(recipe, scale=None)  # of a random start: it changes no bits
    spec = Spec(problem, family, layers, heads, seed, recipe, sequences, tokens, init)
    if init is not None:
        _check_start(spec, init)
    return _completed(spec)


def _completed(spec: Spec) -> Spec:
    """The spec with what its descent leaves open: the batch, the population where that is known, and the rate."""
    recipe, layers = spec.protocol, spec.layers * spec.family.loops
    if not isinstance(recipe, GradientDescent | GradientFlow):
        return spec
    if recipe.batch == "population":
        remedy = f"{FIXED}." if isinstance(recipe, GradientFlow) else REMEDY
        check_population(spec.problem, layers, spec.layout, remedy)
    if recipe.batch is None:
        batch = "population" if has_population(spec.problem, layers, spec.layout) else SAMPLE
        recipe = dataclasses.replace(recipe, batch=batch)
    if isinstance(recipe, GradientDescent):
        if recipe.rate is None:
            like = _example(spec) if spec.init is None else spec.init.family
            recipe = suited(recipe, spec.problem, spec.layout, like)
        if recipe.clip == np.inf:
            recipe = dataclasses.replace(recipe, clip=None)
    return dataclasses.replace(spec, protocol=recipe)


def _example(spec: Spec) -> Family:
    """Parameters of one layer, as the family makes them by itself."""
    width = spec.problem.dim + spec.layout.extra
    return spec.family.random(width, 1, spec.heads, 1.0, np.random.default_rng(0))


def _check_start(spec: Spec, init: object) -> None:
    """Refuse a model to start from that is not of the shape of the one to be trained."""
    if not isinstance(init, LinearTransformer):
        refuse("a start must be a LinearTransformer", kind_of(init), "Pass a model, such as run.model.")
    asked = (spec.family.name, spec.problem.dim, spec.layers, spec.heads, spec.layout)
    given = (init.family.name, init.dim, init.layers // init.family.loops, init.heads, init.layout)
    names = ("family", "dimension", "layers", "heads", "layout")
    wrong = [f"{name} {b}, not {a}" for name, a, b in zip(names, asked, given, strict=True) if a != b]
    if wrong:
        refuse(
            "a start must have the family, dimension, layers, heads and layout of the model to be trained",
            ", ".join(wrong),
            "Pass another start, or train a model of its shape.",
        )
    like = _example(spec)
    if isinstance(spec.protocol, Search) and like.arrays.keys() != init.family.arrays.keys():
        refuse(
            f"a search starts from models given by {' and '.join(like.arrays)}",
            f"one given by {' and '.join(init.family.arrays)}",
            "Convert it, or use a protocol that starts from one model, such as GradientDescent.",
        )


def default_layout(problem: BaseProblem, family: str | type[Family]) -> Layout:
    """Return the layout of tokens that a problem suggests.

    Args:
        problem: What to train on.
        family: The name of a family, or its class.

    Returns:
        Attention by sum where all contexts have the same length; otherwise by mean, and where the family has room for
        it, the coordinate that shows the length.
    """
    kind = family_named(family)
    if problem.lengths.fixed:
        return kind.fitted(Layout(), problem.dim)
    return kind.fitted(Layout("mean", "none" if kind.further_scalars == 0 else "length"), problem.dim)


def _layout(problem: BaseProblem, family: type[Family], layout: Layout | None) -> Layout:
    if layout is None:
        return default_layout(problem, family)
    if not isinstance(layout, Layout):
        refuse("layout must be a Layout", kind_of(layout), 'Pass Layout("mean"), for example.')
    return family.fitted(layout, problem.dim)


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
    kind = NAMES[protocol.pop("name")]
    problem = problem_from_dict(spec)
    rest = {name: spec[name] for name in ("family", "layers", "heads", "seed", "sequences")}
    if (spec.get("init") or None) != (init and fingerprint(init)):
        refuse(
            "a run that starts from a given model needs that model",
            "another one, or none",
            "Pass the model that the run started from, init=model.",
        )
    layout = Layout(**spec.get("layout", {}))
    return make_spec(problem, **rest, protocol=kind(**protocol), layout=layout, init=init)


def parents(spec: Spec) -> list[Spec]:
    """Return the runs that a run is grown from: one layer less, and the simpler family that its family contains.

    Args:
        spec: The run.

    Returns:
        At most two specs; none for other protocols than the search, which grow nothing.
    """
    if not isinstance(spec.protocol, Search):
        return []
    spec = dataclasses.replace(spec, init=None)
    found = []
    simpler, dim, layout = spec.family.contains, spec.problem.dim, Layout(spec.layout.attention)
    if simpler is not None and spec.layout == spec.family.fitted(layout, dim):
        heads = spec.heads if simpler.useful_heads is None else min(spec.heads, simpler.useful_heads)
        found.append(dataclasses.replace(spec, family=simpler, heads=heads, layout=simpler.fitted(layout, dim)))
    if spec.layers > 1:
        found.append(dataclasses.replace(spec, layers=spec.layers - 1))
    return found


def with_ancestors(spec: Spec) -> list[Spec]:
    """Return a run and all that it is grown from, each once, in an order in which they can be trained.

    Args:
        spec: The run.

    Returns:
        The specs, parents before children; the last is `spec` itself.
    """
    found: dict[str, Spec] = {}
    waiting = [spec]
    while waiting:
        missing = [parent for parent in parents(waiting[-1]) if parent.name not in found]
        if missing:
            waiting.append(missing[0])
        else:
            done = waiting.pop()
            found[done.name] = done
    return list(found.values())


def estimate_seconds(spec: Spec) -> float:
    """Estimate, roughly, what a run costs without its parents, for progress and for sharing out time.

    Args:
        spec: The run.

    Returns:
        Seconds, up to a factor that is the same for all runs of one protocol.
    """
    if isinstance(spec.protocol, Paper):
        return float(spec.protocol.steps * spec.protocol.batch)
    if not isinstance(spec.protocol, Search):
        return float(spec.protocol.steps)
    size = spec.problem.dim**2 / 100
    seconds = {"gdpp": 0.15, "diag": 0.85 * spec.layers * (0.6 + 0.4 * size)}
    return spec.protocol.effort * seconds.get(spec.family.name, 2 + 1.2 * spec.layers * spec.heads * (0.4 + 0.6 * size))
