"""Keys that expire while they are on disk alone: removed between the calls, though nobody reads them.

    look   the deadlines of the folder, in key order, a slice at a time:  due, and not in memory -> removed
    wait   until the first of the others may be due, and so long that looks take a small share of the time

Nothing is computed from such a key and no watch is over it, so its removal is a change of the folder alone. A key that
is in memory expires there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import islice
from typing import Final

from pequod.engine import Engine
from pequod.engine.base.deadlines import INSTANT_MAX
from pequod.errors import DiskFullError
from pequod_server.backing.turns import Turns
from pequod_server.data.disk import Disk
from pequod_server.data.library import RowsError

log = logging.getLogger("pequod.data")

#: How many deadlines are looked at before others may have their turn: 1 ms, and 1 ms more if all are due. Tests make
#: it small.
KEYS_A_SLICE: Final = 512
#: The shortest time between two looks, and how many times as long as a look it is. Tests make it short.
PAUSE_S: Final = 1.0
_TIMES_AS_LONG: Final = 10


class Sweeping:
    """Removes what is due of the rows that an engine has on its disk alone.

    Invariants:
        1. No key on disk alone expires before ``_first_ms``, or before what the engine says of those that went there
           since the last look.
    """

    __slots__ = ("_disk", "_engine", "_first_ms")

    def __init__(self, engine: Engine, disk: Disk) -> None:
        self._engine = engine
        self._disk = disk
        #: Of all keys on disk alone, which are not known before the first look.
        self._first_ms = 0

    async def run(self) -> None:
        """Look again and again.

        Raises:
            BackingUnavailableError: The folder cannot be read, which ends the server.
        """
        while True:
            took_s = 0.0
            self._first_ms = min(self._first_ms, self._engine.take_first_away_ms())
            is_due = self._first_ms <= self._engine.deadlines.now_ms
            if is_due and self._disk.has_deadlines and self._engine.has_paged:
                begun_s = time.perf_counter()
                try:
                    await self.look()
                except DiskFullError:
                    # There is room for no removal; the next look comes after the pause.
                    self._first_ms = 0
                took_s = time.perf_counter() - begun_s
            await asyncio.sleep(max(PAUSE_S, _TIMES_AS_LONG * took_s))

    async def look(self) -> int:
        """Remove what is due now; return how many keys.

        Raises:
            DiskFullError, BackingUnavailableError: The folder cannot be written, or read.

        Cost:
            2 µs for each deadline of the folder, 2 µs for each key that is due, and 20 µs for each slice.
        """
        self._engine.take_first_away_ms()
        self._first_ms, turns, removed = INSTANT_MAX, Turns(), 0
        first: bytes | None = b""
        while first is not None:
            first, count = self._slice(first)
            removed += count
            await turns.give_if_due()
        if removed:
            log.info("keys that were on disk alone have expired", extra={"keys": removed})
        return removed

    def _slice(self, first: bytes) -> tuple[bytes | None, int]:
        """Look at the deadlines from a key on; return the key to go on with, and how many keys were due."""
        engine, now_ms, removed, last = self._engine, self._engine.deadlines.now_ms, 0, b""
        rows = self._disk.rows()
        try:
            found = list(islice(rows.deadlines(first), KEYS_A_SLICE))
        except RowsError as error:
            raise self._disk.refuse_damage(error) from error
        for last, at_ms in found:
            if not engine.is_away(last):
                continue
            if at_ms <= now_ms:
                engine.expire_away(last)
                removed += 1
            else:
                self._first_ms = min(self._first_ms, at_ms)
        return (None if len(found) < KEYS_A_SLICE else last + b"\0"), removed
