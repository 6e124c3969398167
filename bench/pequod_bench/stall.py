"""Whether large scans stall others: checks at a fixed rate, alone and beside a client that scans all the time.

    server process  <- this process: a check of a timeline every 5 ms, whether or not the last one is back
                    <- a process that scans a million rows, again and again

The rounds alternate (nobody, ``scan_iter``, ``scan``, nobody, …), so that a noisy machine disturbs all alike. Checks
read the latest three rows of a timeline that posts go into meanwhile. Every check and every scan is looked at: as
many rows as there must be.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from rich.console import Console
from rich.table import Table

from pequod.client import AsyncClient
from pequod.commands.kinds import PUT, SCAN
from pequod.errors import PequodError
from pequod_bench.process import loop_factory, started_server, usage
from pequod_bench.report.latency import Latencies, latencies, open_loop
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import Advance, ProgressBars
from pequod_bench.scanner import Scanned, Way, scanning
from pequod_bench.settings import Shape, StallSettings
from pequod_bench.wire_twip import execute_all
from pequod_bench.workloads import keys
from pequod_bench.workloads.commands import CommandBatch

#: Timelines that are checked, all of one poster.
_USERS: Final = 1_000
_POSTER: Final = 1
#: Posts that are there before the clock starts, and the latest posts that each check reads.
_POSTS: Final = 20
_CHECK_ROWS: Final = 3
#: For each post.
_CHECKS_PER_POST: Final = 20
_TWEET: Final = b"v" * 66
#: Rows of a group, and of a timeline that is scanned.
_GROUP_ROWS: Final = 100
#: Puts a message while the server is filled, and messages under way.
_LOAD_BATCH: Final = 512
_WINDOW: Final = 4
#: Checks are started for so long before the scanner is looked at again.
_SLICE_S: Final = 0.5
#: Between two looks at the server's memory.
_SAMPLE_S: Final = 0.01

_GROUPS_JOIN: Final = "gn|<user:8> = count g|<user>|<row:10>;"
_LINES_JOIN: Final = "l|<user:8>|<row:10>|<poster:8> = check ls|<user>|<poster> copy lp|<poster>|<row>;"
#: What is scanned, by shape.
RANGES: Final[dict[Shape, tuple[bytes, bytes]]] = {
    "table": (b"b|", b"b}"),
    "groups": (b"g|", b"g}"),
    "timelines": (b"l|", b"l}"),
}

#: The goals that the figures are held against.
P99_MS_MAX: Final = 20.0
GROWTH_MIB_MAX: Final = 16.0


class WrongRowsError(PequodError):
    """A check or a scan returned other rows than there are."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The figures of all rounds of one kind."""

    #: ``nobody``, ``scan_iter`` or ``scan``.
    beside: str
    checks: Latencies
    #: Whole scans that ended meanwhile, and rows they brought a second (0 if none ended).
    scans: int
    scan_rows_per_s: float
    #: How much the server's resident memory grew at most, over what it was when the round began.
    growth_mib: float
    #: CPU seconds of the server, for each second.
    server_cpu: float


@dataclass(frozen=True, slots=True)
class StallReport(Printed):
    """What one run found."""

    shape: str
    rows: int
    value_bytes: int
    rate: float
    kinds: list[Kind]

    @property
    def met(self) -> bool:
        """Whether scans left checks under the goal and the server's memory too."""
        return all(kind.checks.p99_ms < P99_MS_MAX and kind.growth_mib < GROWTH_MIB_MAX for kind in self.kinds)

    def derived(self) -> dict[str, object]:
        """Return the goals beside the fields."""
        return {"goals": {"p99_ms_max": P99_MS_MAX, "growth_mib_max": GROWTH_MIB_MAX, "met": self.met}}

    def print_table(self, console: Console) -> None:
        """Print the report for a person."""
        title = f"{self.rate:.0f} checks/s beside scans of {self.rows:,} rows ({self.shape}); latencies in ms"
        table = Table("beside", box=None, title=title, title_justify="left")
        rows = []
        for kind in self.kinds:
            found = kind.checks
            figures = (f"{ms:.2f}" for ms in (found.p50_ms, found.p99_ms, found.p999_ms, found.max_ms))
            scans = (f"{kind.scans}", f"{kind.scan_rows_per_s:,.0f}") if kind.scans else ("", "")
            rest = (f"{kind.growth_mib:.1f}", f"{kind.server_cpu:.0%}")
            rows.append((kind.beside, f"{found.count:,}", *figures, *scans, *rest))
        heads = ("checks", "p50", "p99", "p99.9", "max", "scans", "rows/s", "memory +MiB", "server CPU")
        print_figures(console, table, heads, rows)
        verdict = "[green]met[/]" if self.met else "[red]missed[/]"
        console.print(f"goals, p99 under {P99_MS_MAX:.0f} ms and memory under {GROWTH_MIB_MAX:.0f} MiB: {verdict}")


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round of one kind found."""

    seconds: list[float]
    scans: list[Scanned]
    growth_bytes: int
    server_cpu: float


def run(settings: StallSettings, bars: ProgressBars) -> StallReport:
    """Start a server, fill it, run the rounds, and sum up.

    Raises:
        WrongRowsError: A check or a scan returned other rows than there are.
    """
    with started_server() as (target, pid), asyncio.Runner(loop_factory=loop_factory()) as runner:
        kinds = runner.run(_run(settings, target, pid, bars))
    return StallReport(settings.shape, settings.rows, settings.value_bytes, settings.rate, kinds)


async def _run(settings: StallSettings, target: str, pid: int, bars: ProgressBars) -> list[Kind]:
    ways: tuple[Way | None, ...] = (None, "scan_iter", "scan")
    found: defaultdict[str, list[_Round]] = defaultdict(list)
    async with AsyncClient(target, timeout_s=60.0) as client:
        checks = await Checks.prepared(client)
        with bars.bar("loading", settings.rows) as advance:
            await fill(client, settings, advance)
        with bars.bar("running", settings.rounds * len(ways)) as advance:
            for _ in range(settings.rounds):
                for way in ways:
                    found[way or "nobody"].append(await _round(settings, checks, target, pid, way))
                    advance(1)
    return [_sum_up(beside, rounds) for beside, rounds in found.items()]


class Checks:
    """Timelines that grow, and checks of them; one client sends both, so each check is certain to find three rows."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._user = 0
        #: Of the next post.
        self._tick = _POSTS

    @classmethod
    async def prepared(cls, client: AsyncClient) -> Checks:
        """Write the posts of one poster, whom everyone follows, and read every timeline once."""
        await client.add_join(keys.PUSH_JOIN)
        batch = client.batch()
        for user in range(_USERS):
            batch.put(keys.subscription_key(user, _POSTER), keys.FOLLOWS)
        for tick in range(_POSTS):
            batch.put(keys.post_key(_POSTER, tick), _TWEET)
        for user in range(_USERS):
            batch.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
        await batch.send()
        return cls(client)

    async def run(self, rate: float, seconds: float) -> list[float]:
        """Check ``rate`` timelines a second and post now and then; return the latencies of the checks in seconds."""
        count = max(_CHECKS_PER_POST, round(rate * seconds))
        found, _ = await asyncio.gather(
            open_loop(self._check, rate, count),
            open_loop(self._post, rate / _CHECKS_PER_POST, count // _CHECKS_PER_POST),
        )
        return found

    # Both hand their command to the client before they wait for anything, so it goes out in this order.

    async def _check(self, _: int) -> None:
        self._user = (self._user + 7919) % _USERS
        first, last = keys.timeline_first(self._user, self._tick - _CHECK_ROWS), keys.timeline_last(self._user)
        rows = await self._client.scan(first, last)
        if len(rows) != _CHECK_ROWS:
            raise WrongRowsError(f"a check from {first!r} found {len(rows)} rows, not {_CHECK_ROWS}")

    async def _post(self, _: int) -> None:
        key, self._tick = keys.post_key(_POSTER, self._tick), self._tick + 1
        await self._client.put(key, _TWEET)


async def fill(client: AsyncClient, settings: StallSettings, advance: Advance) -> None:
    """Write what is scanned, and compute it where it is computed."""
    await client.add_join(_GROUPS_JOIN + _LINES_JOIN)
    value = b"v" * settings.value_bytes
    users = settings.rows // _GROUP_ROWS
    pairs: Iterator[tuple[bytes, bytes]]
    if settings.shape == "table":
        pairs = ((b"b|%010d" % row, value) for row in range(settings.rows))
    elif settings.shape == "groups":
        pairs = ((b"g|%08d|%010d" % divmod(row, _GROUP_ROWS), value) for row in range(settings.rows))
    else:
        posts = ((b"lp|%08d|%010d" % (_POSTER, row), value) for row in range(_GROUP_ROWS))
        pairs = chain(posts, ((b"ls|%08d|%08d" % (user, _POSTER), keys.FOLLOWS) for user in range(users)))
    await execute_all(client, _puts(pairs), _WINDOW, advance)
    if settings.shape == "timelines":
        scans = (_scan_of(b"l|%08d|" % user, b"l|%08d}" % user) for user in range(users))
        await execute_all(client, scans, _WINDOW, lambda _: advance(_GROUP_ROWS))


def _puts(pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[CommandBatch]:
    while some := list(islice(pairs, _LOAD_BATCH)):
        yield CommandBatch(bytes([PUT]) * len(some), list(chain.from_iterable(some)))


def _scan_of(first: bytes, last: bytes) -> CommandBatch:
    return CommandBatch(bytes([SCAN]), [first, last])


async def _round(settings: StallSettings, checks: Checks, target: str, pid: int, way: Way | None) -> _Round:
    # Before the scanner of this round; those of earlier ones are gone.
    before = usage(pid)
    first, last = RANGES[settings.shape]
    seconds: list[float] = []
    with nullcontext() if way is None else scanning(target, first, last, way) as scanner:
        watching = asyncio.create_task(_peak_rss_bytes(pid))
        while scanner is not None and not scanner.has_begun():  # noqa: ASYNC110 -- another process
            await asyncio.sleep(_SAMPLE_S)
        cpu_s, begun = usage(pid).cpu_s, time.perf_counter()
        scans: list[Scanned] = []
        while time.perf_counter() - begun < settings.round_s or (scanner is not None and not scans):
            seconds += await checks.run(settings.rate, _SLICE_S)
            scans = [] if scanner is None else scanner.scans()
        server_cpu = (usage(pid).cpu_s - cpu_s) / (time.perf_counter() - begun)
        watching.cancel()
    for scan in scans:
        if scan.rows != settings.rows:
            raise WrongRowsError(f"a {way} of {settings.rows} rows returned {scan.rows}")
    return _Round(seconds, scans, await watching - before.rss_bytes, server_cpu)


async def _peak_rss_bytes(pid: int) -> int:
    """Watch the memory of a process until cancelled; return the most that was seen."""
    peak = 0
    try:
        while True:
            peak = max(peak, usage(pid).rss_bytes)
            await asyncio.sleep(_SAMPLE_S)
    except asyncio.CancelledError:
        return peak


def _sum_up(beside: str, rounds: list[_Round]) -> Kind:
    scans = [scan for each in rounds for scan in each.scans]
    return Kind(
        beside=beside,
        checks=latencies([seconds for each in rounds for seconds in each.seconds]),
        scans=len(scans),
        scan_rows_per_s=sum(scan.rows for scan in scans) / sum(scan.seconds for scan in scans) if scans else 0.0,
        growth_mib=max(each.growth_bytes for each in rounds) / 2**20,
        server_cpu=sum(each.server_cpu for each in rounds) / len(rounds),
    )
