"""The request ids of a home on their way with a range: what comes again at the new home is not done again.

    while writes go on    all ids, then those that have come since, until these are few
    writes are refused    the last ones, after the last changes of rows; then the range comes

The ids of all ranges of the old home go along. Each is of a write that was done at the old home, and stays true at the
new one, also when the range does not come in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod_server.cluster.followed_home import HomeAccess
from pequod_server.homes.messages import id_parts_message, id_parts_of
from pequod_server.once.parts import PAGE_ROWS, IdPart

#: Writes go on once this many parts, or fewer, were new in a pass over them.
_FEW: Final = 500
_PASSES_MAX: Final = 10
#: A message has one part, or fewer bytes of them than this, and up to `PAGE_ROWS`.
_MESSAGE_BYTES: Final = 1 << 20


class IdCopy:
    """The request ids of one home.

    Args:
        move: The number of the move.
    """

    def __init__(self, old: HomeAccess, new: HomeAccess, move: int) -> None:
        self._old = old
        self._new = new
        self._move = move
        self._since = b""
        #: The parts that the new home has, by their ids: homes tell some of them twice.
        self._sent: dict[bytes, bytes] = {}
        #: How many parts were carried.
        self.count = 0

    async def come_near(self) -> None:
        """Carry the ids while writes go on, until few are left. If they come too fast, the last pass takes longer."""
        for _ in range(_PASSES_MAX):
            if await self.carry() <= _FEW:
                return

    async def carry(self) -> int:
        """Have the new home remember what was done at the old one before this call; return how many parts were new.

        Raises:
            PequodError: A home does not answer, or refuses.
        """
        count = 0
        while True:
            page = await self._old.channel.ids(pb.PeerIdsRequest(since=self._since))
            fresh = [part for part in id_parts_of(page.parts) if self._sent.get(part.id) != part.outcomes]
            for some in _messages(fresh):
                request = pb.PeerTakeIdsRequest(parts=id_parts_message(some), move=self._move)
                await self._new.channel.take_ids(request)
            self._sent.update((part.id, part.outcomes) for part in fresh)
            count += len(fresh)
            self._since = page.next
            if not page.more:
                self.count += count
                return count


def _messages(parts: Sequence[IdPart]) -> Iterator[list[IdPart]]:
    """Yield parts in messages that servers take."""
    some: list[IdPart] = []
    size = 0
    for part in parts:
        size += len(part.id) + len(part.outcomes)
        if some and (size > _MESSAGE_BYTES or len(some) == PAGE_ROWS):
            yield some
            some, size = [], len(part.id) + len(part.outcomes)
        some.append(part)
    if some:
        yield some
