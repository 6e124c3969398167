"""What Prometheus reads of the parts of a server; docs/operations.md, docs/backing.md and docs/cluster.md list it.

Their figures are there when Prometheus asks for them, and not before.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from grpc import aio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pequod.engine import Engine
from pequod.errors import DiskFullError
from pequod_server.access.quotas import Meter
from pequod_server.cluster.member import Member
from pequod_server.database.databases import Databases
from pequod_server.database.expiring import Expiring
from pequod_server.database.loader import Loader
from pequod_server.freshness.questions import WAIT_ENDS, LevelCounters
from pequod_server.homes.home.feeding import FeedCounters, PeerFeed
from pequod_server.homes.home.service import PeerService
from pequod_server.once.memory import RequestIds
from pequod_server.snapshots.saving import Snapshots
from pequod_server.snapshots.schedule import SnapshotSchedule
from pequod_server.transport.server import WireServer

if TYPE_CHECKING:
    from pequod_server.data.disk import Disk
    from pequod_server.data.loading import FolderLoading


class ScrapedCollector(Collector):
    """A collector that is not asked when it is registered: there may be nothing to tell yet, and it may be dear."""

    async def refresh(self) -> None:
        """Collect what takes so long that others have to have their turn meanwhile; called before each scrape."""

    def describe(self) -> Iterator[Metric]:
        """Tell nothing before the first scrape."""
        return iter(())


class QuotaCollector(ScrapedCollector):
    """Tells what roles use of their quotas; nothing of roles without quotas."""

    def __init__(self, meters: Callable[[], Iterable[Meter]]) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        used = GaugeMetricFamily("pequod_quota_used", "What a role uses of a quota.", labels=["role", "quota"])
        most = GaugeMetricFamily("pequod_quota_limit", "The quota of a role.", labels=["role", "quota"])
        text = "Calls of roles with quotas, and commands of their batches, that were let through."
        calls = CounterMetricFamily("pequod_quota_calls", text, labels=["role"])
        text = "Calls and commands that a quota refused."
        refusals = CounterMetricFamily("pequod_quota_refusals", text, labels=["role", "quota"])
        for meter in self._meters():
            role = meter.role.name
            calls.add_metric([role], meter.call_count)
            keys, size = meter.stored() if meter.quotas.are_of_data else (0, 0)
            uses: dict[str, float] = {"watches": meter.watch_count, "keys": keys, "bytes": size}
            for quota, limit in meter.quotas._asdict().items():
                if limit is None:
                    continue
                most.add_metric([role, quota], limit)
                refusals.add_metric([role, quota], meter.refusals[quota])
                if quota in uses:
                    used.add_metric([role, quota], uses[quota])
        yield from (used, most, calls, refusals)


class TransactionCollector(ScrapedCollector):
    """Tells how many transactions have run each of their lists."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        text = "Transactions that have run, by the list of commands: `then` if all compares held."
        transactions = CounterMetricFamily("pequod_transactions", text, labels=["list"])
        for name, count in self._counts.items():
            transactions.add_metric([name], count)
        yield transactions


class RequestIdCollector(ScrapedCollector):
    """Tells how many writes are remembered by their request ids, and what became of these."""

    def __init__(self, ids: RequestIds) -> None:
        self._ids = ids

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        count, size_bytes, repeated, let_go_early = self._ids.figures
        yield GaugeMetricFamily("pequod_request_ids", "Writes that are remembered by their request ids.", value=count)
        yield GaugeMetricFamily("pequod_request_ids_bytes", "The memory that these take.", value=size_bytes)
        yield CounterMetricFamily(
            "pequod_writes_repeated", "Writes that came again, and got their first outcome.", value=repeated
        )
        text = "Request ids that were let go before request_ids_keep_s, since their memory was full."
        yield CounterMetricFamily("pequod_request_ids_let_go_early", text, value=let_go_early)


class BackfillCollector(ScrapedCollector):
    """Tells what backfills have loaded, and what those under way take."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        backfills = self._engine.backfills
        total = backfills.loaded
        yield CounterMetricFamily("pequod_backfill_rows", "Rows that backfills have loaded.", total.row_count)
        yield CounterMetricFamily("pequod_backfill_ranges", "Ranges that backfills have loaded.", total.range_count)
        text = "Pieces of backfills that were materialised before they came."
        yield CounterMetricFamily("pequod_backfill_pieces_skipped", text, total.skipped_count)
        live = GaugeMetricFamily("pequod_backfills_open", "Backfills under way.", labels=["join"])
        record = GaugeMetricFamily(
            "pequod_backfill_record_bytes", "Memory for what changed since backfills under way began.", labels=["join"]
        )
        by_join: dict[str, list[int]] = {}
        for backfill in backfills:
            by_join.setdefault(backfill.join.info.name, []).append(backfill.record_bytes)
        for join, sizes in by_join.items():
            live.add_metric([join], len(sizes))
            record.add_metric([join], sum(sizes))
        yield live
        yield record


_COUNTERS: Final = (
    ("flights", "Loads from the database."),
    ("ranges", "Ranges that were loaded."),
    ("rows", "Rows that were loaded."),
    ("changes", "Changes that the feed told."),
    ("changes_applied", "Changes that were in loaded ranges."),
    ("reloads", "Times that ranges were forgotten since changes may have been missed."),
    ("writes", "Writes that went through to the database."),
)


class DatabaseCollector(ScrapedCollector):
    """Tells how feeds are and what was asked of databases; where there are several, by their names."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        names = ["database"] if any(loader.name for loader in self._databases.all) else []
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for loader in self._databases.all:
            for kind, name, text, figure in _figures(loader):
                family = families.setdefault(name, kind(f"pequod_backing_{name}", text, labels=names))
                family.add_metric([loader.name] if names else [], figure)
        yield from families.values()


def _figures(loader: Loader) -> Iterator[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, float]]:
    """Yield kind, name, description and figure of each metric of a database that is known."""
    status, statistics = loader.status, loader.statistics()
    for name, text, figure in (
        ("up", "Whether the feed stands.", float(status.state == "ok")),
        ("age_seconds", "Seconds since the feed was last known to have told everything.", statistics.age_s),
        ("position", "How far the feed has come, in the database's own unit.", statistics.position),
        ("lag", "What the database has beyond that, where it is known.", statistics.lag),
        ("loaded_ranges", "Ranges that are loaded.", statistics.loaded_ranges),
    ):
        if figure is not None:
            yield GaugeMetricFamily, name, text, figure
    yield CounterMetricFamily, "feed_failures", "Times that the feed broke.", status.failure_count
    text = "Rows of the database that have no key under their mapping."
    yield CounterMetricFamily, "unpackable_rows", text, status.unpackable_count
    for field, text in _COUNTERS:
        yield CounterMetricFamily, field, text, getattr(loader.counters, field)


class LevelCollector(ScrapedCollector):
    """Tells what reads asked for, how long they waited, and what could not be had."""

    def __init__(self, counters: LevelCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        counters = self._counters
        reads = CounterMetricFamily(
            "pequod_level_reads", "Calls and batches by the level of freshness of their reads.", labels=["level"]
        )
        for level, count in counters.all_reads().items():
            reads.add_metric([level], count)
        yield reads
        refusals = CounterMetricFamily("pequod_level_refusals", "Levels that could not be had.", labels=["reason"])
        for reason, count in counters.refusals.items():
            refusals.add_metric([reason], count)
        yield refusals
        yield CounterMetricFamily(
            "pequod_level_questions", "Questions to the database about its present place.", counters.questions
        )
        buckets = zip(WAIT_ENDS, accumulate(counters.waits), strict=True)
        yield HistogramMetricFamily(
            "pequod_level_wait_seconds",
            "Time that reads waited for their level, without those that waited for nothing.",
            buckets=[("+Inf" if end == math.inf else repr(end), count) for end, count in buckets],
            sum_value=counters.wait_s,
        )


class ExpiryCollector(ScrapedCollector):
    """Tells how many keys have deadlines, how many have expired, and how late the server is with them."""

    def __init__(self, engine: Engine, expiring: Expiring) -> None:
        self._engine = engine
        self._expiring = expiring

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        yield GaugeMetricFamily("pequod_expiring_keys", "Keys with a deadline.", len(self._engine.deadlines))
        yield CounterMetricFamily("pequod_expired_keys", "Keys that have expired.", self._engine.expired_count)
        text = "Seconds since the deadline of the earliest key that is due and not removed yet."
        yield GaugeMetricFamily("pequod_expiry_lag_seconds", text, self._expiring.lag_ms / 1000)


class SnapshotCollector(ScrapedCollector):
    """Tells how old the latest file is, how often one is saved, and how many saves have failed; nothing without any."""

    def __init__(self, snapshots: Snapshots, schedule: SnapshotSchedule) -> None:
        self._snapshots = snapshots
        self._schedule = schedule

    def collect(self) -> Iterator[Metric]:
        """Yield the figures; without an age while there is no file, and none is to be saved before the end."""
        if not self._snapshots.is_wanted:
            return
        text = "Saves of the snapshot that failed; the file before them stays."
        yield CounterMetricFamily("pequod_snapshot_failures", text, self._snapshots.failure_count)
        if self._schedule.every_s:
            text = "Seconds between saves of the snapshot, by the settings."
            yield GaugeMetricFamily("pequod_snapshot_every_seconds", text, self._schedule.every_s)
        if (saved_s := self._schedule.saved_s) is not None:
            text = "Seconds since the latest file's data was saved."
            yield GaugeMetricFamily("pequod_snapshot_age_seconds", text, max(time.time() - saved_s, 0.0))


class FolderCollector(ScrapedCollector):
    """Tells how much a folder of data has, how much of it is in memory, and what the disk still has to take."""

    def __init__(self, engine: Engine, disk: Disk, loading: FolderLoading) -> None:
        self._engine = engine
        self._disk = disk
        self._loading = loading

    def collect(self) -> Iterator[Metric]:
        """Yield the figures; those of the files only while they can be read."""
        disk, ranges = self._disk, self._loading.ranges
        with suppress(DiskFullError):
            rows = disk.rows()
            yield GaugeMetricFamily("pequod_data_keys", "About how many keys the folder has.", rows.count())
            yield GaugeMetricFamily("pequod_data_file_bytes", "Size of the files of rows.", rows.file_bytes)
        is_whole = self._loading.is_whole is True and not self._engine.has_paged
        text = "1 while all keys of the folder are in memory."
        yield GaugeMetricFamily("pequod_data_whole", text, is_whole)
        text = "Ranges in memory of tables that are in memory in part."
        yield GaugeMetricFamily("pequod_data_ranges", text, self._engine.loaded_range_count)
        yield CounterMetricFamily("pequod_data_loads", "Reads of the folder for calls that lacked keys.", ranges.loads)
        yield CounterMetricFamily("pequod_data_keys_loaded", "Keys that came for them.", ranges.rows_loaded)
        yield GaugeMetricFamily("pequod_data_unsynced", "Changes that the disk may not have yet.", disk.unsynced)
        yield GaugeMetricFamily("pequod_data_free_bytes", "Room that is left on the disk.", disk.free_bytes)
        yield GaugeMetricFamily("pequod_data_full", "1 while writes are refused for want of room.", disk.is_full)


class TransportCollector(ScrapedCollector):
    """Tells which transport it is; of the native one, how many connections it has, and what they hold."""

    def __init__(self, server: aio.Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        server = self._server
        name = "native" if isinstance(server, WireServer) else "grpcio"
        kind = GaugeMetricFamily("pequod_transport_info", "What carries calls.", labels=["transport"])
        kind.add_metric([name], 1)
        yield kind
        # gRPC's own transport does not tell them.
        count = len(server.connections) if isinstance(server, WireServer) else None
        held_bytes = server.budget.held_bytes if isinstance(server, WireServer) else None
        yield GaugeMetricFamily("pequod_transport_connections", "Present connections.", count)
        text = "Bytes of requests that wait, of replies that clients have not let in, and of headers."
        yield GaugeMetricFamily("pequod_transport_held_bytes", text, held_bytes)


#: Of each compute; those of computes that are gone have an empty label, so that their sum never falls.
_BY_PEER: Final = (
    ("messages", "messages", "Messages of feeds."),
    ("changes", "changes", "Changes that feeds told."),
    ("bytes", "size_bytes", "Bytes of keys and values in them."),
    ("reloads", "reloads", "Times that a compute was told to read ranges again."),
)
_OF_ALL: Final = (
    ("loads", "Loads of computes."),
    ("loaded_rows", "Rows that they were given."),
)
_GONE: Final = ""


class ComputeCollector(ScrapedCollector):
    """Tells which computes follow a home, and what they were told."""

    def __init__(self, peers: PeerService) -> None:
        self._peers = peers
        #: By the name of the compute.
        self._subscriptions: Counter[str] = Counter()

    async def refresh(self) -> None:
        """Count what each compute is subscribed to."""
        self._subscriptions.clear()
        for one in (await self._peers.following()).peers:
            self._subscriptions[one.id or one.address] += one.subscriptions or 0

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        relay = self._peers.origin.relay
        # A compute that comes back may have two feeds for a moment.
        feeds: defaultdict[str, list[PeerFeed]] = defaultdict(list)
        for feed in self._peers.feeds.values():
            feeds[feed.id or feed.peer].append(feed)
        yield GaugeMetricFamily("pequod_peer_feeds", "Feeds of computes.", len(self._peers.feeds))
        text = "Bounds of the ranges that computes are subscribed to, two for each alone."
        yield GaugeMetricFamily("pequod_peer_subscription_bounds", text, len(relay.wants))
        text = "Memory for the latest changes, which feeds resume from."
        yield GaugeMetricFamily("pequod_peer_kept_bytes", text, relay.size_bytes)
        lag = GaugeMetricFamily("pequod_peer_lag_events", "Events that a feed has not told yet.", labels=["peer"])
        text = "Ranges that a compute is subscribed to; those that touch are one."
        subscriptions = GaugeMetricFamily("pequod_peer_subscriptions", text, labels=["peer"])
        for peer, some in feeds.items():
            lag.add_metric([peer], max(relay.lag(feed.subscriber) for feed in some))
            subscriptions.add_metric([peer], self._subscriptions[peer])
        yield lag
        yield subscriptions
        yield from self._counters(feeds)

    def _counters(self, feeds: dict[str, list[PeerFeed]]) -> Iterator[Metric]:
        by_peer = {_GONE: self._peers.gone}
        for peer, some in feeds.items():
            by_peer[peer] = FeedCounters()
            for feed in some:
                by_peer[peer].add(feed.counters)
        for name, field, text in _BY_PEER:
            family = CounterMetricFamily(f"pequod_peer_{name}", text, labels=["peer"])
            for peer, counters in by_peer.items():
                family.add_metric([peer], getattr(counters, field))
            yield family
        for field, text in _OF_ALL:
            yield CounterMetricFamily(f"pequod_peer_{field}", text, getattr(self._peers.gone, field))


class ClusterCollector(ScrapedCollector):
    """Tells what a server is in its cluster, which map it goes by, and who is there."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def collect(self) -> Iterator[Metric]:
        """Yield the figures."""
        state, entry = self._member.state, self._member.entry
        labels = ["id", "roles", "group", "zone", "state"]
        this = GaugeMetricFamily("pequod_cluster_member", "This server in its cluster; always 1.", labels=labels)
        this.add_metric([entry.id, "+".join(sorted(entry.roles)), entry.group, entry.zone, entry.state], 1)
        yield this
        yield GaugeMetricFamily(
            "pequod_cluster_map_version", "The version of the newest map that the server knows.", state.map.version
        )
        yield GaugeMetricFamily(
            "pequod_cluster_map_taken_in_version", "The version of the map that the server goes by.", entry.map_version
        )
        servers = GaugeMetricFamily(
            "pequod_cluster_servers", "The servers of the cluster that this one knows.", labels=["role", "state"]
        )
        counts = Counter((role, server.state) for server in state.servers for role in server.roles)
        for (role, server_state), count in sorted(counts.items()):
            servers.add_metric([role, server_state], count)
        yield servers
