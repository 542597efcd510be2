"""Panels of lines, points and maps: the figures of papers. Needs matplotlib: pip install 'ridgeformer[plot]'."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.plotting.style import BLACK, LINES, Axes, Figure, blank, decimals, logarithmic, panel

Numbers = Sequence[float | None] | Sequence[float] | NDArray[Any]  # None where there is none


class Drawn(ABC):
    """Something that a panel shows."""

    @abstractmethod
    def draw(self, axis: Axes) -> None:
        """Draw it.

        Args:
            axis: The panel.
        """

    def positive(self) -> list[float]:
        """Return the values that a logarithmic axis shows, without their signs."""
        return []


@dataclass(frozen=True)
class Series(Drawn):
    """Base class of what shows values at places.

    Attributes:
        label: Its name in the legend; empty for none.
        x: Where, [K].
        y: The values, [K]; None where there is none.
    """

    label: str
    x: Numbers
    y: Numbers

    def positive(self) -> list[float]:
        """See `Drawn.positive`."""
        return [abs(value) for value in _numbers(self.y) if value and not math.isnan(value)]


@dataclass(frozen=True)
class Line(Series):
    """A line, for numbers that were computed, or joined measurements. See `Series`.

    Attributes:
        colour: The number of its colour among the colours of lines; None for black.
        dashed: Whether it is dashed; by default it is solid.
    """

    colour: int | None = 0
    dashed: bool = False

    @classmethod
    def of(
        cls, label: str, function: Callable[[Any], float], x: Numbers, colour: int | None = 0, dashed: bool = False
    ) -> Line:
        """Return the line of a function.

        Args:
            label: As for `Line`.
            function: The function.
            x: Where, [K].
            colour: As for `Line`.
            dashed: As for `Line`.

        Returns:
            The line.
        """
        return cls(label, x, [function(value) for value in x], colour, dashed)

    def draw(self, axis: Axes) -> None:
        """See `Drawn.draw`."""
        colour, style = BLACK if self.colour is None else LINES[self.colour % len(LINES)], "--" if self.dashed else "-"
        axis.plot(_numbers(self.x), _numbers(self.y), color=colour, linestyle=style, label=self.label or None)


@dataclass(frozen=True)
class Scatter(Series):
    """Points, for numbers that were measured. See `Series`.

    Attributes:
        error: Standard errors, [K], of which bars show two; None for no bars.
        colour: The number of their colour among the colours of lines.
    """

    error: Numbers | None = None
    colour: int = 0

    def draw(self, axis: Axes) -> None:
        """See `Drawn.draw`."""
        bars = None if self.error is None else [2 * error for error in _numbers(self.error)]
        how: dict[str, Any] = {"fmt": "o", "markersize": 3, "elinewidth": 0.8, "color": LINES[self.colour % len(LINES)]}
        axis.errorbar(_numbers(self.x), _numbers(self.y), yerr=bars, label=self.label or None, **how)


@dataclass(frozen=True)
class Map(Drawn):
    """A map of values in two dimensions.

    Attributes:
        values: The values, [rows, columns]; rows go upwards.
        x: The numbers of the columns, [columns].
        y: The numbers of the rows, [rows].
        low: The value of the darkest colour.
        high: The value of the brightest colour.
    """

    values: Sequence[Numbers]
    x: Sequence[object]
    y: Sequence[object]
    low: float = 0.0
    high: float = 1.0

    def draw(self, axis: Axes) -> None:
        """See `Drawn.draw`."""
        values = np.array([_numbers(row) for row in self.values], float)
        image = axis.imshow(values, origin="lower", aspect="auto", cmap="cividis", vmin=self.low, vmax=self.high)
        for ticks, labels in ((axis.set_xticks, self.x), (axis.set_yticks, self.y)):
            step = max(1, len(labels) // 8)
            ticks(range(0, len(labels), step), [str(label) for label in labels[::step]])
        axis.figure.colorbar(image, ax=axis, shrink=0.9)


@dataclass(frozen=True)
class Panel:
    """A panel of a figure.

    Attributes:
        title: Its title.
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
        shown: The lines, points and maps in it.
        log_x: Whether the horizontal axis is logarithmic.
        log_y: Whether the vertical axis is logarithmic.
    """

    title: str
    x: str
    y: str
    shown: Sequence[Drawn]
    log_x: bool = False
    log_y: bool = False


def draw_panels(panels: Sequence[Panel], columns: int = 3) -> Figure:
    """Draw panels side by side.

    Args:
        panels: The panels.
        columns: How many panels are side by side; 3 by default.

    Returns:
        The figure.
    """
    across = min(columns, len(panels))
    rows = math.ceil(len(panels) / across)
    canvas = blank(3.2 * across, 2.6 * rows)
    axes = np.atleast_1d(canvas.subplots(rows, across)).ravel()
    for axis, content in zip(axes, panels, strict=False):
        _draw(axis, content)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    return canvas


def _draw(axis: Axes, content: Panel) -> None:
    for thing in content.shown:
        thing.draw(axis)
    panel(axis, content.title, content.x, content.y)
    if content.log_x:
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        if high < 100 * low and high < 1000:  # longer labels would touch
            decimals(axis, "x")
    elif lines := axis.get_lines():
        numbers = np.concatenate([np.asarray(line.get_xdata(), float) for line in lines])
        if (numbers == np.round(numbers)).all():
            axis.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    if content.log_y:
        values = [value for thing in content.shown for value in thing.positive()]
        logarithmic(axis)
        if values and max(values) < 100 * min(values):
            decimals(axis)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(frameon=False, fontsize=6)


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]
