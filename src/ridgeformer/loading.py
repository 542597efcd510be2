"""Models by name: a file that `save` wrote, the folder of a run, a shipped model, or the address of the playground.

>>> load("zoo:full/7/categorical(1,3)")
LinearTransformer(full, dim=10, layers=7, heads=1)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ridgeformer import zoo
from ridgeformer.errors import InputError, short
from ridgeformer.files import path_of
from ridgeformer.models.file import EXAMPLE, NAMELESS, read_file
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.playground import is_address, read_address
from ridgeformer.training.store import is_run, read_run
from ridgeformer.validation import keywords


@keywords()
def load(name: str | os.PathLike[str]) -> LinearTransformer:
    """Load a model.

    Args:
        name: A file that `save` wrote; the folder of a finished run, of which `Training.load` returns the rest;
            or a shipped model such as `zoo:diag/7/uniform(0,5)`: the family, the number of layers and the noise that it
            was trained on, and a seed where the best of the seeds is not meant, as in `zoo:diag/7/uniform(0,5)/3`; what
            is unusual is in front, as in `zoo:d=1/diag/3/uniform(0,2)` or `zoo:heads=2/diag/9/uniform(0,5)`; those for
            every dimension have only their number of layers, `zoo:universal/8` (`ridgeformer models` lists them all);
            or the address of the playground, a text with # and the model after it.

    Returns:
        The model.

    Raises:
        InputError: There is no such model, or its family is not known.
        DamageError: The file is damaged or of another kind.
    """
    return with_record(name)[0]


def with_record(name: str | os.PathLike[str]) -> tuple[LinearTransformer, dict[str, Any]]:
    """Load a model and the record of how it was made.

    Args:
        name: As for `load`.

    Returns:
        The model, and the record as plain data, empty where there is none. The record of a run or of a shipped model
        has a `spec`, which names the problem.

    Raises:
        InputError: As for `load`.
        DamageError: As for `load`.
    """
    if isinstance(name, str) and is_address(name):
        return read_address(name), {}
    path = path_of(name, NAMELESS, EXAMPLE)
    if str(name).startswith(zoo.PREFIX):
        return zoo.read_model(str(name))
    if not os.path.lexists(path):  # never raises, unlike Path's own method
        raise InputError(
            f"there is no file {short(path)!r}. Give a .safetensors file, the folder of a run, or a model of the zoo "
            "such as zoo:diag/7/uniform(0,5)."
        )
    if not os.path.isdir(path):
        return read_file(path)
    if not is_run(Path(path)):
        raise InputError(
            f"a model is a file or the folder of a run; {short(path)} is another folder. If it holds runs, list them "
            "with `ridgeformer runs` and name one of them."
        )
    return read_run(path)
