"""A home or a node of etcd is killed before and after each step of a move, and comes back: the move ends well."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pequod_server.cluster.operating import ClusterEditor
from pequod_server.homes.compute.channel import GrpcPeerChannel

from pequod import Client
from pequod.cli import cluster_move
from pequod.errors import ClusterMapError, PequodError
from tests.cluster.conftest import Etcd
from tests.cluster.test_commands import Servers, servers
from tests.cluster.test_moves_killed import PATIENCE_S, begun, databases

__all__ = ["databases", "servers"]

#: A move changes the map, writes two pages, and changes the map three times.
STEPS = 6


class Killing:
    """Calls back before or after one of the steps of a move: the first of them has the number 0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: float | None = None
        self.kill: Callable[[], None] = lambda: None
        for kind, name in ((ClusterEditor, "change"), (GrpcPeerChannel, "write")):
            monkeypatch.setattr(kind, name, self._killing(getattr(kind, name)))

    def _killing(self, step: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def carry_out(*args: Any, **settings: Any) -> Any:
            left = self.left
            self.left = None if left is None or left < 1 else left - 1
            if left == 0:
                self.kill()
            done = await step(*args, **settings)
            if left == 0.5:
                self.kill()
            return done

        return carry_out


async def moved(place: str, bounds: tuple[bytes, bytes]) -> None:
    """Move a range, again and again until it has come."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        editor = ClusterEditor(place)
        try:
            await cluster_move.move_range(editor, bounds, "b", copied=False)
        except PequodError as error:
            if isinstance(error, ClusterMapError) and "it is in b already" in str(error):
                return
            assert time.monotonic() < end_s, str(error)
            await asyncio.sleep(0.5)
        else:
            return
        finally:
            await editor.close()


def put(client: Client, key: bytes, value: bytes) -> None:
    """Put a row, again and again until it is taken."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.put(key, value)
        except PequodError as error:
            assert time.monotonic() < end_s, str(error)
            time.sleep(0.2)
        else:
            return


@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", ["h1", "h2", "etcd"])
def test_what_is_killed_at_a_step_comes_back_and_nothing_is_lost(
    servers: Servers, etcd: Etcd, databases: dict[str, list[str]], victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = servers.place
    compute = begun(servers, databases)
    killing = Killing(monkeypatch)
    killed = []

    def kill() -> None:
        killed.append(victim)
        if victim == "etcd":
            etcd.leader.kill()
            etcd.start()
            return
        servers.signal(victim, signal.SIGKILL)
        servers.wait(victim)
        servers.start(victim, *databases[victim], listen=servers.addresses[victim])

    killing.kill = kill
    with Client(compute, timeout_s=60.0) as client:
        for number in range(2 * STEPS):
            table = b"p|%02d|" % number
            rows = {b"%s%04d" % (table, row): b"%d" % row for row in range(600)}
            client.multi_put(rows)
            killing.left = number / 2
            asyncio.run(moved(place, (table, table[:-1] + b"}")))
            assert len(killed) == number + 1
            put(client, table + b"0007", b"changed")
            rows[table + b"0007"] = b"changed"
            with Client(servers.addresses["h2"]) as after:
                assert dict(after.scan(prefix=table)) == rows
            assert dict(client.scan(prefix=table)) == rows
