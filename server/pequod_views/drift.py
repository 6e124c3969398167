"""What `pequod views verify` has found, in the ledger, so that managers can tell it in their metrics."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pequod_views.busy import again_if_busy
from pequod_views.parts import ViewPart
from pequod_views.targets import Target, TargetTransaction


class DriftNotes:
    """The number of rows of each part that were found other than the server's, and were not mended."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._parts = f"{target.dialect.prefix}parts"

    async def make(self, transaction: TargetTransaction) -> None:
        """Have a ledger of an earlier version take notes."""
        if "drifted" not in await transaction.table_columns(self._parts):
            kind = self._target.dialect.number_type
            await transaction.fetch(f"ALTER TABLE {self._parts} ADD COLUMN drifted {kind} NOT NULL DEFAULT 0")

    async def note(self, part: ViewPart, count: int) -> None:
        """Note what the last comparison of a part has left."""
        await again_if_busy(partial(self._note, part, count))

    async def _note(self, part: ViewPart, count: int) -> None:
        async with self._target.transaction() as transaction:
            await self.make(transaction)
            rows = await transaction.fetch(
                f"SELECT drifted FROM {self._parts} WHERE view = $1 AND first = $2", *part.place
            )
            if rows in ([], [(count,)]):
                return
            # Its manager writes the same row again and again.
            await transaction.lock_part(part.place, part.last)
            await transaction.fetch(
                f"UPDATE {self._parts} SET drifted = $3 WHERE view = $1 AND first = $2", *part.place, count
            )

    async def total(self, views: Iterable[str]) -> int:
        """Return the number of such rows of views."""
        async with self._target.transaction() as transaction:
            if "drifted" not in await transaction.table_columns(self._parts):
                return 0
            rows = await transaction.fetch(f"SELECT view, drifted FROM {self._parts} WHERE drifted > 0")
        wanted = set(views)
        return sum([count for view, count in rows if view in wanted])
