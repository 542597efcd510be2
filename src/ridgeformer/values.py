"""Values that cannot change: read-only arrays and dicts, objects that refuse assignment, and laws written as text.

A model, a problem or a Gram matrix that changed after something had been computed from it would leave wrong numbers in
every cache. So they do not change: assigning raises an error.

>>> import numpy as np
>>> fixed = read_only(np.zeros(3))
>>> fixed[0] = 1.0
Traceback (most recent call last):
    ...
ValueError: assignment destination is read-only
>>> mine = fixed.copy()  # a copy may be changed
>>> mine[0] = 1.0

Laws are values that a text decides, such as `uniform(0,5)` or `scales(0.5,factors(2))`. Noise levels, features and
tasks share this grammar: a name with arguments, which are numbers, texts, lists or laws of the same kind. `str` and
`Described.parse` are inverse to each other.
"""

from __future__ import annotations

import ast
import inspect
import re
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import InputError, kind_of, refuse, short, shown
from ridgeformer.files import parse_json
from ridgeformer.validation import axes

Scalar = TypeVar("Scalar", bound=np.generic)
Array = NDArray[np.float64]
Index = NDArray[np.integer[Any]] | slice
AXES = {"metric": 3, "mean": 2}  # of arrays that have a row for each sequence; with fewer, all sequences share them
LONGEST_TEXT, LONGEST_REST = 10_000_000, 200_000  # characters, with lists of numbers and without them
MOST_NUMBERS = 250_000  # of a text, as in a covariance of 500 features
MANY = 4  # numbers, beyond which a label gives their number only
LIST = re.compile(r"\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\]")  # of numbers, or of lists of numbers


class ReadOnlyDict(dict[str, Any]):
    """A dict that refuses changes; what it holds is read-only too."""

    _remedy = "Change a copy: dict(...)."

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        refuse("this dict must not change", "an assignment", self._remedy)

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: Any) -> ReadOnlyDict:
        return self

    def __reduce__(self) -> Any:
        return frozen, (dict(self),)  # pickled arrays are ordinary ones


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Show an array that nobody else will change as a read-only one, without copying it.

    Args:
        array: The array. It becomes read-only itself, with the arrays it is a view of.

    Returns:
        A read-only view. It cannot be made writable again, because the array below it is not; copies of it can be.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base.flags.writeable = False
        base = base.base
    return array.view()


def _is_read_only(array: NDArray[Any]) -> bool:
    """Whether an array is a read-only view of a read-only array: nobody can change its numbers by accident."""
    base: Any = array
    while type(base) is np.ndarray and not base.flags.writeable:
        base = base.base
    return type(array.base) is np.ndarray and not isinstance(base, np.ndarray)


def frozen(value: Any) -> Any:
    """Return arrays and dicts as read-only copies, unless they are read-only already; other values as they are.

    Args:
        value: Anything.

    Returns:
        The value, or its read-only copy.
    """
    if isinstance(value, np.ndarray):
        return value if _is_read_only(value) else read_only(np.array(value, copy=True, subok=False))
    if isinstance(value, Mapping) and not isinstance(value, ReadOnlyDict):
        return ReadOnlyDict({name: frozen(inner) for name, inner in value.items()})
    return value


class _Sealing(ABCMeta):
    """Seals an object as soon as its `__init__` has returned."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        value = super().__call__(*args, **keywords)
        if isinstance(value, Value):
            value._seal()
        return value

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of `__init__`, which `help` and editors would not find behind `__call__`."""
        init: Any = cls.__init__  # type: ignore[misc]
        if init is object.__init__:
            return inspect.Signature()
        signature = inspect.signature(init)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class Value(metaclass=_Sealing):
    """An object whose attributes are set in `__init__` and never again; its arrays and dicts are read-only copies."""

    _sealed = False
    _remedy = "Make a new one instead."  # what to do instead of assigning

    def _seal(self) -> Self:
        if not self._sealed:
            for name, value in vars(self).items():
                vars(self)[name] = frozen(value)
            vars(self)["_sealed"] = True
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if self._sealed:
            self._refuse(name)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if self._sealed:
            self._refuse(name)
        super().__delattr__(name)

    def _refuse(self, name: str) -> NoReturn:
        refuse(f"{kind_of(self)} must not change", f"an assignment to {name}", self._remedy)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = {n: dict(value) if isinstance(value, ReadOnlyDict) else value for n, value in vars(self).items()}
        return {name: value for name, value in state.items() if name != "_sealed"}  # sealed again when it is read

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._seal()


@dataclass(eq=False, repr=False)
class Batched(Value):
    """Base class of dataclasses whose arrays have a row for each sequence of a batch."""

    def mapped(self, change: Callable[..., NDArray[Any]], *others: Self) -> Self:
        """Return the value with other arrays; fields that are one array stay one array.

        Args:
            change: Makes the new array, which nobody else changes, of a field's name, this array and those of `others`.
            *others: Values that have the same fields as this one.

        Returns:
            The value.
        """
        done: dict[int, NDArray[Any]] = {}
        new = object.__new__(type(self))
        for field in fields(self):
            value, *further = (getattr(rows, field.name) for rows in (self, *others))
            if isinstance(value, Batched):
                value = value.mapped(change, *further)
            elif isinstance(value, np.ndarray):
                if id(value) not in done:
                    done[id(value)] = read_only(change(field.name, value, *further))
                value = done[id(value)]
            setattr(new, field.name, value)
        return new._seal()

    def chosen(self, index: Index) -> Self:
        """Return some of the sequences.

        Args:
            index: Their numbers, [b], or a slice of them.

        Returns:
            Their rows.
        """
        return self.mapped(lambda name, value: value[index] if value.ndim >= AXES.get(name, 1) else value)

    @classmethod
    def joined(cls, parts: Sequence[Self], *, innermost: bool = True) -> Self:
        """Put batches together whose fields hold the same.

        Args:
            parts: The batches, at least one.
            innermost: Whether the batch is innermost in memory, as the engines like it; otherwise it is outermost, so
                that any of its sequences are chosen quickly.

        Returns:
            All their rows.
        """

        def whole(name: str, *arrays: NDArray[Any]) -> NDArray[Any]:
            if arrays[0].ndim < AXES.get(name, 1):
                return arrays[0]
            count, shape = sum(map(len, arrays)), arrays[0].shape[1:]
            rows = np.empty((*shape, count) if innermost else (count, *shape), arrays[0].dtype)
            return np.concatenate(arrays, out=np.moveaxis(rows, -1, 0) if innermost else rows)

        return parts[0].mapped(whole, *parts[1:]) if len(parts) > 1 else parts[0]


class Written(Value):
    """A value that is decided by its class and its text."""

    @property
    def has_text(self) -> bool:
        """Whether the text is one from which an equal value can be made."""
        return True

    def __repr__(self) -> str:
        return short(str(self))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


class Described(Written, ABC):
    """A law that is decided by its class and the arguments that its text shows.

    An object keeps each argument of its `__init__` under the argument's name, with an underscore before it where a
    method has that name. Its text is made of these. A class without a name of its own, such as a subclass of the
    user's, has no such text: each of its objects is equal to itself only.

    Attributes:
        name: The name in texts. A class that has one is found by it.
        named: The arguments whose names texts show, beside those that have no position.
        known: The classes of this kind of law by their names.
        plural: A word for this kind of law, for messages.
        examples: A remedy for messages: texts of this kind of law.
    """

    name: ClassVar[str]
    named: ClassVar[tuple[str, ...]] = ()
    known: ClassVar[dict[str, Callable[..., Any]]]
    plural: ClassVar[str]
    examples: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" in vars(cls):
            cls.known[cls.name] = cls

    @classmethod
    def of(cls, value: object) -> Self:
        """Return a law in any of the forms that `Problem` takes.

        Args:
            value: A law, its text, or what else can stand for one: for features and tasks a covariance matrix [d, d],
                variances [d], or None for N(0, I); for noise a level or a frozen scipy.stats distribution.

        Returns:
            The law.

        Raises:
            InputError: It describes no such law.

        >>> from ridgeformer.problems.features import Features
        >>> Features.of("standardised(factors(2))"), Features.of([1, 4])
        (standardised(factors(2)), spectrum(1,4))
        """
        if isinstance(value, cls):
            return value
        return cls.parse(value) if isinstance(value, str) else cls.converted(value)

    @classmethod
    @abstractmethod
    def converted(cls, value: object) -> Self:
        """Return the law that a value stands for which is neither a law nor its text.

        Args:
            value: The value.

        Returns:
            The law.

        Raises:
            InputError: It stands for none.
        """

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the law that a text names, such as `scales(0.5,factors(2))`.

        Args:
            text: The name and the arguments; brackets without arguments may be left out.

        Returns:
            The law.

        Raises:
            InputError: It names none.
        """

        def taken_out(match: re.Match[str]) -> str:
            lists.append(parse_json(match[0]))
            return f"_[{len(lists) - 1}]"

        lists: list[Any] = []  # of numbers, for which the text has _[0], _[1], ...: a syntax tree would be huge
        try:
            few = len(text) <= LONGEST_TEXT and text.count(",") <= MOST_NUMBERS
            shortened = LIST.sub(taken_out, text.strip()) if few else text
            if len(shortened) > LONGEST_REST:
                rule = f"{cls.plural} must be written in at most {LONGEST_REST:,} characters"
                refuse(f"{rule}, beside lists of {MOST_NUMBERS:,} numbers", f"{len(text):,}", cls.examples)
            node = ast.parse(shortened, mode="eval").body
            law: Self = cls._made(node if isinstance(node, ast.Call) else ast.Call(node, [], []), lists)
            return law
        except InputError:
            raise
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, LookupError, ArithmeticError):
            rule = f"{cls.plural} must be written as name(arguments), with arguments that the name takes"
            refuse(rule, shown(text) + missing_bracket(text), cls.examples)

    @classmethod
    def _made(cls, node: ast.expr, lists: list[Any]) -> Any:
        """The law or argument that a part of a syntax tree stands for."""
        if isinstance(node, ast.Subscript):
            return lists[ast.literal_eval(node.slice)]
        if not isinstance(node, ast.Call):
            return ast.literal_eval(node)
        if not isinstance(node.func, ast.Name):
            raise ValueError
        make = cls.known.get(node.func.id) or cls.unknown(node.func.id)
        named = {str(item.arg): cls._made(item.value, lists) for item in node.keywords}
        return make(*(cls._made(item, lists) for item in node.args), **named)

    @classmethod
    def unknown(cls, name: str) -> Callable[..., Any]:
        """Return what makes the law of a name that no class has; by default the name is refused.

        Args:
            name: The name.

        Returns:
            A function of the law's arguments.

        Raises:
            InputError: There is no such law.
        """
        names = ", ".join(cls.known)
        raise InputError(f"there is no law of {cls.plural} called {shown(name, 40)}. Write one of {names}.")

    @property
    def has_text(self) -> bool:
        """Whether `of(str(law))` is this law: whether its class has a name of its own."""
        return "name" in vars(type(self))

    @property
    def label(self) -> str:
        """The text with matrices and long lists replaced by their sizes, such as `covariance(8 x 8)`."""
        return self._text(brief)

    def _text(self, write: Callable[[Any], str]) -> str:
        """The name, and the arguments that do not have their defaults."""
        parts: list[str] = []
        for argument in inspect.signature(type(self)).parameters.values():
            name, default = argument.name, argument.default
            value = vars(self)[name if name in vars(self) else f"_{name}"]
            if argument.kind is argument.VAR_POSITIONAL and np.ndim(value):
                parts += [brief(value)] if write is brief and len(value) > MANY else map(write, value)
            elif type(value) is not type(default) or value != default:
                by_name = argument.kind is argument.KEYWORD_ONLY or name in self.named
                parts.append(f"{name}={write(value)}" if by_name else write(value))
        return f"{self.name}({','.join(parts)})"

    def __str__(self) -> str:
        return self._text(written) if self.has_text else f"{type(self).__name__} at {id(self):#x}"


def written(value: Any) -> str:
    """Write an argument of a law as text that is read back.

    Args:
        value: A number, a text, a law, or arrays, lists or tuples of numbers.

    Returns:
        The text; for numbers the shortest one that reads back as the same float64.
    """
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, np.ndarray | list | tuple):
        return f"[{','.join(written(item) for item in value)}]"
    if isinstance(value, int | Written):  # all digits: a seed such as 1000000 is no 1e+06
        return str(value)
    number = float(value) + 0.0  # zero without a sign, so that equal numbers have equal texts
    text = f"{number:g}"
    return text if float(text) == number else repr(number)


def brief(value: Any) -> str:
    """Write a value for a label: arrays and long lists by their sizes, laws by their own labels.

    Args:
        value: An argument of a problem or of a law.

    Returns:
        A text of at most about 40 characters.

    >>> brief(np.eye(8)), brief([1, 2]), brief([0.5] * 9)
    ('8 x 8', '[1,2]', '9 values')
    """
    label = getattr(value, "label", None)
    if isinstance(label, str):
        return label
    if axes(value) > 1:
        return " x ".join(map(str, np.shape(value)))
    if isinstance(value, np.ndarray | list | tuple):
        return f"{len(value)} values" if len(value) > MANY else f"[{','.join(brief(item) for item in value)}]"
    return written(value) if isinstance(value, int | float | np.number) else shown(value, 40)


def missing_bracket(text: str) -> str:
    """Say which kind of bracket a text lacks, to be put after the text in a message.

    Args:
        text: The text.

    Returns:
        The remark; nothing where there are as many opening as closing ones.

    >>> missing_bracket("pool(3")
    ', in which a closing bracket is missing'
    """
    surplus = sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
    return "" if surplus == 0 else f", in which {'a closing' if surplus > 0 else 'an opening'} bracket is missing"
