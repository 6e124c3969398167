"""One load from a home, as messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pequod_proto import pequod_pb2 as pb
from pequod_proto.contract import NEXT_GROUPS_MAX

from pequod.language.missing import NextGroups
from pequod_server.backing.errors import BackingUnavailableError
from pequod_server.backing.store import KeyRange, Loaded, SequenceHorizon
from pequod_server.homes.compute.session import VERSION_MAX, VERSION_MIN, PeerSession

#: Numbers of a home's events, below those of the next connection.
STAMP_BITS: Final = 64


async def load_from(session: PeerSession, ranges: Sequence[KeyRange], next_groups: Sequence[NextGroups]) -> Loaded:
    """Read ranges, which neither overlap nor touch, and perhaps the groups that their keys lead to."""
    request = pb.PeerLoadRequest(
        version_min=VERSION_MIN,
        version_max=VERSION_MAX,
        firsts=[one.first for one in ranges],
        lasts=[one.last or b"" for one in ranges],
        feed=session.number,
        released=session.released_count,
        # What the home does not hear of is asked for in a second load.
        next=[encoded(one) for one in next_groups[:NEXT_GROUPS_MAX]],
    )
    rows: list[tuple[bytes, bytes]] = []
    last: pb.PeerLoadReply | None = None
    async for reply in session.channel.load(request):
        rows += zip(reply.keys, reply.values, strict=True)
        last = reply
    if last is None or not last.HasField("place"):
        raise BackingUnavailableError(f"the home {session.address}", "a load ended before its end")
    horizon = SequenceHorizon(last.place.position, (session.epoch << STAMP_BITS) + last.sequence)
    more = tuple(map(KeyRange, last.more_firsts, last.more_lasts))
    return Loaded(tuple(rows), horizon, last.place.timeline, more)


def encoded(groups: NextGroups) -> pb.PeerNextGroups:
    """Return the message of groups that a read needs next."""
    return pb.PeerNextGroups(
        prefix=groups.prefix,
        before=groups.before,
        after=groups.after,
        width=groups.width or 0,
        first=groups.first,
        last=groups.last or b"",
    )


def decoded(message: pb.PeerNextGroups) -> NextGroups:
    """Return the groups of a message."""
    return NextGroups(
        message.prefix, message.before, message.width or None, message.after, message.first, message.last or None
    )
