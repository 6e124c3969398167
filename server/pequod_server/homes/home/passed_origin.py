"""A server that has its base data from homes, or from such a server, and tells other servers of them.

    home ==== feed of what is held ==== this server ==== feeds of what they hold ==== computes

The feed of its homes is an event stream as that of a database: so loads, ring, positions and ages are those of a home.
It tells of the ranges alone that are held here. What a compute wants stays held, also where the engine has evicted its
rows; and of a range that is held only since a later position than that of the compute, changes may be missing, so that
the compute is told to read it again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pequod.engine import Engine
from pequod_server.backing import KeyRange, Place
from pequod_server.backing.turns import Turns, in_turns
from pequod_server.database.databases import Databases
from pequod_server.homes.compute.store import SILENCE_S, PequodStore
from pequod_server.homes.home.origin import DatabaseOrigin
from pequod_server.homes.home.relay import Relay

#: Times that the held ranges are looked through while they are lost; then computes read everything again.
_TRIES_MAX: Final = 8


class PassedOrigin(DatabaseOrigin):
    """The base data of a server whose database are homes.

    Args:
        store: These homes.
        life: Names this life of the server, so that no server is behind itself.
    """

    def __init__(
        self,
        engine: Engine,
        databases: Databases,
        tables: Sequence[bytes],
        relay: Relay,
        store: PequodStore,
        life: int,
    ) -> None:
        super().__init__(engine, databases, tables, relay)
        self._store = store
        self._life = store.life = life
        self.needs_feed = True

    @property
    def relays(self) -> tuple[int, ...]:  # type: ignore[override]
        """The lives of the servers through which its changes come, this one first."""
        return (self._life, *self._store.relays)

    @property
    def shown_position(self) -> int:
        """The position of the engine: commits of which nothing is held are no events of the relay."""
        return self.position

    @property
    def trouble(self) -> str:
        """Why computes have to go on elsewhere: its own feed does not stand for a while; empty if they need not."""
        status = self._store.status
        if status.state == "ok" or time.monotonic() - status.since_s < SILENCE_S:
            return ""
        return f"no home answers it: {status.error}"

    def wake(self) -> None:
        """Have the relay keep changes from now on: they are those of all that is held."""
        if not self.relay.is_awake:
            self.relay.begin(self.history, self.position)
            self.relay.complete_from = self.position
            self.relay.unwanted = []
            self._loader.flights.below = self.relay
            self._store.held.keep_beginnings()

    async def unknown_since(self, ranges: Sequence[KeyRange], since: Place) -> list[KeyRange] | None:
        """Return the ranges that are not held, or were not at a place; see `DatabaseOrigin.unknown_since`.

        Requires:
            The relay's subscriber wants them, so that none of them is released meanwhile.
        """
        held = self._store.held
        for _ in range(_TRIES_MAX):
            lapses = held.lapses
            unknown = await in_turns(held.unknown_in_steps(ranges, since.position), Turns())
            if lapses == held.lapses:
                return unknown
        return None
