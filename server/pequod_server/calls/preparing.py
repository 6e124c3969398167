"""The calls by which a join of a cluster's map takes the place of another, and this server's part in it.

    ReplaceJoin --> map 5: replacement 5 --> each compute builds it, and tells the others: prepared 5
                    map 6: it is in its place     put there by the first compute that sees that all have prepared it

A compute that dies is not waited for once its lease has ended; one that starts in between has prepared it at once, for
nothing was read of it. So nothing depends on the server that was asked. Servers that go by an older map are waited for
as long as `AddJoin` does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.cluster.map import JoinReplacement
from pequod.engine import Engine, JoinError, PequodError
from pequod_server.backing.turns import ended
from pequod_server.calls.building import ENDED_MAX, BuildingInSlices, Shown
from pequod_server.calls.replacing import wanted_spec
from pequod_server.calls.served import ServedEngine
from pequod_server.cluster.joins import ClusterJoins, under_way, unprepared
from pequod_server.cluster.member import Member, laggards
from pequod_server.joins import JoinLimits
from pequod_server.wire.handlers import Context

log = logging.getLogger("pequod.server")

#: How long servers that go by an older map are waited for.
_SPREAD_S: Final = 5.0
#: How long the first compute has to change the map when all have prepared the join, before the next one does.
_TURN_S: Final = 1.0
#: The new join is built this often for what reads have had computed of the old one meanwhile.
_AGAIN_S: Final = 1.0


class ClusterReplaceCalls:
    """Answers ReplaceJoin, ListReplacements and EndReplacement of a server of a cluster, and prepares what they begin.

    Invariants:
        1. While the engine has a replacement under way that the map has, `_task` prepares it.
    """

    def __init__(self, served: ServedEngine, building: BuildingInSlices, joins: ClusterJoins, member: Member) -> None:
        self._served = served
        self._engine: Engine = served.engine
        self._building = building
        self._joins = joins
        self._member = member
        self._join_limits = JoinLimits(served.config)
        #: Replacements that this server has prepared, the newest first, by the versions that name them.
        self._shown: deque[Shown] = deque(maxlen=ENDED_MAX)
        #: The version that names the last replacement that was seen to have ended, and when that was.
        self._ended = (0, 0.0)
        self._task: asyncio.Task[None] | None = None
        member.on_taken_in = self._look

    async def replace(self, request: pb.ReplaceJoinRequest, _context: Context) -> pb.ReplaceJoinReply:
        """Have all computes put a join in the place of another, or return how far that is."""
        try:
            replaced = await self._joins.replace(request.name, wanted_spec(request, self._engine, self._join_limits))
        except JoinError as error:
            raise error.with_text(request.text) from None
        return pb.ReplaceJoinReply(header=self._served.header(), replacement=self._message(replaced))

    async def list_all(self, _request: pb.ListReplacementsRequest, _context: Context) -> pb.ListReplacementsReply:
        """List the replacement under way, or the last one, and those before it that this server has prepared."""
        last = self._member.map.replacement
        listed = [] if last is None else [self._message(last)]
        listed += [one.message() for one in self._shown if last is None or one.id != last.version]
        return pb.ListReplacementsReply(header=self._served.header(), replacements=listed)

    async def end(self, request: pb.EndReplacementRequest, _context: Context) -> pb.EndReplacementReply:
        """End a replacement that is not in its place yet."""
        await self._joins.end_replacement(request.name, "it was cancelled")
        return pb.EndReplacementReply(header=self._served.header())

    async def stop(self) -> None:
        """End this server's part; the others go on."""
        if self._task is not None:
            await ended((self._task,))
        await self._building.stop()

    def _message(self, replaced: JoinReplacement) -> pb.Replacement:
        """Return a replacement of the map as a message; it has ended once the servers go by the map that says so."""
        names = [join.name for join in self._engine.joins() if str(join.spec) in (replaced.old, replaced.new)]
        shown = next((one for one in self._shown if one.id == replaced.version), None)
        message = pb.Replacement(age_s=0) if shown is None else shown.message()
        message.id, message.join, message.text = replaced.version, names[0] if names else message.join, replaced.new
        message.in_place, message.ended = replaced.is_in_place, replaced.ended
        state = self._member.state
        if not replaced.ended:
            message.waits_for[:] = [*unprepared(state, replaced.version), *laggards(state, replaced.version)]
        elif self._ended[0] == replaced.version and time.monotonic() < self._ended[1] + _SPREAD_S:
            message.waits_for[:] = laggards(state, state.map.version)
        if replaced.ended and message.waits_for:
            message.in_place, message.ended = False, ""
        return message

    # This server's part.

    def _look(self) -> None:
        """See what the map that was just taken in says of a replacement."""
        last, present = self._member.map.replacement, self._engine.replacement
        if last is not None and last.ended and self._ended[0] != last.version:
            self._ended = last.version, time.monotonic()
        if present is not None and last is not None and not last.ended:
            if self._shown and self._shown[0].id == last.version:
                self._shown[0].replacement = present
            else:
                self._shown.appendleft(Shown(present, last.version))
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._prepare(), name="pequod replacement prepared")
        elif present is None:
            # The server drops the rows of the old join.
            self._building.begin()

    async def _prepare(self) -> None:
        """Build what the map wants to have in its place until it is there, and see to it that it comes there."""
        since_s = time.monotonic()
        while (coming := under_way(self._member.map)) is not None and self._engine.replacement is not None:
            await self._building.begin()
            if self._member.entry.prepared != coming.version:
                await self._member.say_prepared(coming.version)
                since_s = time.monotonic()
            if self._is_prepared(coming, since_s):
                await self._put_in_place(coming)
            await self._member.changed(_AGAIN_S)
        self._building.begin()

    def _is_prepared(self, coming: JoinReplacement, since_s: float) -> bool:
        """Return whether all servers that are there have prepared a replacement."""
        state = self._member.state
        is_spread = time.monotonic() >= since_s + _SPREAD_S or not laggards(state, coming.version)
        return is_spread and not unprepared(state, coming.version)

    async def _put_in_place(self, coming: JoinReplacement) -> None:
        """Change the map, unless a compute before this one, by their ids, has done so within its turn."""
        prepared = [server.id for server in self._member.state.servers if server.prepared == coming.version]
        turns = prepared.index(self._member.entry.id)
        for _ in range(turns):
            if under_way(self._member.map) != coming:
                return
            await self._member.changed(_TURN_S)
        try:
            await self._joins.put_in_place(coming.version)
        except PequodError as error:
            extra = {"at": self._member.place, "reason": str(error)}
            log.warning("a join that is prepared is not put in its place by this server", extra=extra)
