"""The calls by which request ids leave a home with a range that moves, and come to the next one."""

from __future__ import annotations

from pequod_proto import pequod_pb2 as pb

from pequod.errors import BadRequestError
from pequod_server.homes.home.origin import Origin
from pequod_server.homes.messages import id_parts_message, id_parts_of
from pequod_server.homes.rules import HomeRules
from pequod_server.once.parts import IdPage, Remembered
from pequod_server.wire.handlers import Context


class IdCalls:
    """Answers Ids and TakeIds of a home.

    Args:
        rules: Which moves come here; None: it belongs to no cluster, and none does.
    """

    def __init__(self, origin: Origin, rules: HomeRules | None) -> None:
        self._origin = origin
        self._rules = rules

    async def ids(self, request: pb.PeerIdsRequest, _context: Context) -> pb.PeerIdsReply:
        """Return a page of what this home remembers."""
        remembered = self._remembered()
        # A store that takes no writes has nothing to remember.
        page = IdPage((), b"") if remembered is None else await remembered.page(request.since)
        return pb.PeerIdsReply(parts=id_parts_message(page.parts), next=page.next, more=page.has_more)

    async def take_ids(self, request: pb.PeerTakeIdsRequest, _context: Context) -> pb.PeerTakeIdsReply:
        """Remember ids that come with a range."""
        parts, remembered = id_parts_of(request.parts), self._remembered()
        if self._rules is None:
            raise BadRequestError("nothing moves here: this server belongs to no cluster")
        self._rules.refuse_move(request.move)
        if remembered is None:
            raise BadRequestError("the database of this home takes no writes, so it remembers no request ids")
        async with self._rules.writing():
            await remembered.take(parts)
        return pb.PeerTakeIdsReply()

    def _remembered(self) -> Remembered | None:
        if self._origin.relays:
            raise BadRequestError("this server has its base data from other servers, which remember the request ids")
        return self._origin.request_ids
