"""The tables beside the views as records of a topic, and in memory as tables that take statements.

    record    ["parts", "karma", {"hex": "6b61..."}]  ->  {"owner": "m1", "revision": 70, ...}      a row, by its key
              ["schema", "pequod_views_parts"]        ->  {"sql": "CREATE TABLE ..."}               a table

A process has all records that were committed as rows in SQLite. Its statements change these, inside a transaction; the
rows that have changed become records.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pequod_views.targets.target import quoted

#: What names a row of each table; the names of tables have a prefix.
_KEYS: Final = {
    "managers": ("name",),
    "views": ("view",),
    "parts": ("view", "first"),
    "log": ("view", "first", "epoch", "server_id", "revision"),
}
_PREFIX: Final = "pequod_views_"
_SCHEMA: Final = "schema"


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """A row of the ledger that a transaction has changed, as a record."""

    key: bytes
    #: None: it was deleted.
    value: bytes | None
    #: Who had to be kept from changing it: the owner of the part, as it was before. None: nobody.
    fence: str | None


class LedgerMirror:
    """The rows of the ledger, in memory.

    Args:
        now: The present moment by the clock of the brokers, in seconds.

    Invariants:
        1. ``_changed`` has the rows that the present transaction has changed, and nothing that `apply` has.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.create_function("pequod_now", 0, now)
        self.connection.create_function("pequod_changed", -1, self._note)
        self._is_capturing = True
        #: By table and key, the fence of each row as it was before; None for a new row.
        self._changed: dict[tuple[str, tuple[Any, ...]], str | None] = {}
        #: The statements of tables as the topic has them.
        self._schemas: dict[str, str] = {}

    def close(self) -> None:
        """Forget all."""
        self.connection.close()

    def begin(self) -> None:
        """Begin a transaction."""
        self._changed.clear()
        self.connection.execute("BEGIN")

    def commit(self) -> None:
        """Keep what the transaction has changed: the records are in the topic."""
        self.connection.execute("COMMIT")
        self._schemas = self._tables()
        self._changed.clear()

    def rollback(self) -> None:
        """Forget what the transaction has changed."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._changed.clear()

    def run(self, statement: str, arguments: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement of a transaction."""
        word, _, rest = statement.partition(" ")
        if word == "DROP":
            # So that its rows are deleted in the topic as well.
            table = rest.split()[-1]
            if table in self._tables():
                self.connection.execute(f"DELETE FROM {quoted(table)}")
        rows = self.connection.execute(statement, arguments).fetchall()
        if word == "CREATE":
            self._capture()
        return rows

    def apply(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Take over records of other processes, also within a transaction."""
        # Of a key the last one counts. Tables come first: the topic may have kept a row that is older than its table.
        parsed = [
            (json.loads(key), None if value is None else json.loads(value)) for key, value in dict(records).items()
        ]
        self._is_capturing = False
        try:
            for key, value in sorted(parsed, key=lambda one: one[0][0] != _SCHEMA):
                self._apply(key, value)
        finally:
            self._is_capturing = True

    def changed_keys(self) -> set[bytes]:
        """Return the keys of the records that the transaction will leave."""
        return {_key(table, key) for table, key in self._changed}

    def changes(self) -> list[LedgerChange]:
        """Return what the transaction has changed."""
        tables = self._tables()
        found = [
            LedgerChange(_key(_SCHEMA, (table,)), _dumped({"sql": sql}), None)
            for table, sql in tables.items()
            if self._schemas.get(table) != sql
        ]
        found += [LedgerChange(_key(_SCHEMA, (table,)), None, None) for table in self._schemas.keys() - tables.keys()]
        for (table, key), before in self._changed.items():
            row = self._row(table, key) if _PREFIX + table in tables else None
            found.append(
                LedgerChange(_key(table, key), None if row is None else _dumped(row), _fence(table, before, row))
            )
        return found

    def _tables(self) -> dict[str, str]:
        statement = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name LIKE 'pequod_views_%'"
        return dict(self.connection.execute(statement).fetchall())

    def _capture(self) -> None:
        """Have changes of all tables noted."""
        for name in self._tables():
            table = name.removeprefix(_PREFIX)
            for event, row in (("INSERT", "new"), ("UPDATE", "old"), ("DELETE", "old")):
                fence = f"{row}.owner" if table == "parts" and row == "old" else "NULL"
                keys = ", ".join(f"{row}.{column}" for column in _KEYS[table])
                self.connection.execute(
                    f"CREATE TRIGGER IF NOT EXISTS {quoted(f'changed_{event}_{name}')} AFTER {event} ON {quoted(name)}"
                    f" BEGIN SELECT pequod_changed('{table}', {fence}, {keys}); END"
                )

    def _note(self, table: str, fence: str | None, *key: Any) -> None:
        if self._is_capturing:
            self._changed.setdefault((table, key), fence)

    def _row(self, table: str, key: tuple[Any, ...]) -> dict[str, Any] | None:
        places = " AND ".join(f"{column} = ?" for column in _KEYS[table])
        found = self.connection.execute(f"SELECT * FROM {_PREFIX}{table} WHERE {places}", key)
        rows = found.fetchall()
        return dict(zip([one[0] for one in found.description], rows[0], strict=True)) if rows else None

    def _apply(self, key: list[Any], value: dict[str, Any] | None) -> None:
        table, *rest = key
        if table == _SCHEMA:
            self._apply_schema(rest[0], None if value is None else value["sql"])
            return
        name = quoted(_PREFIX + table)
        if _PREFIX + table not in self._schemas:
            # Its table was dropped, and so is the row.
            return
        places = " AND ".join(f"{column} = ?" for column in _KEYS[table])
        self.connection.execute(f"DELETE FROM {name} WHERE {places}", [_cell(one) for one in rest])
        if value is None:
            return
        columns, cells = ", ".join(map(quoted, value)), [_cell(one) for one in value.values()]
        self.connection.execute(f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' * len(cells))})", cells)

    def _apply_schema(self, name: str, sql: str | None) -> None:
        if sql == self._schemas.get(name):
            return
        if sql is None:
            self.connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
            del self._schemas[name]
            return
        if name in self._schemas:
            # It has more columns than before.
            columns = self._columns(name)
            self.connection.execute(f"CREATE TEMP TABLE pequod_old AS SELECT * FROM {quoted(name)}")
            self.connection.execute(f"DROP TABLE {quoted(name)}")
            self.connection.execute(sql)
            self.connection.execute(f"INSERT INTO {quoted(name)} ({columns}) SELECT {columns} FROM pequod_old")
            self.connection.execute("DROP TABLE pequod_old")
        else:
            self.connection.execute(sql)
        self._schemas[name] = sql
        self._capture()

    def _columns(self, name: str) -> str:
        rows = self.connection.execute("SELECT name FROM pragma_table_info(?)", (name,)).fetchall()
        return ", ".join(quoted(row[0]) for row in rows)


def _fence(table: str, before: str | None, row: dict[str, Any] | None) -> str | None:
    if table == "managers":
        return None if row is None else str(row["name"])
    if table == "parts":
        return before if before is not None or row is None else str(row["owner"])
    if table == "log" and row is not None:
        return str(row["owner"])
    return None


def _key(table: str, key: tuple[Any, ...]) -> bytes:
    return _dumped([table, *key])


def _dumped(value: object) -> bytes:
    return json.dumps(value, default=_blob, separators=(",", ":")).encode()


def _blob(value: object) -> dict[str, str]:
    assert isinstance(value, bytes), "SQLite has nothing else"
    return {"hex": value.hex()}


def _cell(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
