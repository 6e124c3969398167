"""Where Pequod wins, where it loses, and why: sentences that follow from the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pequod_bench.compare.comparison import (
    PAPER_AHEAD_PERCENT,
    Comparison,
    Line,
    Point,
    StoreResults,
    SystemResult,
    paper_ratio,
    ratios,
)
from pequod_bench.compare.freshness import Freshness
from pequod_bench.compare.machine import Machine
from pequod_bench.compare.openloop import AtRate, LatencyResult
from pequod_bench.compare.tables import busiest, figure_text, of_all
from pequod_bench.phases import PhaseCost

#: A system that does less of what was asked for than this does not keep up.
_KEEPS_UP_PART = 0.95
#: A process that works for less of the runtime than this does not limit anything.
_BUSY_PART = 0.5


@dataclass(frozen=True, slots=True)
class Goal:
    """Something that was to be reached: the paper's figures."""

    wanted: str
    found: str
    is_met: bool
    #: What a reader should know beside it.
    beside: str = ""


def goals(comparison: Comparison) -> list[Goal]:
    """Hold the figures against the paper's."""
    found: list[Goal] = []
    for result in comparison.twip[1:]:
        ratio, paper = ratios(result, comparison.twip[0]), paper_ratio(result, comparison.twip[0])
        if paper is not None:
            text = f"{result.title} takes at least {paper:.2f} times {comparison.twip[0].title}'s time"
            found.append(Goal(text, figure_text(ratio), ratio.median >= paper, _beside(comparison.twip[0], result)))
    lines = {line.title.split(maxsplit=1)[0]: line for line in comparison.materialisation + comparison.newp}
    for ahead, rival, what in (
        ("dynamic", "full", "active users"),
        ("dynamic", "no", "active users"),
        ("interleaved", "separate", "votes"),
    ):
        if ahead in lines and rival in lines:
            lost = [
                point.x
                for point in lines[ahead].points
                if point.x <= PAPER_AHEAD_PERCENT and not _is_ahead(lines[ahead], lines[rival], point.x)
            ]
            text = f"{lines[ahead].title} ahead of {lines[rival].title} up to {PAPER_AHEAD_PERCENT} % {what}"
            behind = f"behind at {', '.join(f'{x} %' for x in lost)}" if lost else "ahead everywhere"
            found.append(Goal(text, behind, not lost))
    return found


def verdicts(comparison: Comparison) -> list[str]:
    """Say where Pequod wins and where it loses, and why."""
    return [
        *_noise(comparison.machine),
        *_twip(comparison.twip),
        *_own_costs(comparison),
        *_materialisation(comparison.materialisation),
        *_newp(comparison),
        *_maintenance(comparison.maintenance),
        *_celebrities(comparison.celebrities),
        *_latencies(comparison.latencies),
        *_freshness(comparison.freshness),
        *_ycsb(comparison.ycsb),
    ]


def _noise(machine: Machine) -> Iterator[str]:
    if machine.load_at_start > machine.cores / 2:
        yield (
            f"Others were at work on this machine when the run began (load {machine.load_at_start:.1f} on "
            f"{machine.cores} cores): believe CPU times more than runtimes and latencies, and neither much."
        )


def _twip(results: Sequence[SystemResult]) -> Iterator[str]:
    for result in results[1:]:
        base = results[0]
        ratio, paper = ratios(result, base), paper_ratio(result, base)
        if ratio.least > 1:
            what = f"{base.title} is {ratio.median:.2f} times faster than {result.title}"
        elif ratio.greatest < 1:
            what = f"{base.title} is {1 / ratio.median:.2f} times slower than {result.title}"
        else:
            what = f"{base.title} and {result.title} are equal within the spread of the runs ({figure_text(ratio)})"
        beside = "" if paper is None else f" (the paper: {paper:.2f} times faster)"
        yield f"{what}{beside}. {_why(base, result)}"


def _beside(base: SystemResult, other: SystemResult) -> str:
    """Say what a client on another machine would see, and which process a system waits for."""
    (_, ours, _), (_, server, _) = _spent(base), _spent(other)
    return f"server CPU {server / ours:.2f} times; {busiest(other.outcomes)}"


def _why(base: SystemResult, other: SystemResult) -> str:
    """Say what two systems spend, and which process limits the other one."""
    (ours_s, ours_server, ours_client), (s, server, client) = _spent(base), _spent(other)
    commands = other.outcomes[0].commands / base.outcomes[0].commands
    text = (
        f"{other.title} has {server / ours_server:.2f} times the server CPU, {client / ours_client:.2f} times the "
        f"client CPU, {commands:.2f} times the commands and {_mib(other) / _mib(base):.2f} times the memory. "
        f"{base.title}'s server is busy {ours_server / ours_s:.0%} of the time and its client "
        f"{ours_client / ours_s:.0%}, {other.title}'s {server / s:.0%} and {client / s:.0%}"
    )
    ratio = server / ours_server
    if max(server, client) / s < _BUSY_PART:
        return (
            f"{text}: nothing of it is busy most of the time, so that its runtime is one of waiting, for messages or "
            f"for what else runs on this machine. By server CPU alone the ratio is {ratio:.2f}."
        )
    if client > server:
        return (
            f"{text}: {other.title}'s client limits it, so the ratio is one of clients. With clients enough on other "
            f"machines, as in the paper, that of server CPU would count: {ratio:.2f}."
        )
    if max(ours_server, ours_client) > server and s > ours_s:
        return (
            f"{text}: its server has less to do than {base.title}'s and waits for the client between messages. With "
            f"clients enough on other machines it would be ahead, at {ratio:.2f} times {base.title}'s time."
        )
    return f"{text}: the servers limit both, so clients on other machines would see about {ratio:.2f}."


def _spent(result: SystemResult) -> tuple[float, float, float]:
    return (
        of_all(result.outcomes, lambda outcome: outcome.seconds).median,
        # CPU clocks go in steps: a run that is too short for one is counted as one.
        max(0.01, of_all(result.outcomes, lambda outcome: outcome.server_cpu_seconds).median),
        max(0.01, of_all(result.outcomes, lambda outcome: outcome.client_cpu_seconds).median),
    )


def _mib(result: SystemResult) -> float:
    return of_all(result.outcomes, lambda outcome: outcome.server_mib).median


def _own_costs(comparison: Comparison) -> Iterator[str]:
    """Say what Pequod's own server spends its time on."""
    pequod = next((result for result in comparison.twip if result.name == "pequod"), None)
    if pequod is None or not comparison.phases:
        return
    _, server, _ = _spent(pequod)
    seconds = {cost.name: cost.mean_us * cost.count / 1e6 for cost in comparison.phases}
    engine = sum(seconds.values())
    parts = ", ".join(f"{name} {s:.2f} s" for name, s in sorted(seconds.items(), key=lambda item: -item[1]))
    dearest = max(comparison.phases, key=_total)
    yield (
        f"Of the {server:.2f} s of CPU that {pequod.title}'s server takes, the engine takes {engine:.2f} s by itself "
        f"({parts}), and messages the rest. Most goes into {dearest.name}: {dearest.count:,} times "
        f"{dearest.mean_us:.1f} µs."
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _total(cost: PhaseCost) -> float:
    return cost.us_per_tick


def _seconds(point: Point) -> float:
    return of_all(point.outcomes, lambda outcome: outcome.seconds).median


def _at(line: Line, x: int) -> Point:
    return next(point for point in line.points if point.x == x)


def _is_ahead(line: Line, rival: Line, x: int) -> bool:
    return _seconds(_at(line, x)) < _seconds(_at(rival, x))


def _ahead_text(line: Line, rival: Line) -> str:
    """Say where one line is lower than another, and by how much at most and at least."""
    ahead = [f"{point.x} %" for point in line.points if _is_ahead(line, rival, point.x)]
    by_x = [(_seconds(_at(rival, point.x)) / _seconds(point), point.x) for point in line.points]
    (worst, worst_x), (best, best_x) = min(by_x), max(by_x)
    return (
        f"{line.title} is ahead of {rival.title} at {', '.join(ahead) or 'none'} (of {len(line.points)} points "
        f"measured): {rival.title} takes {best:.2f} times its time at {best_x} %, {worst:.2f} times at {worst_x} %"
    )


def _materialisation(lines: Sequence[Line]) -> Iterator[str]:
    by_name = {line.title.split(maxsplit=1)[0]: line for line in lines}
    dynamic = by_name.get("dynamic")
    if dynamic is None:
        return
    for rival in ("no", "full"):
        if rival in by_name:
            yield _sentence(_ahead_text(dynamic, by_name[rival]))
    if "full" in by_name:
        yield _unseen_costs(dynamic, by_name["full"])


def _unseen_costs(dynamic: Line, full: Line) -> str:
    """Say what full materialisation costs that its line does not show."""
    x = full.points[0].x
    outcomes = [_at(line, x).outcomes for line in (full, dynamic)]
    full_load, load = (of_all(each, lambda outcome: outcome.load_seconds).median for each in outcomes)
    full_s, seconds = (_seconds(_at(line, x)) for line in (full, dynamic))
    full_mib, mib = (of_all(each, lambda outcome: outcome.server_mib).median for each in outcomes)
    return (
        "Full materialisation is done before its clock starts, dynamic materialisation in first checks while it runs: "
        f"loading included it is {full_load + full_s:.2f} to {load + seconds:.2f} s at {x} %, and {full_mib:.0f} to "
        f"{mib:.0f} MiB."
    )


def _newp(comparison: Comparison) -> Iterator[str]:
    by_name = {line.title: line for line in comparison.newp}
    if len(by_name) < 2:
        return
    separate, interleaved = by_name["separate"], by_name["interleaved"]
    yield _sentence(_ahead_text(interleaved, separate))
    lowest, highest = separate.points[0].x, separate.points[-1].x
    if lowest == highest:
        return
    costs = []
    for line in (separate, interleaved):
        first, last = _at(line, lowest).outcomes, _at(line, highest).outcomes
        commands = last[0].commands - first[0].commands
        cpu = [of_all(outcomes, lambda outcome: outcome.server_cpu_seconds).median for outcomes in (first, last)]
        costs.append((cpu[0], cpu[1] - cpu[0], max(1, commands)))
    (_, separate_s, votes), (_, interleaved_s, _) = costs
    yield (
        f"From {lowest} % to {highest} % votes the server's CPU grows by {separate_s:.2f} s with separate joins and by "
        f"{interleaved_s:.2f} s with interleaved ones, {separate_s / votes * 1e6:.0f} and "
        f"{interleaved_s / votes * 1e6:.0f} µs a vote: a vote changes one count and one rank, and interleaved also the "
        f"karma beside every comment of the author. At {lowest} % they take {costs[0][0]:.2f} s and "
        f"{costs[1][0]:.2f} s."
    )


def _maintenance(ways: Sequence[SystemResult]) -> Iterator[str]:
    for way in ways[1:]:
        rows = [of_all(each.outcomes, lambda outcome: outcome.rows).median for each in (way, ways[0])]
        yield _sentence(
            f"{way.title} takes {ratios(way, ways[0]).median:.2f} times the time of {ways[0].title} and "
            f"{_mib(way) / _mib(ways[0]):.2f} times its memory; its checks return {rows[0] / max(1, rows[1]):.1%} of "
            "the rows"
        )


def _celebrities(ways: Sequence[SystemResult]) -> Iterator[str]:
    if len(ways) < 2:
        return
    everyone, apart = ways
    saved = _mib(everyone) - _mib(apart)
    change = f"{'save' if saved >= 0 else 'cost'} {abs(saved):.0f} of {_mib(everyone):.0f} MiB"
    yield (
        f"Celebrities kept apart take {ratios(apart, everyone).median:.2f} times the time and {change} (the paper: no "
        "faster, but less memory)."
    )


def _latencies(results: Sequence[LatencyResult]) -> Iterator[str]:
    pequod = next((result for result in results if result.title == "Pequod"), None)
    others = [result for result in results[1:] if result is not pequod]
    if pequod is None:
        return
    kept = [at for at in pequod.rates if _keeps_up(at)]
    if not kept:
        yield f"Pequod keeps up with none of the rates, from {pequod.rates[0].rate:,} operations a second on."
        return
    at = kept[-1]
    beside = [(result.title, found) for result in others for found in result.rates if found.rate == at.rate]
    text = "; ".join(
        f"{title} {found.checks.p50_ms:.2f} and {found.checks.p99_ms:.2f} ms"
        + ("" if _keeps_up(found) else " (it does not keep up)")
        for title, found in beside
    )
    fails = "" if at is pequod.rates[-1] else f", and it does not keep up with {pequod.rates[-1].rate:,}"
    best = min((found.checks.p50_ms for _, found in beside), default=at.checks.p50_ms)
    place = "the quickest" if at.checks.p50_ms <= best else f"{at.checks.p50_ms / best:.1f} times the quickest"
    yield (
        f"At {at.rate:,} operations a second a check by itself takes Pequod {at.checks.p50_ms:.2f} ms at the median, "
        f"{place}, and {at.checks.p99_ms:.2f} at p99{fails}. Beside it: {text or 'nothing'}."
    )


def _keeps_up(at: AtRate) -> bool:
    return at.done_per_s >= _KEEPS_UP_PART * at.rate


def _freshness(results: Sequence[Freshness]) -> Iterator[str]:
    first = [result.title for result in results if result.first_check_part >= 1]
    later = [result for result in results if result.first_check_part < 1]
    if first:
        yield f"The first check after the acknowledgement shows every post with {', '.join(first)}."
    for result in later:
        yield (
            f"With {result.title} it shows {result.first_check_part:.1%} of them, and half are visible after "
            f"{result.visible.p50_ms:.2f} ms."
        )


def _ycsb(workloads: Sequence[StoreResults]) -> Iterator[str]:
    shares: list[str] = []
    costs: list[str] = []
    for workload in workloads:
        if len(workload.stores) == 2:
            pequod, redis = workload.stores
            ours, theirs = (_server_us(store, workload.operation_count) for store in workload.stores)
            shares.append(f"{workload.letter} {ratios(redis, pequod).median:.2f}")
            costs.append(f"{workload.letter} {ours:.1f} µs (Redis {theirs:.1f})")
    if shares:
        yield (
            f"YCSB without joins: Redis takes so many times Pequod's time: {', '.join(shares)}. For each operation "
            f"Pequod's server takes {', '.join(costs)}."
        )


def _server_us(result: SystemResult, count: int) -> float:
    return of_all(result.outcomes, lambda outcome: outcome.server_cpu_seconds / count * 1e6).median
