"""What Prometheus reads: calls, batches, the event loop, and what the engine holds.

All names start with `pequod_`, apart from those of prometheus_client's own collectors of the process and the garbage
collector. docs/operations.md lists them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import Final

from pequod_installed.names import version
from prometheus_client import CollectorRegistry, GCCollector, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from pequod.commands.kinds import NAMES
from pequod.engine import Engine, MemoryStatistics, Statistics, TableStatistics
from pequod_server.ops.clock import TICK_S
from pequod_server.ops.collectors import BackfillCollector, ScrapedCollector
from pequod_server.ops.shown import shown
from pequod_server.ops.statistics import collected
from pequod_server.ops.tallies import BatchTallies, CallTallies, Tallies, Tally

#: Statistics cost the loop at most this share of its time, however often Prometheus asks.
_STATISTICS_SHARE: Final = 0.05
#: Tables with a label of their own; the small ones beyond are added up.
TABLES_MAX: Final = 100
#: Their label: no name of a table has the delimiter in it.
OTHER_TABLES: Final = "|others"


class Metrics:
    """The registry of one server."""

    def __init__(self, engine: Engine, tallies: Tallies) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._collectors: list[ScrapedCollector] = []
        Info("pequod", "The version of the server.", registry=self.registry).info({"version": version()})
        #: Takes how late the event loop is.
        self.lag = Histogram(
            "pequod_loop_lag_seconds",
            f"How late the event loop is, measured every {TICK_S} s.",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
            registry=self.registry,
        )
        self.add(CallMetrics(tallies.calls))
        self.add(BatchMetrics(tallies.batches))
        self.add(EngineCollector(engine))
        self.add(BackfillCollector(engine))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def add(self, collector: ScrapedCollector) -> None:
        """Show further figures."""
        self._collectors.append(collector)
        self.registry.register(collector)

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return what Prometheus reads, and its content type, which is the best of those that it accepts."""
        for collector in self._collectors:
            await collector.refresh()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class CallMetrics(ScrapedCollector):
    """Tells of the calls so far."""

    def __init__(self, tallies: CallTallies) -> None:
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """Yield what has been counted."""
        counts = self._tallies.counts()
        calls = CounterMetricFamily("pequod_calls", "Calls that ended.", labels=["method", "code"])
        for labels, count in counts.ended.items():
            calls.add_metric(labels, count)
        yield calls
        text = "Time that the server took for calls, but not for streams of requests and watches."
        times = HistogramMetricFamily("pequod_call_seconds", text, labels=["method", "code"])
        for labels, tally in counts.seconds.items():
            times.add_metric(labels, tally.buckets(), tally.sum)
        yield times
        opened = GaugeMetricFamily("pequod_calls_open", "Calls under way, streams among them.", labels=["method"])
        for method, count in counts.open.items():
            opened.add_metric([method], count)
        yield opened


class BatchMetrics(ScrapedCollector):
    """Tells of the batches so far."""

    def __init__(self, tallies: BatchTallies) -> None:
        self._tallies = tallies

    def collect(self) -> Iterator[Metric]:
        """Yield what has been counted."""
        counts = self._tallies.counts()
        yield _metric(counts.seconds, "pequod_batch_seconds", "Time that the commands of a batch of Execute took.")
        yield _metric(counts.sizes, "pequod_batch_commands", "Commands in a batch of Execute.")
        commands = CounterMetricFamily("pequod_commands", "Commands of Execute.", labels=["kind"])
        for kind, count in counts.commands.items():
            commands.add_metric([NAMES[kind]], count)
        yield commands
        errors = CounterMetricFamily("pequod_command_errors", "Commands of Execute that failed.", labels=["reason"])
        for reason, count in counts.errors.items():
            errors.add_metric([reason], count)
        yield errors


def _metric(tally: Tally, name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, text, buckets=tally.buckets(), sum_value=tally.sum)


#: Field of TableStatistics, what it says.
_TABLE_GAUGES: Final = (
    ("keys", "Client-written keys of a table."),
    ("key_bytes", "Bytes of the client-written keys of a table."),
    ("value_bytes", "Bytes of the client-written values of a table."),
)
#: Field of JoinStatistics, what it says; first what is there now.
_JOIN_GAUGES: Final = (
    ("rows", "Materialised rows of a join."),
    ("key_bytes", "Bytes of the keys of the materialised rows, after the prefix of their context."),
    ("contexts", "Contexts of a join: prefixes such as `t|ann|` under which something is materialised."),
    ("status_ranges", "Materialised ranges of a join."),
    ("updaters", "Subscriptions of materialised ranges to source keys."),
    ("log_entries", "Changes of source keys that the next read of their context has to apply."),
    ("age_s", "Seconds since the oldest materialised rows were last known to be right; the next read renews them."),
)
#: And what happened since the join was installed.
_JOIN_COUNTERS: Final = (
    ("hits", "Reads that found everything materialised and fresh."),
    ("computed_ranges", "Ranges that a read had to compute."),
    ("rows_computed", "Rows computed for them."),
    ("log_applied", "Changes of source keys applied at a read."),
    ("invalidations", "Contexts dropped because something under them was."),
    ("not_a_number", "Contributions to a sum that were no number."),
    ("misfits", "Values that were looked at and gave no row: no records, or a field is missing or does not fit."),
)


_MEMORY_KINDS: Final = ("stored", "loaded", "row", "context", "updater", "log", "state", "watch", "index")


class EngineCollector(ScrapedCollector):
    """Tells the statistics of an engine, collected when Prometheus asks for them.

    They cost 0.04 to 0.15 s for a million materialised rows, the more the more contexts there are. So others have
    their turn meanwhile, and they are kept for twenty times as long as they took.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._statistics = Statistics(0, 0, {}, {}, MemoryStatistics(), 0, 0)
        self._kept_until_s = -math.inf
        self._took_s = 0.0
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Collect anew what is too old; callers that ask at the same time share it."""
        async with self._refreshing:
            started_s = self._clock()
            if started_s < self._kept_until_s:
                return
            self._statistics = await collected(self._engine)
            ended_s = self._clock()
            self._took_s = ended_s - started_s
            self._kept_until_s = ended_s + self._took_s / _STATISTICS_SHARE

    def collect(self) -> Iterator[Metric]:
        """Yield what the engine holds and did."""
        statistics = self._statistics
        yield GaugeMetricFamily("pequod_revision", "The revision of the data: changes so far.", self._engine.revision)
        yield GaugeMetricFamily("pequod_loose_keys", "Keys that belong to no table.", statistics.loose_keys)
        text = "How long it took to collect the statistics of the engine, the turns of others included."
        yield GaugeMetricFamily("pequod_statistics_seconds", text, self._took_s)
        yield from _memory(statistics.memory)
        tables = _tables(statistics)
        for field, text in _TABLE_GAUGES:
            gauge = GaugeMetricFamily(f"pequod_table_{field}", text, labels=["table"])
            for name, table in tables:
                gauge.add_metric([name], getattr(table, field))
            yield gauge
        for field, text in _JOIN_GAUGES:
            name = "pequod_join_age_seconds" if field == "age_s" else f"pequod_join_{field}"
            gauge = GaugeMetricFamily(name, text, labels=["join"])
            for join_name, join in statistics.joins.items():
                gauge.add_metric([join_name], getattr(join, field))
            yield gauge
        for field, text in _JOIN_COUNTERS:
            counter = CounterMetricFamily(f"pequod_join_{field}", text, labels=["join"])
            for name, join in statistics.joins.items():
                counter.add_metric([name], getattr(join, field))
            yield counter


def _memory(memory: MemoryStatistics) -> Iterator[Metric]:
    limit_bytes = memory.process_limit_bytes
    yield GaugeMetricFamily("pequod_memory_limit_bytes", "What the process may take; 0 for any.", limit_bytes)
    yield GaugeMetricFamily("pequod_memory_budget_bytes", "What the data may take now; 0 for any.", memory.limit_bytes)
    kinds = GaugeMetricFamily("pequod_memory_bytes", "What the data takes.", labels=["kind"])
    for kind in _MEMORY_KINDS:
        kinds.add_metric([kind], getattr(memory, f"{kind}_bytes"))
    yield kinds
    yield CounterMetricFamily(
        "pequod_evictions", "Contexts and loaded ranges that went to make room.", memory.evictions
    )
    yield CounterMetricFamily("pequod_memory_refusals", "Calls refused for want of memory.", memory.refusals)


def _tables(statistics: Statistics) -> list[tuple[str, TableStatistics]]:
    """Return the largest tables, and all others as one: keys such as `user17|...` make a table each."""
    by_size = sorted(statistics.tables.items(), key=lambda item: item[1].key_bytes + item[1].value_bytes, reverse=True)
    tables = [(shown(name), table) for name, table in by_size[:TABLES_MAX]]
    if others := [table for _, table in by_size[TABLES_MAX:]]:
        tables.append(
            (
                OTHER_TABLES,
                TableStatistics(
                    keys=sum(table.keys for table in others),
                    key_bytes=sum(table.key_bytes for table in others),
                    value_bytes=sum(table.value_bytes for table in others),
                    groups=sum(table.groups for table in others),
                ),
            )
        )
    return tables
