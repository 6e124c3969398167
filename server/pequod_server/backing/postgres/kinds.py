"""How JSON shows the types of PostgreSQL: a domain as the type below it, arrays and composites by what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import asyncpg

from pequod_server.backing.values import Array, Composite, Kind

_TYPES: Final = """
SELECT t.oid, t.typname, t.typtype::text AS type, t.typcategory::text AS category, t.typelem, t.typbasetype,
       t.typdelim::text AS delimiter,
       (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS names,
       (SELECT array_agg(a.atttypid ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) AS types
FROM pg_type t WHERE t.oid = ANY($1)
"""
#: Arrays by their category, with a text of their own.
_VECTORS: Final = ("int2vector", "oidvector")


class Kinds:
    """The kinds of types, by their numbers."""

    def __init__(self) -> None:
        self._types: dict[int, asyncpg.Record] = {}

    async def read(
        self,
        connection: asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record],
        types: Iterable[int],
    ) -> None:
        """Read what is to be known of types, and of those in them."""
        wanted = set(types)
        while wanted := wanted - self._types.keys():
            rows = await connection.fetch(_TYPES, list(wanted))
            self._types.update((row["oid"], row) for row in rows)
            wanted = {oid for row in rows for oid in _inner(row)}

    def kind(self, oid: int) -> Kind:
        """Return the kind of a type that was read."""
        row = self._types[oid]
        match row["type"], row["category"]:
            case "d", _:
                return self.kind(row["typbasetype"])
            case "c", _:
                return Composite(tuple(row["names"] or ()), tuple(map(self.kind, row["types"] or ())))
            case _, "A" if row["typname"] not in _VECTORS:
                return Array(self.kind(row["typelem"]), self._types[row["typelem"]]["delimiter"])
            case _, "N":
                return "number"
            case _, "B":
                return "boolean"
        match row["typname"]:
            case "json" | "jsonb":
                return "json"
            case "bytea":
                return "bytes"
            case "timestamp" | "timestamptz":
                return "moment"
            case _:
                return "text"


def _inner(row: asyncpg.Record) -> list[int]:
    return [oid for oid in (row["typelem"], row["typbasetype"], *(row["types"] or ())) if oid]
