"""What indexes cost the operations of clients, and what they save: records that are read and changed, by their indexes.

    cost    reads and writes of records (8 : 1, and other ratios) with 0, 1, 2, 4 indexes: CPU of the server
            indexes at the same server; indexes on a compute, which follows the home; a count over an index
    lag     from the reply of a write at the home to the event of its change in an index on a compute
    saved   the records of one value: by an index with whole records, by one with keys, by reading all
            the number of them: by a scan of the index, by a count of it, by a join that counts

Each record has a number of its own and attributes; an index has one entry for each record, under the value of an
attribute. Servers are processes, and CPU is that of their accounts. In the end each index is compared with the records.

Source:
    *Asynchronous View Maintenance for VLSD Databases*, figures 5 to 10.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

import orjson
from rich.console import Console

from pequod.client import AsyncBatch, AsyncClient
from pequod.cluster.servers import ServerRole
from pequod.freshness import Latest
from pequod_bench.collector import resting_collector
from pequod_bench.report.latency import Latencies, histogram, percentiles
from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import IndexesSettings
from pequod_bench.systems.server import loop_factory, started_server, usage
from pequod_bench.systems.site import ClusterShape, started_site

#: Where indexes are: none, at the server that has the records, on a compute, and at the server with a count over each.
Place = Literal["none", "server", "compute", "counted"]
_PLACES: Final[tuple[Place, ...]] = ("server", "compute", "counted")
_THIN: Final = "i{0}|<value>|<id> = copy p|<id> with a{0} = <value> as {{a{0}}}"
_WHOLE: Final = "w{0}|<value>|<id> = copy p|<id> with a{0} = <value>"
_COUNT: Final = "n{0}|<value> = count i{0}|<value>|<id>"
#: Records of each value of an attribute, one attribute after the other.
_GROUP_SIZES: Final = (10, 50, 250, 1_000)
_LOADED_ROWS: Final = 500
_BATCH: Final = 64
_WINDOW: Final = 4
_TIMEOUT_S: Final = 120.0
#: The level of what is compared, and of what ends a measurement.
_CAUGHT_UP: Final = Latest(wait_s=60.0)
_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class Cost:
    """What operations took of the servers, with some indexes in one place."""

    place: Place
    indexes: int
    reads_for_a_write: int
    #: CPU of an operation, in µs: of the server or the home, and of the compute.
    server_us: float
    compute_us: float
    #: CPU of all servers by that without an index.
    times: float


@dataclass(frozen=True, slots=True)
class Query:
    """What a way to answer a query takes of the server, in µs of CPU, by the number of records that it is about."""

    asked: str
    way: str
    us: dict[int, float]


@dataclass(frozen=True, slots=True)
class IndexesReport(Printed):
    """All costs, what they are paid for, and the time for which an index is behind."""

    records: int
    record_bytes: int
    costs: list[Cost]
    lag: Latencies
    queries: list[Query]

    def print_table(self, console: Console) -> None:
        columns = {"indexes at": "{0.place}", "number": "{0.indexes}", "reads a write": "{0.reads_for_a_write}"}
        columns |= {"µs at the server": "{0.server_us:.2f}", "at the compute": "{0.compute_us:.2f}"}
        columns |= {"times none": "{0.times:.2f}"}
        print_rows(console, self.costs, columns, title="CPU of an operation")
        groups = [size for size in _GROUP_SIZES if self.queries and size in self.queries[0].us]
        sizes = {f"{size:,} of a value": f"{{0.us[{size}]:,.0f}}" for size in groups}
        print_rows(
            console, self.queries, {"asked": "{0.asked}", "by": "{0.way}", **sizes}, title="µs of a query", left=2
        )
        console.print(
            f"{self.records:,} records of {self.record_bytes:,} bytes; an index on a compute is behind by "
            f"{self.lag.p50_ms:.1f} ms in the median, {self.lag.p99_ms:.1f} ms at the 99th percentile; "
            "each index had one entry for each record in the end"
        )


def run(settings: IndexesSettings, bars: ProgressBars) -> IndexesReport:
    """Measure all."""
    first, ratios = (settings.ratios[0], 0), (*settings.ratios, 0)
    sites: list[tuple[Place, int, tuple[int, ...]]] = [("none", 0, ratios), *((place, 1, ratios) for place in _PLACES)]
    sites += [(place, count, first) for place in _PLACES[:2] for count in settings.indexes if count > 1]
    costs = list[Cost]()
    with bars.bar("points", len(sites) + 2) as advance, asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
        for place, count, some in sites:
            for ratio, taken_us in zip(some, runner.run(_taken_us(settings, place, count, some)), strict=True):
                alone_us = next((cost.server_us for cost in costs if cost.reads_for_a_write == ratio), sum(taken_us))
                costs.append(Cost(place, count, ratio, *taken_us, sum(taken_us) / alone_us))
            advance(1)
        lag = runner.run(_lag(settings))
        advance(1)
        queries = runner.run(_queries(settings))
        advance(1)
    return IndexesReport(settings.records, settings.record_bytes, costs, lag, queries)


class _Records:
    """The records as they have to be, and those that change them."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self._dice = Random(count)
        self._text = "x" * size_bytes
        self._counts = [max(1, count // size) for size in _GROUP_SIZES]
        self._values = [self._drawn() for _ in range(count)]

    def _drawn(self) -> tuple[int, ...]:
        return tuple(self._dice.randrange(count) for count in self._counts)

    def row(self, number: int) -> tuple[bytes, bytes]:
        """Return the key and the value of a record."""
        fields: dict[str, Any] = {f"a{at}": value for at, value in enumerate(self._values[number])}
        return b"p|%07d" % number, orjson.dumps({**fields, "text": self._text})

    def all(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all records."""
        return map(self.row, range(len(self._values)))

    def changed(self) -> tuple[bytes, bytes]:
        """Give a record other values, and return its row."""
        number = self._dice.randrange(len(self._values))
        self._values[number] = self._drawn()
        return self.row(number)

    def any_key(self) -> bytes:
        """Return the key of one of them."""
        return b"p|%07d" % self._dice.randrange(len(self._values))

    def entries(self, attribute: int) -> list[bytes]:
        """Return the keys that an index has to have."""
        values = enumerate(values[attribute] for values in self._values)
        return sorted(b"i%d|%d|%07d" % (attribute, value, number) for number, value in values)


@contextmanager
def _servers(place: Place, joins: str) -> Iterator[tuple[str, list[int]]]:
    """Start a server, or a home and a compute; yield the target and their processes."""
    if place != "compute":
        with started_server(*(("--joins", joins) if joins else ())) as (target, pid):
            yield target, [pid]
        return
    with started_site(ClusterShape(homes=1, computes=1, joins=joins)) as site:
        yield site.target, [site.one(role).pid for role in (ServerRole.HOME, ServerRole.COMPUTE)]


@asynccontextmanager
async def _loaded(target: str, records: _Records, tables: Iterable[str]) -> AsyncIterator[AsyncClient]:
    """Write all records, and read the indexes once, so that all of them are kept."""
    async with AsyncClient(target, timeout_s=_TIMEOUT_S) as client:
        rows = list(records.all())
        for start in range(0, len(rows), _LOADED_ROWS):
            await client.multi_put(dict(rows[start : start + _LOADED_ROWS]))
        for table in tables:
            await client.count(prefix=f"{table}|", freshness=_CAUGHT_UP)
        yield client


async def _taken_us(
    settings: IndexesSettings, place: Place, count: int, ratios: Iterable[int]
) -> list[tuple[float, float]]:
    """Return µs of CPU of an operation for each ratio, of the server and of the compute, if there is one."""
    forms = (_THIN, _COUNT) if place == "counted" else (_THIN,)
    joins = [form.format(name) for name in range(count) for form in forms]
    tables = [f"{'n' if place == 'counted' else 'i'}{name}" for name in range(count)]
    records = _Records(settings.records, settings.record_bytes)
    taken = list[tuple[float, float]]()
    with _servers(place, ";".join(joins)) as (target, pids):
        async with _loaded(target, records, tables) as client:
            for ratio in ratios:
                batches = [_batch(client, records, ratio) for _ in range(settings.operations // _BATCH)]
                with resting_collector():
                    before = [usage(pid).cpu_s for pid in pids]
                    await _sent(batches)
                    # What is on its way to the compute belongs to the operations.
                    for table in tables:
                        await client.count(f"{table}|", f"{table}|0", freshness=_CAUGHT_UP)
                    spent = [usage(pid).cpu_s - cpu_s for pid, cpu_s in zip(pids, before, strict=True)]
                server_us, compute_us = (cpu_s / (len(batches) * _BATCH) * 1e6 for cpu_s in (*spent, 0.0)[:2])
                taken.append((server_us, compute_us))
            await _compare(client, records, count, is_counted=place == "counted")
    return taken


def _batch(client: AsyncClient, records: _Records, ratio: int) -> AsyncBatch:
    """Return a batch with ``ratio`` reads for each write."""
    batch = client.batch()
    for number in range(_BATCH):
        if number % (ratio + 1) == 0:
            batch.put(*records.changed())
        else:
            batch.get(records.any_key())
    return batch


async def _sent(batches: list[AsyncBatch]) -> None:
    """Send batches in order, some of them under way at once."""
    for start in range(0, len(batches), _WINDOW):
        await asyncio.gather(*(batch.send() for batch in batches[start : start + _WINDOW]))


async def _compare(client: AsyncClient, records: _Records, count: int, *, is_counted: bool) -> None:
    """Compare all indexes with the records."""
    for name in range(count):
        wanted = records.entries(name)
        if await client.keys(prefix=f"i{name}|", freshness=_CAUGHT_UP) != wanted:
            raise WrongAnswerError(f"the index i{name} has other entries than the records")
        if is_counted and sum(int(value) for _, value in await client.scan(prefix=f"n{name}|")) != len(wanted):
            raise WrongAnswerError(f"n{name} counts other entries than the index i{name} has")


async def _lag(settings: IndexesSettings) -> Latencies:
    """Return how long after its write a record is in an index on a compute."""
    records = _Records(settings.records, settings.record_bytes)
    seconds = list[float]()
    with _servers("compute", _THIN.format(0)) as (target, _):
        async with _loaded(target, records, ["i0"]) as client, aclosing(client.watch("i0|", "i0}")) as events:
            await anext(events)
            for number in range(settings.lag_writes):
                key, value = records.changed()
                # A record that gets the value that it had changes no index, so each gets one of its own.
                value = value.replace(b'{"a0":', b'{"a0":1%06d' % number)
                await client.put(key, value)
                written_s = time.monotonic()
                while not any(key.endswith(change.key[-7:]) for change in (await anext(events)).changes):
                    pass
                seconds.append(time.monotonic() - written_s)
    return percentiles(histogram(seconds))


async def _queries(settings: IndexesSettings) -> list[Query]:
    """Return what each way to answer takes."""
    names = [name for name, size in enumerate(_GROUP_SIZES) if size <= settings.records]
    joins = ";".join(form.format(name) for name in names for form in (_THIN, _WHOLE, _COUNT))
    records = _Records(settings.records, settings.record_bytes)
    tables = [f"{letter}{name}" for name in names for letter in "iwn"]
    with _servers("server", joins) as (target, (pid,)):
        async with _loaded(target, records, tables) as client:

            async def of_keys(name: int) -> None:
                keys = await client.keys(f"i{name}|0|", f"i{name}|0}}")
                await client.multi_get([b"p|" + key[-7:] for key in keys])

            ways: dict[tuple[str, str], Callable[[int], Awaitable[Any]]] = {
                ("records", "an index with the records"): lambda name: client.scan(f"w{name}|0|", f"w{name}|0}}"),
                ("records", "an index with their keys"): of_keys,
                ("records", "a scan of all"): lambda _: client.scan(prefix="p|"),
                ("their number", "a scan of the index"): lambda name: client.keys(f"i{name}|0|", f"i{name}|0}}"),
                ("their number", "a count of the index"): lambda name: client.count(f"i{name}|0|", f"i{name}|0}}"),
                ("their number", "a join that counts"): lambda name: client.get(f"n{name}|0"),
            }
            found = list[Query]()
            for (asked, way), ask in ways.items():
                rounds = 1 if way == "a scan of all" else _ROUNDS
                us = dict[int, float]()
                for name in names:
                    before_s = usage(pid).cpu_s
                    for _ in range(rounds):
                        await ask(name)
                    us[_GROUP_SIZES[name]] = (usage(pid).cpu_s - before_s) / rounds * 1e6
                found.append(Query(asked, way, us))
            return found
