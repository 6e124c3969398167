"""The comparison as tables of text, which the Markdown and the HTML report both show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pequod_bench.paper.comparison import (
    Comparison,
    Line,
    Spread,
    StoreResults,
    SystemResult,
    paper_ratio,
    ratios,
    server_ratios,
    spread,
)
from pequod_bench.paper.freshness import Freshness
from pequod_bench.paper.measure import RunOutcome
from pequod_bench.paper.openloop import LatencyResult
from pequod_bench.report.latency import Latencies
from pequod_bench.report.phases import PhaseCost


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table; all columns but the first hold figures."""

    #: Of the section, as in `Comparison.sizes`; a section may have several tables.
    section: str
    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def tables(comparison: Comparison) -> list[FigureTable]:
    """Return a table, or two, for each section that was measured."""
    sizes = comparison.sizes
    found: list[FigureTable] = []
    if comparison.twip:
        found.append(_twip(comparison))
    if comparison.phases:
        found.append(_phases(comparison.phases))
    if comparison.materialisation:
        found.append(
            _curves(
                "8",
                "Figure 8: materialisation, over the share of active users",
                f"{sizes['8']}. Seconds for all checks and posts; server CPU in brackets. The paper: dynamic is ahead "
                "of full up to about 90 % active users, full 1.08 times faster at 100 %.",
                "active users",
                comparison.materialisation,
            )
        )
    if comparison.newp:
        found.append(
            _curves(
                "9",
                "Figure 9: Newp, separate and interleaved joins, over the rate of votes",
                f"{sizes['9']}. Seconds for all sessions; server CPU in brackets. The paper: interleaved is ahead up "
                "to about 90 % votes.",
                "sessions that vote",
                comparison.newp,
            )
        )
    if comparison.maintenance:
        note = f"{sizes['maintenance']}. " + " ".join(f"{way.title}: {way.tuning}" for way in comparison.maintenance)
        found.append(_variants("maintenance", "Push, pull and snapshots", note, comparison.maintenance))
    if comparison.celebrities:
        note = f"{sizes['celebrity']}. " + " ".join(f"{way.title}: {way.tuning}" for way in comparison.celebrities)
        found.append(_variants("celebrity", "Celebrities kept apart", note, comparison.celebrities))
    if comparison.latencies:
        found.append(_latencies(sizes["latency"], comparison.latencies))
    if comparison.freshness:
        found.append(_freshness(comparison.freshness))
    if comparison.ycsb:
        found.append(_ycsb(sizes["ycsb"], comparison.ycsb))
    return found


def figure_text(figure: Spread) -> str:
    """Return a median and its range."""
    if figure.least == figure.greatest:
        return f"{figure.median:.2f}"
    return f"{figure.median:.2f} ({figure.least:.2f} to {figure.greatest:.2f})"


def of_all(outcomes: Sequence[RunOutcome], figure: Callable[[RunOutcome], float]) -> Spread:
    """Return one figure of several runs."""
    return spread([figure(outcome) for outcome in outcomes])


def busiest(outcomes: Sequence[RunOutcome]) -> str:
    """Say which process works for most of the runtime, and for how much of it."""
    server = of_all(outcomes, lambda outcome: outcome.server_cpu_seconds / outcome.seconds).median
    client = of_all(outcomes, lambda outcome: outcome.client_cpu_seconds / outcome.seconds).median
    return f"{'client' if client > server else 'server'} {max(server, client):.0%}"


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
                figure_text(of_all(result.outcomes, lambda outcome: outcome.seconds)),
                figure_text(ratios(result, base)),
                "" if (paper := paper_ratio(result, base)) is None else f"{paper:.2f}",
                figure_text(server_ratios(result, base)),
                busiest(result.outcomes),
                *_costs(result.outcomes),
            ]
            for result in comparison.twip
        ],
    )


_COSTS: Final = ("server CPU, s", "client CPU, s", "commands", "messages", "memory, MiB", "rows")


def _costs(outcomes: Sequence[RunOutcome]) -> list[str]:
    return [
        figure_text(of_all(outcomes, lambda outcome: outcome.server_cpu_seconds)),
        figure_text(of_all(outcomes, lambda outcome: outcome.client_cpu_seconds)),
        f"{outcomes[0].commands:,}",
        f"{outcomes[0].messages:,}",
        f"{of_all(outcomes, lambda outcome: outcome.server_mib).median:,.0f}",
        f"{of_all(outcomes, lambda outcome: outcome.rows).median:,.0f}",
    ]


def _variants(section: str, title: str, note: str, ways: Sequence[SystemResult]) -> FigureTable:
    rows = [
        [
            way.title,
            figure_text(of_all(way.outcomes, lambda outcome: outcome.seconds)),
            figure_text(ratios(way, ways[0])),
            *_costs(way.outcomes),
        ]
        for way in ways
    ]
    return FigureTable(section, title, note, ["way", "runtime, s", "ratio", *_COSTS], rows)


def _phases(costs: Sequence[PhaseCost]) -> FigureTable:
    return FigureTable(
        section="7",
        title="What the engine does for it",
        note="The same operations in the engine alone, by kind; µs of CPU. What the server takes beyond this goes into "
        "messages: reading, writing, waiting.",
        columns=["operation", "count", "µs, mean", "median", "p99", "µs an operation of the run"],
        rows=[
            [
                cost.name,
                f"{cost.count:,}",
                *(f"{us:.2f}" for us in (cost.mean_us, cost.median_us, cost.p99_us, cost.us_per_tick)),
            ]
            for cost in costs
        ],
    )


def _curves(section: str, title: str, note: str, x_title: str, lines: list[Line]) -> FigureTable:
    rows = []
    for points in zip(*(line.points for line in lines), strict=True):
        row = [f"{points[0].x} %"]
        for point in points:
            cpu = of_all(point.outcomes, lambda outcome: outcome.server_cpu_seconds).median
            row.append(f"{figure_text(of_all(point.outcomes, lambda outcome: outcome.seconds))} [{cpu:.2f}]")
        rows.append(row)
    return FigureTable(section, title, note, [x_title, *(line.title for line in lines)], rows)


def _latencies(size: str, results: Sequence[LatencyResult]) -> FigureTable:
    rows = [
        [
            f"{result.title}, {at.rate:,}/s",
            f"{at.done_per_s:,.0f}",
            *_percentiles(at.checks),
            f"{at.posts.p50_ms:.2f}",
            f"{at.posts.p99_ms:.2f}",
        ]
        for result in results
        for at in result.rates
    ]
    return FigureTable(
        section="latency",
        title="Latencies at a fixed rate",
        note=f"{size}. ms, from the moment at which an operation was to start to its answer, whether or not "
        "earlier ones are back: a loop that waits for each answer would leave out all who wait while a server stalls "
        "(coordinated omission). Each operation by itself. The first rows are the generator without a server, whose "
        "timers are late by that much; it is part of all the others. A post counts until it is acknowledged.",
        columns=["system, rate", "done/s", *(f"check {name}" for name in _PERCENTILES), "post p50", "post p99"],
        rows=rows,
    )


_PERCENTILES: Final = ("p50", "p99", "p99.9", "max")


def _percentiles(found: Latencies) -> list[str]:
    return [f"{ms:.2f}" for ms in (found.p50_ms, found.p99_ms, found.p999_ms, found.max_ms)]


def _freshness(results: Sequence[Freshness]) -> FigureTable:
    return FigureTable(
        section="freshness",
        title="From a post's acknowledgement to its followers",
        note="ms, one post after the other beside 200 checks a second. Visible: to the end of the first check "
        "that shows the post in a follower's timeline; where the store keeps timelines as it takes the post, that is "
        "one check. Told: to the event of a watch of that timeline, 16 of which stand; an event that is here before "
        "the acknowledgement counts as no lag.",
        columns=[
            "system",
            *(f"visible {name}" for name in _PERCENTILES),
            "seen by the first check",
            *(f"told {name}" for name in _PERCENTILES[:3]),
            "told before",
        ],
        rows=[
            [
                result.title,
                *_percentiles(result.visible),
                f"{result.first_check_part:.1%}",
                *([""] * 3 if result.told is None else _percentiles(result.told)[:3]),
                "" if result.told_before_part is None else f"{result.told_before_part:.1%}",
            ]
            for result in results
        ],
    )


def _ycsb(size: str, workloads: Sequence[StoreResults]) -> FigureTable:
    titles = list(dict.fromkeys(store.title for workload in workloads for store in workload.stores))
    rows = []
    for workload in workloads:
        by_title = {store.title: store for store in workload.stores}
        row = [f"{workload.letter}: {workload.text}"]
        for title in titles:
            row += _store_figures(by_title[title].outcomes, workload.operation_count) if title in by_title else [""] * 3
        rows.append(row)
    return FigureTable(
        section="ycsb",
        title="YCSB: the ordered store without joins",
        note=f"{size}. Batches of 256 operations (16 with scans), 2 under way; a write that depends on a read goes out "
        "when that is answered. After each run all records, and the number of rows read, must be what they must be. "
        + " ".join(f"{store.title}: {store.tuning}" for store in workloads[0].stores),
        columns=[
            "workload",
            *(f"{title}, {what}" for title in titles for what in ("operations/s", "server µs each", "MiB")),
        ],
        rows=rows,
    )


def _store_figures(outcomes: Sequence[RunOutcome], count: int) -> list[str]:
    return [
        f"{of_all(outcomes, lambda outcome: count / outcome.seconds).median:,.0f}",
        f"{of_all(outcomes, lambda outcome: outcome.server_cpu_seconds / count * 1e6).median:.1f}",
        f"{of_all(outcomes, lambda outcome: outcome.server_mib).median:,.0f}",
    ]
