"""The servicer of `pequod.v1`: which handler answers which call.

request -> interceptors -> handler -> commands of the executor, or what is no command -> reply
                                   -> PequodError -> Endings -> status
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from pequod_proto.pequod_pb2_grpc import add_PequodServicer_to_server

from pequod.engine import Engine
from pequod_server.calls.administration import AdministrationCalls
from pequod_server.calls.backfilling import BackfillCalls
from pequod_server.calls.building import BuildingInSlices
from pequod_server.calls.checking import JoinChecks
from pequod_server.calls.executing import ExecuteCalls, handler_of_batches
from pequod_server.calls.feeds import Feeds
from pequod_server.calls.following import FollowCalls
from pequod_server.calls.preparing import ClusterReplaceCalls
from pequod_server.calls.reads import ReadCalls
from pequod_server.calls.replacing import ReplaceCalls
from pequod_server.calls.scanning import ScanCalls
from pequod_server.calls.served import ServedEngine
from pequod_server.calls.watching import WatchCalls, handler_of_ranges
from pequod_server.calls.writes import WriteCalls
from pequod_server.cluster.joins import ClusterJoins
from pequod_server.cluster.member import Member
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases
from pequod_server.freshness.own import OwnHistory
from pequod_server.heat.meter import HeatMeter
from pequod_server.memory.admission import Admission
from pequod_server.ops.observe import BatchSink, BatchTraces
from pequod_server.ops.tallies import Tallies
from pequod_server.passing.passing import Passing
from pequod_server.snapshots.saving import Snapshots
from pequod_server.wire.encode import PeersFollowing
from pequod_server.wire.handlers import SERVICE_PATH, Registry, Unregistered

if TYPE_CHECKING:
    from pequod_server.data.disk import Disk


def add_service(service: PequodService, server: Registry) -> None:
    """Let a server answer the calls of a service.

    Requires:
        The server registers no methods: see `Unregistered`.
    """
    own = {"Execute": handler_of_batches(service.Execute), "WatchRanges": handler_of_ranges(service.WatchRanges)}
    # Of several handlers gRPC takes the first.
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_PATH.strip("/"), own),))
    add_PequodServicer_to_server(service, Unregistered(server))  # type: ignore[no-untyped-call]


class PequodService:
    """One engine behind the wire contract.

    gRPC finds the method of each call by the call's name. A handler refuses a call by raising a PequodError.
    """

    def __init__(
        self,
        engine: Engine,
        config: ServerConfig,
        on_batch: BatchSink,
        snapshots: Snapshots,
        databases: Databases | None = None,
        *,
        admission: Admission | None = None,
        member: Member | None = None,
        batch_traces: BatchTraces | None = None,
        own: OwnHistory | None = None,
        shown: Mapping[str, str] | None = None,
        passing: Passing | None = None,
    ) -> None:
        databases = databases or Databases(engine)
        admission = admission or Admission(config)
        served = ServedEngine(engine, config, databases, admission, None if member is None else member.rules, own)
        #: The engine as all calls share it.
        self.served = served
        self.server_id = served.server_id
        self.levels = served.levels

        reads = ReadCalls(served)
        self.Get = reads.get
        self.MultiGet = reads.multi_get
        self.Count = reads.count
        self.Ttl = reads.ttl

        self.Scan = ScanCalls(served, admission).scan

        writes = WriteCalls(served)
        self.Put = writes.put
        self.Remove = writes.remove
        self.WriteIf = writes.write_if
        self.Transaction = writes.transaction
        self.Add = writes.add
        self.Expire = writes.expire
        self.MultiPut = writes.multi_put
        self.RemoveRange = writes.remove_range

        self.batches = ExecuteCalls(served, admission, on_batch, batch_traces, passing)
        self.Execute = self.batches.execute

        self._watches = WatchCalls(served, admission, snapshots.origins)
        self.Watch, self.WatchRanges = self._watches.watch, self._watches.watch_ranges

        cluster_joins = None if member is None else ClusterJoins(engine, member)
        self._administration = administration = AdministrationCalls(served, snapshots, cluster_joins, member)
        self.AddJoin, self.CheckJoin = administration.add_join, JoinChecks(served, cluster_joins).check
        self.DropJoin = administration.drop_join
        self.ListJoins = administration.list_joins
        self.Explain = administration.explain
        self.Splits = administration.splits
        self.Invalidate = administration.invalidate
        self.Stats = administration.stats
        self.SlowCalls = administration.slow_calls
        self.SaveSnapshot = administration.save_snapshot
        self.RestoreSnapshot = administration.restore_snapshot

        self._building = BuildingInSlices(served)
        self._replacing = replacing = _replacing_of(served, self._building, cluster_joins, member)
        self.ReplaceJoin, self.EndReplacement = replacing.replace, replacing.end
        self.ListReplacements = replacing.list_all

        backfills = BackfillCalls(served)
        self.BeginBackfill = backfills.begin
        self.ReadBackfill = backfills.read
        self.LoadBackfill = backfills.load
        self.RenewBackfill = backfills.renew
        self.EndBackfill = backfills.end
        self.ListBackfills = backfills.list_all

        self._follows = FollowCalls(served, member, shown or {})
        self.FollowCluster = self._follows.follow

    def keep_in(self, disk: Disk) -> None:
        """Have a disk keep the joins that clients add, drop and replace, and the request ids of writes."""
        self._administration.on_joins = self._building.on_joins = disk.note_joins
        disk.ids = self.served.executor.ids

    def tell_following(self, following: Callable[[], Awaitable[PeersFollowing]]) -> None:
        """Show in the statistics who follows this server's base data."""
        self._administration.following = following

    def tell_calls(self, tallies: Tallies | None, slow: Sequence[Mapping[str, Any]], heat: HeatMeter) -> None:
        """Show how many calls there were, if they are counted, which were slow, and which keys the time goes to."""
        self._administration.heat = heat
        self._administration.tallies = tallies
        self._administration.slow = slow

    async def stop(self) -> None:
        """End what the calls have begun and does not end with them."""
        await self._replacing.stop()
        self.levels.stop()

    @property
    def feeds(self) -> Feeds:
        """The feeds of watches."""
        return self._watches.feeds

    @property
    def watch_count(self) -> int:
        """How many watches have a stream."""
        return len(self._watches.feeds)

    def relieve(self) -> None:
        """Drop changes that wait for slow watches, if memory is over the engine's limit without them."""
        self._watches.feeds.relieve()

    def end_streams(self) -> None:
        """End the streams: those that only tell, and idle batch streams now; the others after their present batch."""
        self._watches.end()
        self._follows.end()
        self.batches.end()


def _replacing_of(
    served: ServedEngine, building: BuildingInSlices, joins: ClusterJoins | None, member: Member | None
) -> ReplaceCalls | ClusterReplaceCalls:
    if member is None or joins is None:
        return ReplaceCalls(served, building)
    return ClusterReplaceCalls(served, building, joins, member)
