"""The figures of a run of Twip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console

from pequod.commands.kinds import SCAN
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.systems.server import Usage
from pequod_bench.twip.prepared import Prepared, verify
from pequod_bench.workloads import stream as operations
from pequod_bench.workloads import verify as answers
from pequod_bench.workloads.verify import Reply


@dataclass(frozen=True, slots=True)
class TwipRun:
    """What a store did with what was prepared."""

    load_s: float
    seconds: float
    client_cpu_s: float
    #: The server before and after the timed part, if it can be looked at.
    server: tuple[Usage | None, Usage | None]
    #: One for each prepared batch.
    replies: list[Reply]
    #: The final timelines, asked for with `timeline_scans` in batches of ``SCAN_BATCH``.
    timelines: list[Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwipOutcome(Printed):
    """What every run of Twip tells; `seconds` and what follows from it cover the timed part alone."""

    #: Where the graph comes from, and its size.
    graph: str
    users: int
    edges: int
    #: Operations of the model, of every kind, and how long they took.
    ticks: int
    seconds: float
    ticks_per_s: float
    #: Rows of all active users' timelines at the end.
    timeline_rows: int
    #: Whether all that was compared is what it must be, and the first thing that is not; empty if correct.
    correct: bool
    difference: str

    def fault(self) -> str:
        return self.difference


def outcome(prepared: Prepared, seconds: float, timeline_rows: int, difference: str) -> dict[str, Any]:
    """Return the fields of a `TwipOutcome`."""
    stream = prepared.stream
    return {
        "graph": stream.graph.name,
        "users": stream.graph.user_count,
        "edges": stream.graph.edge_count,
        "ticks": stream.tick_count,
        "seconds": seconds,
        "ticks_per_s": stream.tick_count / seconds,
        "timeline_rows": timeline_rows,
        "correct": not difference,
        "difference": difference,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TwipReport(TwipOutcome):
    """The figures of one run on a server, or in an engine."""

    workload: str
    active_users: int
    seed: int
    tweet_bytes: int
    mode: str
    #: Commands a message, and messages under way at once; window 0 if there is no wire.
    batch: int
    window: int
    #: How long the graph's subscriptions and the initial posts took to load.
    load_seconds: float
    checks: int
    full_checks: int
    checks_per_s: float
    subscribes: int
    posts: int
    logouts: int
    #: Rows that the checks returned.
    rows: int
    #: None if the server is not a process of this machine that we may look at.
    server_cpu_us_per_tick: float | None
    server_rss_mib: float | None
    client_cpu_us_per_tick: float
    #: How many checks of the run were compared row by row with what they must have been.
    checks_verified: int

    def print_table(self, console: Console) -> None:
        rss = "unknown" if self.server_rss_mib is None else f"{self.server_rss_mib:,.0f} MiB"
        cpu = "unknown" if self.server_cpu_us_per_tick is None else f"{self.server_cpu_us_per_tick:.2f} µs"
        writes = f"{self.posts:,} posts of {self.tweet_bytes} bytes, {self.subscribes:,} subscribes"
        wire = f", {self.batch} commands a batch, {self.window} at once" if self.window else ""
        lines = [
            ("users", f"{self.users:,}", f"{self.active_users:,} active, {self.edges:,} subscriptions"),
            ("loaded in", f"{self.load_seconds:.1f} s", f"server memory at the end {rss}"),
            ("ticks", f"{self.ticks:,}", writes),
            ("seconds", f"{self.seconds:.2f}", f"{self.mode} join{wire}"),
            ("ticks/s", f"{self.ticks_per_s:,.0f}", f"seed {self.seed}"),
            ("checks/s", f"{self.checks_per_s:,.0f}", f"{self.full_checks:,} at login, {self.rows:,} rows returned"),
            ("server CPU a tick", cpu, ""),
            ("client CPU a tick", f"{self.client_cpu_us_per_tick:.2f} µs", ""),
        ]
        title = f"{self.workload} on {self.graph}"
        print_rows(console, lines, {"": "{0[0]}", " ": "{0[1]}", "  ": "{0[2]}"}, title=title, left=3)
        if self.correct:
            checked = f"{self.checks_verified:,} checks and " if self.checks_verified else ""
            console.print(
                f"[green]correct[/]: {checked}the final timelines of {self.active_users:,} users "
                f"({self.timeline_rows:,} rows) equal a computation from scratch"
            )


def report(name: str, prepared: Prepared, run: TwipRun) -> TwipReport:
    """Verify a run and put its figures together."""
    settings, stream = prepared.settings, prepared.stream
    verdict, checks_verified = verify(prepared, run.replies, run.timelines)
    ticks = stream.tick_count
    checks = sum(batch.kinds.count(SCAN) for batch in prepared.batches)
    before, after = run.server
    server_cpu_us = rss_mib = None
    if before is not None and after is not None:
        server_cpu_us, rss_mib = (after.cpu_s - before.cpu_s) / ticks * 1e6, after.rss_bytes / 2**20
    return TwipReport(
        **outcome(prepared, run.seconds, answers.row_count(run.timelines), verdict.reason),
        workload=name,
        active_users=len(stream.active),
        seed=settings.seed,
        tweet_bytes=settings.tweet_bytes,
        mode=settings.mode if settings.join_file is None else "custom",
        batch=settings.batch,
        window=settings.window,
        load_seconds=run.load_s,
        checks=checks,
        full_checks=stream.full_check_count,
        checks_per_s=checks / run.seconds,
        subscribes=stream.count(operations.SUBSCRIBE),
        posts=stream.count(operations.POST),
        logouts=stream.count(operations.LOGOUT),
        rows=answers.row_count(run.replies),
        server_cpu_us_per_tick=server_cpu_us,
        server_rss_mib=rss_mib,
        client_cpu_us_per_tick=run.client_cpu_s / ticks * 1e6,
        checks_verified=checks_verified,
    )
