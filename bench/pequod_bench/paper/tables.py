"""The comparison as tables of text and as figures, which the reports show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from pequod_bench.paper.comparison import Comparison, Line, busiest, of_all, paper_ratio, ratios, server_ratios
from pequod_bench.paper.latency import LatencyResult
from pequod_bench.paper.measure import RunOutcome
from pequod_bench.report.latency import Latencies
from pequod_bench.report.plots import BarSeries, Curve, Panel, bars, panels, svg
from pequod_bench.workloads.ycsb import MIXES

_OURS, _SERVER, _PAPER = "#1b6ca8", "#9ecae1", "#b9c4cc"
#: For a line a system, and for a line a way.
_MANY: Final = ("#999999", "#1b6ca8", "#c0504d", "#6ba3d6", "#8064a2", "#4f8f3a", "#d99a2b")
_COLOURS: Final = ("#c0504d", "#7f7f7f", "#1b6ca8")
_COSTS: Final = ("server CPU, s", "client CPU, s", "commands", "messages", "memory, MiB", "rows")
_PERCENTILES: Final = ("p50", "p99", "p99.9", "max")


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table; all columns but the first hold figures."""

    #: Of the section, as in `Comparison.sizes`.
    section: str
    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]
    #: Draws the same as an SVG element, if there is something to draw.
    draw: Callable[[], str] | None = None


def tables(comparison: Comparison) -> list[FigureTable]:
    """Return a table for each section that was measured."""
    c, sizes = comparison, comparison.sizes
    made: list[tuple[object, Callable[[], FigureTable]]] = [
        (c.twip, lambda: _twip(c)),
        (c.materialisation, lambda: _curves("8", "active users", sizes["8"], c.materialisation, _COLOURS)),
        (c.newp, lambda: _curves("9", "sessions that vote", sizes["9"], c.newp, _COLOURS[1:])),
        (c.latencies, lambda: _latencies(sizes["latency"], c.latencies)),
        (c.ycsb, lambda: _ycsb(sizes["ycsb"], c.ycsb, c.ycsb_operations)),
    ]
    return [make() for there, make in made if there]


def _twip(comparison: Comparison) -> FigureTable:
    base = comparison.twip[0]
    return FigureTable(
        section="7",
        title="Figure 7: Twip, system by system",
        note=f"{comparison.sizes['7']}; median of {comparison.repetitions} interleaved repetitions (least to greatest)."
        f" Ratios are to {base.title}, repetition by repetition. Every system ended with the timelines that a "
        "computation from scratch gives. The ratio of server CPU is what clients on other machines would see, if "
        "they were enough to keep the server busy. Busiest: which process, and for how much of the runtime; more than "
        "100 % is several processes. Rows: what the checks returned. Where the client or another connection "
        "writes, a post is not yet in a timeline when some checks pass its place, and these never return it.",
        columns=["system", "runtime, s", "ratio", "paper", "server CPU ratio", "busiest", *_COSTS],
        rows=[
            [
                result.title,
                str(of_all(result.outcomes, lambda outcome: outcome.seconds)),
                str(ratios(result, base)),
                "" if (paper := paper_ratio(result, base)) is None else f"{paper:.2f}",
                str(server_ratios(result, base)),
                busiest(result.outcomes),
                *_costs(result.outcomes),
            ]
            for result in comparison.twip
        ],
        draw=partial(_draw_twip, comparison.twip),
    )


def _costs(outcomes: Sequence[RunOutcome]) -> list[str]:
    return [
        str(of_all(outcomes, lambda outcome: outcome.server_cpu_seconds)),
        str(of_all(outcomes, lambda outcome: outcome.client_cpu_seconds)),
        f"{outcomes[0].commands:,}",
        f"{outcomes[0].messages:,}",
        f"{of_all(outcomes, lambda outcome: outcome.server_mib).median:,.0f}",
        f"{of_all(outcomes, lambda outcome: outcome.rows).median:,.0f}",
    ]


_CURVE_TITLES: Final = {
    "8": "Figure 8: materialisation, over the share of active users",
    "9": "Figure 9: Newp, separate and interleaved joins, over the rate of votes",
}
_CURVE_NOTES: Final = {
    "8": "Seconds for all checks and posts; server CPU in brackets. The paper: dynamic is ahead of full up to about "
    "90 % active users, full 1.08 times faster at 100 %.",
    "9": "Seconds for all sessions; server CPU in brackets. The paper: interleaved is ahead up to about 90 % votes.",
}


def _curves(section: str, x_title: str, size: str, lines: list[Line], colours: Sequence[str]) -> FigureTable:
    rows = []
    for points in zip(*(line.points for line in lines), strict=True):
        cpu = [of_all(point.outcomes, lambda outcome: outcome.server_cpu_seconds).median for point in points]
        figures = [f"{point.seconds} [{cpu_s:.2f}]" for point, cpu_s in zip(points, cpu, strict=True)]
        rows.append([f"{points[0].x} %", *figures])
    note = f"{size}. {_CURVE_NOTES[section]}"
    draw = partial(_draw_lines, lines, f"{x_title}, %", colours)
    return FigureTable(section, _CURVE_TITLES[section], note, [x_title, *(line.title for line in lines)], rows, draw)


def _latencies(size: str, results: Sequence[LatencyResult]) -> FigureTable:
    rows = []
    for result in results:
        for at in result.rates:
            checks, posts = _percentiles(at.checks), _percentiles(at.posts)[:2]
            rows.append([f"{result.title}, {at.rate:,}/s", f"{at.done_per_s:,.0f}", *checks, *posts])
    note = (
        f"{size}. ms, from the moment at which an operation was to start to its answer, whether or not "
        "earlier ones are back: a loop that waits for each answer would leave out all who wait while a server stalls "
        "(coordinated omission). Each operation by itself. The first rows are the generator without a server, whose "
        "timers are late by that much; it is part of all the others. A post counts until it is acknowledged."
    )
    columns = ["system, rate", "done/s", *(f"check {name}" for name in _PERCENTILES), "post p50", "post p99"]
    draw = partial(_draw_latencies, results)
    return FigureTable("latency", "Latencies at a fixed rate", note, columns, rows, draw)


def _percentiles(found: Latencies) -> list[str]:
    return [f"{ms:.2f}" for ms in (found.p50_ms, found.p99_ms, found.p999_ms, found.max_ms)]


def _ycsb(size: str, lines: Sequence[Line], operations: int) -> FigureTable:
    titles = {mix.letter: f"{mix.letter}: {mix.text}" for mix in MIXES}
    rows = [
        [titles[str(points[0].x)], *chain.from_iterable(_store_figures(one.outcomes, operations) for one in points)]
        for points in zip(*(line.points for line in lines), strict=True)
    ]
    note = (
        f"{size}. Batches of 256 operations (16 with scans), 2 under way; a write that depends on a read goes out "
        "when that is answered. After each run all records, and the number of rows read, must be what they must be. "
        + " ".join(f"{line.title}: {line.tuning}" for line in lines)
    )
    figures = (f"{line.title}, {what}" for line in lines for what in ("operations/s", "server µs each", "MiB"))
    draw = partial(_draw_ycsb, lines, operations)
    return FigureTable("ycsb", "YCSB: the ordered store without joins", note, ["workload", *figures], rows, draw)


def _store_figures(outcomes: Sequence[RunOutcome], count: int) -> list[str]:
    return [
        f"{of_all(outcomes, lambda outcome: count / outcome.seconds).median:,.0f}",
        f"{of_all(outcomes, lambda outcome: outcome.server_cpu_seconds / count * 1e6).median:.1f}",
        f"{of_all(outcomes, lambda outcome: outcome.server_mib).median:,.0f}",
    ]


def _draw_twip(results: list[Line]) -> str:
    series = []
    for title, colour, ratio in (("runtime here", _OURS, ratios), ("server CPU here", _SERVER, server_ratios)):
        found = [ratio(result, results[0]) for result in results]
        reach = [(one.least, one.greatest) for one in found]
        series.append(BarSeries(title, colour, [one.median for one in found], reach))
    series.append(BarSeries("runtime in the paper", _PAPER, [paper_ratio(one, results[0]) for one in results]))
    return svg(bars([result.title for result in results], series, f"{results[0].title} = 1", is_ratio=True))


def _draw_lines(lines: list[Line], x_title: str, colours: Sequence[str]) -> str:
    curves = []
    for line, colour in zip(lines, colours, strict=True):
        points = [(float(point.x), point.seconds.median) for point in line.points]
        reach = [(point.seconds.least, point.seconds.greatest) for point in line.points]
        curves.append(Curve(line.title, points, "o-", colour, reach))
    return svg(panels([Panel("", x_title, curves, "runtime, s", y_log=True)]))


def _draw_latencies(results: Sequence[LatencyResult]) -> str:
    """Draw the whole distribution of the checks, at the highest rate; towards the right ever rarer ones."""
    curves = []
    for number, result in enumerate(results):
        # 0, 90, 99, 99.9 % are equally far from each other.
        curve = result.rates[-1].check_curve
        points = [(1 / (1 - percent / 100), ms) for percent, ms in curve if percent < 100 and ms > 0]
        curves.append(Curve(result.title, points, "-" if number else ":", _MANY[number % len(_MANY)]))
    title = f"percent of the checks, at {results[0].rates[-1].rate:,} operations a second"
    ticks = {1.0: "0", 10.0: "90", 100.0: "99", 1_000.0: "99.9", 10_000.0: "99.99"}
    return svg(panels([Panel("", title, curves, "done within, ms", x_log=True, y_log=True, x_ticks=ticks)]))


def _draw_ycsb(lines: Sequence[Line], operations: int) -> str:
    series = [
        BarSeries(line.title, colour, [operations / point.seconds.median for point in line.points])
        for line, colour in zip(lines, (_OURS, _PAPER), strict=False)
    ]
    letters = [str(point.x) for point in lines[0].points]
    return svg(bars(letters, series, "operations a second", is_ratio=False))
