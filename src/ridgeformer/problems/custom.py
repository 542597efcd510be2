"""Problems of your own: the base class, and the check of what they draw."""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Evaluation, Kernel, Key
from ridgeformer.errors import InputError, kind_of, refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.problems.base import Ask, BaseProblem, Precision, check_signal
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.parts import Lengths
from ridgeformer.problems.tokens import Bank
from ridgeformer.validation import array, integer, register
from ridgeformer.values import Written, brief

SAMPLED = 1024  # sequences from which the size of the labels is estimated
GIVEN = "_CustomProblem__given"  # the attribute that holds the arguments, and is no part of the state
CUSTOM: dict[str, type[CustomProblem]] = {}  # by name; a subclass with a name enters itself


class CustomProblem(BaseProblem):
    """The base class of problems of your own: features, noise and labels of any kind.

    A subclass sets `dim` and `context` in its `__init__` and has one method, `draw(rng, count)`, which returns
    `Sequences` (tokens, queries and answers, with the task vectors where labels are linear in the features) or a `Draw`
    (moments). The same random numbers must give the same sequences. Without task vectors, the loss is that of the
    queries.

    Further methods are optional. `oracle(drawn)` returns the weights of an oracle, so that losses can be adjusted;
    `best_predictor()` returns a predictor whose loss is the floor, which is unknown otherwise; `at_noise(sigma)`
    returns the same problem at one noise level.

    Runs on a problem can be stored, found again and swept over if its class has an attribute `name` and is imported,
    and if the arguments of its `__init__` are numbers, text, arrays, lists, dicts, or distributions and laws of this
    package. Two problems are equal if they have the same class, arguments and attributes.

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
    __given: tuple[tuple[Any, ...], dict[str, Any]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Enter a subclass with a name among those that stored runs can be read with."""
        super().__init_subclass__(**keywords)
        if vars(cls).get("name") is not None:
            register("problem", cls, CUSTOM)

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
        return float(self.__facts["signal"])

    @property
    def feature_scale(self) -> float:  # type: ignore[override]
        """The root mean square of a feature, estimated once from a sample."""
        return float(self.__facts["scale"])

    @property
    def has_oracle(self) -> bool:  # type: ignore[override]
        """Whether the subclass has a method `oracle`, or draws moments with the weights of an oracle."""
        return bool(self.__facts["oracle"])

    @cached_property
    def __facts(self) -> dict[str, float]:
        """The mean square of labels and features, and whether there is an oracle, from a sample."""
        draw = self.moments(SAMPLED, seed=0, stream=(1 << 32) - 1)
        squares = np.einsum("bii->b", draw.moments.S) / draw.moments.dim / draw.moments.counts
        signal = check_signal(2 * float(draw.both_losses(np.zeros_like(draw.task))[1].mean()))
        return {"signal": signal, "scale": np.sqrt(squares.mean()), "oracle": draw.oracle}

    def affordable(self, count: int) -> int:
        """See `BaseProblem.affordable`."""
        return count // 8

    def race_precision(self, dtype: Precision) -> Precision:
        """See `BaseProblem.race_precision`."""
        return np.float64

    @cached_property
    def __bank(self) -> Bank:
        self._check_setup()
        return Bank(self.drawn, self.lengths.most * self.dim)

    def _moments(self, key: Key, count: int, first: int, ask: Ask) -> Draw:
        draw = self.__bank.draw(key, count, first, ask.dtype)
        if ask.sums and draw.moments.sums is None:
            refuse("a further coordinate needs the sums of the tokens", "moments without them", "Return Sequences.")
        return draw

    def step(self, kernel: Kernel, key: Key, count: int, first: int, ask: Ask) -> Evaluation:
        """See `BaseProblem.step`."""
        return self._evaluated(kernel, self.__bank.of_step(key, count, first, ask.gradient, ask.dtype), ask)

    def _draw_tokens(self, key: Key, count: int, first: int, queries: int) -> Draw:
        draw = self.__bank.draw(key, count, first, tokens=True)
        if draw.tokens is None:
            refuse(
                "this needs a problem that draws tokens", f"{self}, which draws moments", "Return Sequences from draw."
            )
        return draw

    def drawn(self, rng: np.random.Generator, count: int) -> Draw:
        """Draw sequences and check them.

        Args:
            rng: Random numbers.
            count: The number of sequences.

        Returns:
            The draw, with its tokens if the problem draws these, and with the weights of the oracle if it has one.

        Raises:
            InputError: The method `draw` or `oracle` returns something that it should not.
        """
        drawn = self.draw(rng, count)
        if not isinstance(drawn, Sequences | Draw):
            refuse("draw must return Sequences or a Draw", kind_of(drawn), "Correct its draw method.")
        draw = Draw.from_sequences(drawn) if isinstance(drawn, Sequences) else drawn
        draw = draw.checked(integer("dim", self.dim, 1, 4096), count)
        if not np.isin(draw.moments.counts, self.lengths.values).all():
            rule = f"contexts must have as many examples as the problem's context says, {self.lengths}"
            refuse(rule, repr(draw.moments), "Correct context or the draw method.")
        weights = self.oracle(drawn)
        if weights is None:
            return draw
        if isinstance(drawn, Sequences) and drawn.task is None:
            refuse("an oracle gives weights, so labels must be linear", "sequences without tasks", "Return the tasks.")
        return replace(draw, ridge=array("the weights of the oracle", weights, draw.task.shape), oracle=True)

    def _check_setup(self) -> None:
        """Refuse a class that does not set what it must, or that draws other sequences from the same random numbers."""
        if getattr(self, "dim", None) is None or self.context is None:
            rule = "a problem of your own must set self.dim and self.context in its __init__"
            refuse(rule, f"{kind_of(self)} without them", "Write self.dim, self.context = 5, 10, for example.")
        first, second = (_numbers(self.draw(np.random.default_rng(0), 2)) for _ in range(2))
        if not all(np.array_equal(x, y, equal_nan=True) for x, y in zip(first, second, strict=True)):
            rule = "the same random numbers must give the same sequences"
            received = f"{kind_of(self)} whose draw gives others every time"
            refuse(rule, received, "Use the given rng, and no other random numbers.")

    def __new__(cls, *args: Any, **keywords: Any) -> CustomProblem:
        """Remember the arguments: together with the class they are what the problem is."""
        problem = super().__new__(cls)
        problem.__given = args, keywords
        return problem

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `__init__` with their values, defaults included."""
        args, keywords = self.__given
        bound = inspect.signature(type(self)).bind(*args, **keywords)
        bound.apply_defaults()
        variable = [p.name for p in bound.signature.parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if variable:
            refuse("a problem must name all its arguments", f"*{', *'.join(variable)} in __init__", "Name them.")
        return dict(bound.arguments)

    @property
    def label(self) -> str:
        """See `BaseProblem.label`."""
        inner = ",".join(f"{name}={brief(value)}" for name, value in self._state().items() if name[0] != "_")
        return f"{self.name or type(self).__name__}({inner})"

    @property
    def stem(self) -> str:
        """See `BaseProblem.stem`."""
        return str(self.as_dict()["problem"])

    def describe(self) -> dict[str, str]:
        """See `BaseProblem.describe`."""
        return {"problem": inspect.getdoc(type(self)) or f"Sequences are drawn by {type(self).__name__}."}

    def as_dict(self) -> dict[str, Any]:
        """Return the name of the class and its arguments, as JSON has them; without a name, its class and identity.

        Where attributes do not just repeat the arguments, they are part of it as a checksum.

        Raises:
            InputError: An argument or an attribute has a type that cannot be stored.
        """
        if self.name is None:
            return {"problem": f"{type(self).__name__} at {id(self):#x}", "arguments": {}}
        stored, state = ({name: _plain(name, v) for name, v in d.items()} for d in (self.arguments, self._state()))
        facts: dict[str, Any] = {"problem": self.name, "arguments": stored}
        if any(name not in stored or stored[name] != value for name, value in state.items()):
            facts["state"] = hashlib.sha256(json.dumps(_whole(state), sort_keys=True).encode()).hexdigest()[:16]
        return facts

    def check_named(self) -> None:
        """Refuse a problem that a stored run could not be read back with.

        Raises:
            InputError: The class has no name, or is not the one that its name stands for, or an argument or attribute
                has a type that cannot be stored.
        """
        if self.name is None or CUSTOM.get(self.name) is not type(self):
            rule = "a run is stored under the name of its problem"
            received = f"{kind_of(self)} without a name of its own"
            refuse(rule, received, 'Write name = "my-problem" in its class, or train without out.')
        self.as_dict()

    def _state(self) -> dict[str, Any]:
        """All attributes that were set, private ones included, but no cached properties."""
        internal, kind = ("_sealed", GIVEN), type(self)
        held = {name: value for name, value in vars(self).items() if name not in internal}
        return {name: v for name, v in held.items() if not isinstance(getattr(kind, name, None), cached_property)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self._state(), GIVEN: self.__given}  # what is computed from these is computed again

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return self.label

    def __eq__(self, other: object) -> bool:
        if self is other or self.name is None or type(self) is not type(other):
            return self is other
        try:
            return self.as_dict() == other.as_dict()
        except InputError:  # of what cannot be compared, each is only itself
            return False

    def __hash__(self) -> int:
        return hash((self.name, self.dim)) if self.name is not None else id(self)


def _numbers(drawn: object) -> list[NDArray[Any]]:
    """The arrays of numbers of a draw; none for what is no draw, which is refused elsewhere."""
    if isinstance(drawn, Draw):
        drawn = drawn.moments if drawn.tokens is None else drawn.tokens
    held = vars(drawn).values() if isinstance(drawn, Sequences | Moments) else ()
    return [value for value in held if isinstance(value, np.ndarray) and value.dtype.kind in "fiu"]


def _whole(value: Any) -> Any:
    """The same values with whole numbers as integers: 1 and 1.0 are equal, and have one text."""
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _plain(name: str, value: Any) -> Any:
    """A value as JSON has it.

    Raises:
        InputError: Of another value, text would not tell whether it is the same.
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(name, inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | list | tuple | range):
        return [_plain(name, item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Written) and value.has_text:
        return str(value)
    rule = "a problem is stored and compared by its arguments and attributes: numbers, text, arrays, lists and laws"
    refuse(rule, f"{kind_of(value)} called {name}", "Pass numbers or text, and make other objects in the method draw.")
