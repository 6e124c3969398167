"""A dictionary that replays acknowledged uploads row by row, and random uploads for it: the oracle of the lake's tests.

It shares nothing with the lake but the schema: no Arrow, no merging, one row after the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pequod_lake import Ingestor, LakeSnapshot, Upload
from pequod_lake.schema import LakeSchema, LakeTable
from pequod_lake.sql import run_sql

#: One table of each kind; in `edges` ids are part of the primary key.
SCHEMA = """
[[id]]
name = "user"

[[id]]
name = "tag"

[[table]]
name = "plain"
key = ["id"]
columns = { id = "int64", owner = "text", size = "int64", body = "text" }
views.by_owner = ["owner", "size", "id"]

[[table]]
name = "timed"
key = ["a", "b"]
columns = { a = "int32", b = "text", at = "timestamp", body = "bytes" }
timestamp = "at"
views.by_b = ["b", "a"]
views.by_at = { key = ["at", "a", "b"], columns = ["body"] }

[[table]]
name = "edges"
key = ["from_user", "to_user"]
columns = { from_user = "id:user", to_user = "id:user", tag = "id:tag", weight = "double", is_new = "bool" }
views.back = ["to_user", "from_user"]
views.by_tag = ["tag", "from_user", "to_user"]

[[table]]
name = "parts"
key = ["k"]
partial = true
columns = { k = "text", owner = "id:user", x = "int64", y = "int64" }
views.by_x = ["x", "k"]
views.by_owner = ["owner", "k"]

[[table]]
name = "moments"
key = ["k"]
partial = true
timestamp = "at"
columns = { k = "int64", at = "int64", x = "int64", y = "text" }
views.by_x = ["x", "k"]
"""
USERS = ["ann", "bob", "cy", "dé", "", "eve|x"]


@dataclass(frozen=True, slots=True)
class Put:
    """A call of `Upload.put`: rows by column."""

    table: str
    rows: Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Delete:
    """A call of `Upload.delete`."""

    table: str
    rows: Mapping[str, list[Any]]


Call = Put | Delete


def random_calls(dice: random.Random, schema: LakeSchema) -> list[Call]:
    """Return the calls of one upload, with rows that often meet each other's keys."""
    calls: list[Call] = []
    for table in dice.sample(schema.tables, dice.randint(1, len(schema.tables))):
        for _ in range(dice.randint(1, 2)):
            count = dice.randint(1, 6)
            names = list(table.names)
            is_deletion = dice.random() < 0.25
            if is_deletion or table.is_partial:
                kept = {*table.key, table.timestamp}
                names = [one for one in names if one in kept or (not is_deletion and dice.random() < 0.5)]
            rows = {name: [_value(dice, table, name) for _ in range(count)] for name in names}
            calls.append(Delete(table.name, rows) if is_deletion else Put(table.name, rows))
    return calls


def _value(dice: random.Random, table: LakeTable, name: str) -> Any:
    is_optional = name not in table.key and name != table.timestamp
    if is_optional and dice.random() < 0.1:
        return None
    column = table.column(name)
    if column.ids:
        return dice.choice(USERS)
    number = dice.randrange(8)
    if column.kind == "text":
        return f"t{number}"
    if column.kind == "bytes":
        return bytes([number, 255])
    if column.kind == "double":
        return number / 4
    return number % 2 == 0 if column.kind == "bool" else number


def fill(upload: Upload, calls: Iterable[Call]) -> Upload:
    for call in calls:
        if isinstance(call, Put):
            upload.put(call.table, call.rows)
        else:
            upload.delete(call.table, call.rows)
    return upload


@dataclass(slots=True)
class Version:
    """What is known of a key: when it was written and deleted, and each column with its moment."""

    written: int | None = None
    deleted: int | None = None
    columns: dict[str, tuple[int, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Replay:
    """The rows after some uploads."""

    schema: LakeSchema
    versions: dict[str, dict[tuple[Any, ...], Version]] = field(default_factory=dict)

    def apply(self, calls: Iterable[Call]) -> None:
        for call in calls:
            table = self.schema.table(call.table)
            rows = [dict(zip(call.rows, values, strict=True)) for values in zip(*call.rows.values(), strict=True)]
            for row in rows:
                key = tuple(row[name] for name in table.key)
                version = self.versions.setdefault(table.name, {}).setdefault(key, Version())
                moment = row[table.timestamp] if table.timestamp else 0
                if isinstance(call, Put):
                    self._put(table, version, row, moment)
                else:
                    self._delete(table, version, moment)

    def _put(self, table: LakeTable, version: Version, row: Mapping[str, Any], moment: int) -> None:
        if version.deleted is not None and moment < version.deleted:
            return
        if version.written is None or moment >= version.written:
            version.written = moment
            if not table.is_partial:
                version.columns.clear()
        elif not table.is_partial:
            return
        for name, value in row.items():
            if name not in table.key and (name not in version.columns or moment >= version.columns[name][0]):
                version.columns[name] = (moment, value)

    def _delete(self, table: LakeTable, version: Version, moment: int) -> None:
        if not table.is_partial and version.written is not None and moment < version.written:
            # A whole row that is newer hides the deletion for good.
            return
        if version.deleted is None or moment >= version.deleted:
            version.deleted = moment
            if version.written is not None and version.written <= moment:
                version.written = None
            version.columns = {name: one for name, one in version.columns.items() if one[0] > moment}

    def rows(self, table: LakeTable) -> list[dict[str, Any]]:
        """Return the rows that are there, in the order of their keys."""
        found = []
        for key, version in sorted(self.versions.get(table.name, {}).items()):
            if version.written is not None:
                values = {name: version.columns.get(name, (0, None))[1] for name in table.names}
                found.append(values | dict(zip(table.key, key, strict=True)))
        return found


def replayed(schema: LakeSchema, uploads: Sequence[Sequence[Call]]) -> Replay:
    replay = Replay(schema)
    for calls in uploads:
        replay.apply(calls)
    return replay


def as_told(table: LakeTable, rows: Any) -> list[dict[str, Any]]:
    """Return rows of Arrow as plain values: moments as numbers."""
    for at, name in enumerate(rows.schema.names):
        if table.column(name).kind == "timestamp":
            rows = rows.set_column(at, name, rows[name].cast("int64"))
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


def check_snapshot(
    snapshot: LakeSnapshot, uploads: Sequence[Sequence[Call]], dice: random.Random | None = None
) -> None:
    """Compare all tables of a snapshot with the replay of the uploads, whose SCUs are 1, 2, 3..."""
    replay = replayed(snapshot.schema, uploads[: snapshot.scu])
    for table in snapshot.schema.tables:
        expected = replay.rows(table)
        assert as_told(table, snapshot.scan(table.name).rows) == expected, (table.name, snapshot.scu)
        if dice is not None and dice.random() < 0.3:
            rows = run_sql(snapshot, f"SELECT * FROM {table.name} ORDER BY {', '.join(table.key)}")
            assert as_told(table, rows) == expected, (table.name, snapshot.scu)
        if dice is not None:
            check_query(snapshot, table, expected, dice)
            check_points(snapshot, table, expected, dice)


def check_query(snapshot: LakeSnapshot, table: LakeTable, expected: list[dict[str, Any]], dice: random.Random) -> None:
    view = dice.choice([None, "", *(one.name for one in table.views)])
    where: list[Any] = []
    order = table.view(view or "").key
    for name in dice.sample(table.names, dice.randint(0, 2)) if dice.random() < 0.3 else order[: dice.randint(1, 2)]:
        ops = ["=", "in"] if table.column(name).ids else ["=", "<", "<=", ">", ">=", "in"]
        op = dice.choice(ops)
        value = _some_value(dice, table, name)
        where.append((name, op, [value, _some_value(dice, table, name)] if op == "in" else value))
    answer = snapshot.scan(table.name, where, view=view, columns=table.names)
    wanted = [row for row in expected if all(_meets(row[name], op, value) for name, op, value in where)]
    found = as_told(table, answer.rows)
    assert sorted(found, key=repr) == sorted(wanted, key=repr), (table.name, view, where, snapshot.scu)
    if view is not None:
        assert found == sorted(found, key=lambda row: [(row[one] is None, row[one]) for one in order])


def check_points(snapshot: LakeSnapshot, table: LakeTable, expected: list[dict[str, Any]], dice: random.Random) -> None:
    """Compare rows that are asked for by their keys, some of which are not there."""
    by_key = {tuple(row[name] for name in table.key): row for row in expected}
    keys = [tuple(_some_value(dice, table, name) for name in table.key)]
    for key in [*keys, *dice.sample(list(by_key), min(2, len(by_key)))]:
        found = snapshot.get(table.name, *key)
        if found is not None and table.timestamp and table.column(table.timestamp).kind == "timestamp":
            moment = found[table.timestamp]
            found[table.timestamp] = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
        assert found == by_key.get(key), (table.name, key, snapshot.scu)


def _some_value(dice: random.Random, table: LakeTable, name: str) -> Any:
    while (value := _value(dice, table, name)) is None:
        pass
    return value


def _meets(found: Any, op: str, value: Any) -> bool:
    if found is None:
        return False
    match op:
        case "=":
            return bool(found == value)
        case "<":
            return bool(found < value)
        case "<=":
            return bool(found <= value)
        case ">":
            return bool(found > value)
        case ">=":
            return bool(found >= value)
        case _:
            return found in value


def ingest(ingestor: Ingestor, name: str, calls: Sequence[Call]) -> int:
    return ingestor.take(fill(ingestor.upload(name), calls)).scu
