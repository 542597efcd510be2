"""Problems of your own: the base class, and the check of what they draw."""

from __future__ import annotations

import inspect
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Engine, Key
from ridgeformer.engine.arguments import check_sequences, make_key
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.noise import Noise
from ridgeformer.problems.base import BaseProblem, Precision
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.lengths import Lengths
from ridgeformer.validation import array, integer, real

__all__ = ["CUSTOM", "CustomProblem", "from_tokens"]

SAMPLED = 1024  # sequences from which the size of the labels is estimated
CUSTOM: dict[str, type[CustomProblem]] = {}  # by name; a subclass with a name enters itself


class CustomProblem(BaseProblem):
    """The base class of problems of your own: features, noise and labels of any kind.

    A subclass sets `dim` and `context` in its `__init__` and has one method, `draw(rng, count)`, which returns
    `Sequences` (tokens, queries and answers, with the task vectors where labels are linear in the features) or a `Draw`
    (moments). The same random numbers must give the same sequences. Without task vectors, the loss is that of the
    queries.

    Runs on a problem can be stored, found again and swept over if its class has an attribute `name`, keeps its
    arguments as attributes of the same names, and is imported. `best_predictor` may return a predictor whose loss is
    the floor; without one the floor is unknown. `at_noise(sigma)` may return the same problem at one noise level, for
    profiles.

    Attributes:
        name: The name under which runs on the problem are stored; None if they are not.
        context: The number of examples: a number, a range or a list, as `Problem` takes it.
        noise: The distribution of noise levels; None where there is none to speak of.

    >>> class Cubic(CustomProblem):
    ...     def __init__(self, dim=3, context=12):
    ...         self.dim, self.context = dim, context
    ...
    ...     def draw(self, rng, count):
    ...         x = rng.standard_normal((count, self.context + 4, self.dim))
    ...         y = x[..., 0] ** 3 + 0.1 * rng.standard_normal(x.shape[:2])
    ...         return Sequences(x[:, :-4], y[:, :-4], queries=x[:, -4:], answers=y[:, -4:])
    >>> Cubic().moments(100).moments
    Moments(100 contexts, dim=3, context=12, float64)
    """

    name: ClassVar[str | None] = None
    context: Any = None
    noise: Noise | None = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Enter a subclass with a name among those that stored runs can be read with."""
        super().__init_subclass__(**keywords)
        name = vars(cls).get("name")
        if name is None:
            return
        if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_-]{0,30}", name)):
            refuse(
                "the name of a problem must be a lower-case letter and up to 30 more letters, digits, _ or -",
                shown(name),
                'Write name = "my-problem", for example.',
            )
        known = CUSTOM.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            refuse(
                "the name of a problem must be its own",
                f"{name!r}, which is {known.__qualname__}",
                "Choose another name.",
            )
        CUSTOM[name] = cls

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> Sequences | Draw:
        """Draw sequences.

        Args:
            rng: Random numbers, the same for the same seed, stream, step and first sequence.
            count: How many sequences.

        Returns:
            `Sequences`, or a `Draw`.
        """

    @property
    def lengths(self) -> Lengths:  # type: ignore[override]
        """The number of examples in a context, from `context`."""
        return Lengths(self.context)

    @property
    def signal(self) -> float:  # type: ignore[override]
        """The mean square of what is to be predicted, estimated once from a sample."""
        if "_signal" not in vars(self):
            drawn = self.moments(SAMPLED, seed=0, stream=(1 << 32) - 1)
            losses = drawn.losses(np.zeros_like(drawn.task), drawn.task)
            if drawn.offset is not None:
                losses = losses + drawn.offset
            vars(self)["_signal"] = 2 * float(np.mean(losses))
        return float(vars(self)["_signal"])

    @property
    def feature_scale(self) -> float:
        """The root mean square of a feature, estimated once from a sample."""
        if "_scale" not in vars(self):
            moments = self.moments(SAMPLED, seed=0, stream=(1 << 32) - 1).moments
            squares = np.einsum("bii->b", moments.S) / moments.dim / moments.counts
            vars(self)["_scale"] = float(np.sqrt(squares.mean()))
        return float(vars(self)["_scale"])

    def _moments(
        self, key: Key, count: int, first: int, dtype: Precision, sums: bool, engine: Engine, threads: int | None
    ) -> Draw:
        self._check_setup()
        drawn = self.draw(np.random.default_rng(np.random.SeedSequence((*key, first))), count)
        if isinstance(drawn, Sequences):
            drawn = from_tokens(drawn)
        if not isinstance(drawn, Draw):
            refuse("draw must return Sequences or a Draw", kind_of(drawn), "Correct its draw method.")
        if sums and drawn.moments.sums is None:
            refuse("a further coordinate needs the sums of the tokens", "moments without them", "Return Sequences.")
        checked = drawn.checked(integer("dim", self.dim, 1, 4096), count)
        if not np.isin(checked.moments.counts, self.lengths.values).all():
            refuse(
                f"contexts must have as many examples as the problem's context says, {self.lengths}",
                repr(checked.moments),
                "Correct context or the draw method.",
            )
        return checked.astype(dtype)

    def sequences(self, count: int, *, seed: int = 0, stream: int = 0, step: int = 0, queries: int = 1) -> Sequences:
        """See `BaseProblem.sequences`."""
        self._check_setup()
        key, (count, _) = make_key(seed, stream, step), check_sequences(count, 0)
        drawn = self.draw(np.random.default_rng(np.random.SeedSequence((*key, 0))), count)
        return drawn if isinstance(drawn, Sequences) else super().sequences(count)

    def _check_setup(self) -> None:
        """Refuse a class that does not set what it must, or that draws other sequences from the same random numbers."""
        if "_set_up" in vars(self):
            return
        if getattr(self, "dim", None) is None or self.context is None:
            refuse(
                "a problem of your own must set self.dim and self.context in its __init__",
                f"{kind_of(self)} without them",
                "Write self.dim, self.context = 5, 10, for example.",
            )
        one, other = (_first_labels(self.draw(np.random.default_rng(0), 2)) for _ in range(2))
        if one is not None and other is not None and not np.array_equal(one, other, equal_nan=True):
            refuse(
                "the same random numbers must give the same sequences",
                f"{kind_of(self)} whose draw gives others every time",
                "Use the given rng, and no other random numbers.",
            )
        vars(self)["_set_up"] = True

    @property
    def has_at_noise(self) -> bool:
        """Whether the subclass has a method `at_noise`."""
        return type(self).at_noise is not CustomProblem.at_noise

    def at_noise(self, sigma: float) -> BaseProblem:
        """See `BaseProblem.at_noise`; a subclass may offer it.

        Raises:
            InputError: The subclass does not.
        """
        refuse(
            "a profile needs the problem at single noise levels",
            f"{kind_of(self)} without at_noise",
            "Write a method at_noise(sigma) that returns the problem with that noise level.",
        )

    @property
    def arguments(self) -> list[str]:
        """The names of the arguments of `__init__`."""
        return list(inspect.signature(type(self).__init__).parameters)[1:]

    def replace(self, **changes: Any) -> CustomProblem:
        """Return a problem of the same class that differs in some arguments of `__init__`.

        Args:
            **changes: New values by name. The others are taken from the attributes of the same names.

        Returns:
            The problem.

        Raises:
            InputError: There is no such argument, or the problem does not keep its arguments as attributes.
        """
        names = self.arguments
        unknown = [name for name in changes if name not in names]
        if unknown:
            refuse(
                f"{kind_of(self)} has the arguments {', '.join(names) or 'none'}",
                ", ".join(unknown),
                "Pass only these.",
            )
        missing = [name for name in names if name not in changes and not hasattr(self, name)]
        if missing:
            refuse(
                "a problem must keep its arguments as attributes of the same names",
                f"{kind_of(self)} without {', '.join(missing)}",
                "Set them in its __init__.",
            )
        return type(self)(**{name: changes[name] if name in changes else getattr(self, name) for name in names})

    def as_dict(self) -> dict[str, Any]:
        """Return the name of the class and its arguments, as JSON has them; without a name, its class and identity."""
        if self.name is None:
            return {"problem": f"{type(self).__name__} at {id(self):#x}"}
        return {"problem": self.name, "arguments": {name: _plain(value) for name, value in self._state().items()}}

    def check_named(self) -> None:
        """Refuse a problem that a stored run could not be read back with.

        Raises:
            InputError: The class has no name, or is not the one that its name stands for.
        """
        if self.name is None or CUSTOM.get(self.name) is not type(self):
            refuse(
                "a run is stored under the name of its problem",
                f"{kind_of(self)} without a name of its own",
                'Write name = "my-problem" in its class, or train without out.',
            )

    def _state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __str__(self) -> str:
        inner = ",".join(f"{name}={shown(value, 30)}" for name, value in self._state().items())
        return f"{self.name or type(self).__name__}({inner})"

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        if self is other or self.name is None or type(self) is not type(other):
            return self is other
        return isinstance(other, CustomProblem) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash(str(self)) if self.name is not None else id(self)


def _first_labels(drawn: object) -> NDArray[Any] | None:
    """Numbers that tell one draw from another; None for what is no draw, which is refused elsewhere."""
    drawn_y = drawn.y if isinstance(drawn, Sequences) else drawn.task if isinstance(drawn, Draw) else None
    found = None if drawn_y is None else np.asarray(drawn_y)
    return found if found is not None and found.dtype.kind == "f" else None


def from_tokens(sequences: Sequences) -> Draw:
    """Return the draw of sequences whose shapes fit together.

    Args:
        sequences: The sequences.

    Returns:
        Their moments, and what is known about each.

    Raises:
        InputError: Shapes do not fit, values are not finite, or answers are not those of the tasks.
    """
    x, queries = real("x", sequences.x), real("queries", sequences.queries)
    if x.ndim != 3:
        refuse("x must have shape (B, n, d)", f"shape {x.shape}", "Correct the draw method.")
    array("y", sequences.y, x.shape[:2])
    array("queries", queries, (x.shape[0], "m", x.shape[2]))
    array("answers", sequences.answers, queries.shape[:2])
    if sequences.task is not None:
        task = array("task", sequences.task, (x.shape[0], x.shape[2]))
        said, right = np.asarray(sequences.answers), np.einsum("bmd,bd->bm", queries, task)
        if not np.allclose(said, right, rtol=1e-5, atol=1e-5 * max(float(np.abs(right).max()), 1e-300)):
            refuse(
                "where tasks are given, answers must be <task, query>, without noise",
                "others",
                "Correct them, or leave out the tasks.",
            )
    return Draw.from_sequences(sequences)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray | list | tuple | range):
        return [_plain(item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
