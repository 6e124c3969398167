"""One point of the scale benchmark: an engine of a given size, and what single operations cost in it.

    users     each follows 10 others, at random, and has 10 followers
    entries   timeline entries of all users: half of them computed at first checks, half come by fan-out
    probes    the same few operations at every size, on users drawn from all of them, so that only the size differs

Times are CPU times, medians of five rounds. Memory is that of the process, so each point needs its own process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
import psutil
from pequod_grammar import parse

from pequod.engine import Engine, PequodError, Rows
from pequod_bench.collector import Collector, Pauses, kept
from pequod_bench.workloads import keys

FOLLOWS: Final = 10
TWEET_BYTES: Final = 140
ROUNDS: Final = 5
#: Users whose timelines are checked in each round, and rows of such a check.
CHECK_USERS: Final = 2_000
CHECK_ROWS: Final = 3
#: Posters of the fan-out, and the followers that each of them gets, who are drawn from all users.
FAN_OUT_POSTERS: Final = 100
FAN_OUT_FOLLOWERS: Final = 100
#: Posters whom a first check reads, and posts of each: 100 x 100, as in the micro benchmarks.
ARCHIVE_POSTERS: Final = 100
ARCHIVE_POSTS: Final = 100
#: First checks in each round.
FIRST_CHECKS: Final = 4
#: Users who subscribe and check in each round.
SUBSCRIBERS: Final = 100
#: How many others a user of Twip follows on average whose timeline is read.
TWIP_FOLLOWS: Final = 116
#: Empty timelines that are weighed.
EMPTY_TIMELINES: Final = 2_000
#: Timelines that are compared with their definition at the end.
VERIFIED: Final = 20


class ScaleError(PequodError):
    """A point that cannot be made; the text says which, and what to change."""


class WrongTimelineError(PequodError):
    """A timeline is not what its definition says."""


@dataclass(frozen=True, slots=True)
class ScaleSize:
    """Where a point stands."""

    users: int
    entries: int
    collector: Collector = "tamed"

    def require(self) -> None:
        """Refuse sizes that do not fit together.

        Raises:
            ScaleError: There are too few users, or fewer entries than subscriptions.
        """
        if self.users < 2 * FOLLOWS:
            raise ScaleError(f"a point needs {2 * FOLLOWS} users or more, not {self.users}")
        if self.entries < FOLLOWS * self.users:
            raise ScaleError(
                f"{self.entries:,} entries are too few for {self.users:,} users, who follow {FOLLOWS} others each: "
                f"take {FOLLOWS * self.users:,} or more"
            )


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """What one size costs."""

    users: int
    entries: int
    collector: Collector
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


def measure(size: ScaleSize) -> ScalePoint:
    """Build an engine of this size and measure it.

    Requires:
        A fresh process.

    Raises:
        ScaleError: The size cannot be made.
        WrongTimelineError: A timeline is not what its definition says.

    Cost:
        Some 3 µs and 120 bytes an entry, and 250 µs and 4 KiB a user.
    """
    size.require()
    begun = time.process_time()
    pauses = Pauses()
    with kept(size.collector), pauses.watching():
        population = _Population(size)
        bytes_per_twip_timeline = population.bytes_per_timeline(TWIP_FOLLOWS)
        bytes_per_timeline = population.bytes_per_timeline(FOLLOWS)
        bytes_per_entry = population.grow(bytes_per_timeline)
        fan_out = population.fan_out_entry_us()
        after_subscribe = population.check_after_subscribe_us()
        check = population.check_us()
        first_check = population.first_check_row_us()
    population.verify()
    return ScalePoint(
        users=size.users,
        entries=size.entries,
        collector=size.collector,
        check_us=check,
        first_check_row_us=first_check,
        fan_out_entry_us=fan_out,
        check_after_subscribe_us=after_subscribe,
        bytes_per_timeline=bytes_per_timeline,
        bytes_per_entry=bytes_per_entry,
        bytes_per_twip_timeline=bytes_per_twip_timeline,
        pause_ms_max=pauses.longest_ms,
        pause_ms_total=pauses.total_ms,
        pause_count=pauses.count,
        rss_mib=_rss_bytes() / 2**20,
        cpu_s=time.process_time() - begun,
    )


class _Population:
    """An engine with users, posts and timelines, and the probes."""

    def __init__(self, size: ScaleSize) -> None:
        self._users = size.users
        self._half_posts = size.entries // (2 * FOLLOWS)
        self._engine = Engine()
        self._engine.add_joins(parse(keys.PUSH_JOIN))
        self._rng = np.random.default_rng(1)
        self._ticks = count()
        #: Users beyond the population, for probes.
        self._strangers = count(size.users)

    def bytes_per_timeline(self, follows: int) -> float:
        """Materialise timelines of users who follow others without posts; return the bytes that one takes."""
        idle = [next(self._strangers) for _ in range(min(EMPTY_TIMELINES, self._users))]
        self._follow_at_random(idle, min(follows, len(idle)))
        before = _rss_bytes()
        for user in idle:
            self._whole_timeline(user)
        return (_rss_bytes() - before) / len(idle)

    def grow(self, bytes_per_timeline: float) -> float:
        """Make all subscriptions, posts and timelines; return the bytes that an entry of a first check took."""
        users = self._users
        self._follow_at_random(range(users), FOLLOWS)
        archive = [next(self._strangers) for _ in range(ARCHIVE_POSTERS)]
        self._archive = archive
        for _ in range(ARCHIVE_POSTS):
            for poster in archive:
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

    def fan_out_entry_us(self) -> float:
        """Post to 100 followers each, who have their timelines materialised."""
        posters = [next(self._strangers) for _ in range(FAN_OUT_POSTERS)]
        followers = min(FAN_OUT_FOLLOWERS, self._users)
        for poster in posters:
            for user in self._some_users(followers):
                self._follow(user, poster)
        for user in range(self._users):
            self._check(user)

        def sample() -> tuple[int, Callable[[], None]]:
            posts = [
                (keys.post_key(poster, tick), keys.tweet(tick, TWEET_BYTES)) for poster, tick in self._later(posters)
            ]
            put = self._engine.put

            def run() -> None:
                for key, value in posts:
                    put(key, value)

            return followers * len(posts), run

        return _median_us(sample)

    def check_after_subscribe_us(self) -> float:
        """Check after following one more poster, who has ten posts."""

        def sample() -> tuple[int, Callable[[], None]]:
            poster = next(self._strangers)
            for _ in range(10):
                self._post(poster)
            users = self._some_users(min(SUBSCRIBERS, self._users))
            for user in users:
                self._follow(user, poster)
            return len(users), self._scans([self._latest(user) for user in users])

        return _median_us(sample)

    def check_us(self) -> float:
        """Check for the latest three rows, everything being there and fresh."""

        def sample() -> tuple[int, Callable[[], None]]:
            users = self._some_users(min(CHECK_USERS, self._users))
            ranges = []
            for user in users:
                tail = self._whole_timeline(user).keys[-CHECK_ROWS:][0]
                ranges.append((tail, keys.timeline_last(user)))
            # In another order than they were looked at, and not the last ones first.
            ranges = [ranges[i] for i in self._rng.permutation(len(ranges)).tolist()]
            return len(ranges), self._scans(ranges)

        return _median_us(sample)

    def first_check_row_us(self) -> float:
        """Check for the first time, with 100 followed and 100 posts of each."""

        def sample() -> tuple[int, Callable[[], None]]:
            newcomers = [next(self._strangers) for _ in range(FIRST_CHECKS)]
            for user in newcomers:
                for poster in self._archive:
                    self._follow(user, poster)
            scans = self._scans([(keys.timeline_first(user, 0), keys.timeline_last(user)) for user in newcomers])
            return FIRST_CHECKS * ARCHIVE_POSTERS * ARCHIVE_POSTS, scans

        return _median_us(sample)

    def verify(self) -> None:
        """Compare some timelines with their definition, the posts of everyone followed.

        Raises:
            WrongTimelineError: One differs.
        """
        scan = self._engine.scan
        for user in self._some_users(VERIFIED):
            rows: dict[bytes, bytes] = {}
            for subscription in scan(b"s|%08d|" % user, b"s|%08d}" % user).keys:
                poster = int(subscription[-8:])
                posts = scan(b"p|%08d|" % poster, b"p|%08d}" % poster)
                for key, value in zip(posts.keys, posts.values, strict=True):
                    rows[keys.timeline_key(user, int(key[-10:]), poster)] = value
            found = self._whole_timeline(user)
            if found.keys != sorted(rows) or found.values != [rows[key] for key in found.keys]:
                raise WrongTimelineError(f"the timeline of user {user} is not the posts of everyone followed")

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
        self._engine.put(keys.post_key(poster, tick), keys.tweet(tick, TWEET_BYTES))

    def _later(self, posters: Sequence[int]) -> Iterator[tuple[int, int]]:
        return ((poster, next(self._ticks)) for poster in posters)

    def _some_users(self, wanted: int) -> list[int]:
        some: list[int] = self._rng.choice(self._users, wanted, replace=False).tolist()
        return some

    def _latest(self, user: int) -> tuple[bytes, bytes]:
        """Return a range above all rows that a user has by now."""
        return keys.timeline_first(user, next(self._ticks)), keys.timeline_last(user)

    def _check(self, user: int) -> Rows:
        return self._engine.scan(*self._latest(user))

    def _whole_timeline(self, user: int) -> Rows:
        return self._engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))

    def _scans(self, ranges: Sequence[tuple[bytes, bytes]]) -> Callable[[], None]:
        scan = self._engine.scan

        def run() -> None:
            for first, last in ranges:
                scan(first, last)

        return run


def _median_us(sample: Callable[[], tuple[int, Callable[[], None]]]) -> float:
    """Return the median of µs an operation; a sample gives how many there are, and what carries them out."""
    figures = []
    for _ in range(ROUNDS):
        operations, run = sample()
        begun = time.process_time_ns()
        run()
        figures.append((time.process_time_ns() - begun) / operations / 1000)
    return statistics.median(figures)


def _rss_bytes() -> int:
    rss: int = psutil.Process().memory_info().rss
    return rss
