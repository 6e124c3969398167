"""Rows of a lake as keys and values, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from typing import Any, Final, assert_never

import pyarrow as pa
from pequod_lake import LakeSchema, LakeSnapshot
from pequod_lake.errors import LakeSchemaError
from pequod_lake.schema import LakeTable

from pequod.escapes import shown
from pequod_server.backing.boxes import Box
from pequod_server.backing.columns import Equal, Padded, Plain, Text
from pequod_server.backing.errors import PackError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.rows import Clip, packed
from pequod_server.backing.sql import boxes_of
from pequod_server.backing.store import KeyRange
from pequod_server.backing.values import Cell, cell_of, decompose

_TEXT: Final = {"text"}
_INTEGER: Final = {"int32", "int64", "timestamp"}
Condition = tuple[str, str, Any]


def problems_of(schema: LakeSchema, mapping: Mapping) -> list[str]:
    """Return what keeps a mapping from being one of a lake's tables."""
    try:
        table = schema.table(mapping.table)
        kinds = {name: table.column(name).kind for name in mapping.columns}
    except LakeSchemaError as error:
        return [str(error)]
    found = []
    if mapping.condition is not None:
        found.append(f"{mapping.pattern}: a lake has no `where`")
    if missing := set(table.key) - {slot.name for slot in mapping.slots}:
        found.append(
            f"{mapping.pattern}: the column {min(missing)} of the primary key of {table.name} has no slot, "
            "so two rows could have one key"
        )
    for slot in mapping.slots:
        wanted = _TEXT if isinstance(slot.column, Text) else _INTEGER
        if not isinstance(slot.column, Text | Padded | Plain) or kinds[slot.name] not in wanted:
            found.append(
                f"{mapping.pattern}: slot {slot.slot} cannot be of column {slot.name}, which is {kinds[slot.name]}; "
                "a text fills a slot of type text, a number or timestamp one of type integer"
            )
    return found


def advice_of(schema: LakeSchema, mapping: Mapping) -> list[str]:
    """Return what would make loads quicker."""
    table = schema.table(mapping.table)
    first = mapping.slots[0].name
    orders = [view.key for view in (table.primary, *table.views) if set(mapping.columns) <= set(view.columns)]
    if any(order[0] == first for order in orders):
        return []
    return [f"{mapping.pattern}: no view of {table.name} begins with {first}, so each load reads all rows"]


def rows_of(
    snapshot: LakeSnapshot,
    mappings: Sequence[Mapping],
    ranges: Sequence[KeyRange],
    refuse: Callable[[PackError], None],
) -> dict[bytes, bytes]:
    """Return the rows of ranges."""
    clip = Clip(ranges)
    rows: dict[bytes, bytes] = {}
    for mapping in mappings:
        for where in _conditions(snapshot.schema.table(mapping.table), mapping, boxes_of(mapping, ranges)):
            found = _packed(snapshot, mapping, where, refuse)
            rows.update((key, value) for key, value in found if clip.holds(key))
    return rows


def rows_with(
    snapshot: LakeSnapshot, mapping: Mapping, keys: Any, refuse: Callable[[PackError], None]
) -> dict[bytes, bytes]:
    """Return the rows whose primary keys are in a table of Arrow, and maybe others."""
    where = [(name, "in", keys[name].unique().to_pylist()) for name in snapshot.schema.table(mapping.table).key]
    return dict(_packed(snapshot, mapping, where, refuse))


def _packed(
    snapshot: LakeSnapshot, mapping: Mapping, where: Sequence[Condition], refuse: Callable[[PackError], None]
) -> Iterator[tuple[bytes, bytes]]:
    found = snapshot.scan(mapping.table, where, columns=mapping.columns).rows  # type: ignore[arg-type]
    columns = [_cells(found[name]) for name in mapping.columns]
    return packed(mapping, zip(*columns, strict=True), refuse)


def _cells(values: Any) -> list[Cell]:
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return [cell_of(value) for value in values.to_pylist()]


def _conditions(table: LakeTable, mapping: Mapping, boxes: Iterable[Box]) -> Iterator[list[Condition]]:
    """Yield conditions that together select every row of the boxes, and maybe others.

    Boxes that differ in the first column only are read at once: the timelines of many users, say.
    """
    alike: dict[tuple[Condition, ...], list[str]] = {}
    for box in boxes:
        terms = zip(mapping.slots, box.terms, strict=False)
        conditions = [one for slot, term in terms for one in _term(table, slot.name, slot.column, term)]
        first, rest = box.terms[:1], tuple(conditions)
        if first and isinstance(first[0], Equal):
            alike.setdefault(rest[1:], []).append(first[0].value)
        else:
            yield conditions
    for others, values in alike.items():
        name = mapping.slots[0].name
        yield [(name, "in", [_plain(table, name, value) for value in values]), *others]


def _term(table: LakeTable, name: str, column: object, term: object) -> list[Condition]:
    if isinstance(term, Equal):
        return [(name, "=", _plain(table, name, term.value))]
    # The order of ids, and that of numbers without leading zeros, is not the order of keys.
    if table.column(name).ids or isinstance(column, Plain):
        return []
    low, high = term.low, term.high  # type: ignore[attr-defined]
    found = [(name, ">=", _plain(table, name, low))] if low is not None else []
    return found + ([(name, "<", _plain(table, name, high))] if high is not None else [])


def _plain(table: LakeTable, name: str, text: str) -> object:
    return text if table.column(name).kind == "text" else int(text)


def written_row(table: LakeTable, mapping: Mapping, key: bytes, value: bytes) -> dict[str, object]:
    """Return the columns of a key and its value.

    Raises:
        PackError: They make no row.
    """
    row: dict[str, object] = dict(key_columns(table, mapping, key))
    cells = decompose(key, value, mapping.value, mapping.form)
    for name, cell in zip(mapping.value, cells, strict=True):
        if name not in row:
            try:
                row[name] = _value(table.column(name).kind, cell)
            except ValueError as error:
                raise PackError(f"the value of key {shown(key)}", f"column {name}: {error}") from error
    return row


def key_columns(table: LakeTable, mapping: Mapping, key: bytes) -> AnyMapping[str, object]:
    """Return the columns that a key fills.

    Raises:
        PackError: No row can have this key.
    """
    texts = mapping.columns_of(key)
    if texts is None:
        raise PackError(f"key {shown(key)}", "its slots cannot be of their columns")
    return {name: _plain(table, name, text) for name, text in texts.items()}


def _value(kind: str, cell: Cell) -> object:
    if cell.text is None:
        return None
    match kind:
        case "text":
            return cell.text
        case "bytes":
            return cell.text.encode()
        case "bool":
            return {"true": True, "false": False}[cell.text] if cell.text in {"true", "false"} else bool(int(cell.text))
        case "double":
            return float(cell.text)
        case "int32" | "int64" | "timestamp":
            return int(cell.text)
        case other:
            assert_never(other)  # type: ignore[arg-type]
