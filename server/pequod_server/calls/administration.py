"""The calls about joins and state: what is installed, what is held, and what is dropped or saved on disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pequod_grammar import parse_some
from pequod_proto import pequod_pb2 as pb

from pequod.engine import JoinError
from pequod.errors import BadRequestError
from pequod_server.calls.served import ServedEngine
from pequod_server.cluster.joins import ClusterJoins
from pequod_server.cluster.member import Member
from pequod_server.heat.meter import HeatMeter
from pequod_server.heat.range_heat import heat_of_ranges
from pequod_server.joins import JoinLimits
from pequod_server.ops.statistics import collected
from pequod_server.ops.tallies import Tallies
from pequod_server.snapshots.saving import Snapshots
from pequod_server.wire import encode
from pequod_server.wire.bounds import last_of, range_of
from pequod_server.wire.handlers import Context


class AdministrationCalls:
    """Answers AddJoin, DropJoin, ListJoins, Explain, Splits, Invalidate, Stats, SlowCalls and those of snapshots.

    Args:
        cluster_joins: The joins of the cluster; None: joins are this server's own.
        member: This server in its cluster; None: it belongs to none.
    """

    def __init__(
        self,
        served: ServedEngine,
        snapshots: Snapshots,
        cluster_joins: ClusterJoins | None = None,
        member: Member | None = None,
    ) -> None:
        self._cluster_joins = cluster_joins
        self._member = member
        self._served = served
        self._engine = served.engine
        self._join_limits = JoinLimits(served.config)
        self._snapshots = snapshots
        #: Tells who follows this server's base data.
        self.following: Callable[[], Awaitable[encode.PeersFollowing]] = _nobody
        #: The counts of calls and batches; None: there are none.
        self.tallies: Tallies | None = None
        #: Knows which keys the time goes to; None: nobody does.
        self.heat: HeatMeter | None = None
        #: The facts of the latest slow calls, the latest last.
        self.slow: Sequence[Mapping[str, Any]] = ()
        #: Called when the joins are others.
        self.on_joins: Callable[[], None] = _nothing

    async def add_join(self, request: pb.AddJoinRequest, _context: Context) -> pb.AddJoinReply:
        """Install the joins of a text, all or none."""
        self._join_limits.refuse_text(request.text)
        specs = parse_some(request.text)
        self._join_limits.refuse_joins(self._engine, specs)
        try:
            if self._cluster_joins is None:
                joins = self._engine.add_joins(specs)
            else:
                joins = await self._cluster_joins.add(specs)
        except JoinError as error:
            raise error.with_text(request.text) from None
        self.on_joins()
        return pb.AddJoinReply(header=self._served.header(), joins=map(encode.join, joins))

    async def drop_join(self, request: pb.DropJoinRequest, _context: Context) -> pb.DropJoinReply:
        """Drop a join."""
        spec = None if self._cluster_joins is None else self._cluster_joins.find(request.name)
        if self._cluster_joins is None or spec is None:
            self._engine.drop_join(request.name)
        else:
            await self._cluster_joins.drop(spec)
        self.on_joins()
        return pb.DropJoinReply(header=self._served.header())

    async def list_joins(self, _request: pb.ListJoinsRequest, _context: Context) -> pb.ListJoinsReply:
        """List the installed joins."""
        return pb.ListJoinsReply(header=self._served.header(), joins=map(encode.join, self._engine.joins()))

    async def explain(self, request: pb.ExplainRequest, _context: Context) -> pb.ExplainReply:
        """Explain how a join is evaluated, or what a read of a range would find."""
        subject = request.WhichOneof("subject")
        if subject is None:
            raise BadRequestError("name a join or a range to explain")
        if subject == "join":
            plan = self._engine.explain_join(request.join)
            return pb.ExplainReply(header=self._served.header(), join=encode.join_explanation(plan))
        bounds = request.range.first, last_of(request.range)
        await self._served.databases.whole([bounds])
        found = self._engine.explain_range(*bounds, now=time.monotonic())
        return pb.ExplainReply(
            header=self._served.header(), range=encode.range_explanation(found, self._served.levels.explain(*bounds))
        )

    async def splits(self, request: pb.SplitsRequest, _context: Context) -> pb.SplitsReply:
        """Return keys at which a range can be cut into parts of similar size."""
        self._served.refuse_many(request.count)
        keys = self._engine.splits(*range_of(request), request.count)
        return pb.SplitsReply(header=self._served.header(), keys=keys)

    async def invalidate(self, request: pb.InvalidateRequest, _context: Context) -> pb.InvalidateReply:
        """Drop the computed rows of a range or of a join."""
        subject = request.WhichOneof("subject")
        if subject is None:
            raise BadRequestError("name a join or a range to invalidate")
        if subject == "join":
            count = self._engine.invalidate_join(request.join)
        else:
            count = self._engine.invalidate(request.range.first, last_of(request.range))
        return pb.InvalidateReply(header=self._served.header(), contexts=count)

    async def stats(self, request: pb.StatsRequest, _context: Context) -> pb.StatsReply:
        """Return what the server holds and has done."""
        collection = await collected(self._engine)
        following = await self.following()
        reply = encode.statistics(collection, self._served.header(), self._served.databases.statistics(), following)
        if self.tallies is not None:
            self.tallies.say(reply)
        if self.heat is not None:
            self.heat.say(reply)
            if request.with_ranges and self._member is not None:
                known, group = self._member.map, self._member.entry.group
                for part in heat_of_ranges(self._engine, self.heat, known, group):
                    reply.heat.ranges.append(part)
                    await asyncio.sleep(0)
        return reply

    async def slow_calls(self, _request: pb.SlowCallsRequest, _context: Context) -> pb.SlowCallsReply:
        """Return the latest slow calls."""
        slow_ms, header = self._served.config.slow_ms, self._served.header()
        return pb.SlowCallsReply(
            header=header, slow_ms=slow_ms, calls=[pb.SlowCall(**facts) for facts in reversed(self.slow)]
        )

    async def save_snapshot(self, _request: pb.SaveSnapshotRequest, _context: Context) -> pb.SaveSnapshotReply:
        """Write the base data into the server's file."""
        saved = await self._snapshots.save()
        return pb.SaveSnapshotReply(
            header=self._served.header(),
            path=str(saved.path),
            key_count=saved.key_count,
            range_count=saved.range_count,
            backed_key_count=saved.backed_key_count,
            file_bytes=saved.file_bytes,
        )

    async def restore_snapshot(self, _request: pb.RestoreSnapshotRequest, _context: Context) -> pb.RestoreSnapshotReply:
        """Put the keys of the server's file."""
        restored = await self._snapshots.restore()
        return pb.RestoreSnapshotReply(
            header=self._served.header(),
            path=str(restored.path),
            key_count=restored.key_count,
            saved_s=restored.saved_s,
        )


def _nothing() -> None:
    return None


async def _nobody() -> encode.PeersFollowing:
    return encode.PeersFollowing()
