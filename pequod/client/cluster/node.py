"""A server of a cluster, as one client sees it: its connection, and whether it answers.

    up --- no sign of life for SILENCE_S, and none to a probe ---> away: reads go to spares
     |  ^                                                            |
     |  `------------- a probe is answered, or a late call ----------|
     `--- a call finds nobody -------------------------------------->'

A server that is away is probed until it answers, with growing pauses. A server that is merely slow is away as well: if
no other answers, calls stay with the one that answered last. Writes stay with it, so that they keep their
order, until its stream of batches breaks; if it is silent for `STALLED_S`, the client breaks the stream.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from pequod.calls import token_of_reply
from pequod.client.columns import Columns, Reply
from pequod.client.connection import ServerConnection
from pequod.client.lanes import Lanes
from pequod.client.stream import Deliver
from pequod.cluster.servers import ServerEntry
from pequod.errors import ClosedError, DeadlineExceededError, PequodError, UnavailableError
from pequod.freshness import After, Freshness

#: How long calls wait for an answer of any kind before the server is probed, and how long a probe waits.
SILENCE_S: Final = 0.2
#: After this time without an answer, writes do not wait for the server any more.
STALLED_S: Final = 3.0
#: The longest pause between probes of a server that is away.
_PROBE_S_MAX: Final = 1.0


class Listener(Protocol):
    """Hears that a server answers, or does not."""

    def changed(self, node: Node) -> None:
        """Note that `is_away` has changed."""


class Node:
    """A server of the cluster, as one client sees it.

    Args:
        connection: Its connection, which does not retry: its calls go to another server instead.

    Invariants:
        1. While calls are under way, or the server is away, a task watches over it.
    """

    def __init__(self, entry: ServerEntry, connection: ServerConnection, listener: Listener) -> None:
        self.entry = entry
        self.connection = connection
        self.is_away = False
        #: Set while the server is away and another one answers, or once it has left the cluster: what waits for it
        #: shall ask another server. The listener sets it.
        self.left = asyncio.Event()
        #: When the server last gave an answer, 0 before the first.
        self.answered_s = 0.0
        #: Batches with writes under way here, and those at other servers in place of this one.
        self.writes = 0
        self.lent = 0
        self._listener = listener
        self._lanes: Lanes = connection.sender()
        self._under_way = 0
        #: When it last gave an answer, or was asked after all calls before were answered.
        self._heard = 0.0
        self._clock = asyncio.get_running_loop().time
        self._watching: asyncio.Task[None] | None = None
        self._token = b""

    @property
    def id(self) -> str:
        """The id of the server in the cluster."""
        return self.entry.id

    def begin(self) -> None:
        """Note that a call goes to the server."""
        if not self._under_way:
            self._heard = self._clock()
        self._under_way += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def end(self, error: BaseException | None) -> None:
        """Note that a call has ended.

        Args:
            error: How it failed; None if it succeeded, or its caller has given up.
        """
        self._under_way -= 1
        if isinstance(error, UnavailableError):
            self._leave()
        elif not isinstance(error, DeadlineExceededError | asyncio.CancelledError | ClosedError):
            self._answer()

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._under_way

    def send(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send commands in the order of sending."""
        self._lanes.send(columns, self._counted(deliver), deadline)

    def send_reached(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads after tokens that the server has reached, in no order with other commands."""
        self._lanes.send_reached(columns, self._counted(deliver), deadline)

    def send_waiting(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads that may wait for their levels, in no order with other commands."""
        self._lanes.send_waiting(columns, self._counted(deliver), deadline)

    def has_reached(self, level: Freshness | None) -> bool:
        """Return whether the latest reply was at this level, so that a read is not likely to wait for it."""
        return level is None or (isinstance(level, After) and token_of_reply(self._token).has(level.token))

    def _counted(self, deliver: Deliver) -> Deliver:
        self.begin()

        def counted(outcome: Reply | PequodError) -> None:
            if isinstance(outcome, PequodError):
                self.end(outcome)
            else:
                self.end(None)
                self._token = outcome.token or self._token
            deliver(outcome)

        return counted

    def lose(self) -> None:
        """Note that a stream of the server has broken; it is away until a probe is answered."""
        self._leave()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def _leave(self) -> None:
        if not (self.is_away or self.connection.is_closed):
            self.is_away = True
            self._listener.changed(self)

    def _answer(self) -> None:
        self._heard = self.answered_s = self._clock()
        if self.is_away:
            self.is_away = False
            self._listener.changed(self)

    async def _watch(self) -> None:
        """Probe the server while it owes an answer, or is away."""
        pause_s = SILENCE_S / 2
        try:
            while (self._under_way or self.is_away) and not self.connection.is_closed:
                await asyncio.sleep(pause_s)
                silent_s = self._clock() - self._heard
                if not self.is_away and (silent_s < SILENCE_S or not self._under_way):
                    continue
                try:
                    await self.connection.probe(SILENCE_S)
                except (UnavailableError, DeadlineExceededError) as error:
                    self._leave()
                    pause_s = min(pause_s * 1.5, _PROBE_S_MAX)
                    if isinstance(error, DeadlineExceededError) and self._under_way and self._is_hopeless(silent_s):
                        self._give_up()
                except ClosedError:
                    return
                else:
                    self._answer()
                    pause_s = SILENCE_S / 2
        finally:
            self._watching = None

    def _is_hopeless(self, silent_s: float) -> bool:
        """Return whether writes shall not wait for the server any more."""
        # Without a connection nothing was sent, so that another server may have it at once.
        return silent_s > STALLED_S or (self.left.is_set() and not self.connection.is_connected)

    def _give_up(self) -> None:
        """End the streams of batches: the outcome of writes that were sent is not known."""
        lanes, self._lanes = self._lanes, self.connection.sender()
        lanes.abandon(UnavailableError(self.connection.target, "it gave no sign of life"))
        self._heard = self._clock()

    async def close(self) -> None:
        """Close the connection; calls under way fail."""
        self.connection.refuse_calls()
        if (task := self._watching) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._lanes.close()
        await self.connection.close()
