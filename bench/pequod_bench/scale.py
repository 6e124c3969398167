"""How costs grow with the size of what is kept: the same operations in engines of many sizes.

    users     each follows 10 others, at random, and has 10 followers
    entries   timeline entries of all users: half of them computed at first checks, half come by fan-out
    probes    the same few operations at every size, on users drawn from all of them, so that only the size differs

Times are CPU times, medians of five rounds. Memory is that of the process, so each point is measured in its own
process, one after the other. As a picture there is one panel for each figure, and one line for each number of entries.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from pequod_grammar import parse
from pequod_workloads import twip as keys
from rich.console import Console

from pequod.engine import Engine, PequodError, Rows
from pequod.errors import SettingError
from pequod_bench.collector import Collector, Pauses, kept
from pequod_bench.micro.frame import timed
from pequod_bench.report.plots import Curve, Panel, panels, require_plotter, svg
from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ScaleSettings

FOLLOWS: Final = 10
ROUNDS: Final = 5
#: Users whose timelines are checked in each round, and rows of such a check.
CHECK_USERS: Final = 2_000
CHECK_ROWS: Final = 3
#: Posters of the fan-out, and the followers that each of them gets, who are drawn from all users.
FAN_OUT_POSTERS, FAN_OUT_FOLLOWERS = 100, 100
#: Posters whom a first check reads, and posts of each, as in the micro benchmarks; first checks in each round.
ARCHIVE_POSTERS, ARCHIVE_POSTS, FIRST_CHECKS = 100, 100, 4
#: Users who subscribe and check in each round.
SUBSCRIBERS: Final = 100
#: How many others a user of Twip follows on average whose timeline is read.
TWIP_FOLLOWS: Final = 116
#: Empty timelines that are weighed; timelines that are compared with their definition at the end.
EMPTY_TIMELINES, VERIFIED = 2_000, 20
#: What is drawn: an attribute of a point, and what it is called.
_PANELS: Final = {
    "check_us": "check of 3 rows, µs",
    "first_check_row_us": "first check, µs a row",
    "fan_out_entry_us": "fan-out, µs an entry",
    "check_after_subscribe_us": "check after subscribe, µs",
    "bytes_per_entry": "bytes an entry, beside tweet and timeline",
    "pause_ms_max": "longest collector pause, ms",
}


class ScaleError(PequodError):
    """A point that cannot be made; the text says which, and what to change."""


@dataclass(frozen=True, slots=True)
class ScaleSize:
    """Where a point stands."""

    users: int
    entries: int
    collector: Collector = "tamed"

    def require(self) -> None:
        if self.users < 2 * FOLLOWS:
            raise ScaleError(f"a point needs {2 * FOLLOWS} users or more, not {self.users}")
        if self.entries < FOLLOWS * self.users:
            raise ScaleError(
                f"{self.entries:,} entries are too few for {self.users:,} users, who follow {FOLLOWS} others each: "
                f"take {FOLLOWS * self.users:,} or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint(ScaleSize):
    """What one size costs."""

    #: µs of a check of three rows, of a row of a first check, of an entry of a fan-out, and of a check that has a
    #: subscription to apply.
    check_us: float
    first_check_row_us: float
    fan_out_entry_us: float
    check_after_subscribe_us: float
    #: Memory of an empty timeline with its updaters, and what first checks took beside that, by the entries that
    #: they made; the tweets were there.
    bytes_per_timeline: float
    bytes_per_entry: float
    #: Memory of an empty timeline of a user who follows as many others as one of Twip does.
    bytes_per_twip_timeline: float
    #: Pauses of the garbage collector, from the empty engine on.
    pause_ms_max: float
    pause_ms_total: float
    pause_count: int
    rss_mib: float
    #: CPU time of the whole point.
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ScaleReport(Printed):
    """All points."""

    points: list[ScalePoint]

    def print_table(self, console: Console) -> None:
        columns = {"users": "{0.users:,}", "entries": "{0.entries:,}", "check": "{0.check_us:.2f}"}
        columns |= {"first": "{0.first_check_row_us:.2f}", "fan-out": "{0.fan_out_entry_us:.2f}"}
        columns |= {"log": "{0.check_after_subscribe_us:.1f}", "B/entry": "{0.bytes_per_entry:.0f}"}
        columns |= {"B/timeline": "{0.bytes_per_timeline:,.0f}", "pause": "{0.pause_ms_max:.1f}"}
        columns |= {"memory": "{0.rss_mib:,.0f}"}
        print_rows(console, self.points, columns)
        console.print(
            "[dim]µs of CPU for a check of three rows, a row of a first check, an entry of a fan-out, a check with a "
            "subscription in its log; bytes beside the tweets; the collector's longest pause in ms; the process in "
            "MiB[/]"
        )


def run(settings: ScaleSettings, bars: ProgressBars) -> ScaleReport:
    """Measure each size in a fresh process, and draw the points if the settings say where."""
    if settings.out is not None:
        require_plotter()
        try:
            settings.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError("--out", f"cannot write there: {error}") from error
    sizes = [
        ScaleSize(users, entries, settings.collector)
        for entries in sorted(set(settings.entries))
        for users in sorted(set(settings.users))
    ]
    for size in sizes:
        size.require()
    points = []
    with bars.bar("measuring", len(sizes)) as advance:
        for size in sizes:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                try:
                    points.append(fresh.submit(measure, size).result())
                except BrokenProcessPool as error:
                    raise ScaleError(
                        f"the process with {size.users:,} users and {size.entries:,} entries was ended from outside; "
                        "if memory ran out, take fewer entries"
                    ) from error
            advance(1)
    report = ScaleReport(points)
    if settings.out is not None:
        (settings.out / "scale.json").write_text(report.to_json() + "\n", "utf-8")
        draw(points, settings.out / "scale.svg")
    return report


def draw(points: Sequence[ScalePoint], path: Path) -> None:
    """Draw all points into an SVG file; the same points make the same file."""
    found = []
    for attribute, title in _PANELS.items():
        curves = []
        for entries in sorted({point.entries for point in points}):
            line = sorted((point for point in points if point.entries == entries), key=lambda point: point.users)
            pairs = [(float(point.users), float(getattr(point, attribute))) for point in line]
            curves.append(Curve(f"{entries:,} entries", pairs, "o-"))
        found.append(Panel(title, "users", curves, x_log=True, is_from_zero=True))
    path.write_text(svg(panels(found, columns=3)) + "\n", "utf-8")


def measure(size: ScaleSize) -> ScalePoint:
    """Build an engine of this size and measure it: some 3 µs and 120 bytes an entry, and 250 µs and 4 KiB a user.

    Requires:
        A fresh process.
    """
    begun = time.process_time()
    pauses = Pauses()
    with kept(size.collector), pauses.watching():
        population = _Population(size)
        # In this order: each finds what those before it have left.
        figures: dict[str, Any] = {"bytes_per_twip_timeline": population.bytes_per_timeline(TWIP_FOLLOWS)}
        figures["bytes_per_timeline"] = population.bytes_per_timeline(FOLLOWS)
        figures["bytes_per_entry"] = population.grow(figures["bytes_per_timeline"])
        figures["fan_out_entry_us"] = _median_us(population.fan_out())
        figures["check_after_subscribe_us"] = _median_us(population.check_after_subscribe)
        figures["check_us"] = _median_us(population.check)
        figures["first_check_row_us"] = _median_us(population.first_check)
    population.verify()
    return ScalePoint(
        **asdict(size),
        **figures,
        pause_ms_max=pauses.longest_ms,
        pause_ms_total=pauses.total_ms,
        pause_count=pauses.count,
        rss_mib=_rss_bytes() / 2**20,
        cpu_s=time.process_time() - begun,
    )


#: Calls that are timed together, the operations in them, and what is called.
_Sample = tuple[Sequence[tuple[bytes, bytes]], int, Callable[[bytes, bytes], object]]


class _Population:
    """An engine with users, posts and timelines; its probes return samples."""

    def __init__(self, size: ScaleSize) -> None:
        self._users = size.users
        self._half_posts = size.entries // (2 * FOLLOWS)
        self._engine = Engine()
        self._engine.add_joins(parse(keys.PUSH_JOIN))
        self._rng = np.random.default_rng(1)
        self._ticks = count()
        #: Users beyond the population, for probes.
        self._strangers = count(size.users)
        self._archive = self._some_strangers(ARCHIVE_POSTERS)

    def bytes_per_timeline(self, follows: int) -> float:
        """Materialise timelines of users who follow others without posts; return the bytes that one takes."""
        idle = self._some_strangers(min(EMPTY_TIMELINES, self._users))
        self._follow_at_random(idle, min(follows, len(idle)))
        before = _rss_bytes()
        for user in idle:
            self._whole_timeline(user)
        return (_rss_bytes() - before) / len(idle)

    def grow(self, bytes_per_timeline: float) -> float:
        """Make all subscriptions, posts and timelines; return the bytes that an entry of a first check took."""
        users = self._users
        self._follow_at_random(range(users), FOLLOWS)
        for _ in range(ARCHIVE_POSTS):
            for poster in self._archive:
                self._post(poster)
        for post in range(self._half_posts):
            self._post(post % users)
        before = _rss_bytes()
        for user in self._rng.permutation(users).tolist():
            self._whole_timeline(user)
        after = _rss_bytes()
        for post in range(self._half_posts):
            self._post((post + self._half_posts) % users)
        return (after - before - users * bytes_per_timeline) / (self._half_posts * FOLLOWS)

    def fan_out(self) -> Callable[[], _Sample]:
        """Give posters 100 followers each, who have their timelines materialised; return what posts to them."""
        posters = self._some_strangers(FAN_OUT_POSTERS)
        followers = min(FAN_OUT_FOLLOWERS, self._users)
        for poster in posters:
            for user in self._some_users(followers):
                self._follow(user, poster)
        for user in range(self._users):
            self._engine.scan(*self._latest(user))

        def sample() -> _Sample:
            ticks = [next(self._ticks) for _ in posters]
            posts = [(keys.post_key(*post), keys.tweet(post[1])) for post in zip(posters, ticks, strict=True)]
            return posts, followers * len(posts), self._engine.put

        return sample

    def check_after_subscribe(self) -> _Sample:
        """Check after following one more poster, who has ten posts."""
        (poster,) = self._some_strangers(1)
        for _ in range(10):
            self._post(poster)
        users = self._some_users(SUBSCRIBERS)
        for user in users:
            self._follow(user, poster)
        return [self._latest(user) for user in users], len(users), self._engine.scan

    def check(self) -> _Sample:
        """Check for the latest three rows, everything being there and fresh."""
        ranges = [
            (self._whole_timeline(user).keys[-CHECK_ROWS:][0], keys.timeline_last(user))
            for user in self._some_users(CHECK_USERS)
        ]
        # In another order than they were looked at, and not the last ones first.
        shuffled = [ranges[i] for i in self._rng.permutation(len(ranges)).tolist()]
        return shuffled, len(ranges), self._engine.scan

    def first_check(self) -> _Sample:
        """Check for the first time, with 100 followed and 100 posts of each."""
        newcomers = self._some_strangers(FIRST_CHECKS)
        for user in newcomers:
            for poster in self._archive:
                self._follow(user, poster)
        rows = FIRST_CHECKS * ARCHIVE_POSTERS * ARCHIVE_POSTS
        return [keys.timeline(user) for user in newcomers], rows, self._engine.scan

    def verify(self) -> None:
        """Compare some timelines with their definition, the posts of everyone followed."""
        scan = self._engine.scan
        for user in self._some_users(VERIFIED):
            rows: dict[bytes, bytes] = {}
            for subscription in scan(b"s|%08d|" % user, b"s|%08d}" % user).keys:
                poster = int(subscription[-8:])
                for key, value in zip(*scan(*keys.posts_of(poster)), strict=True):
                    rows[keys.timeline_key(user, int(key[-10:]), poster)] = value
            found = self._whole_timeline(user)
            if found.keys != sorted(rows) or found.values != [rows[key] for key in found.keys]:
                raise WrongAnswerError(f"the timeline of user {user} is not the posts of everyone followed")

    def _follow_at_random(self, users: Sequence[int], follows: int) -> None:
        """Let each of the users follow some of them, and each be followed by as many."""
        total = len(users)
        for user, start in zip(users, self._rng.permutation(total).tolist(), strict=True):
            for i in range(follows):
                self._follow(user, users[(start + i * (total // follows)) % total])

    def _follow(self, user: int, poster: int) -> None:
        self._engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)

    def _post(self, poster: int) -> None:
        tick = next(self._ticks)
        self._engine.put(keys.post_key(poster, tick), keys.tweet(tick))

    def _some_strangers(self, wanted: int) -> list[int]:
        return [next(self._strangers) for _ in range(wanted)]

    def _some_users(self, wanted: int) -> list[int]:
        some: list[int] = self._rng.choice(self._users, min(wanted, self._users), replace=False).tolist()
        return some

    def _latest(self, user: int) -> tuple[bytes, bytes]:
        """Return a range above all rows that a user has by now."""
        return keys.timeline(user, next(self._ticks))

    def _whole_timeline(self, user: int) -> Rows:
        return self._engine.scan(*keys.timeline(user))


def _median_us(sample: Callable[[], _Sample]) -> float:
    """Return the median of µs an operation."""
    figures = []
    for _ in range(ROUNDS):
        calls, operations, call = sample()
        figures.append(timed(call, calls) / operations / 1000)
    return statistics.median(figures)


def _rss_bytes() -> int:
    rss: int = psutil.Process().memory_info().rss
    return rss
