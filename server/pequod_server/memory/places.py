"""Places to read requests in: three queues of connections, each with places of its own.

    call -> the queue of its peer -> place -> the request comes   -> given back; the peer is known by its size
                                          -> 20 ms, it has not   -> given on; the peer goes to the late queue

    known   the last request of the peer was small                 many places; a peer has a quarter of them at most
    any     the peer is new, or sends large requests               as many as longest requests fit in
    late    a request of the peer has not come within its 20 ms    one, kept for 100 ms

A transport that sees messages only when they are whole, as gRPC's, cannot tell a request that is on its way from one
that never comes. What it can tell is which connection keeps requests back. So a connection pays for its own calls
alone: it waits behind itself, and its turn comes once for each turn of the others in its queue. The transport tells the
name of the connection and later the size of the request; a transport that knows sizes ahead can do with less.

Where many new connections wait, a place is kept for a shorter time, so that the next one waits no longer than
``_PEERS_AT_EASE`` places of 20 ms: a request that was sent at once needs one or two milliseconds.

Rejected: to count each request as the longest, and one queue for all. 60 calls a second that sent nothing then kept all
others waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from pequod.engine import LimitExceededError

_Task: TypeAlias = "asyncio.Task[Any]"

#: A request that has not come after this time gives its place to the next one.
_PLACE_S: Final = 0.02
#: In the late queue, after this time: it is beside the others, and where requests come slowly, all are read at once.
_LATE_PLACE_S: Final = 0.1
#: No place is kept for less than this, however many connections wait.
_PLACE_MIN_S: Final = 0.001
#: With more waiting connections in a queue, its places are kept for a shorter time.
_PEERS_AT_EASE: Final = 8
#: A small request: gRPC holds this much of any request before it is read.
_SMALL_BYTES: Final = 64 << 10
#: One place of the known queue for this many bytes, since a peer that is known for small requests may send a large one.
_KNOWN_BYTES: Final = 256 << 10
_KNOWN_MIN: Final = 4
#: A peer has this share of a queue's places at most.
_SHARE: Final = 4
#: This many connections without calls are remembered as known.
_NAMES_MAX: Final = 10_000
#: This many calls of late peers may wait while memory is short: 20 KiB each.
_WAITING_MIN: Final = 500
#: Of this many late peers, the one with most calls makes way.
_LOOKED_AT: Final = 64


class PlaceQueue:
    """Peers that wait for the places of one kind.

    Invariants:
        1. ``free`` and the counts in ``held`` make ``places``; no count is 0 or above ``share``.
        2. ``waiting`` has the peers of this queue with waiting calls, in the order of their turns.
        3. A place is free only if each waiting peer holds its share.
    """

    __slots__ = ("_place_s", "free", "held", "places", "share", "waiting")

    def __init__(self, places: int, place_s: float) -> None:
        self._place_s = place_s
        self.places = self.free = places
        self.share = max(places // _SHARE, 1)
        self.held: dict[Peer, int] = {}
        self.waiting: dict[Peer, None] = {}

    def take(self, peer: Peer) -> None:
        """Give a peer a free place."""
        self.free -= 1
        self.held[peer] = self.held.get(peer, 0) + 1

    def may_take(self, peer: Peer) -> bool:
        """Return whether a peer may have one more place."""
        return self.free > 0 and self.held.get(peer, 0) < self.share

    def release(self, peer: Peer) -> None:
        """Take a place back."""
        self.free += 1
        if self.held[peer] == 1:
            del self.held[peer]
        else:
            self.held[peer] -= 1

    def serve(self) -> None:
        """Give free places to the peers that wait."""
        # Few peers are passed over: those that hold their share, of which a queue has no more than 7.
        while self.free and (peer := next(filter(self.may_take, self.waiting), None)) is not None:
            admitted = next(iter(peer.waiting))
            del peer.waiting[admitted], self.waiting[peer]
            if peer.waiting:
                self.waiting[peer] = None
            # One that is cancelled has left, though its task has not run since.
            if not admitted.done():
                self.take(peer)
                admitted.set_result(self)

    def place_s(self) -> float:
        """Return how long a place is kept for a request that does not come."""
        if len(self.waiting) <= _PEERS_AT_EASE:
            return self._place_s
        return max(self._place_s * _PEERS_AT_EASE / len(self.waiting), _PLACE_MIN_S)


class Peer:
    """A connection with calls that read or wait."""

    __slots__ = ("call_count", "is_known", "late", "name", "queue", "waiting")

    def __init__(self, name: str, queue: PlaceQueue, *, is_known: bool) -> None:
        self.name = name
        #: Where its calls wait.
        self.queue = queue
        #: Whether its last request was small.
        self.is_known = is_known
        self.call_count = 0
        #: The calls that wait, by what tells them of their place, the oldest first.
        self.waiting: dict[asyncio.Future[PlaceQueue], _Task] = {}
        #: The calls that have given their places on, the oldest first.
        self.late: dict[_Task, None] = {}


class Places:
    """The places of one server.

    Args:
        reading_bytes: What all requests that are being read may take.
        longest_bytes: The longest request.

    Invariants:
        1. ``_peers`` has the peers with calls that read or wait, and ``_known_names`` at most ``_NAMES_MAX`` others.
        2. A peer is in the late queue if and only if it has late calls, else in the known queue if it is known.
        3. ``late`` has the late calls of all peers, the oldest first.
    """

    def __init__(self, reading_bytes: int, longest_bytes: int) -> None:
        self._known = PlaceQueue(max(reading_bytes // _KNOWN_BYTES, _KNOWN_MIN), _PLACE_S)
        self._any = PlaceQueue(max(reading_bytes // longest_bytes, 1), _PLACE_S)
        self._late = PlaceQueue(1, _LATE_PLACE_S)
        self._peers: dict[str, Peer] = {}
        self._known_names: dict[str, None] = {}
        self._late_peers: dict[Peer, None] = {}
        #: The calls that have given their places on.
        self.late: dict[_Task, None] = {}

    def reading(self, name: str) -> Reading:
        """Return the context in which a call of a peer reads its request."""
        return Reading(self, name)

    def enter(self, name: str) -> Peer:
        """Count a call of a peer."""
        peer = self._peers.get(name)
        if peer is None:
            is_known = name in self._known_names
            self._peers[name] = peer = Peer(name, self._known if is_known else self._any, is_known=is_known)
        peer.call_count += 1
        return peer

    def leave(self, peer: Peer) -> None:
        """Count it no more; what is known of the peer is remembered for a while."""
        peer.call_count -= 1
        if peer.call_count:
            return
        del self._peers[peer.name]
        self._known_names.pop(peer.name, None)
        if peer.is_known:
            self._known_names[peer.name] = None
            if len(self._known_names) > _NAMES_MAX:
                del self._known_names[next(iter(self._known_names))]

    async def wait(self, peer: Peer, task: _Task) -> PlaceQueue:
        """Wait for a place, and return the queue that it belongs to."""
        admitted: asyncio.Future[PlaceQueue] = asyncio.get_running_loop().create_future()
        peer.waiting[admitted] = task
        peer.queue.waiting[peer] = None
        try:
            return await admitted
        except BaseException:
            if admitted.done() and not admitted.cancelled():
                self.release(admitted.result(), peer)
            elif peer.waiting.pop(admitted, None) is not None and not peer.waiting:
                del peer.queue.waiting[peer]
            raise

    def release(self, queue: PlaceQueue, peer: Peer) -> None:
        """Give a place back."""
        queue.release(peer)
        queue.serve()

    def add_late(self, peer: Peer, task: _Task) -> None:
        """Note that a request has not come."""
        peer.is_known = False
        peer.late[task] = self.late[task] = None
        self._late_peers[peer] = None
        self.settle(peer)

    def remove_late(self, peer: Peer, task: _Task) -> None:
        """Note that a late call waits no longer; it may have been removed before."""
        if task not in self.late:
            return
        del self.late[task], peer.late[task]
        if not peer.late:
            del self._late_peers[peer]

    def settle(self, peer: Peer) -> None:
        """Move a peer to the queue where it belongs now."""
        queue = self._late if peer.late else self._known if peer.is_known else self._any
        before = peer.queue
        if queue is before:
            return
        peer.queue = queue
        if peer.waiting:
            del before.waiting[peer]
            queue.waiting[peer] = None
            queue.serve()

    def surplus(self, late_min: int) -> list[_Task]:
        """Return the calls that are to end while memory is short.

        Args:
            late_min: This many late calls may stay.
        """
        waiting = [task for peer in self._late.waiting for task in peer.waiting.values()]
        return [
            *islice(self.late, max(len(self.late) - late_min, 0)),
            *waiting[: max(len(waiting) - _WAITING_MIN, 0)],
        ]

    def make_way(self, error: LimitExceededError, calls: AbstractSet[_Task]) -> bool:
        """End one of some calls whose peer keeps requests back, with an error; return whether there was one."""
        looked_at = islice(self._late_peers, _LOOKED_AT)
        for peer in sorted(looked_at, key=lambda peer: len(peer.late) + len(peer.waiting), reverse=True):
            admitted = next((admitted for admitted, task in peer.waiting.items() if task in calls), None)
            task = next(filter(calls.__contains__, peer.late), None)
            # The last late call goes last: without it, nothing is known of the calls that wait.
            if task is not None and (len(peer.late) > 1 or admitted is None):
                self.remove_late(peer, task)
                self.settle(peer)
            elif admitted is not None:
                # It is cancelled with its task, and so is passed over from now on.
                task = peer.waiting.pop(admitted)
                if not peer.waiting:
                    del peer.queue.waiting[peer]
            else:
                continue
            task.cancel(error)
            return True
        return False

    def _check(self) -> None:
        for queue in (self._known, self._any, self._late):
            assert queue.free + sum(queue.held.values()) == queue.places
            assert all(0 < count <= queue.share for count in queue.held.values())
            assert all(peer.queue is queue and peer.waiting for peer in queue.waiting)
            assert not any(map(queue.may_take, queue.waiting))
        for peer in self._peers.values():
            assert peer.call_count >= len(peer.waiting) + len(peer.late)
            assert peer.queue is (self._late if peer.late else self._known if peer.is_known else self._any)
            assert (peer in peer.queue.waiting) == bool(peer.waiting)
            assert (peer in self._late_peers) == bool(peer.late)
        assert len(self._known_names) <= _NAMES_MAX
        assert len(self.late) == sum(len(peer.late) for peer in self._late_peers)


class Reading:
    """A call that reads its request: it has a place until the request is there, or for a moment.

    A class, not a generator, since each unary call has one: it takes a third of the time.
    """

    __slots__ = ("_name", "_peer", "_places", "_queue", "_task", "_timer", "size_bytes")

    _peer: Peer
    _task: _Task
    _timer: asyncio.TimerHandle

    def __init__(self, places: Places, name: str) -> None:
        self._places = places
        self._name = name
        #: The queue of the place that it has; None if it has none.
        self._queue: PlaceQueue | None = None
        #: The size of the request, to be set once it is there.
        self.size_bytes = 0

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._peer = peer = self._places.enter(self._name)
        queue = peer.queue
        if queue.may_take(peer):
            queue.take(peer)
        else:
            try:
                queue = await self._places.wait(peer, task)
            except asyncio.CancelledError as error:
                self._places.leave(peer)
                if (refusal := refusal_of(error)) is not None:
                    raise refusal from None
                raise
        self._queue = queue
        self._timer = asyncio.get_running_loop().call_later(queue.place_s(), self._give_on)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        places, peer, queue = self._places, self._peer, self._queue
        if queue is None:
            places.remove_late(peer, self._task)
        else:
            self._timer.cancel()
        if kind is None:
            peer.is_known = self.size_bytes <= _SMALL_BYTES
        places.settle(peer)
        if queue is not None:
            places.release(queue, peer)
        places.leave(peer)
        if isinstance(error, asyncio.CancelledError) and (refusal := refusal_of(error)) is not None:
            raise refusal from None

    def _give_on(self) -> None:
        queue, self._queue = self._queue, None
        assert queue is not None
        self._places.add_late(self._peer, self._task)
        self._places.release(queue, self._peer)


def refusal_of(error: asyncio.CancelledError) -> LimitExceededError | None:
    """Return the error with which the task of this call was cancelled; None if its client cancelled it."""
    if not error.args or not isinstance(error.args[0], LimitExceededError):
        return None
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    return error.args[0]
