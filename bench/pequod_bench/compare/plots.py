"""The figures as SVG."""

from __future__ import annotations

import io
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pequod_bench.compare.comparison import Comparison, Line, paper_ratio, ratios, spread

#: Text stays text, and one comparison gives one file.
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pequod",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_OURS: Final = "#1b6ca8"
_PAPER: Final = "#b9c4cc"
_COLOURS: Final = ("#c0504d", "#7f7f7f", "#1b6ca8")


def figures(comparison: Comparison) -> list[str]:
    """Return one SVG element for each figure that was measured."""
    found = []
    with rc_context(_STYLE):
        if comparison.twip:
            found.append(_twip(comparison))
        if comparison.materialisation:
            found.append(_curves(comparison.materialisation, "active users, %", _COLOURS))
        if comparison.newp:
            found.append(_curves(comparison.newp, "sessions that vote, %", _COLOURS[1:]))
    return found


def _twip(comparison: Comparison) -> str:
    figure = Figure(figsize=(7.5, 0.6 + 0.55 * len(comparison.twip)), layout="constrained")
    axes: Axes = figure.subplots()
    base = comparison.twip[0]
    for row, result in enumerate(comparison.twip):
        ratio = ratios(result, base)
        reach = [[ratio.median - ratio.least], [ratio.greatest - ratio.median]]
        axes.barh(row - 0.18, ratio.median, 0.34, xerr=reach, color=_OURS, ecolor="#333333", capsize=2)
        axes.annotate(f" {ratio.median:.2f}", (ratio.greatest, row - 0.18), va="center", fontsize=9)
        paper = paper_ratio(result, base)
        if paper is not None:
            axes.barh(row + 0.18, paper, 0.34, color=_PAPER)
            axes.annotate(f" {paper:.2f}", (paper, row + 0.18), va="center", fontsize=9, color="#666666")
    axes.set_yticks(range(len(comparison.twip)), [result.title for result in comparison.twip])
    axes.invert_yaxis()
    axes.axvline(1, color="#333333", linewidth=0.8)
    axes.set_xlabel(f"runtime, {base.title} = 1 (blue: here; grey: the paper)")
    return _svg(figure)


def _curves(lines: list[Line], x_title: str, colours: tuple[str, ...]) -> str:
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axes: Axes = figure.subplots()
    for line, colour in zip(lines, colours, strict=True):
        xs = [point.x for point in line.points]
        spreads = [spread([outcome.seconds for outcome in point.outcomes]) for point in line.points]
        axes.plot(xs, [found.median for found in spreads], "o-", color=colour, label=line.title, markersize=4)
        axes.fill_between(
            xs, [found.least for found in spreads], [found.greatest for found in spreads], color=colour, alpha=0.15
        )
    axes.set_xlabel(x_title)
    axes.set_ylabel("runtime, s")
    axes.set_yscale("log")
    axes.legend(frameon=False)
    return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
