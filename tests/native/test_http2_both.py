"""Both sides of the native core's HTTP/2 with each other: any order of what they do, and bytes in any cut."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from pequod.native import core
from pequod.native.http2 import new_session, why_absent
from pequod.native.http2.client import ClientEvent, End, new_client_session
from tests.native.shaken_client import shake_client

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
_CALLS = 60
_MESSAGE_MAX, _WINDOW = 1 << 20, 1 << 16


class _Sides:
    """A client with random calls, and a server that answers each with what was made for it."""

    def __init__(self, seed: int) -> None:
        assert why_absent() is None
        self.rnd = random.Random(seed)
        self.client = new_client_session(b"x", b"both", _MESSAGE_MAX, is_secure=False, window_bytes=_WINDOW)
        self.server = new_session(_MESSAGE_MAX, 10_000, 50, _WINDOW)
        #: By stream: the messages of requests, those of replies, and those that came.
        self.sent: dict[int, list[bytes]] = {}
        self.replies: dict[int, list[bytes]] = {}
        self.got: dict[int, list[Any]] = {}
        self.ended: set[int] = set()
        self._at_server: dict[int, list[bytes]] = {}

    def _message(self) -> bytes:
        return self.rnd.randbytes(self.rnd.choice([0, 3, 300, 30_000, 200_000]))

    def begin(self) -> None:
        """Begin a call: with one message or several, for one reply or several."""
        is_unary = self.rnd.random() < 0.5
        first = self._message() if is_unary or self.rnd.random() < 0.5 else None
        number = self.client.open(b"/s/Call", None, None, first, is_unary)
        self.sent[number] = [] if first is None else [first]
        self.got[number], self.replies[number] = [], [self._message() for _ in range(1 if is_unary else 4)]
        if first is None:
            for _ in range(3):
                self.sent[number].append(self._message())
                self.client.send(number, self.sent[number][-1])
            self.client.finish(number)

    def take(self) -> None:
        """Take a message of each stream of replies that has one."""
        for number in self.replies.keys() - self.ended:
            if len(self.replies[number]) > 1 and isinstance(taken := self.client.take(number), bytes):
                self.got[number].append(taken)

    def send(self, most: int) -> None:
        """Pass bytes of the client on, and answer what is there as a whole."""

        def receive(data: bytes) -> None:
            for event in self.server.receive(data):
                if event is not None and event[0] == 0:
                    self._at_server[event[1]] = []

        self._pass(self.client.output(most), receive)
        for number, received in list(self._at_server.items()):
            while isinstance(request := self.server.take(number), bytes):
                received.append(request)
            if request is False:
                assert received == self.sent[number]
                for one in self.replies[number]:
                    self.server.send(number, one)
                self.server.finish(number, None, None)
                del self._at_server[number]
        self._note(self.client.events())

    def receive(self, most: int) -> None:
        """Pass bytes of the server on."""
        self._pass(self.server.output(most), lambda data: self._note(self.client.receive(data)))

    def _pass(self, data: bytes, take: Callable[[bytes], None]) -> None:
        while data:
            size = self.rnd.choice([1, 9, 1000, 1 << 20])
            take(data[:size])
            data = data[size:]

    def _note(self, events: list[tuple[int, int, Any]]) -> None:
        for kind, number, detail in events:
            if kind in (ClientEvent.MESSAGE, ClientEvent.DONE):
                self.got[number].append(detail)
            if kind == ClientEvent.ENDED:
                end = End(*detail)
                assert end.status == 0
                self.got[number] += end.rest
            if kind in (ClientEvent.ENDED, ClientEvent.DONE):
                self.ended.add(number)


@pytest.mark.parametrize("seed", range(5))
def test_random_calls_come_whole(seed: int) -> None:
    sides = _Sides(seed)
    while len(sides.ended) < _CALLS:
        match sides.rnd.randrange(4):
            case 0 if len(sides.sent) < _CALLS:
                sides.begin()
            case 1:
                sides.take()
            case 2:
                sides.send(1 << 16)
            case _:
                sides.receive(1 << 16)
    assert sides.got == sides.replies
    client = sides.client
    assert (client.stream_count, client.unread_bytes, client.unsent_bytes) == (0, 0, 0)
    client.close()
    sides.server.close()


def test_damaged_connections_of_a_client_leave_nothing() -> None:
    for seed in range(300):
        shake_client(seed)
