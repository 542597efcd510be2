"""Values that cannot change: read-only arrays and dicts, and objects that refuse assignment.

A model, a problem or a Gram matrix that changed after something had been computed from it would leave wrong numbers in
every cache. So they do not change: assigning raises an error that says how to make a new one.

>>> import numpy as np
>>> fixed = read_only(np.zeros(3), "Make a new one.")
>>> fixed[0] = 1.0
Traceback (most recent call last):
    ...
ridgeformer.errors.InputError: this array must not change; got an assignment. Make a new one.
>>> mine = fixed.copy()  # a copy may be changed
>>> mine[0] = 1.0
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Mapping
from typing import Any, NoReturn, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse

__all__ = ["ReadOnlyArray", "ReadOnlyDict", "Value", "frozen", "read_only"]

Scalar = TypeVar("Scalar", bound=np.generic)
COPY = "Copy it and change the copy: array.copy()."


class ReadOnlyArray(np.ndarray[Any, Any]):
    """A read-only array. Its views are read-only too; copies and results of arithmetic are ordinary arrays."""

    _remedy: str = COPY

    def __array_finalize__(self, source: Any) -> None:
        self._remedy = getattr(source, "_remedy", COPY)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """Give results of arithmetic as ordinary arrays."""
        return array[()] if return_scalar else np.asarray(array)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.flags.writeable:
            self._refuse()
        super().__setitem__(key, value)

    def _refuse(self, *_: Any) -> NoReturn:
        refuse("this array must not change", "an assignment", self._remedy)

    def copy(self, order: Any = "C") -> Any:
        """Return an ordinary array with the same numbers, which may be changed.

        Args:
            order: The memory layout, as for `numpy.ndarray.copy`.

        Returns:
            The copy.
        """
        return np.array(self, order=order, copy=True, subok=False)

    def astype(self, dtype: Any, *args: Any, **keywords: Any) -> Any:
        """Return an ordinary array of another dtype.

        Args:
            dtype: The dtype.
            *args: As for `numpy.ndarray.astype`.
            **keywords: As for `numpy.ndarray.astype`.

        Returns:
            The array.
        """
        return np.asarray(self).astype(dtype, *args, **keywords)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()


def _in_place(name: str) -> Any:
    def method(self: ReadOnlyArray, other: Any) -> Any:
        if not self.flags.writeable:
            self._refuse()
        return getattr(np.ndarray, name)(self, other)

    method.__name__ = name
    return method


for _operator in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(ReadOnlyArray, f"__i{_operator}__", _in_place(f"__i{_operator}__"))


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


def read_only(array: NDArray[Scalar], remedy: str = COPY) -> NDArray[Scalar]:
    """Show an array that nobody else will change as a read-only one, without copying it.

    Args:
        array: The array. It becomes read-only itself, with the arrays it is a view of.
        remedy: What to do instead of assigning; it ends the error message.

    Returns:
        A read-only view.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        base.flags.writeable = False
        base = base.base
    shown = array.view(ReadOnlyArray)
    shown._remedy = remedy
    return cast("NDArray[Scalar]", shown)


def frozen(value: Any, remedy: str = COPY) -> Any:
    """Return arrays and dicts as read-only copies, unless they are read-only already; other values as they are.

    Args:
        value: Anything.
        remedy: What to do instead of assigning; it ends the error message.

    Returns:
        The value, or its read-only copy.
    """
    if isinstance(value, np.ndarray):
        if isinstance(value, ReadOnlyArray) and not value.flags.writeable:
            return value
        return read_only(np.array(value, copy=True, subok=False), remedy)
    if isinstance(value, Mapping) and not isinstance(value, ReadOnlyDict):
        return ReadOnlyDict({name: frozen(inner, remedy) for name, inner in value.items()})
    return value


class _Sealing(ABCMeta):
    """Seals an object as soon as its `__init__` has returned."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        made = super().__call__(*args, **keywords)
        if isinstance(made, Value):
            made._seal()
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of `__init__`, which `help` and editors would not find behind `__call__`."""
        made: Any = cls.__init__  # type: ignore[misc]
        if made is object.__init__:
            return inspect.Signature()
        found = inspect.signature(made)
        return found.replace(parameters=list(found.parameters.values())[1:])


class Value(metaclass=_Sealing):
    """An object whose attributes are set in `__init__` and never again; its arrays and dicts are read-only copies."""

    _sealed = False
    _remedy = "Make a new one instead."  # what to do instead of assigning

    def _seal(self) -> Self:
        if not self._sealed:
            for name, value in vars(self).items():
                vars(self)[name] = frozen(value, self._remedy)
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
