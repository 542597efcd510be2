r"""Grids from TOML files; an error names the line of the file and the key.

>>> import pathlib, tempfile
>>> path = pathlib.Path(tempfile.mkdtemp(), "grid.toml")
>>> _ = path.write_text('noise = ["fixed(1)"]\nlayers = [1, 2]\n')
>>> len(read_grid(path))
2
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.sweeps.grid import AXES, Grid, check_values
from ridgeformer.training.spec import PROTOCOLS, Protocol

EXAMPLE = 'a line noise = ["uniform(0,5)"], a line layers = [1, 2, 3]'
LARGEST = 1 << 20  # bytes
# tomllib needs time and memory that grow with the square of the number of parts of a key, a.b.c. A key is in one line;
# what stands in parentheses without a quotation mark is inside a string, and no part of a key.
MOST_DOTS = 200
IN_STRINGS = re.compile(r"\([^()\"'\n]*+\)")


def read_grid(path: str | os.PathLike[str]) -> Grid:
    """Read a grid from a TOML file.

    Args:
        path: A text file of at most 1 MB. Its keys are the axes of a `Grid`, `sequences`, and a table `[protocol]` with
            a name and parameters.

    Returns:
        The grid.

    Raises:
        InputError: The file cannot be read, is not TOML, or has a key or a value that a grid cannot have. The message
            names the file, the line and the key.
    """
    if not isinstance(path, str | os.PathLike):
        refuse("a grid must be the name of a file", shown(path), "Pass a path such as grid.toml.")
    place = Path(path)
    text = _read(place)
    values = _parse(place, text)
    _check_keys(place, text, values, "a grid", Grid)
    if "noise" not in values:
        raise InputError(f'a grid must have the key noise; {_name(place)} has none. Add noise = ["uniform(0,5)"].')
    if "protocol" in values:
        values["protocol"] = _protocol(place, text, values["protocol"])
    try:
        return Grid(**values)
    except InputError as error:
        _blame(place, text, values)
        raise InputError(f"{_name(place)}: {error}") from error


def _blame(place: Path, text: str, values: dict[str, Any]) -> None:
    """Raise an error that names the line and the key, if it is the value of one key alone that is wrong."""
    for key in (*AXES, "sequences"):
        if key in values:
            try:
                if key in AXES:
                    check_values(key, values[key])
                else:
                    Grid(noise=["fixed(1)"], sequences=values[key])
            except InputError as error:
                _complain(place, text, key, str(error))


def _read(place: Path) -> str:
    """The text of a regular file; anything else could block, or never end."""
    try:
        status = place.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe or a device"
            raise ValueError(f"it is {kind}")
        if status.st_size > LARGEST:
            raise ValueError(f"it has {status.st_size:,} bytes, more than {LARGEST:,}")
        with place.open("rb") as file:
            return file.read(LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8"
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or shown(error)
    raise InputError(f"a grid must be a readable text file; {_name(place)} is not ({why}). Check the path.")


def _parse(place: Path, text: str) -> dict[str, Any]:
    try:
        if max(line.count(".") for line in IN_STRINGS.sub("", text).split("\n")) > MOST_DOTS:
            raise RecursionError
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = shown(error, 200)
    except RecursionError:
        why = f"its lists or tables are nested too deeply, or a line has more than {MOST_DOTS} dots"
    except ValueError:  # Python reads no number of more than 4,300 digits
        digits = re.search(r"[0-9_]{4300}", text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else "?"
        why = f"line {line} has a whole number of more than 64 bits"
    else:
        for key, value in values.items():
            _check_sizes(place, text, key, value)
        return values
    raise InputError(f"a grid must be TOML; {_name(place)} is not: {why}. It needs, for example, {EXAMPLE}.")


def _check_sizes(place: Path, text: str, key: str, value: Any) -> None:
    """Refuse whole numbers that have more bits than TOML's have."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            _complain(place, text, key, f"a whole number must fit in 64 bits; got {shown(value)}. Write a smaller one.")
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _protocol(place: Path, text: str, table: Any) -> Protocol:
    name = table.get("name", "search") if isinstance(table, Mapping) else None
    if not isinstance(name, str) or name not in PROTOCOLS:
        rule = f"[protocol] must have the name {' or '.join(PROTOCOLS)}"
        _complain(place, text, "protocol", f"{rule}; got {shown(table)}. Choose one of these.")
    parameters = {key: value for key, value in table.items() if key != "name"}
    _check_keys(place, text, parameters, "[protocol]", PROTOCOLS[name])
    try:
        return PROTOCOLS[name](**parameters)
    except InputError as error:
        _complain(place, text, "protocol", str(error))


def _check_keys(place: Path, text: str, values: Mapping[str, Any], what: str, kind: type) -> None:
    known = [f.name for f in fields(kind) if f.name != "problem"]  # problems are objects, which no file can hold
    for key in values:
        if key not in known:
            rule = f"a key of {what} must be one of {', '.join(known)}"
            _complain(place, text, key, f"{rule}; got {shown(key)}. Rename it or remove it.")


def _complain(place: Path, text: str, key: str, message: str) -> NoReturn:
    """Raise an error that says which line of the file has the key."""
    lines = (re.split(r"[=.\]]", line.strip().lstrip("[ "), maxsplit=1)[0] for line in text.split("\n"))
    number = next((n for n, start in enumerate(lines, 1) if start.strip(" \t\"'") == key), None)
    where = _name(place) + (f", line {number}" if number else "")
    raise InputError(f"{where}, key {shown(key)[1:-1]}: {shown(InputError(message), 500)}")


def _name(place: Path) -> str:
    return shown(place, 200)
