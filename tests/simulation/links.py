"""Links between simulated machines: messages take a while, arrive in order, and may never arrive.

    network.connect("server 1", "database") -> End ====== End -> the database's handler

    cut        messages between two machines are lost from now on, and neither end is told
    heal       new connections work again; those that lost a message stay silent
    reset      the connections between two machines break, and both ends are told
    half-open  the connections between two machines break, and only one end is told

A connection that lost a message delivers nothing after it, as TCP would not. Its ends learn of that by a timeout.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

#: Serves one connection; when it returns or fails, the connection is closed.
Handler = Callable[["End"], Awaitable[None]]


class ConnectionLostError(Exception):
    """The connection is gone; whether the last messages arrived is not known."""


class End:
    """One end of a connection.

    Invariants:
        1. Messages are received in the order in which the other end sent them, without gaps.
    """

    def __init__(self, network: Network, here: str, there: str) -> None:
        self._network = network
        self.here = here
        self.there = there
        #: The other end.
        self.peer: End | None = None
        self._inbox: deque[object] = deque()
        self._news = asyncio.Event()
        #: When the last message that was sent arrives, and how many have not arrived yet.
        self._arrives_s = 0.0
        self._under_way = 0
        #: A message to this end was lost.
        self.is_deaf = False
        self.is_lost = False

    def send(self, message: object) -> None:
        """Send a message; it arrives later, or never.

        Raises:
            ConnectionLostError: This end knows that the connection is gone.
        """
        if self.is_lost:
            raise ConnectionLostError(f"{self.here} -> {self.there}")
        self._under_way += 1
        self._deliver(lambda peer: peer._receive(message))

    async def room(self, most: int, wait_s: float) -> None:
        """Wait until fewer than ``most`` messages of this end are under way.

        Raises:
            ConnectionLostError: The connection is gone, or nothing arrived for ``wait_s``.
        """
        while self._under_way >= most:
            await self._changed(wait_s)

    def close(self) -> None:
        """Close the connection; the other end is told after a while, if the link works."""
        if not self.is_lost:
            self._deliver(End.lose)
            self.lose()

    def _deliver(self, act: Callable[[End], None]) -> None:
        peer, loop = self.peer, asyncio.get_running_loop()
        assert peer is not None
        if self._network.is_cut(self.here, self.there):
            peer.is_deaf = True
        # Timers of one moment have no order, but messages have.
        self._arrives_s = max(self._arrives_s + 1e-6, loop.time() + self._network.delay_s())
        loop.call_at(self._arrives_s, self._arrive, peer, act)

    @staticmethod
    def _arrive(peer: End, act: Callable[[End], None]) -> None:
        if not peer.is_deaf:
            act(peer)

    def lose(self) -> None:
        """Learn that the connection is gone; what has arrived can still be received."""
        self.is_lost = True
        self._news.set()

    def _receive(self, message: object) -> None:
        assert self.peer is not None
        self.peer._under_way -= 1
        self.peer._news.set()
        if not self.is_lost:
            self._inbox.append(message)
            self._news.set()

    async def receive(self, wait_s: float) -> Any:
        """Return the next message.

        Raises:
            ConnectionLostError: The connection is gone, or nothing came for ``wait_s``.
        """
        while not self._inbox:
            await self._changed(wait_s)
        return self._inbox.popleft()

    async def _changed(self, wait_s: float) -> None:
        if self.is_lost:
            raise ConnectionLostError(f"{self.here} <- {self.there}")
        self._news.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            raise ConnectionLostError(f"{self.here} <- {self.there}: silent for {wait_s:g} s") from None


class Network:
    """The machines and the links between them.

    Args:
        slowest_s: A message takes up to this long, and mostly much less.
    """

    def __init__(self, random: Random, *, slowest_s: float = 0.05) -> None:
        self._random = random
        self._slowest_s = slowest_s
        self._handlers: dict[str, Handler] = {}
        self._cut: set[frozenset[str]] = set()
        self._ends: list[End] = []
        self._tasks: list[asyncio.Task[None]] = []

    def delay_s(self) -> float:
        """Draw how long a message takes."""
        return 0.0001 + self._slowest_s * self._random.random() ** 4

    def listen(self, machine: str, handler: Handler) -> None:
        """Have a machine serve the connections to it."""
        self._handlers[machine] = handler

    def connect(self, here: str, there: str) -> End:
        """Return this end of a new connection; if the link is cut, nothing will be heard of the other one."""
        near, far = End(self, here, there), End(self, there, here)
        near.peer, far.peer = far, near
        self._ends = [end for end in self._ends if not end.is_lost]
        self._ends += [near, far]
        self._tasks = [task for task in self._tasks if not task.done()]
        task = asyncio.get_running_loop().create_task(self._serve(far), name=f"{there} serves {here}")
        self._tasks.append(task)
        return near

    async def _serve(self, end: End) -> None:
        try:
            await self._handlers[end.here](end)
        except ConnectionLostError:
            pass
        finally:
            end.close()

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether messages between two machines are lost."""
        return frozenset((one, other)) in self._cut

    def cut(self, one: str, other: str) -> None:
        """Lose all messages between two machines from now on."""
        self._cut.add(frozenset((one, other)))

    def heal(self) -> None:
        """Let all links work again."""
        self._cut.clear()

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two machines; both ends are told."""
        for end in self._between(one, other):
            end.lose()

    def half_open(self, told: str, other: str) -> None:
        """Break the connections between two machines; the ends at ``other`` are not told."""
        for end in self._between(told, other):
            if end.here == told:
                end.lose()
            else:
                end.is_deaf = True

    def neighbours(self, machine: str) -> list[str]:
        """Return the machines that one is connected with."""
        return sorted({end.there for end in self._ends if end.here == machine})

    def _between(self, one: str, other: str) -> list[End]:
        return [end for end in self._ends if {end.here, end.there} == {one, other}]
