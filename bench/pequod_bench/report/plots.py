"""Figures as SVG, of plain numbers: curves in panels, and bars. Text stays text, and the same numbers make one file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pequod_installed.names import how_to_install

from pequod.errors import PequodError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pequod",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class NoPlotterError(PequodError):
    """Matplotlib is not installed."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of x and y; of each point perhaps the least and the greatest y."""

    title: str
    points: Sequence[tuple[float, float]]
    style: str = "-"
    colour: str | None = None
    reach: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves over one x."""

    title: str
    x_title: str
    curves: Sequence[Curve]
    y_title: str = ""
    x_log: bool = False
    y_log: bool = False
    is_from_zero: bool = False
    #: Places on x, and what stands there.
    x_ticks: Mapping[float, str] | None = None


@dataclass(frozen=True, slots=True)
class BarSeries:
    """Bars of one colour, one for each name; none where the figure is None. Perhaps with their least and greatest."""

    title: str
    colour: str
    values: Sequence[float | None]
    reach: Sequence[tuple[float, float]] = ()


def require_plotter() -> None:
    """Refuse before anything is measured if there will be nothing to draw with."""
    if find_spec("matplotlib") is None:
        raise NoPlotterError(f"drawing needs matplotlib: {how_to_install('bench')}; or leave out --out")


def _figure(size: tuple[float, float], rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib import rc_context  # noqa: PLC0415 -- optional, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def panels(some: Sequence[Panel], columns: int = 1) -> Figure:
    """Draw curves, ``columns`` panels in a row."""
    rows = -(-len(some) // columns)
    figure, places = _figure((7.5, 3.6) if len(some) == 1 else (3.7 * columns, 3.0 * rows), rows, columns)
    for axes, panel in zip(places, some, strict=True):
        for curve in panel.curves:
            xs, ys = zip(*curve.points, strict=True) if curve.points else ((), ())
            (line,) = axes.plot(xs, ys, curve.style, color=curve.colour, label=curve.title, markersize=4)
            if curve.reach:
                least, greatest = zip(*curve.reach, strict=True)
                axes.fill_between(xs, least, greatest, color=line.get_color(), alpha=0.15)
        axes.set(xlabel=panel.x_title, ylabel=panel.y_title)
        axes.set_title(panel.title, loc="left")
        axes.set_xscale("log" if panel.x_log else "linear")
        axes.set_yscale("log" if panel.y_log else "linear")
        if panel.is_from_zero:
            axes.set_ylim(0, 1.15 * max(y for curve in panel.curves for _, y in curve.points) or 1)
        if panel.x_ticks:
            axes.set_xticks(list(panel.x_ticks), list(panel.x_ticks.values()))
        axes.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def bars(names: Sequence[str], series: Sequence[BarSeries], title: str, *, is_ratio: bool) -> Figure:
    """Draw the bars of each name below each other, with their figures; ratios with a line at 1."""
    figure, (axes,) = _figure((7.5, 0.6 + 0.7 * len(names)))
    thick = 0.75 / len(series)
    for number, one in enumerate(series):
        for place, value in enumerate(one.values):
            if value is None:
                continue
            at = place + (number - (len(series) - 1) / 2) * thick
            least, greatest = one.reach[place] if one.reach else (value, value)
            reach = [[value - least], [greatest - value]] if one.reach else None
            label = one.title if place == 0 else None
            axes.barh(at, value, 0.92 * thick, xerr=reach, color=one.colour, ecolor="#333333", capsize=2, label=label)
            axes.annotate(f" {value:.2f}" if is_ratio else f" {value:,.0f}", (greatest, at), va="center", fontsize=9)
    axes.set_yticks(range(len(names)), list(names))
    axes.invert_yaxis()
    if is_ratio:
        axes.axvline(1, color="#333333", linewidth=0.8)
    axes.set_xlabel(title)
    axes.legend(frameon=False, fontsize=8)
    return figure


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element."""
    from matplotlib import rc_context  # noqa: PLC0415

    text = io.StringIO()
    with rc_context(_STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
