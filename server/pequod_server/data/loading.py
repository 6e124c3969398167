"""The start of an engine from a folder: its joins, and its rows, most of them beside the calls of clients.

open      the joins; the names of the tables; the rows that are always here (of no table, of tables that joins
compute keys of)
fill      the first rows before the first call, the others between calls; what a read needs meanwhile comes first
whole     all rows are here: the tables are like those of a server without a folder
beyond    memory is short before that: ranges come and go as reads need them; so do those of a table that outgrows
memory later
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from pequod_grammar import parse

from pequod.engine import UNLIMITED, Engine, JoinError, JoinSpec, PequodError, Range, prefix_end
from pequod.errors import BackingUnavailableError
from pequod.escapes import shown
from pequod.language.spec import DELIMITER
from pequod_server.backing.turns import Turns, ended
from pequod_server.data.disk import Disk
from pequod_server.data.errors import FolderError
from pequod_server.data.library import RowsError
from pequod_server.data.opening import damaged
from pequod_server.data.ranges import Ranges
from pequod_server.data.rows import StoredRows
from pequod_server.data.sweeping import Sweeping
from pequod_server.setting_kinds import MIB

log = logging.getLogger("pequod.data")

#: A slice takes some ms.
_ROWS_A_SLICE: Final = 4096
_BYTES_A_SLICE: Final = 4 * MIB
#: The rows that are here before the first call, 0.2 s of work. Tests make it small.
ROWS_AT_FIRST: Final = 100_000
#: The share of the engine's memory that rows may fill ahead of reads. The rest is for what is computed from them.
_FILL_SHARE: Final = 0.8


class FolderLoading:
    """The start of an engine from the folder of its disk.

    Args:
        keeps_joins: Whether the joins that clients add are the folder's: those of a cluster are in its map.
        known: The joins of the settings of a server with several workers, as text; None: it is one process.
    """

    def __init__(self, engine: Engine, disk: Disk, *, keeps_joins: bool, known: str | None = None) -> None:
        self._engine = engine
        self._known = known
        #: The joins of the folder that are not of these settings: they belong into the map of the workers, or of the
        #: cluster.
        self.others: list[JoinSpec] = []
        self._disk = disk
        #: Takes in what reads lack.
        self.ranges = Ranges(engine, disk)
        self._path = disk.path
        self._beside: asyncio.Task[None] | None = None
        self._keeps_joins = keeps_joins
        #: How many rows were taken in, and about how many there are.
        self.loaded = self.expected = 0
        #: The ranges that are left to fill.
        self._left: list[Range] = []
        self._paged: list[bytes] = []
        self._begun_s = time.monotonic()
        #: Whether all rows are here; None: they are still filled in.
        self.is_whole: bool | None = None

    async def run(self) -> None:
        """Open the folder, and take in what has to be here before the first call.

        Requires:
            The engine has the joins of the settings, and no rows.

        Raises:
            FolderError, DamagedError: It cannot be used, or what it has does not fit the settings.
        """
        rows = self._disk.open()
        own = {join.spec for join in self._engine.joins()}
        try:
            meta, self.expected = rows.meta(), rows.count()
            if self._keeps_joins:
                self._add_joins(meta.joins)
            else:
                if self._known is not None:
                    own = set(parse(self._known) if self._known else ())
                self.others = [join for join in (parse(meta.joins) if meta.joins else ()) if join not in own]
            await self._find_tables(rows)
            ids = list(rows.ids())
        except RowsError as error:
            raise damaged(self._disk.folder, error) from error
        self._engine.go_on_from(max(meta.position, self._engine.revision))
        self._disk.ids.begin(ids)
        self._disk.begin(meta.joins, self._kept_joins(own))
        self._engine.keep(self._tell_paged)
        self._engine.count_by(self.ranges.counted)
        try:
            await self._fill(ROWS_AT_FIRST)
        except BackingUnavailableError:
            # The disk's own error says which rows are damaged.
            assert self._disk.failed is not None, "it has begun"
            await self._disk.failed
            raise
        self._beside = asyncio.create_task(self._go_on(), name="pequod data")

    @property
    def progress(self) -> str:
        """How far it is, in words, until calls may come."""
        if self._beside is not None:
            return ""
        return f"loading {self._path}: {self.loaded} of about {self.expected} keys"

    async def end(self) -> None:
        """Take in no more rows ahead of reads, and end the disk; see `Disk.end`."""
        if self._beside is not None:
            await ended((self._beside,))
        await self._disk.end()

    async def _go_on(self) -> None:
        """Fill in the other rows between the calls of clients; sweep what expires on disk while not all are here."""
        try:
            await self._fill(None)
        except PequodError as error:
            # Reads have what they lack taken in by themselves, and say what is wrong.
            log.warning("rows cannot be taken in ahead of reads", extra={"reason": str(error)})
            self._end(is_whole=False)
        # An error has ended the server.
        with suppress(BackingUnavailableError):
            await Sweeping(self._engine, self._disk).run()

    def _tell_paged(self, name: bytes) -> None:
        facts = {"folder": str(self._path), "table": shown(name)}
        log.info("a table has outgrown memory: its ranges come and go as reads need them", extra=facts)

    def _kept_joins(self, own: set[JoinSpec]) -> Callable[[], str]:
        """Return what tells the joins that the folder is to have: all but those of the settings."""
        if not self._keeps_joins and self._known is None:
            return lambda: "".join(f"{join};\n" for join in self.others)
        return lambda: "".join(f"{join.spec};\n" for join in self._engine.joins() if join.spec not in own)

    def leave_joins(self, known: Collection[JoinSpec]) -> None:
        """Leave the joins of the folder to the map of a cluster, which has them; the folder has none from then on.

        Args:
            known: The joins of the map.

        Raises:
            FolderError: The map lacks some of them, which would be lost. The folder is as it was.
        """
        if lacking := [f"`{join}`" for join in self.others if join not in known]:
            raise FolderError(
                self._path,
                f"it has joins that the cluster's map lacks: {', '.join(lacking)}. A server of a cluster goes by the "
                "map alone, and would lose them. Add them in the cluster with `pequod join add`, and start again. To "
                "have the server by itself, start it without `cluster`, and without the variable PEQUOD_CLUSTER",
            )
        if self.others:
            self.others.clear()
            self._disk.note_joins()

    def _add_joins(self, text: str) -> None:
        if not text:
            return
        try:
            self._engine.add_joins(parse(text))
        except JoinError as error:
            reason = f"its joins do not go with those of the settings: {error.with_text(text)}"
            raise FolderError(self._path, reason) from error

    async def _find_tables(self, rows: StoredRows) -> None:
        """Have the engine page the tables of the folder, and take in the rows that are of no paged table."""
        engine, turns = self._engine, Turns()
        key = rows.first_from(b"")
        while key is not None:
            name, delimiter, _ = key.partition(DELIMITER)
            if delimiter and engine.may_page(name):
                prefix = name + DELIMITER
                end = prefix_end(prefix)
                assert end is not None, "tables have ends"
                engine.page(name)
                self._paged.append(name)
                self._left.append(Range(prefix, end))
                key = rows.first_from(end)
            else:
                key = self._take_others(rows, key)
                await asyncio.sleep(0)
            await turns.give_if_due()

    def _take_others(self, rows: StoredRows, key: bytes) -> bytes | None:
        """Take in rows from a key on, up to the first one of a table to be paged; return the first key behind them."""
        piece = rows.some(key, None, _ROWS_A_SLICE, _BYTES_A_SLICE)
        may_page: dict[bytes, bool] = {}
        stop = 0
        for one in piece.keys:
            name, delimiter, _ = one.partition(DELIMITER)
            if delimiter and name not in may_page:
                may_page[name] = self._engine.may_page(name)
            if delimiter and may_page[name]:
                break
            stop += 1
        keys = piece.keys[:stop]
        try:
            self._engine.put_all(keys, piece.values[:stop])
        except PequodError as error:
            reason = f"its rows do not go with the settings: {error}"
            raise FolderError(self._path, reason) from error
        # Rows that are due go once a command comes, from the folder as well: the disk takes changes before.
        self._engine.restore_deadlines(rows.deadlines_within(keys[0], keys[-1] + b"\0"))
        self.loaded += stop
        if stop < len(piece.keys):
            return piece.keys[stop]
        return None if piece.is_end else rows.first_from(keys[-1] + b"\0")

    async def _fill(self, rows_max: int | None) -> None:
        """Take in rows in their order, while there is memory for them.

        Args:
            rows_max: How many; None: all.
        """
        turns, left = Turns(), rows_max
        while self._left and self.is_whole is None and (left is None or left > 0):
            if self._is_full:
                self._end(is_whole=False)
                return
            one = self._left[0]
            piece = self.ranges.take_ahead(one)
            self.loaded += len(piece.keys)
            left = None if left is None else left - len(piece.keys)
            if piece.is_end:
                del self._left[0]
            else:
                self._left[0] = Range(piece.keys[-1] + b"\0", one.last)
            await turns.give_if_due()
        if not self._left and self.is_whole is None:
            self._hold_whole()

    @property
    def _is_full(self) -> bool:
        ledger = self._engine.ledger
        return ledger.limit_bytes < UNLIMITED and ledger.total_bytes > ledger.limit_bytes * _FILL_SHARE

    def _hold_whole(self) -> None:
        """Have the tables be like others, unless some of their rows have gone since."""
        ranges = [(name, name + DELIMITER) for name in self._paged]
        if self._is_full or any(self._engine.absent(prefix, prefix_end(prefix)) for _, prefix in ranges):
            self._end(is_whole=False)
            return
        for name in self._paged:
            self._engine.hold_whole(name)
        self._end(is_whole=True)

    def _end(self, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        seconds = round(time.monotonic() - self._begun_s, 2)
        facts = {"folder": str(self._path), "keys": self.loaded, "seconds": seconds}
        if is_whole:
            log.info("the data are loaded", extra=facts)
        else:
            log.info("the data are more than memory has room for: the rest is loaded as reads need it", extra=facts)
