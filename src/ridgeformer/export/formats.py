"""The formats that models are exported to, by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import NamedTuple

from ridgeformer.engine import Mixings
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.export.latex import to_latex
from ridgeformer.export.onnx import to_onnx
from ridgeformer.export.source import to_python, to_torch_module
from ridgeformer.files import path_of, write_whole
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal
from ridgeformer.validation import choice, integer, keywords


class Format(NamedTuple):
    """A way to write models.

    Attributes:
        make: Called as `make(model, about=about, **options)`, it returns text, or bytes.
        suffix: The ending of a file's name, with the dot.
        binary: Whether `make` returns bytes.
    """

    make: Callable[..., str | bytes]
    suffix: str
    binary: bool = False

    def takes(self, option: str) -> bool:
        """Return whether `make` has an option.

        Args:
            option: Its name: `digits`; `context`, for what refuses other numbers of examples; or `units`.

        Returns:
            Whether it has.
        """
        return option in inspect.signature(self.make).parameters


FORMATS: dict[str, Format] = {
    "python": Format(to_python, ".py"),
    "latex": Format(to_latex, ".tex"),
    "torch": Format(to_torch_module, ".py"),
    "onnx": Format(to_onnx, ".onnx", binary=True),
}


@keywords()
def export(
    model: LinearTransformer | Universal,
    to: str = "python",
    *,
    about: str = "",
    context: int | None = None,
    digits: int | None = None,
) -> str | bytes:
    """Turn a model into standalone code, equations or an ONNX graph.

    Args:
        model: The model; or a `Universal`, whose changes of units are then a part of what is written.
        to: `python` (a NumPy module), `latex` (equations), `torch` (a PyTorch module) or `onnx` (a graph).
        about: A remark that goes with it, such as what the model was trained on.
        context: The number of examples n for which a model with attention by mean is written as one by sum. What is
            written says that it is valid for this n alone; NumPy and PyTorch source refuses contexts of other lengths.
        digits: Significant digits in LaTeX; None for 3.

    Returns:
        The text; bytes for `onnx`.

    Raises:
        InputError: There is no such format or option, or the model cannot be exported.
        MissingPackageError: onnx is not installed.
    """
    units, model = (model, model.model) if isinstance(model, Universal) else (None, model)
    if type(model) is not LinearTransformer:
        refuse("export needs a LinearTransformer", kind_of(model), "Write export(model, to='python').")
    target = FORMATS[choice("a format", to, FORMATS)]
    options: dict[str, object] = {} if digits is None else {"digits": digits}
    if options and not target.takes("digits"):
        refuse("digits is only for the format latex", f"it for {to}", "Leave it out, or export to latex.")
    universal = model.layout.attention == "mean" and model.layout.opening and isinstance(model.kernel, Mixings)
    exact = universal and context is None and target.takes("units")
    if units is not None and not exact:
        rule = "the units of a model for every dimension are exported to python, torch and latex, for any n"
        received = f"the format {to}" if to == "onnx" else f"{model}, context={context}"
        refuse(rule, received, "Export the model alone, or leave out the context.")
    if exact:
        return target.make(model, about=about, units=units, **options)
    fixed_tokens = model.layout.coordinate == "none"
    if context is not None and fixed_tokens:
        model = model.to_attention("sum", integer("context", context))
    if model.layout.attention == "mean" or not fixed_tokens:
        remedy = "Pass context=20 for what is the same function at n = 20, for example."
        remedy = remedy if fixed_tokens else "Train one without a constant or a length in its tokens."
        rule = "export writes models with attention by sum, whose further coordinates start at zero"
        refuse(rule, f"one with {model.layout}", remedy)
    if context is not None:
        about = f"What follows is valid for contexts of exactly n = {context} examples. {about}".strip()
        options |= {"context": context} if target.takes("context") else {}
    return target.make(model, about=about, **options)


def write(content: str | bytes, path: str | os.PathLike[str]) -> None:
    """Write what `export` returned. The file appears when it is complete; an older one is replaced at that moment.

    Args:
        content: What `export` returned.
        path: The file.

    Raises:
        InputError: The path is not that of a file.
        StorageError: The file cannot be written.
    """
    try:
        data = content.encode() if isinstance(content, str) else memoryview(content).tobytes()
    except (TypeError, UnicodeEncodeError):
        refuse("write takes what export returned", shown(content), "Write write(export(model), path).")
    target = path_of(path, "an export needs the name of a file", "model.py")
    if os.path.lexists(target) and not os.path.isfile(target):  # never raise, unlike Path's own methods
        refuse("an export is written to a file", f"{target}, which is not an ordinary file", "Choose another name.")
    write_whole(target, data)
