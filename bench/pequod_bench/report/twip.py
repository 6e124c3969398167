"""What a run of Twip found, as one object and as a table to read."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from pequod_bench.report.printed import Printed, print_rows


@dataclass(frozen=True, slots=True)
class TwipReport(Printed):
    """The figures of one run; `seconds` and all that follows from it cover the timed part alone."""

    workload: str
    #: Where the graph comes from, and its size.
    graph: str
    users: int
    active_users: int
    edges: int
    seed: int
    tweet_bytes: int
    mode: str
    #: Commands a message, and messages under way at once; window 0 if there is no wire.
    batch: int
    window: int
    #: How long the graph's subscriptions and the initial posts took to load.
    load_seconds: float
    #: Operations of the model, of every kind, and how long they took.
    ticks: int
    seconds: float
    ticks_per_s: float
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
    #: Rows of all active users' timelines at the end.
    timeline_rows: int
    #: How many checks of the run were compared row by row with what they must have been.
    checks_verified: int
    #: Whether the final timelines, and all checks that were compared, are what they must be.
    correct: bool
    #: The first thing that is not; empty if correct.
    difference: str

    def print_table(self, console: Console) -> None:
        """Print the report for a person."""
        title = f"{self.workload} on {self.graph}"
        print_rows(console, self._lines(), {"": "{0[0]}", " ": "{0[1]}", "  ": "{0[2]}"}, title=title, left=3)
        if self.correct:
            checked = f"{self.checks_verified:,} checks and " if self.checks_verified else ""
            console.print(
                f"[green]correct[/]: {checked}the final timelines of {self.active_users:,} users "
                f"({self.timeline_rows:,} rows) equal a computation from scratch"
            )
        else:
            console.print("[red]WRONG[/]: not what a computation from scratch gives")

    def _lines(self) -> list[tuple[str, str, str]]:
        users = f"{self.active_users:,} active, {self.edges:,} subscriptions"
        checks = f"{self.full_checks:,} at login, {self.rows:,} rows returned"
        rss = "unknown" if self.server_rss_mib is None else f"{self.server_rss_mib:,.0f} MiB"
        cpu = "unknown" if self.server_cpu_us_per_tick is None else f"{self.server_cpu_us_per_tick:.2f} µs"
        writes = f"{self.posts:,} posts of {self.tweet_bytes} bytes, {self.subscribes:,} subscribes"
        wire = f", {self.batch} commands a batch, {self.window} at once" if self.window else ""
        return [
            ("users", f"{self.users:,}", users),
            ("loaded in", f"{self.load_seconds:.1f} s", f"server memory at the end {rss}"),
            ("ticks", f"{self.ticks:,}", writes),
            ("seconds", f"{self.seconds:.2f}", f"{self.mode} join{wire}"),
            ("ticks/s", f"{self.ticks_per_s:,.0f}", f"seed {self.seed}"),
            ("checks/s", f"{self.checks_per_s:,.0f}", checks),
            ("server CPU a tick", cpu, ""),
            ("client CPU a tick", f"{self.client_cpu_us_per_tick:.2f} µs", ""),
        ]
