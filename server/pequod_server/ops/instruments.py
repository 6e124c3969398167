"""What watches a server, put together: the log of calls, and metrics and traces if they are asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio
from pequod_installed.names import how_to_install
from pequod_proto import pequod_pb2 as pb

from pequod.cluster.grouping import grouping
from pequod.engine import Engine
from pequod.native.http2 import NativeHotCalls
from pequod_server.backing.turns import ended
from pequod_server.cluster.member import Member
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases
from pequod_server.freshness.questions import LevelCounters
from pequod_server.heat.meter import HeatMeter
from pequod_server.once.memory import RequestIds
from pequod_server.ops.clock import keep_time
from pequod_server.ops.heated import HeatedCalls
from pequod_server.ops.logs import CallLog
from pequod_server.ops.observe import (
    BatchReply,
    BatchRequest,
    BatchSink,
    BatchTraces,
    BatchWork,
    Call,
    CallObserver,
    Metadata,
    Sink,
)
from pequod_server.ops.tallies import Tallies

if TYPE_CHECKING:
    from pequod_server.ops.collectors import ScrapedCollector

log = logging.getLogger("pequod.server")


def down_homes(databases: Databases) -> tuple[str, ...]:
    """Return the home groups of the cluster's map, if none of them answers."""
    homes = [loader for loader in databases.all if loader.name]
    is_cut_off = bool(homes) and all(loader.status.state != "ok" for loader in homes)
    return tuple(loader.name for loader in homes) if is_cut_off else ()


def stale_reason(databases: Databases) -> str:
    """Return why reads of some database's rows fail that ask for no level of freshness; empty if they do not."""
    return next((str(loader.stale_error()) for loader in databases.all if loader.is_stale), "")


class Instruments:
    """The instruments of one server."""

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine,
        is_ready: Callable[[], bool],
        databases: Databases,
        step: Callable[[], str] = str,
        address: str = "",
    ) -> None:
        """Make the instruments that the settings ask for.

        Args:
            address: Where metrics are served, if the settings ask for them; empty: where the settings say.
            step: Returns what the start is at; empty if that is said nowhere else.

        Raises:
            ImportError: Something that they need is not installed; the text says what to install.
        """
        # The imports are here since what they bring in takes half a second, and only some servers need it.
        call_log = CallLog(config.slow_ms / 1000 if config.slow_ms else None, lambda: engine.rows_computed)
        self._call_log = call_log
        #: Measures which keys the time goes to.
        self.heat = HeatMeter()
        heated = HeatedCalls(self.heat)
        sinks: list[Sink] = [call_log, heated]
        self._batch_sinks: list[BatchSink] = [call_log.executed, heated.executed]
        self._address = address or config.metrics
        self._metrics = self._web = self._provider = None
        #: Makes the spans of batches; None without traces.
        self.batch_traces: BatchTraces | None = None
        self._engine = engine
        self._tasks: list[asyncio.Task[None]] = []
        #: The counts of calls and batches; None: nothing shows them.
        self.tallies: Tallies | None = None
        if config.metrics or config.http:
            self.tallies = tallies = Tallies()
            sinks.append(tallies.calls)
            self._batch_sinks.append(tallies.batches.executed)
        if config.metrics:
            assert self.tallies is not None, "the metrics tell of them"
            from pequod_server.ops.metrics import Metrics  # noqa: PLC0415
            from pequod_server.ops.web import WebServer  # noqa: PLC0415

            self._metrics = Metrics(engine, self.tallies)
            from pequod_server.ops.collectors import DatabaseCollector, ExpiryCollector  # noqa: PLC0415
            from pequod_server.ops.heat_collector import HeatCollector  # noqa: PLC0415

            self._metrics.add(HeatCollector(self.heat))
            self._metrics.add(DatabaseCollector(databases))
            self._metrics.add(ExpiryCollector(engine, databases.expiring))
            self._web = WebServer(
                self._metrics.scrape, is_ready, lambda: down_homes(databases), lambda: stale_reason(databases), step
            )
        if config.traces:
            try:
                from pequod_server.ops import traces  # noqa: PLC0415
            except ImportError as error:
                raise ImportError(f"traces need OpenTelemetry: {how_to_install('otel')}") from error
            self._provider = traces.provider_from_environment()
            call_traces = traces.CallTraces(self._provider)
            sinks.append(call_traces)
            self.batch_traces = call_traces
        #: To stand before all interceptors that may refuse a call.
        self._observer = CallObserver(sinks)
        self.interceptor: aio.ServerInterceptor = self._observer
        #: Where metrics and health are served, while they are.
        self.url: str | None = None

    @property
    def slow(self) -> Sequence[Mapping[str, Any]]:
        """The facts of the latest slow calls and batches, the latest last."""
        return self._call_log.slow

    def count_levels(self, counters: LevelCounters) -> None:
        """Show the counts of levels of freshness among the metrics."""
        if self._metrics is not None:
            from pequod_server.ops.collectors import LevelCollector  # noqa: PLC0415 - as in the constructor

            self._metrics.add(LevelCollector(counters))

    def count_writes(self, counts: Mapping[str, int], ids: RequestIds) -> None:
        """Show among the metrics how many transactions have run each of their lists, and the request ids of writes."""
        if self._metrics is not None:
            from pequod_server.ops import collectors  # noqa: PLC0415 - as in the constructor

            self._metrics.add(collectors.TransactionCollector(counts))
            self._metrics.add(collectors.RequestIdCollector(ids))

    @property
    def asks_for_each_call(self) -> bool:
        """Whether something has to see every call while it runs."""
        return self.batch_traces is not None

    def count_hot(self, hot: NativeHotCalls) -> None:
        """Add the calls and batches that the native core answers to the counts."""
        self.heat.hot = hot
        if self.tallies is not None:
            self.tallies.count_hot(hot)

    def slow_call(self, method: str, metadata: Metadata, request: object, duration_s: float) -> None:
        """Take note of a call that took long and that no interceptor has seen."""
        call = Call(method, metadata, self._observer.request_id(metadata), is_open_ended=False)
        call.request = request
        self._call_log.opened(call)(grpc.StatusCode.OK, duration_s)

    def slow_batch(self, duration_s: float, kinds: bytes, first: bytes | None, row_count: int) -> None:
        """Take note of a batch that took long and that its handler has not seen."""
        request = pb.ExecuteRequest(kinds=kinds, arguments=() if first is None else (first,))
        self._call_log.executed(request, pb.ExecuteReply(), BatchWork(row_count), duration_s)

    def add(self, make: Callable[[], ScrapedCollector]) -> None:
        """Show further figures among the metrics, if there are metrics."""
        if self._metrics is not None:
            self._metrics.add(make())

    def follow(self, member: Member) -> None:
        """Show this server in its cluster among the metrics, and its heat by the groups of the cluster's map."""
        self.heat.grouping = lambda: grouping(member.map.placements)
        if self._metrics is not None:
            from pequod_server.ops.collectors import ClusterCollector  # noqa: PLC0415 - as in the constructor

            self._metrics.add(ClusterCollector(member))

    def executed(self, request: BatchRequest, reply: BatchReply, work: BatchWork, duration_s: float) -> None:
        """Take note of a batch of Execute."""
        for sink in self._batch_sinks:
            sink(request, reply, work, duration_s)

    async def start(self) -> None:
        """Start the clock, and serve metrics and health.

        Raises:
            OSError: Their address cannot be listened on.
        """
        if self._web is not None:
            try:
                self.url = await self._web.start(self._address)
            except OSError:
                await self.stop()
                raise
        on_late = None if self._metrics is None else self._metrics.lag.observe
        self._tasks = [
            asyncio.create_task(keep_time(self._engine, on_late), name="pequod clock"),
            asyncio.create_task(self.heat.run(), name="pequod heat"),
        ]

    async def stop(self) -> None:
        """Close everything; spans that were not sent yet are."""
        await ended(self._tasks)
        if self._web is not None:
            await self._web.stop()
        provider, self._provider = self._provider, None
        if provider is not None:
            await asyncio.to_thread(provider.shutdown)
