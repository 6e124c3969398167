"""The figures as SVG."""

from __future__ import annotations

import io
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pequod_bench.paper.comparison import Comparison, Line, StoreResults, paper_ratio, ratios, server_ratios, spread
from pequod_bench.paper.openloop import LatencyResult

#: Text stays text, and one comparison gives one file.
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pequod",
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_OURS: Final = "#1b6ca8"
_SERVER: Final = "#9ecae1"
_PAPER: Final = "#b9c4cc"
#: For a line a system.
_MANY: Final = ("#999999", "#1b6ca8", "#c0504d", "#6ba3d6", "#8064a2", "#4f8f3a", "#d99a2b")
_COLOURS: Final = ("#c0504d", "#7f7f7f", "#1b6ca8")


def figures(comparison: Comparison) -> dict[str, str]:
    """Return an SVG element for each section that has a figure."""
    found: dict[str, str] = {}
    with rc_context(_STYLE):
        if comparison.twip:
            found["7"] = _twip(comparison)
        if comparison.materialisation:
            found["8"] = _curves(comparison.materialisation, "active users, %", _COLOURS)
        if comparison.newp:
            found["9"] = _curves(comparison.newp, "sessions that vote, %", _COLOURS[1:])
        if comparison.latencies:
            found["latency"] = _latencies(comparison.latencies)
        if comparison.ycsb:
            found["ycsb"] = _ycsb(comparison.ycsb)
    return found


def _twip(comparison: Comparison) -> str:
    figure = Figure(figsize=(7.5, 0.6 + 0.7 * len(comparison.twip)), layout="constrained")
    axes: Axes = figure.subplots()
    base = comparison.twip[0]
    for row, result in enumerate(comparison.twip):
        bars = ((-0.25, ratios(result, base), _OURS), (0.0, server_ratios(result, base), _SERVER))
        for below, ratio, colour in bars:
            reach = [[ratio.median - ratio.least], [ratio.greatest - ratio.median]]
            axes.barh(row + below, ratio.median, 0.23, xerr=reach, color=colour, ecolor="#333333", capsize=2)
            axes.annotate(f" {ratio.median:.2f}", (ratio.greatest, row + below), va="center", fontsize=9)
        paper = paper_ratio(result, base)
        if paper is not None:
            axes.barh(row + 0.25, paper, 0.23, color=_PAPER)
            axes.annotate(f" {paper:.2f}", (paper, row + 0.25), va="center", fontsize=9, color="#666666")
    axes.set_yticks(range(len(comparison.twip)), [result.title for result in comparison.twip])
    axes.invert_yaxis()
    axes.axvline(1, color="#333333", linewidth=0.8)
    axes.set_xlabel(
        f"{base.title} = 1; runtime here (blue), server CPU here (light blue),\nruntime in the paper (grey)"
    )
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


def _latencies(results: list[LatencyResult]) -> str:
    """Draw the whole distribution of the checks, at the highest rate; towards the right ever rarer ones."""
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes: Axes = figure.subplots()
    for number, result in enumerate(results):
        at = result.rates[-1]
        # 0, 90, 99, 99.9 % are equally far from each other.
        points = [(1 / (1 - percent / 100), ms) for percent, ms in at.check_curve if percent < 100 and ms > 0]
        xs, ys = zip(*points, strict=True) if points else ((), ())
        dashes = ":" if number == 0 else "-"
        axes.plot(xs, ys, dashes, color=_MANY[number % len(_MANY)], label=result.title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([1, 10, 100, 1_000, 10_000], ["0", "90", "99", "99.9", "99.99"])
    axes.set_xlabel(f"percent of the checks, at {results[0].rates[-1].rate:,} operations a second")
    axes.set_ylabel("done within, ms")
    axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _ycsb(workloads: list[StoreResults]) -> str:
    figure = Figure(figsize=(7.5, 3), layout="constrained")
    axes: Axes = figure.subplots()
    titles = list(dict.fromkeys(store.title for workload in workloads for store in workload.stores))
    for number, title in enumerate(titles):
        rates = {
            row: spread([workload.operation_count / outcome.seconds for outcome in store.outcomes]).median
            for row, workload in enumerate(workloads)
            for store in workload.stores
            if store.title == title
        }
        places = [row + (number - (len(titles) - 1) / 2) * 0.36 for row in rates]
        axes.bar(places, list(rates.values()), 0.34, color=(_OURS, _PAPER)[number % 2], label=title)
    axes.set_xticks(range(len(workloads)), [workload.letter for workload in workloads])
    axes.set_ylabel("operations a second")
    axes.legend(frameon=False)
    return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
