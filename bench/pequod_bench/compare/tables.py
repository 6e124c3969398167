"""The comparison as tables of text, which the Markdown and the HTML report both show."""

from __future__ import annotations

from dataclasses import dataclass

from pequod_bench.compare.comparison import Comparison, Line, Spread, SystemResult, paper_ratio, ratios, spread


@dataclass(frozen=True, slots=True)
class Table:
    """A table; all columns but the first hold figures."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def tables(comparison: Comparison) -> list[Table]:
    """Return a table for each figure that was measured."""
    found = []
    if comparison.twip:
        found.append(_twip(comparison))
    if comparison.materialisation:
        found.append(
            _curves(
                "Figure 8: materialisation, over the share of active users",
                f"{comparison.materialisation_size}. Seconds for all checks and posts; server CPU in brackets. The "
                "paper: dynamic is ahead of full up to about 90 % active users, full 1.08 times faster at 100 %.",
                "active users",
                comparison.materialisation,
            )
        )
    if comparison.newp:
        found.append(
            _curves(
                "Figure 9: Newp, separate and interleaved joins, over the rate of votes",
                f"{comparison.newp_size}. Seconds for all sessions; server CPU in brackets. The paper: interleaved is "
                "ahead up to about 90 % votes.",
                "sessions that vote",
                comparison.newp,
            )
        )
    return found


def _twip(comparison: Comparison) -> Table:
    base = comparison.twip[0]
    row_counts = [spread([outcome.rows for outcome in result.outcomes]).median for result in comparison.twip]
    return Table(
        title="Figure 7: Twip, system by system",
        note=f"{comparison.twip_size}; median of {comparison.repetitions} interleaved repetitions (least to greatest). "
        f"Ratios are to {base.title}, repetition by repetition. Every system ended with the timelines that a "
        "computation from scratch gives. Rows: what the checks returned. Where the client or another connection "
        "writes, a post is not yet in a timeline when some checks pass its place, and these never return it.",
        columns=[
            "system",
            "runtime, s",
            "ratio",
            "paper",
            "server CPU, s",
            "client CPU, s",
            "commands",
            "messages",
            "memory, MiB",
            "rows",
        ],
        rows=[
            [result.title, *_twip_figures(result, base), f"{rows:,.0f}"]
            for result, rows in zip(comparison.twip, row_counts, strict=True)
        ],
    )


def _twip_figures(result: SystemResult, base: SystemResult) -> list[str]:
    outcomes = result.outcomes
    paper = paper_ratio(result, base)
    return [
        _text(spread([outcome.seconds for outcome in outcomes])),
        _text(ratios(result, base)),
        "" if paper is None else f"{paper:.2f}",
        _text(spread([outcome.server_cpu_seconds for outcome in outcomes])),
        _text(spread([outcome.client_cpu_seconds for outcome in outcomes])),
        f"{outcomes[0].commands:,}",
        f"{outcomes[0].messages:,}",
        f"{spread([outcome.server_mib for outcome in outcomes]).median:,.0f}",
    ]


def _text(figure: Spread) -> str:
    if figure.least == figure.greatest:
        return f"{figure.median:.2f}"
    return f"{figure.median:.2f} ({figure.least:.2f} to {figure.greatest:.2f})"


def _curves(title: str, note: str, x_title: str, lines: list[Line]) -> Table:
    rows = []
    for points in zip(*(line.points for line in lines), strict=True):
        row = [f"{points[0].x} %"]
        for point in points:
            cpu = spread([outcome.server_cpu_seconds for outcome in point.outcomes]).median
            row.append(f"{_text(spread([outcome.seconds for outcome in point.outcomes]))} [{cpu:.2f}]")
        rows.append(row)
    return Table(title, note, [x_title, *(line.title for line in lines)], rows)


def verdicts(comparison: Comparison) -> list[str]:
    """Say where Pequod wins and where it loses, in sentences."""
    return [*_twip_verdicts(comparison), *_crossing("full", comparison.materialisation), *_newp_verdict(comparison)]


def _twip_verdicts(comparison: Comparison) -> list[str]:
    sentences = []
    for result in comparison.twip[1:]:
        base = comparison.twip[0]
        ratio = ratios(result, base)
        paper = paper_ratio(result, base)
        if ratio.least > 1:
            what = f"{base.title} is {ratio.median:.2f} times faster than {result.title}"
        elif ratio.greatest < 1:
            what = f"{base.title} is {1 / ratio.median:.2f} times slower than {result.title}"
        else:
            what = f"{base.title} and {result.title} are equal within the spread of the runs ({_text(ratio)})"
        theirs = spread([outcome.server_cpu_seconds for outcome in result.outcomes]).median
        ours = spread([outcome.server_cpu_seconds for outcome in base.outcomes]).median
        beside = "" if paper is None else f" The paper's ratio is {paper:.2f}."
        sentences.append(f"{what}. CPU of the servers: {ours:.2f} s and {theirs:.2f} s.{beside}")
    return sentences


def _crossing(rival: str, lines: list[Line]) -> list[str]:
    if not lines:
        return []
    by_title = {line.title.split(maxsplit=1)[0]: line for line in lines}
    ahead = _ahead(by_title["dynamic"], by_title[rival])
    return [f"Dynamic materialisation is ahead of {rival} materialisation at {ahead} active users."]


def _newp_verdict(comparison: Comparison) -> list[str]:
    if not comparison.newp:
        return []
    separate, interleaved = comparison.newp
    return [f"Interleaved joins are ahead of separate ones at {_ahead(interleaved, separate)} sessions that vote."]


def _ahead(line: Line, rival: Line) -> str:
    """Return where the line is lower, such as ``0 %, 25 % (of the 5 points measured)``."""

    def seconds(outcomes: list[float]) -> float:
        return spread(outcomes).median

    lower = [
        f"{mine.x} %"
        for mine, other in zip(line.points, rival.points, strict=True)
        if seconds([o.seconds for o in mine.outcomes]) < seconds([o.seconds for o in other.outcomes])
    ]
    return f"{', '.join(lower) or 'none'} (of {len(line.points)} points measured)"
