"""Rows of views as records of Kafka: the key of the row, and its columns as a JSON object.

>>> from pequod_views.definition import DurableView
>>> votes = {"column": "votes", "type": "integer"}
>>> view = DurableView.parse({"name": "karma", "keys": "karma|<author>", "value": votes})
>>> encoded(view, (b"karma|ann", "ann", 3))
b'{"author":"ann","votes":3}'
>>> decoded(view, b"karma|ann", b'{"author":"ann","votes":3}')
(b'karma|ann', 'ann', 3)
"""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

from pequod_views.definition import DurableView, TableRow, ViewColumn
from pequod_views.errors import UnfitError
from pequod_views.kinds import Cell, parse_json
from pequod_views.targets.target import as_text


def stored(cell: Cell) -> str | int | float | None:
    """Return a cell as a record has it: what is no text and no number is a text, so that nothing is rounded."""
    plain = as_text(cell, "T")
    return b64encode(plain).decode() if isinstance(plain, bytes) else plain


def encoded(view: DurableView, row: TableRow) -> bytes:
    """Return the value of a row's record."""
    members = [
        f"{json.dumps(column.name, ensure_ascii=False)}:{_text(column, cell)}"
        for column, cell in zip(view.columns, row[1:], strict=True)
    ]
    return f"{{{','.join(members)}}}".encode()


def _text(column: ViewColumn, cell: Cell) -> str:
    if column.kind.name == "json" and isinstance(cell, str):
        # It is JSON already.
        return cell
    return json.dumps(stored(cell), ensure_ascii=False)


def decoded(view: DurableView, key: bytes, value: bytes) -> tuple[Any, ...]:
    """Return the cells of a record; those that are missing, or all of one that is no JSON object, are an Ellipsis."""
    try:
        found = parse_json(value)
    except UnfitError:
        found = None
    members = found if isinstance(found, dict) else {}
    return (key, *(_cell(column, members.get(column.name, ...)) for column in view.columns))


def _cell(column: ViewColumn, member: Any) -> Any:
    if member is None or member is ...:
        return member
    if column.kind.name == "json":
        return column.kind.of_json(member)
    return float(member) if isinstance(member, Decimal) else member
