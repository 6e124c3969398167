"""All that a folder has, taken into an engine: its joins, and its rows in slices; others have their turn in between."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from pequod_grammar import parse

from pequod.engine import Engine, JoinError, JoinSpec, PequodError
from pequod_server.data.disk import Disk
from pequod_server.data.errors import FolderError
from pequod_server.data.opening import damaged
from pequod_server.data.rows import RowsError, StoredRows

log = logging.getLogger("pequod.data")

#: A slice takes some ms.
_ROWS_A_SLICE = 4096


class FolderLoading:
    """The start of an engine from the folder of its disk.

    Args:
        keeps_joins: Whether the joins that clients add are the folder's: those of a cluster are in its map.
    """

    def __init__(self, engine: Engine, disk: Disk, *, keeps_joins: bool) -> None:
        self._engine = engine
        self._disk = disk
        self._keeps_joins = keeps_joins
        #: How many rows were taken in, and about how many there are.
        self.loaded = self.expected = 0

    async def run(self) -> None:
        """Open the folder, and take in what it has.

        Requires:
            The engine has the joins of the settings, and no rows.

        Raises:
            FolderError, DamagedError: It cannot be used, or what it has does not fit the settings.
        """
        begun_s = time.monotonic()
        rows = self._disk.open()
        folder = self._disk.folder
        own = {join.spec for join in self._engine.joins()}
        try:
            meta, self.expected = rows.meta(), rows.count()
            if self._keeps_joins:
                self._add_joins(meta.joins)
            await self._take(rows)
            deadlines, ids = list(rows.deadlines()), list(rows.ids())
        except RowsError as error:
            raise damaged(folder, error) from error
        # In one turn with `begin`: what is due already goes from the folder as well.
        self._engine.restore_deadlines(deadlines)
        self._engine.go_on_from(max(meta.position, self._engine.revision))
        self._disk.ids.begin(ids)
        self._disk.begin(meta.joins, self._kept(own))
        facts = {"folder": str(folder.path), "keys": self.loaded, "seconds": round(time.monotonic() - begun_s, 2)}
        log.info("the data are loaded", extra=facts)

    def _kept(self, own: set[JoinSpec]) -> Callable[[], str]:
        """Return what tells the joins that the folder is to have: all but those of the settings."""
        if not self._keeps_joins:
            return str
        return lambda: "".join(f"{join.spec};\n" for join in self._engine.joins() if join.spec not in own)

    def _add_joins(self, text: str) -> None:
        if not text:
            return
        try:
            self._engine.add_joins(parse(text))
        except JoinError as error:
            reason = f"its joins do not go with those of the settings: {error.with_text(text)}"
            raise FolderError(self._disk.folder.path, reason) from error

    async def _take(self, rows: StoredRows) -> None:
        for keys, values in rows.chunks(_ROWS_A_SLICE):
            try:
                self._engine.put_all(keys, values)
            except PequodError as error:
                reason = f"its rows do not go with the settings: {error}"
                raise FolderError(self._disk.folder.path, reason) from error
            self.loaded += len(keys)
            await asyncio.sleep(0)
