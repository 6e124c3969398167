"""A home feed in front of PostgreSQL: events are written, pages are read, and each page is compared with SQL.

Beside it, if Redis is here, an application pushes the same feeds into it. The cache is killed on the way: it starts
anew, or another one takes its place, which has followed the database beside it. With a small limit of memory it evicts
feeds and loads them again. All is done by one process, one thing after the other, so that it is known what each page
has to show.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import psycopg2
from psycopg2.extras import execute_values
from rich.console import Console

import pequod
from pequod.client import Client
from pequod_bench.feed import pages
from pequod_bench.feed.events import Event, Events
from pequod_bench.feed.pages import KEPT, PAGE
from pequod_bench.feed.pequod_feed import PequodFeed
from pequod_bench.feed.redis_feed import AWAY_DAYS, RedisFeed
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import Advance, ProgressBars
from pequod_bench.settings import FeedSettings
from pequod_bench.systems.postgres_cluster import BACKING_SETTINGS, find_postgres, started_cluster
from pequod_bench.systems.redis_system import RedisSystem
from pequod_bench.systems.server import ServerProcess, ServerStartError, serving, usage
from pequod_bench.systems.system import Missing

FOLDER: Final = Path(__file__).parent
_NAMES: Final = ("pequod", "pequod_2")
_PEQUOD: Final = (sys.executable, "-m", "pequod.cli")
#: The events are of this many days; a user who comes after 30 of them returns.
_DAYS: Final = 90
_RETURN_DAYS: Final = 30
#: One page of these many is read whole, with a list and the unread count beside it.
_WHOLE: Final = 8
#: Users whose first page is timed at the end: those whose followees wrote most.
_TIMED: Final = 20
_TIMEOUT_S: Final = 120.0
#: Statements that go to the database in one message.
_WRITTEN_AT_ONCE: Final = 64
_WRITTEN: Final = """SELECT f.account_id, count(*) FROM follows f JOIN statuses s ON s.account_id = f.target_account_id
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %s"""


@dataclass(slots=True)
class Side:
    """What one way of keeping feeds showed, and what it took."""

    name: str
    pages: int = 0
    wrong: int = 0
    empty: int = 0
    first_wrong: str = ""
    #: Milliseconds of a page of 20: of users who come often, who come after 30 days, and without their feed at the end.
    ms: dict[str, list[float]] = field(default_factory=lambda: {"often": [], "returning": [], "first": []})
    feeds: int = 0
    feed_bytes: float = 0.0
    process_mib: float = 0.0
    writes_a_status: float = 1.0
    lines: int = 0

    def compare(self, what: str, found: object, wanted: object) -> None:
        """Count an answer, and whether it is right."""
        self.pages += 1
        if found != wanted:
            self.wrong += 1
            self.empty += not found
            self.first_wrong = self.first_wrong or f"{what}: {found!r}, and SQL gives {wanted!r}"


@dataclass(slots=True)
class FeedReport(Printed):
    """What a run found."""

    events: int
    statuses: int
    restarts: int
    failovers: int
    evictions: int
    followees_posts: int
    sides: list[Side]

    def fault(self) -> str:
        return self.sides[0].first_wrong

    def print_table(self, console: Console) -> None:
        title = f"{self.events:,} events; {self.restarts} restarts, {self.failovers} failovers"
        title += f", {self.evictions:,} evictions"
        columns = {"feeds": "{0.name}", "pages": "{0.pages:,}", "wrong": "{0.wrong:,}", "empty": "{0.empty:,}"}
        columns |= {
            "feeds measured": "{0.feeds}",
            "bytes a feed": "{0.feed_bytes:,.0f}",
            "process, MiB": "{0.process_mib:.0f}",
        }
        columns |= {"writes a status": "{0.writes_a_status:.1f}", "lines": "{0.lines}"}
        print_rows(console, self.sides, columns, title=title)
        rows = [(side.name, kind, ms) for side in self.sides for kind, ms in side.ms.items() if ms]
        shown = {"feeds": "{0[0]}", "page of 20, user": "{0[1]}", "pages": "{0[2]}", "median ms": "{0[3]:.2f}"}
        timed = [(name, kind, len(ms), median(ms), quantiles(ms * 2, n=20)[-1]) for name, kind, ms in rows]
        print_rows(console, timed, shown | {"p95 ms": "{0[4]:.2f}"}, left=2)
        console.print(f"first: without the feed; followees wrote {self.followees_posts:,} statuses (median)")


def run(settings: FeedSettings, bars: ProgressBars) -> FeedReport:
    """Write events and compare pages, in a database of the run's own.

    Raises:
        ServerStartError: There is no PostgreSQL.
    """
    found = find_postgres()
    if isinstance(found, Missing):
        raise ServerStartError(found.reason)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o711)
        (folder / "postgres").mkdir()
        # The feed tells of commits when they are flushed; to compile statements takes longer than to run them.
        quick = {"fsync": "off", "full_page_writes": "off", "jit": "off"}
        database = stack.enter_context(started_cluster(folder / "postgres", BACKING_SETTINGS | quick))
        return _Run(settings, database.dsn, stack).run(bars)


class _Cache(NamedTuple):
    """A cache that runs."""

    feed: PequodFeed
    client: Client
    pid: int
    #: Kills it.
    end: ExitStack


class _Run:
    def __init__(self, settings: FeedSettings, dsn: str, stack: ExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._connection = psycopg2.connect(dsn)
        stack.callback(self._connection.close)
        self._cursor = self._connection.cursor()
        self._events = Events(settings.users, settings.follows, settings.seed)
        self._ours, self._theirs = Side("Pequod"), Side("Redis")
        self._flags = ["--backing", dsn, "--backing-mapping", str(FOLDER / "mapping.toml")]
        self._flags += ["--join-files", str(FOLDER / "feed.joins"), "--memory-limit", settings.memory_limit]
        self._seen: dict[int, tuple[int, int]] = {}
        self._unwritten: list[bytes] = []
        self._cleaned_day = 0
        self._evictions = 0
        self._load()
        #: Each cache that starts uses another feed of changes than the one before, beside which it may run.
        names = _NAMES if settings.failovers else _NAMES[:1]
        self._names = cycle(names)
        for name in names:
            _install(self._flags[:4], name)
        self._redis: RedisFeed | None = None
        if settings.redis and find_spec("redis") is not None and not isinstance(RedisSystem().find(), Missing):
            self._redis = self._start_redis(stack)

    def _load(self) -> None:
        self._cursor.execute((FOLDER / "schema.sql").read_text("utf-8"))
        for table, rows in self._events.population():
            execute_values(self._cursor, f"INSERT INTO {table} VALUES %s", rows, page_size=10_000)
        self._connection.commit()

    def _start_redis(self, stack: ExitStack) -> RedisFeed:
        server = stack.enter_context(RedisSystem().started(Path(stack.enter_context(TemporaryDirectory()))))
        self._client_of_redis = stack.enter_context(import_module("redis").Redis(port=server.port))
        self._redis_bytes = self._client_of_redis.info("memory")["used_memory"]
        return RedisFeed(self._client_of_redis, self._cursor)

    def run(self, bars: ProgressBars) -> FeedReport:
        settings, count = self._settings, self._settings.events
        kills = settings.restarts + settings.failovers
        stretches = [count * part // (kills + 1) for part in range(kills + 2)]
        cache = self._started()
        with bars.bar("events", count) as advance:
            for number, (start, stop) in enumerate(pairwise(stretches)):
                self._cursor.execute("ANALYZE")
                self._connection.commit()
                standby = self._started() if settings.restarts <= number < kills else None
                self._do_all(cache, range(start, stop), advance)
                if stop == count:
                    posts = self._time_first_pages(cache.feed, cache.client)
                    self._measure(cache)
                self._evictions += cache.client.statistics().memory.evictions
                cache.end.close()
                if number < kills:
                    cache = standby or self._started()
        sides = [self._ours] if self._redis is None else [self._ours, self._theirs]
        ends = settings.restarts, settings.failovers
        return FeedReport(count, self._events.last_id, *ends, self._evictions, posts, sides)

    def _do_all(self, cache: _Cache, numbers: range, advance: Advance) -> None:
        for number in numbers:
            self._step(cache, number * _DAYS // self._settings.events)
            advance(1)
        self._write()
        # A server that starts waits for the transactions that are open.
        self._connection.commit()

    def _started(self) -> _Cache:
        """Start a cache, which is killed when the run ends, if not before."""
        end = self._stack.enter_context(ExitStack())
        client, pid = end.enter_context(self._server())
        return _Cache(PequodFeed(client), client, pid, end)

    @contextmanager
    def _server(self) -> Iterator[tuple[Client, int]]:
        """Run the cache, and kill it in the end; yield a client of it and its process id."""
        flags = [*self._flags, "--backing-feed-name", next(self._names)]
        process = ServerProcess([*_PEQUOD, "serve", "--listen", "127.0.0.1:0", *flags])
        try:
            with Client(process.wait(serving, _TIMEOUT_S), timeout_s=_TIMEOUT_S) as client:
                yield client, process.pid
        finally:
            process.kill()
            process.end()

    def _step(self, cache: _Cache, day: int) -> None:
        event = self._events.draw()
        self._unwritten += [self._cursor.mogrify(statement, event.values) for statement in event.statements]
        if self._redis is not None or len(self._unwritten) >= _WRITTEN_AT_ONCE:
            self._write()
        if self._redis is not None and event.name:
            self._tell(self._redis, event, day)
        if self._events.is_page(self._settings.pages):
            self._write()
            self._connection.commit()
            self._look(cache.feed, cache.client, self._events.reader(), day)

    def _write(self) -> None:
        """Send the statements of the events since the last time, together: a message for each takes twice the time."""
        if self._unwritten:
            self._cursor.execute(b";".join(self._unwritten))
            self._unwritten.clear()

    def _tell(self, redis: RedisFeed, event: Event, day: int) -> None:
        if event.name == "push":
            before = redis.writes
            redis.push(event.arguments[0], day)
            self._theirs.writes_a_status += redis.writes - before
        else:
            getattr(redis, event.name)(*event.arguments)

    def _look(self, feed: PequodFeed, client: Client, user: int, day: int) -> None:
        """Read a page of a user, as they and the unread count have to be, and compare."""
        self._wait(client)
        last_day, last_read = self._seen.get(user, (-_RETURN_DAYS, 0))
        kind = "returning" if day - last_day >= _RETURN_DAYS else "often"
        wanted = pages.home(self._cursor, user)
        ours = _timed(self._ours.ms[kind], feed.home, user)
        self._ours.compare(f"home of {user}", ours, wanted[:PAGE])
        if self._redis is not None:
            if day > self._cleaned_day:
                self._redis.clean(day)
                self._cleaned_day = day
            self._theirs.compare(
                f"home of {user}", _timed(self._theirs.ms[kind], self._redis.page, user, day), wanted[:PAGE]
            )
        if self._ours.pages % _WHOLE == 1:
            self._ours.compare(f"whole home of {user}", feed.home(user, KEPT), wanted)
            self._ours.compare(f"list of {user}", feed.listed(user, user, KEPT), pages.listed(self._cursor, user))
            unread = sum(row.id > last_read for row in wanted)
            self._ours.compare(f"unread of {user}", feed.unread(user, last_read), unread)
        self._seen[user] = (day, max((row.id for row in wanted), default=0))
        self._connection.commit()

    def _wait(self, client: Client) -> None:
        """Wait until the cache has what is in the database."""
        client.get("follow|", freshness=pequod.after(pequod.token_of(self._connection), wait_s=_TIMEOUT_S))

    def _time_first_pages(self, feed: PequodFeed, client: Client) -> int:
        """Time the first pages of users whose feeds are not there; return how much their followees have written."""
        self._cursor.execute(_WRITTEN, (_TIMED,))
        found = self._cursor.fetchall()
        self._connection.commit()
        self._wait(client)
        for user, _ in found:
            feed.home(user)
            client.invalidate_range(f"home|{user:08}|", f"home|{user:08}}}")
            page = _timed(self._ours.ms["first"], feed.home, user)
            if self._redis is not None:
                self._redis.forget(user)
                _timed(self._theirs.ms["first"], self._redis.page, user, 0)
            self._ours.compare(f"first page of {user}", page, pages.home(self._cursor, user)[:PAGE])
        return int(median(count for _, count in found))

    def _measure(self, cache: _Cache) -> None:
        """Measure both with the same feeds, those of the users who were here lately."""
        feed, client = cache.feed, cache.client
        ours, theirs = self._ours, self._theirs
        client.invalidate_range("home|", "home}")
        client.invalidate_range("listed|", "listed}")
        users = sorted(user for user, (day, _) in self._seen.items() if day >= _DAYS - AWAY_DAYS)
        for user in users:
            feed.home(user)
            if self._redis is not None:
                self._redis.page(user, _DAYS)
        memory = client.statistics().memory
        ours.feeds = theirs.feeds = len(users)
        feed_bytes = memory.row_bytes + memory.context_bytes + memory.updater_bytes + memory.log_bytes
        ours.feed_bytes, ours.process_mib = feed_bytes / max(1, ours.feeds), usage(cache.pid).rss_bytes / 2**20
        ours.lines = _lines("feed.joins") + _lines("mapping.toml") + _lines("pequod_feed.py")
        if self._redis is None:
            return
        self._redis.clean(_DAYS)
        held = self._client_of_redis.info("memory")
        theirs.feed_bytes = (held["used_memory"] - self._redis_bytes) / max(1, theirs.feeds)
        theirs.process_mib = held["used_memory_rss"] / 2**20
        theirs.writes_a_status = (theirs.writes_a_status - 1) / max(1, self._events.last_id)
        theirs.lines = _lines("redis_feed.py") + pages.VISIBLE.count("\n")


def _install(flags: list[str], name: str) -> None:
    dsn, mapping = flags[1], flags[3]
    command = [*_PEQUOD, "backing", "install", mapping, dsn, "--feed-name", name]
    subprocess.run(command, check=True, capture_output=True)


def _timed(samples: list[float], read: Any, *arguments: Any) -> Any:
    begun = time.perf_counter()
    page = read(*arguments)
    samples.append((time.perf_counter() - begun) * 1000)
    return page


def _lines(name: str) -> int:
    """Return the lines of a file that say something to the machine."""
    text = (FOLDER / name).read_text("utf-8")
    if name.endswith(".py"):
        text = "".join(text.split('"""')[::2])
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())
