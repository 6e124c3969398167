"""What transactions of databases that speak SQL have in common: tables of views, locks of parts, and rows in chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from pequod_views.definition import KEY_COLUMN, DurableView, names_of
from pequod_views.parts import Place, ViewPart
from pequod_views.targets.sums import RangeSum
from pequod_views.targets.target import PartChunk, TargetDialect, quoted


class SqlTransaction(ABC):
    """A transaction that runs statements."""

    dialect: ClassVar[TargetDialect]

    @abstractmethod
    async def fetch(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""

    @abstractmethod
    async def table_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their types."""

    @abstractmethod
    async def has_unique(self, table: str, column: str) -> bool:
        """Return whether a column is unique by itself."""

    async def lock_parts(self, views: Sequence[str]) -> None:
        """Have all parts of views for this transaction alone, before anything of the views is changed."""
        if self.dialect.for_update and views:
            places = ", ".join(f"${number}" for number in range(1, len(views) + 1))
            await self.fetch(
                f"SELECT 1 FROM {self.dialect.prefix}parts WHERE view IN ({places})"
                f" ORDER BY view, first{self.dialect.for_update}",
                *views,
            )

    async def lock_part(self, place: Place, last: bytes | None) -> tuple[str, int] | None:
        """Lock a part that ends there; return its position, None if there is no such part."""
        rows = await self.fetch(
            f"SELECT server_id, revision FROM {self.dialect.prefix}parts AS part WHERE {self._is_part('$3')}"
            f"{self.dialect.for_update}",
            *place,
            last,
        )
        return (rows[0][0], rows[0][1]) if rows else None

    async def has_table(self, view: DurableView) -> bool:
        """Return whether the table of a view is there."""
        return bool(await self.table_columns(view.table))

    async def table_problems(self, view: DurableView) -> list[str]:
        """Return what is wrong with the table of a view; nothing if all is well."""
        found = await self.table_columns(view.table)
        if not found:
            return [f"{view.name}: there is no table {view.table}; run `pequod views install`"]
        types = [self.dialect.bytes_type, *(self.dialect.column_type(column.kind) for column in view.columns)]
        problems = []
        for name, kind in zip(names_of(view.columns), types, strict=True):
            if name not in found:
                problems.append(f"{view.name}: the table {view.table} has no column {name} ({kind})")
            elif found[name].lower() != kind.lower():
                problems.append(f"{view.name}: {view.table}.{name} is of type {found[name]}, and should be {kind}")
        if KEY_COLUMN in found and not await self.has_unique(view.table, KEY_COLUMN):
            problems.append(f"{view.name}: {view.table}.{KEY_COLUMN} is not the primary key")
        return problems

    async def make_table(self, view: DurableView) -> None:
        """Make the table of a view."""
        columns = [f"{quoted(column.name)} {self.dialect.column_type(column.kind)}" for column in view.columns]
        key = f"{KEY_COLUMN} {self.dialect.bytes_type} PRIMARY KEY NOT NULL"
        await self.fetch(
            f"CREATE TABLE {quoted(view.table)} ({', '.join([key, *columns])}){self.dialect.table_options}"
        )

    async def mend_table(self, view: DurableView) -> None:
        """Make the table of a view if there is none, and the columns that it lacks, without their cells."""
        found = await self.table_columns(view.table)
        if not found:
            await self.make_table(view)
            return
        for column in view.columns:
            if column.name not in found:
                kind = self.dialect.column_type(column.kind)
                await self.fetch(f"ALTER TABLE {quoted(view.table)} ADD COLUMN {quoted(column.name)} {kind}")

    async def drop_table(self, table: str) -> None:
        """Drop the table of a view, if it is there."""
        await self.fetch(f"DROP TABLE IF EXISTS {quoted(table)}")

    async def keys_outside(self, view: DurableView) -> list[bytes]:
        """Return the keys of rows outside of the range of a view, which belong to no part."""
        places = f"{KEY_COLUMN} < $1" + ("" if view.last is None else f" OR {KEY_COLUMN} >= $2")
        bounds = [view.first] if view.last is None else [view.first, view.last]
        return [
            row[0] for row in await self.fetch(f"SELECT {KEY_COLUMN} FROM {quoted(view.table)} WHERE {places}", *bounds)
        ]

    async def chunk(
        self, view: DurableView, part: ViewPart, start: bytes, stop: bytes | None, count: int
    ) -> PartChunk | None:
        """Return a part's position and its first rows of a range, of one moment; None if there is no such part."""
        columns = ", ".join(quoted(name) for name in names_of(view.columns))
        found = f"SELECT {columns} FROM {quoted(view.table)} WHERE {self._within} ORDER BY {KEY_COLUMN} LIMIT {count}"
        rows = await self._with_position(found, part, start, stop, order=f" ORDER BY found.{KEY_COLUMN}")
        if not rows:
            return None
        server_id, revision = rows[0][:2]
        return PartChunk(server_id, revision, revision, {row[2]: row[2:] for row in rows if row[2] is not None})

    async def sum_of(self, view: DurableView, part: ViewPart, start: bytes, stop: bytes | None) -> RangeSum | None:
        """Return a part's position and the sum of its rows of a range, of one moment; None if there is no such part."""
        found = (
            f"SELECT count(*) AS row_count, {self.dialect.digests_sum(view)} AS digest"
            f" FROM {quoted(view.table)} WHERE {self._within}"
        )
        rows = await self._with_position(found, part, start, stop)
        if not rows:
            return None
        ((server_id, revision, row_count, digest),) = rows
        return RangeSum(server_id, revision, row_count, int(digest or 0))

    @property
    def _within(self) -> str:
        return f"{KEY_COLUMN} >= $3 AND (CAST($5 AS {self.dialect.bytes_cast}) IS NULL OR {KEY_COLUMN} < $5)"

    def _is_part(self, last: str) -> str:
        """Return the condition of the part $1, $2 that ends at a place, which may be NULL."""
        kind = self.dialect.bytes_cast
        end = f"part.last = {last} OR (part.last IS NULL AND CAST({last} AS {kind}) IS NULL)"
        return f"part.view = $1 AND part.first = $2 AND ({end})"

    async def _with_position(
        self, found: str, part: ViewPart, start: bytes, stop: bytes | None, order: str = ""
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT, each with the position of the part before it; one row if there are none."""
        return await self.fetch(
            f"SELECT part.server_id, part.revision, found.* FROM {self.dialect.prefix}parts AS part"
            f" LEFT JOIN ({found}) AS found ON 1 = 1 WHERE {self._is_part('$4')}{order}",
            part.view,
            part.first,
            start,
            part.last,
            stop,
        )
