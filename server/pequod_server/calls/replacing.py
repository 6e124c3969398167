"""The calls by which a join of this server takes the place of another: begun by one, looked at and ended.

ReplaceJoin --> engine.begin_replacement --> BuildingInSlices
ListReplacements, EndReplacement             one at a time; the latest that ended are listed
"""

from __future__ import annotations

import secrets
from collections import deque

from pequod_grammar import parse_one
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine, JoinError, JoinSpec, NotReplaceableError
from pequod_server.calls.building import ENDED_MAX, BuildingInSlices, Shown
from pequod_server.calls.served import ServedEngine
from pequod_server.joins import JoinLimits, joins_of_settings
from pequod_server.wire.handlers import Context


class ReplaceCalls:
    """Answers ReplaceJoin, ListReplacements and EndReplacement of a server that has its joins for itself."""

    def __init__(self, served: ServedEngine, building: BuildingInSlices) -> None:
        self._served = served
        self._engine: Engine = served.engine
        self._building = building
        self._join_limits = JoinLimits(served.config)
        #: The latest ones, the newest first.
        self._shown: deque[Shown] = deque(maxlen=ENDED_MAX)

    async def replace(self, request: pb.ReplaceJoinRequest, _context: Context) -> pb.ReplaceJoinReply:
        """Begin to put a join in the place of another, or return how far that is."""
        self._refuse(request.name)
        try:
            replacement = self._engine.begin_replacement(
                request.name, wanted_spec(request, self._engine, self._join_limits)
            )
        except JoinError as error:
            raise error.with_text(request.text) from None
        shown = next((one for one in self._shown if one.replacement is replacement), None)
        if shown is None:
            shown = Shown(replacement, secrets.randbits(63))
            self._shown.appendleft(shown)
            self._building.begin()
        return pb.ReplaceJoinReply(header=self._served.header(), replacement=shown.message())

    async def list_all(self, _request: pb.ListReplacementsRequest, _context: Context) -> pb.ListReplacementsReply:
        """List the replacement under way and the latest that ended."""
        shown = [one.message() for one in self._shown]
        return pb.ListReplacementsReply(header=self._served.header(), replacements=shown)

    async def end(self, request: pb.EndReplacementRequest, _context: Context) -> pb.EndReplacementReply:
        """End a replacement that is not in its place yet."""
        replacement = self._engine.replacement
        if replacement is not None and replacement.name == request.name:
            self._engine.end_replacement(replacement, "it was cancelled")
        return pb.EndReplacementReply(header=self._served.header())

    async def stop(self) -> None:
        """End what is under way; the old join stays."""
        await self._building.stop()

    def _refuse(self, name: str) -> None:
        """Refuse to replace a join that the settings bring back at the next start.

        Raises:
            NotReplaceableError: It is one.
        """
        if self._served.config.data is None:
            return
        fixed = joins_of_settings(self._served.config)
        if any(join.name == name and join.spec in fixed for join in self._engine.joins()):
            raise NotReplaceableError(
                name,
                "it is in the settings, which would install it at the next start beside what the folder of data keeps; "
                "change it there and start again, or take it out and add it by a client",
            )


def wanted_spec(request: pb.ReplaceJoinRequest, engine: Engine, limits: JoinLimits) -> JoinSpec:
    """Return the join that a request wants in the place of another.

    Raises:
        JoinError: Its text is malformed.
        LimitExceededError: Its text is too long.
        UnknownJoinError, NotReplaceableError: What the join was before is not known.
    """
    if request.undo:
        return engine.replaced_spec(request.name)
    limits.refuse_text(request.text)
    return parse_one(request.text)
