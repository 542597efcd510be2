"""How families are named: each by its own name, and families of many sizes by a name with arguments."""

from __future__ import annotations

import copyreg
import re
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ridgeformer.errors import refuse, shown
from ridgeformer.models.family import FAMILIES, Family

_SIZED: dict[str, tuple[str, Callable[..., type[Family]]]] = {}  # by the word before the bracket: sizes and function
_MADE: dict[tuple[object, ...], type] = {}  # families with sizes, by what they were made from
AnyFamily = TypeVar("AnyFamily", bound=Family)


def sized(word: str, sizes: str) -> Callable[[Callable[..., type[Family]]], Callable[..., type[Family]]]:
    """Register a function that makes families of different sizes, so that these are found by names with arguments.

    Args:
        word: What names begin with, such as `channels`.
        sizes: An example of what follows in brackets, such as `1,3`. The function must always return the same class
            for the same arguments; it is called with the parts between the commas, whole numbers as such.

    Returns:
        A decorator.
    """

    def register(make: Callable[..., type[Family]]) -> Callable[..., type[Family]]:
        _SIZED[word] = (sizes, make)
        return make

    return register


def with_sizes(base: type[AnyFamily], word: str, sizes: str, **facts: Any) -> type[AnyFamily]:
    """Make a family of one size, for a function that `sized` registers.

    Args:
        base: The class that does not know its sizes.
        word: What its name begins with, such as `channels`.
        sizes: What follows in brackets, such as `1,3`.
        **facts: The class attributes that hold the sizes; hashable.

    Returns:
        A subclass with these attributes; the same class for the same arguments.
    """
    key = base, word, sizes, *facts.items()
    if key not in _MADE:
        own = {"name": f"{word}({sizes})", "has_sizes": True, "built_in": base.built_in} | facts
        own |= {"__module__": base.__module__, "__doc__": base.__doc__}
        _MADE[key] = types.new_class(word.capitalize(), (base,), exec_body=lambda space: space.update(own))
    return cast("type[AnyFamily]", _MADE[key])


def known_families() -> list[str]:
    """Return the names of all families, and an example of each that has sizes, for messages and help texts."""
    return [*FAMILIES, *(f"{word}({sizes})" for word, (sizes, _) in _SIZED.items())]


def family_named(name: object) -> type[Family]:
    """Return a family by its name.

    Args:
        name: Such as `diag`, `full` or `channels(1,3)`, or a family itself.

    Returns:
        The class.

    Raises:
        InputError: There is no such family, or its class lacks a method.

    >>> from ridgeformer.models import family_named
    >>> family_named("channels(1,3)").name
    'channels(1,3)'
    """
    if isinstance(name, type) and issubclass(name, Family):
        return _complete(name)
    if isinstance(name, str):
        if name in FAMILIES:
            return _complete(FAMILIES[name])
        parts = re.fullmatch(r"\s*([a-z]+)\s*\((.{1,200})\)\s*", name)
        if parts and parts[1] in _SIZED:
            given = [part.strip() for part in re.split(r",(?![^(]*\))", parts[2])]  # commas outside inner brackets
            numbers = [int(part) if re.fullmatch(r"\d{1,9}", part) else part for part in given]
            try:
                return _SIZED[parts[1]][1](*numbers)
            except TypeError:
                example = f"{parts[1]}({_SIZED[parts[1]][0]})"
                refuse(f"{parts[1]} must be given as in {example}", shown(name), f"Write {example}, for example.")
    for word, (sizes, make) in _SIZED.items():
        if name is make or name == word:
            written = make.__name__ if name is make else word
            received = written if name is make else shown(name)
            refuse(f"the family {word} needs its sizes", received, f"Write {written}({sizes}), for example.")
    refuse(
        f"the family must be one of {', '.join(known_families())}",
        shown(name),
        "Name one of these. A family of your own has a name once its class is defined: pass the class, or import its "
        "module in Python. The command line knows built-in families only.",
    )


def _complete(family: type[Family]) -> type[Family]:
    """The class, if it has everything that a family needs."""
    missing = sorted(getattr(family, "__abstractmethods__", ())) + ["name"] * (not hasattr(family, "name"))
    if missing:
        refuse(
            "a family needs name, arrays, dense, heads, identity_layer, pullback and random",
            f"the class {family.__qualname__} without {', '.join(missing)}",
            'Write these; see "Families of your own" in docs/explanations/families.md.',
        )
    return family


def check_registered(family: type[Family]) -> str:
    """Return the name of a family, under which its models are stored; refuse a class that the name does not lead to.

    Args:
        family: The class.

    Returns:
        Its name.

    Raises:
        InputError: The class has no name of its own, so that its models would be read back as those of another family.
    """
    own = getattr(family, "inner", family)  # of a looped family: the one that is repeated
    known = family_named(own.name)
    if known is not own:
        refuse(
            "a family that is stored must have a name of its own",
            f"{own.__qualname__} with the name {own.name!r}, which is {known.__qualname__}",
            'Write name = "my_family" in its class.',
        )
    return family.name


def _reduced(kind: type[Any]) -> Any:
    """How a class is pickled: families with sizes by their names, others by where they are defined."""
    return (family_named, (kind.name,)) if issubclass(kind, Family) and kind.has_sizes else kind.__qualname__


copyreg.pickle(type(Family), _reduced)
