"""Parts are split and handed over while managers and readers go on: each is one transaction over the ledger.

    before    karma from karma|      owner m1   epoch 4   position 70
    after     karma from karma|      owner m1   epoch 5   position 70     up to karma|k
              karma from karma|k     owner m1   epoch 5   position 70

No row of a table is touched. A transaction of the holder that comes first moves both halves; one that comes later finds
another epoch and writes nothing, so each change is in one half, once. The holder has the halves at its next beat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pequod.escapes import escaped
from pequod_views.errors import NOTHING_INSTALLED, TargetUnfitError
from pequod_views.load import PartLoad
from pequod_views.parts import Place
from pequod_views.targets import RowChange, Target

#: Parts of one view at most, so that splitting ends.
PARTS_MAX = 256
#: What both halves have of the part.
_SHARED = "fingerprint, owner, leased_until, server_id, revision, token, current_at, trouble"


@dataclass(frozen=True, slots=True)
class CountedPart:
    """A part as the ledger has it, with the changes that it has had so far."""

    view: str
    first: bytes
    last: bytes | None
    owner: str
    epoch: int
    changes: int
    is_held: bool

    @property
    def place(self) -> Place:
        """What names the part."""
        return self.view, self.first

    def load(self, rows_per_s: float) -> PartLoad:
        """Return the part with its load; one that nobody holds is nobody's."""
        return PartLoad(self.place, self.owner if self.is_held else "", self.epoch, rows_per_s)

    def holds(self, key: bytes) -> bool:
        """Return whether a key lies in the part."""
        return self.first <= key and (self.last is None or key < self.last)


class PartMover:
    """Splits parts of one database, and hands them over."""

    def __init__(self, target: Target) -> None:
        self._target = target
        dialect = target.dialect
        self._now = dialect.now_s
        self._key = f"CAST($3 AS {dialect.bytes_cast})"
        self._parts, self._managers, self._log = (dialect.prefix + name for name in ("parts", "managers", "log"))

    async def counted(self) -> list[CountedPart]:
        """Return all parts.

        Raises:
            TargetUnfitError: Nothing is installed.
        """
        async with self._target.transaction() as transaction:
            if not await transaction.table_columns(self._parts):
                raise TargetUnfitError(self._target.name, NOTHING_INSTALLED)
            rows = await transaction.fetch(
                f"SELECT view, first, last, owner, epoch, changes, owner <> '' AND leased_until >= {self._now}"
                f" FROM {self._parts} ORDER BY view, first"
            )
        return [
            CountedPart(view, first, last, owner, epoch, changes, bool(is_held))
            for view, first, last, owner, epoch, changes, is_held in rows
        ]

    async def managers_of(self, owners: Sequence[str]) -> list[str]:
        """Return the managers that live and serve the same views as these, in order."""
        async with self._target.transaction() as transaction:
            rows = await transaction.fetch(
                f"SELECT name, serves FROM {self._managers} WHERE alive_until >= {self._now} ORDER BY name"
            )
        served = {serves for name, serves in rows if name in owners}
        return [name for name, serves in rows if serves in served]

    async def split(self, view: str, at: bytes) -> CountedPart:
        """Split the part of a view that holds a key, there; return it as it was.

        Raises:
            TargetUnfitError: No part holds the key, or one begins there; the part has rows that do not fit, or the
                view has as many parts as it may. Nothing has changed.
        """
        async with self._target.transaction() as transaction:
            await transaction.take_turn()
            await transaction.lock_parts([view])
            rows = await transaction.fetch(
                "SELECT view, first, last, owner, epoch, changes, unfit"
                f" FROM {self._parts} WHERE view = $1 ORDER BY first",
                view,
            )
            parts = [
                (CountedPart(name, first, last, owner, epoch, changes, is_held=True), unfit)
                for name, first, last, owner, epoch, changes, unfit in rows
            ]
            part, unfit = next(((one, count) for one, count in parts if one.holds(at)), (None, 0))
            if part is None:
                raise self._refused(f"no part of {view} holds the key {escaped(at)}")
            if part.first == at:
                raise self._refused(f"a part of {view} begins at {escaped(at)} already")
            if unfit:
                # Which half has them is not known, and their numbers tell which rows are looked at.
                raise self._refused(f"{unfit} rows of the part do not fit their columns: mend them first, see `status`")
            if len(rows) >= PARTS_MAX:
                raise self._refused(f"{view} has {len(rows)} parts, and may have no more")
            await transaction.fetch(
                f"INSERT INTO {self._parts} (view, first, last, epoch, changes, {_SHARED})"
                f" SELECT view, {self._key}, last, epoch + 1, 0, {_SHARED} FROM {self._parts}"
                " WHERE view = $1 AND first = $2",
                *part.place,
                at,
            )
            await transaction.fetch(
                f"UPDATE {self._parts} SET last = {self._key}, epoch = epoch + 1 WHERE view = $1 AND first = $2",
                *part.place,
                at,
            )
            # The log of the new part begins with the position that it was given.
            await transaction.fetch(
                f"INSERT INTO {self._log}"
                f" SELECT view, first, epoch, owner, {self._now}, '', 0, server_id, revision, 0, 1"
                f" FROM {self._parts} WHERE view = $1 AND first = {self._key} AND server_id <> ''"
                f" AND EXISTS (SELECT 1 FROM {self._log} WHERE view = $1 AND first = $2)",
                *part.place,
                at,
            )
        return part

    async def hand_over(self, parts: Sequence[PartLoad], moving: Mapping[Place, str]) -> list[Place]:
        """Give parts to other managers, all in one transaction; return those that were still held as is said.

        The new holders begin with their next beats, and the old ones write nothing more.
        """
        change = RowChange(
            self._parts,
            "owner = $5, epoch = epoch + 1",
            "view = $1 AND first = $2 AND owner = $3 AND epoch = $4",
            "view, first",
        )
        leaving = [part for part in sorted(parts, key=lambda one: one.place) if part.place in moving]
        async with self._target.transaction() as transaction:
            found = await transaction.change_each(
                change, [(*part.place, part.owner, part.epoch, moving[part.place]) for part in leaving]
            )
        return [(view, first) for view, first in found]

    def _refused(self, reason: str) -> TargetUnfitError:
        return TargetUnfitError(self._target.name, reason)
