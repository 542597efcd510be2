"""Values that cannot change: read-only arrays and dicts, and objects that refuse assignment.

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
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse

Scalar = TypeVar("Scalar", bound=np.generic)
Array = NDArray[np.float64]
Index = NDArray[np.integer[Any]] | slice
AXES = {"metric": 3, "mean": 2}  # of arrays that have a row for each sequence; with fewer, all sequences share them


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
