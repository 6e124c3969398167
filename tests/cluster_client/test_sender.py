"""Writes keep their order, whichever servers come and go while they are sent, and fail, and are sent again."""

import asyncio
import random
from typing import cast

import pytest

from pequod.calls import Result
from pequod.client.cluster import sender as sender_module
from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Routes
from pequod.client.cluster.sender import ClusterSender
from pequod.client.columns import Columns, Reply
from pequod.client.stream import Deliver
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import PequodError, UnavailableError


class Home:
    """A home that answers when the test says so, all that it was sent at once, as a stream does."""

    def __init__(self, name: str, applied: list[int]) -> None:
        self.id = name
        self.is_away = False
        self.is_up = True
        self.writes = self.lent = 0
        self.answered_s = 0.0
        self._applied = applied
        self._sent: list[tuple[Columns, Deliver]] = []

    def send(self, columns: Columns, deliver: Deliver, _deadline: float) -> None:
        self._sent.append((columns, deliver))

    def answer(self) -> None:
        sent, self._sent = self._sent, []
        self.is_away = not self.is_up
        for columns, deliver in sent:
            if self.is_up:
                self._applied += map(int, columns.arguments[1::2])
                deliver(Reply(1, 1, 1, [None] * len(columns)))
            else:
                deliver(UnavailableError(self.id, "it is down", is_unapplied=True))


class Cluster:
    """What a sender sees of a cluster whose three homes have all keys."""

    target, timeout_s, retries, is_closed = "homes", 60.0, 1000, False

    def __init__(self, homes: list[Home]) -> None:
        entries = [ServerEntry(one.id, f"{one.id}:1", frozenset({ServerRole.HOME}), group="a") for one in homes]
        known = ClusterMap("test", 1, home_ranges=(HomeRange(b"", None, "a"),))
        nodes = {one.id: cast("Node", one) for one in homes}
        self.routes: Routes | None = Routes(ClusterState.of(known, entries), nodes)

    def learn(self) -> None:
        """The map is known."""

    def learn_newer(self, version: int) -> None:
        """There is no newer map."""


@pytest.mark.parametrize("seed", range(100))
async def test_writes_are_applied_in_the_order_of_sending(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, applied, outcomes = random.Random(seed), list[int](), list[Result | Reply | PequodError]()
    monkeypatch.setattr(Node, "send", lambda home, *sent: home.send(*sent))
    monkeypatch.setattr(sender_module, "pause_s", lambda _tries: draw.choice([0.0, 0.0005, 0.001]))
    homes = [Home(f"h{number}", applied) for number in range(3)]
    sender = ClusterSender(Cluster(homes))
    sent = 0
    for _ in range(80):
        match draw.choice(["put", "put", "answer", "answer", "turn", "come or go"]):
            case "put":
                columns = Columns()
                columns.put(b"p|u1|1", b"%d" % sent)
                sent += 1
                sender.send(columns, outcomes.append)
            case "answer":
                draw.choice(homes).answer()
            case "turn":
                await asyncio.sleep(draw.choice([0.0, 0.001]))
            case "come or go":
                home = draw.choice(homes)
                home.is_up = not home.is_up
    for home in homes:
        home.is_up = True
    while len(outcomes) < sent:
        for home in homes:
            home.answer()
        await asyncio.sleep(0.001)
    assert applied == list(range(sent))
