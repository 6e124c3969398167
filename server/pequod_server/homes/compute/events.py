"""From the messages of a home's feed to the events of a store.

    messages   [ commit 1 | commit 2 | commit 3, its beginning ]   [ commit 3, its end | commit 4 | position 44 ]
    events     Changes(1 + 2)                                      Changes(3 + 4)  Progress(44)

Small commits are put together, as they may become visible together: an event costs as much as ten changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod_server.backing.store import Changes, Event, KeyRange, Progress, Reload, RowChange
from pequod_server.homes.messages import changes_of, history_of

#: Changes that are put together at most, unless one commit has more.
_TOGETHER_MAX: Final = 512


class PeerEvents:
    """Makes events of the messages of one connection.

    Args:
        stamp: Of the number 0 of this connection; those of later connections are above all of earlier ones.
        everything: Returns what is read again if the home says no less than everything: it may come to be more.
        position: Where the compute is; None: nowhere yet.
        lost: Why everything is read again, whatever the home says; empty if it is not.
    """

    def __init__(
        self, stamp: int, everything: Callable[[], tuple[KeyRange, ...]], position: int | None, lost: str = ""
    ) -> None:
        self._lost = lost
        self._stamp = stamp
        self._everything = everything
        #: The last position that an event had; None before the first.
        self._position: int | None = None
        self._since = position
        #: The beginning of a commit whose end is still to come.
        self._open: list[RowChange] = []

    def of(self, reply: pb.PeerFeedReply) -> Iterator[Event]:
        """Yield the events of a message."""
        history = history_of(reply.history) if reply.HasField("history") else None
        if reply.reload_firsts:
            self._open = []
            self._position = reply.position
            yield Reload(reply.position, self._reloads(reply), reply.reload_reason, history)
            return
        if self._position is None:
            # The feed stands; its commits come behind the place from which it goes on.
            self._position = reply.position if self._since is None else self._since
            if self._lost:
                yield Reload(self._position, self._everything(), self._lost, history)
            else:
                yield Progress(self._position, history=history)
        elif history is not None:
            yield Progress(self._position, history=history)
        if reply.counts:
            yield from self._changes(reply)
        if reply.position > self._position:
            self._position = reply.position
            yield Progress(reply.position)

    def _changes(self, reply: pb.PeerFeedReply) -> Iterator[Changes]:
        changes = changes_of(reply.keys, reply.values, reply.present, reply.deadlines)
        shown = max(reply.shown, default=None)
        together, self._open = self._open, []
        commits: list[tuple[int, int]] = []
        whole, start = len(reply.counts) - reply.partial, 0
        for number, (count, sequence) in enumerate(zip(reply.counts, reply.sequences, strict=True)):
            if number == whole:
                self._open = changes[start:] if number else together + changes
                return
            together += changes[start : start + count]
            start += count
            # A load may hold the first of them and not the last: what it holds must not be applied to it again.
            commits.append((self._stamp + sequence, len(together)))
            if len(together) >= _TOGETHER_MAX or number == whole - 1:
                yield self._made(reply.positions[number], together, commits, shown)
                together, commits = [], []

    def _made(
        self, position: int, changes: list[RowChange], commits: list[tuple[int, int]], shown: int | None
    ) -> Changes:
        self._position = position
        several = tuple(commits) if len(commits) > 1 else ()
        return Changes(position, commits[-1][0], tuple(changes), shown=shown, commits=several)

    def _reloads(self, reply: pb.PeerFeedReply) -> tuple[KeyRange, ...]:
        ranges = []
        for first, last in zip(reply.reload_firsts, reply.reload_lasts, strict=True):
            if not first and not last:
                return self._everything()
            ranges.append(KeyRange(first, last or None))
        return tuple(ranges)
