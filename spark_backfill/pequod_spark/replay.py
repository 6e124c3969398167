"""Spark's tasks send a generated workload to servers, and compare the servers' rows with the expected ones.

    rows      --> loaded, by all tasks              requests --> divided among tasks that start together, paced
                                                                     |
    rows and written rows --> plan --> want                      histograms, merged
                        the rows of the servers --> have

Requests of different tasks overtake each other. No write of these workloads depends on another write, so the final rows
do not depend on the order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from pequod_grammar import parse
from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod.client import AsyncClient, Client
from pequod.errors import PequodError
from pequod.language.ranges import Range, prefix_end
from pequod_spark.comparing import RowComparison, compare
from pequod_spark.connection import Connection
from pequod_spark.pacing import Encoded, ReplayOutcome, ReplayRequest, closed_loop, open_loop
from pequod_spark.plan import compile_scan, read_from
from pequod_spark.reading import read_ranges
from pequod_spark.session import refuse_connect
from pequod_spark.tasks import freeze_imports
from pequod_spark.workloads import Generated, read, writes

_LOAD_ROWS: Final = 1000


class ReplayError(PequodError):
    """A replay that cannot begin."""


class Latency(NamedTuple):
    """Latencies of one kind of request, in ms."""

    requests: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    seconds: float
    #: Latencies by kind of request.
    latencies: dict[str, Latency]
    #: The number of errors by name.
    errors: dict[str, int]
    #: For each server, its rows compared with the expected ones; empty if they were not compared.
    comparisons: list[RowComparison]

    @property
    def request_count(self) -> int:
        """Return the number of requests that succeeded."""
        return sum(latency.requests for latency in self.latencies.values())


def replay(
    spark: SparkSession,
    path: str,
    servers: Sequence[Connection],
    *,
    rate: float | None = None,
    window: int = 64,
    task_count: int | None = None,
    is_checked: bool = True,
) -> Replayed:
    """Load a workload into empty servers, replay its operations, and compare the rows of the servers.

    Args:
        path: The folder that `workloads.write` wrote.
        rate: Operations a second, all tasks together; a latency counts from the time at which its request is due. None:
            each task keeps ``window`` requests under way.
        window: Requests under way in each task, without a rate.
        task_count: Tasks that send requests; Spark needs as many slots. None: all slots.
        is_checked: Compare the rows.

    Raises:
        ClassicSessionError: The session is a client of Spark Connect.
        NoWorkloadError: ``path`` holds no workload.
        ReplayError: A server is not empty.
        PequodError: As the clients.
    """
    refuse_connect(spark, "a replay")
    generated = read(spark, path)
    for server in servers:
        _prepare(server, generated.workload.joins)
    _load(generated, servers)
    outcome = _run(generated, servers, rate, window, task_count or spark.sparkContext.defaultParallelism)
    comparisons = _comparisons(generated, servers) if is_checked else []
    latencies = {
        kind: Latency(
            found.get_total_count(),
            *(found.get_value_at_percentile(percentile) / 1000 for percentile in (50, 99, 99.9, 100)),
        )
        for kind, found in sorted(outcome.latencies.items())
    }
    return Replayed(outcome.seconds, latencies, dict(outcome.errors), comparisons)


def refuse_filled(client: Client) -> None:
    """Check that a server is empty.

    Raises:
        ReplayError: It is not.
    """
    installed = [join.name for join in client.joins()]
    if installed or client.count():
        has = f"{client.count()} keys and the joins {', '.join(installed) or 'none'}"
        raise ReplayError(f"the server at {client.target} is not empty (it has {has}); start one for the replay")


def _prepare(server: Connection, joins: str) -> None:
    with server.client() as client:
        refuse_filled(client)
        client.add_join(joins)


def _load(generated: Generated, servers: Sequence[Connection]) -> None:
    def load(part: Iterable[Any]) -> Iterator[int]:
        freeze_imports()
        yield asyncio.run(_write_rows(part, servers))

    placed = generated.rows.withColumn("home", generated.workload.home()).select("key", "value", "home")
    placed.rdd.mapPartitions(load).count()


async def _write_rows(part: Iterable[Any], servers: Sequence[Connection]) -> int:
    rows = iter(part)
    count = 0
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(server.async_client()) for server in servers]
        while group := list(islice(rows, _LOAD_ROWS)):
            batches = [client.batch() for client in clients]
            for key, value, home in group:
                for number in _homes(home, len(servers)):
                    batches[number].put(bytes(key), bytes(value))
            for results in await asyncio.gather(*(batch.send() for batch in batches if len(batch))):
                for result in results:
                    if isinstance(result, PequodError):
                        raise result
            count += len(group)
    return count


def _run(
    generated: Generated, servers: Sequence[Connection], rate: float | None, window: int, task_count: int
) -> ReplayOutcome:
    def send(part: Iterable[Any]) -> Iterator[Encoded]:
        freeze_imports()
        rows = iter(part)
        # The first request comes when all requests of the task are there and sorted.
        first = list(islice(rows, 1))
        BarrierTaskContext.get().barrier()
        yield asyncio.run(_send(map(_request, chain(first, rows)), servers, rate, window)).encoded()

    parted = generated.requests.repartition(task_count, "at").sortWithinPartitions("at")
    outcome = ReplayOutcome()
    for encoded in parted.rdd.barrier().mapPartitions(send).collect():
        outcome.add(Encoded(*encoded))
    return outcome


async def _send(
    requests: Iterator[ReplayRequest], servers: Sequence[Connection], rate: float | None, window: int
) -> ReplayOutcome:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(server.async_client()) for server in servers]
        send = partial(_send_one, clients)
        if rate is None:
            return await closed_loop(requests, send, window)
        return await open_loop(requests, send, rate)


async def _send_one(clients: Sequence[AsyncClient], request: ReplayRequest) -> None:
    homes = _homes(request.home, len(clients))
    if request.value is None:
        await asyncio.gather(*(clients[number].scan(request.key, request.last) for number in homes))
    else:
        await asyncio.gather(*(clients[number].put(request.key, request.value) for number in homes))


def _homes(home: int | None, server_count: int) -> Sequence[int]:
    return range(server_count) if home is None else (home % server_count,)


def _request(row: Any) -> ReplayRequest:
    at, kind, home, key, last, value = row
    return ReplayRequest(
        at, kind, home, bytes(key), None if last is None else bytes(last), None if value is None else bytes(value)
    )


def _comparisons(generated: Generated, servers: Sequence[Connection]) -> list[RowComparison]:
    """Compare all rows of each server with the expected rows."""
    specs = parse(generated.workload.joins)
    patterns = [pattern for spec in specs for pattern in (spec.output, *(source.pattern for source in spec.sources))]
    tables = sorted({pattern.literal_prefix.partition(b"|")[0] + b"|" for pattern in patterns})
    ranges = [Range(table, end) for table in tables if (end := prefix_end(table)) is not None]
    # All writers of a key of these workloads write the same value.
    base = generated.rows.union(writes(generated.requests)).distinct()
    base = base.withColumn("home", generated.workload.home()).persist()
    try:
        return [
            _comparison(base.where(_is_at(number, len(servers))), server, specs, ranges)
            for number, server in enumerate(servers)
        ]
    finally:
        base.unpersist()


def _comparison(base: DataFrame, server: Connection, specs: Sequence[Any], ranges: Sequence[Range]) -> RowComparison:
    have = read_ranges(base.sparkSession, server, ranges)
    return compare(have, compile_scan(specs, read_from(base)))


def _is_at(number: int, server_count: int) -> Any:
    return f.col("home").isNull() | (f.col("home") % server_count == number)
