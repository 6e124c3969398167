"""Compares tables with the server, by checksums and then by rows, beside their managers, and mends what differs.

    a watch of the part      its rows, then every change: of each key the value, and the revision of its last change
    one statement            the part's position P, and the checksum or rows of a range, of one moment
    the watch comes to P     a key that has not changed since has at P the value that the watch knows: so must the table

So a row that is only late is never taken for one that is wrong. A key that changes all the time is left open; its row
is written as a whole each time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Final, Literal

from pequod.client import AsyncClient
from pequod.client.watch_ranges import WatchedRange
from pequod.escapes import escaped
from pequod_views.busy import again_if_busy
from pequod_views.definition import DurableView, TableRow, ViewColumn
from pequod_views.drift import DriftNotes
from pequod_views.errors import UnverifiableError
from pequod_views.origins import OriginNotes, as_origins, demand_same, known
from pequod_views.parts import HeldPart, held_of
from pequod_views.summing import CUT_ANEW, PROGRESS_S, RangeSums, WatchedRows, has_come, row_of
from pequod_views.targets import Target, TargetTransaction

#: Rows of a table that one statement reads.
_CHUNK_ROWS: Final = 5000
#: Drifts that a report names; beyond it they are counted.
_NAMED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Drift:
    """A row that is not what the server has."""

    key: bytes
    kind: Literal["missing", "strange", "other"]
    #: The columns that have other cells.
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case "missing":
                return f"{escaped(self.key)} is missing"
            case "strange":
                return f"{escaped(self.key)} is no row of the view"
            case "other":
                return f"{escaped(self.key)} has another {', '.join(self.columns)}"


@dataclass(slots=True)
class PartVerdict:
    """What the comparison of one part has found."""

    view: str
    first: str
    #: Of the table.
    row_count: int = 0
    #: Keys that changed too often to be compared.
    open_count: int = 0
    drift_count: int = 0
    #: The first of them.
    drifts: list[Drift] = field(default_factory=list)
    #: Rows that were written or deleted.
    repaired_count: int = 0
    #: Why the part could not be compared; empty if it was.
    trouble: str = ""


class Verifier:
    """Compares the parts of a view, and mends them.

    Args:
        wait_s: How long a part may take to come as far as the server is now.
        repairs: Mend what differs.
    """

    def __init__(self, target: Target, client: AsyncClient, *, wait_s: float = 30.0, repairs: bool = False) -> None:
        self._target = target
        self._client = client
        self._wait_s = wait_s
        self._repairs = repairs
        self._parts = f"{target.dialect.prefix}parts"
        self._notes = DriftNotes(target)
        #: The server that a watch from a key is at.
        self._servers: dict[bytes, str] = {}

    async def verify(self, view: DurableView) -> list[PartVerdict]:
        """Compare a view, part by part, and note what is found for the metrics of managers.

        Raises:
            UnverifiableError: Its table is not what the view needs, or it is not installed.
            OtherServerError: The server is not the one of the view.
            TargetAwayError: The database does not answer.
        """
        async with self._target.transaction() as transaction:
            if self._repairs:
                await transaction.mend_table(view)
            if problems := await transaction.table_problems(view):
                raise UnverifiableError("; ".join(problems))
            parts = await self._parts_of(transaction, view)
        if not parts:
            raise UnverifiableError(f"{view.name} is not installed; run `pequod views install`")
        verdicts = [await self._verify_part(view, part) for part in parts]
        await self._look_outside(view, verdicts[0])
        for part, verdict in zip(parts, verdicts, strict=True):
            if not verdict.trouble:
                await self._notes.note(part.part, verdict.drift_count - verdict.repaired_count)
        return verdicts

    async def _parts_of(self, transaction: TargetTransaction, view: DurableView) -> list[HeldPart]:
        if not await transaction.table_columns(self._parts):
            return []
        rows = await transaction.fetch(
            "SELECT view, first, last, fingerprint, epoch, owner, server_id, revision, token"
            f" FROM {self._parts} WHERE view = $1 AND fingerprint = $2 ORDER BY first",
            view.name,
            view.fingerprint,
        )
        return [held_of(row) for row in rows]

    async def _verify_part(self, view: DurableView, held: HeldPart) -> PartVerdict:
        first, last = held.part.first, held.part.last
        verdict = PartVerdict(view.name, escaped(first))
        noted = (await OriginNotes(self._target).of_all([view.name]))[view.name]
        before = await self._anchor(held)
        ranges = [*before, WatchedRange(first, last, rows=True)]
        events = self._client.watch_ranges(ranges, progress_s=PROGRESS_S)
        async with aclosing(events):
            begin = await anext(events)
            demand_same(view.name, noted, known(as_origins(begin.origins)))
            if begin.ended:
                verdict.trouble = next(iter(begin.ended.values()))
                return verdict
            try:
                async with asyncio.timeout(self._wait_s) as patience:
                    watched = WatchedRows(len(before), begin, events)
                    for start, stop in await self._unlike(view, held, watched, verdict):
                        at: bytes | None = start
                        while at is not None:
                            at, found = await self._compare(view, held, watched, at, stop, verdict)
                            if found and self._repairs:
                                repair = partial(self._repair, view, held, watched, found)
                                verdict.repaired_count += await again_if_busy(repair)
                            patience.reschedule(asyncio.get_running_loop().time() + self._wait_s)
            except UnverifiableError as error:
                verdict.trouble = str(error)
            except TimeoutError:
                verdict.trouble = (
                    f"it has not come in {self._wait_s:g} s as far as the server is: "
                    "does a manager run that was started with this definition?"
                )
        return verdict

    async def _anchor(self, held: HeldPart) -> list[WatchedRange]:
        """Return what to watch before a part, so that a cluster has the server watched that its manager watches.

        Revisions of two servers say nothing of each other. Each watch is at the server of its first range, and that of
        a manager begins with one of its parts.
        """
        async with self._target.transaction() as transaction:
            rows = await transaction.fetch(f"SELECT first, server_id, view FROM {self._parts} ORDER BY view, first")
        wanted = {server for first, server, view in rows if (view, first) == held.part.place}
        for first in dict.fromkeys([held.part.first, *(row[0] for row in rows if row[1] in wanted)]):
            one = WatchedRange(first, first + b"\0")
            if first not in self._servers:
                async with aclosing(self._client.watch_ranges([one], progress_s=PROGRESS_S)) as events:
                    self._servers[first] = f"{(await anext(events)).server_id:016x}"
            if self._servers[first] in wanted:
                return [] if first == held.part.first else [one]
        return []

    async def _unlike(
        self, view: DurableView, held: HeldPart, watched: WatchedRows, verdict: PartVerdict
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the ranges of a part whose rows are to be compared: those whose checksums differ."""
        first, last, digest = held.part.first, held.part.last, self._target.dialect.digest(view)
        if digest is None:
            return [(first, last)]
        sums = RangeSums(self._target, view, held.part, watched, digest)
        if (count := await sums.row_count_if_equal(first, last)) is not None:
            verdict.row_count += count
            return []
        bounds, unlike = [first, *watched.bounds(_CHUNK_ROWS), last], list[tuple[bytes, bytes | None]]()
        for start, stop in pairwise(bounds):
            assert start is not None, "only the last bound is open"
            if (count := await sums.row_count_if_equal(start, stop)) is None:
                unlike.append((start, stop))
            else:
                verdict.row_count += count
        return unlike

    async def _compare(
        self,
        view: DurableView,
        held: HeldPart,
        watched: WatchedRows,
        start: bytes,
        end: bytes | None,
        verdict: PartVerdict,
    ) -> tuple[bytes | None, list[Drift]]:
        """Compare the first rows of a range; return where the next ones begin, if there are any, and what differs."""
        revision, had = await self._chunk(view, held, watched, start, end)
        is_end = len(had) < _CHUNK_ROWS
        stop = end if is_end else max(had) + b"\0"
        keys = sorted({*had, *watched.keys_within(start, stop)})
        found = list[Drift]()
        for key in keys:
            if not watched.is_known_at(key, revision):
                verdict.open_count += 1
            elif drift := self._drift(view, key, watched.rows.get(key), had.get(key)):
                found.append(drift)
        verdict.row_count += len(had)
        verdict.drift_count += len(found)
        verdict.drifts += found[: _NAMED_MAX - len(verdict.drifts)]
        return (None if is_end else stop), found

    async def _chunk(
        self, view: DurableView, held: HeldPart, watched: WatchedRows, start: bytes, stop: bytes | None
    ) -> tuple[int, dict[bytes, TableRow]]:
        """Return the position of a part, which is not before the watch began, and rows of the same moment, by key."""
        while True:
            async with self._target.transaction() as transaction:
                found = await transaction.chunk(view, held.part, start, stop, _CHUNK_ROWS)
            if found is None:
                raise UnverifiableError(CUT_ANEW)
            if has_come(found.server_id, found.revision, watched):
                await watched.come_to(found.last_revision)
                return found.revision, found.rows
            await asyncio.sleep(PROGRESS_S)

    def _drift(self, view: DurableView, key: bytes, value: bytes | None, had: TableRow | None) -> Drift | None:
        wanted = row_of(view, key, value)
        if wanted is None:
            return None if had is None else Drift(key, "strange")
        if had is None:
            return Drift(key, "missing")
        cells = zip(view.columns, map(self._target.dialect.stored, wanted[1:]), had[1:], strict=True)
        others = tuple(column.name for column, cell, other in cells if not _are_same(column, cell, other))
        return Drift(key, "other", others) if others else None

    async def _repair(self, view: DurableView, held: HeldPart, watched: WatchedRows, found: Sequence[Drift]) -> int:
        """Write rows as they are at the position of the part, which cannot move meanwhile; return how many."""
        async with self._target.transaction() as transaction:
            position = await transaction.lock_part(held.part.place, held.part.last)
            if position is None:
                raise UnverifiableError(CUT_ANEW)
            server_id, revision = position
            if not has_come(server_id, revision, watched):
                return 0
            await watched.come_to(revision)
            keys = [drift.key for drift in found if watched.is_known_at(drift.key, revision)]
            wanted = {key: row_of(view, key, watched.rows.get(key)) for key in keys}
            if gone := [key for key, row in wanted.items() if row is None]:
                await transaction.delete(view, gone)
            if written := [row for row in wanted.values() if row is not None]:
                await transaction.upsert(view, written)
        return len(keys)

    async def _look_outside(self, view: DurableView, verdict: PartVerdict) -> None:
        """Find rows outside of the range of the view, which belong to no part."""
        async with self._target.transaction() as transaction:
            keys = await transaction.keys_outside(view)
            verdict.drift_count += len(keys)
            verdict.drifts += [Drift(key, "strange") for key in keys[: _NAMED_MAX - len(verdict.drifts)]]
            if keys and self._repairs:
                await transaction.delete(view, keys)
                verdict.repaired_count += len(keys)


def _are_same(column: ViewColumn, one: object, other: object) -> bool:
    """Return whether two cells are equal; a database may write JSON in another way."""
    if column.kind.name == "json" and isinstance(one, str) and isinstance(other, str) and one != other:
        with suppress(ValueError):
            return bool(json.loads(one, parse_float=Decimal) == json.loads(other, parse_float=Decimal))
    return one == other
