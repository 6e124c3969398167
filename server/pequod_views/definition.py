"""Views, and the file that declares them.

    [[view]]
    name = "timelines"
    keys = "t|<user>|<time:10>|<poster>"      slots become columns
    table = "timelines"
    slots.time = { column = "at", type = "timestamp_s" }
    value = "body"                            the value as one column; or fields.body = "text" of a JSON object

>>> view = DurableView.parse({"name": "karma", "keys": "karma|<author>", "table": "karma",
...                    "value": {"column": "votes", "type": "integer"}})
>>> view.row(b"karma|ann", b"3")
(b'karma|ann', 'ann', 3)
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from pequod_grammar.patterns import parse_pattern

from pequod.errors import JoinError, Span
from pequod.language.patterns import Matcher, compile_matcher
from pequod.language.ranges import lower, prefix_end
from pequod.language.rules import check_pattern
from pequod.language.spec import Pattern
from pequod_views.errors import UnfitError, ViewFileError
from pequod_views.kinds import KINDS, Cell, CellKind, parse_json

#: The key of the server's row, which is the primary key of the table.
KEY_COLUMN: Final = "pequod_key"
#: The longest key of a row: an index of PostgreSQL takes about 2,700 bytes; one of MariaDB 3,072, with the view's name.
KEY_BYTES_MAX: Final = 2048
_PARTS_MAX: Final = 1024
_FILE: Final = {"server", "database", "joins", "view"}
_MEMBERS: Final = {"name", "keys", "first", "last", "table", "slots", "value", "fields", "parts", "log"}

#: The key, then the cells in the order of the columns.
TableRow: TypeAlias = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view."""

    name: str
    kind: CellKind
    #: Of which part of the row it is made: a slot of the key, the whole value, or a member of a JSON object.
    source: Literal["slot", "value", "field"]
    #: The name of the slot or of the member; empty for the value.
    member: str


@dataclass(frozen=True, slots=True)
class DurableView:
    """A range of keys, and the table that is kept equal to it."""

    name: str
    #: A name, or a schema and a name.
    table: str
    #: Keys of the range that do not have this shape are not of the view; None: all keys are.
    pattern: Pattern | None
    first: bytes
    last: bytes | None
    columns: tuple[ViewColumn, ...]
    #: The number of parts in which the range is cut for managers.
    part_count: int
    #: Whether each transaction leaves a row in the log of applied revisions.
    is_logged: bool
    _matcher: Matcher | None = field(repr=False, compare=False)

    @staticmethod
    def parse(members: Mapping[str, object]) -> DurableView:
        """Return the view that a table of the file declares.

        Raises:
            ViewFileError: A setting is missing, unknown or malformed.
        """
        name = _name(members.get("name"), "view", "name")
        if unknown := set(members) - _MEMBERS:
            raise ViewFileError(name, f"{min(unknown)!r} is no setting; there are {', '.join(sorted(_MEMBERS))}")
        pattern = _pattern(name, members["keys"]) if "keys" in members else None
        first, last = _range(name, members, pattern)
        columns = (*_slot_columns(name, pattern, members.get("slots", {})), *_value_columns(name, members))
        names = [KEY_COLUMN, *(column.name for column in columns)]
        if twice := {one for one in names if names.count(one) > 1}:
            raise ViewFileError(name, f"two columns are named {min(twice)!r}")
        table = members.get("table", name)
        if not isinstance(table, str) or not all(table.split(".")) or table.count(".") > 1:
            raise ViewFileError(name, f"`table` is a name, or schema.name, not {table!r}")
        parts, log = members.get("parts", 1), members.get("log", False)
        if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= _PARTS_MAX:
            raise ViewFileError(name, f"`parts` is a number from 1 to {_PARTS_MAX}, not {parts!r}")
        if not isinstance(log, bool):
            raise ViewFileError(name, f"`log` is true or false, not {log!r}")
        matcher = None if pattern is None else compile_matcher(pattern)
        return DurableView(name, table, pattern, first, last, columns, parts, log, matcher)

    @property
    def fingerprint(self) -> str:
        """Changes with everything that decides which rows the table has."""
        shape = [[column.name, column.kind.name, column.source, column.member] for column in self.columns]
        pattern = "" if self.pattern is None else str(self.pattern)
        last = None if self.last is None else self.last.hex()
        text = json.dumps([self.table, pattern, self.first.hex(), last, shape])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def row(self, key: bytes, value: bytes) -> TableRow | None:
        """Return the row of the table for a row of the server; None if the key is not of the view.

        Raises:
            UnfitError: A column cannot hold its part of the row.
        """
        slots: dict[str, bytes] = {}
        if self._matcher is not None:
            found = self._matcher.match(key)
            if found is None:
                return None
            slots = dict(zip(self._matcher.names, found.groups(), strict=True))
        if len(key) > KEY_BYTES_MAX:
            raise UnfitError(f"the key has {len(key)} bytes, and {KEY_COLUMN} takes {KEY_BYTES_MAX} at most")
        cells: list[Cell] = [key]
        record: object = None
        for column in self.columns:
            if column.source == "slot":
                cells.append(column.kind.of_bytes(slots[column.member]))
            elif column.source == "value":
                cells.append(column.kind.of_bytes(value))
            else:
                record = parse_json(value) if record is None else record
                if not isinstance(record, dict):
                    raise UnfitError("the value is no JSON object")
                member = record.get(column.member)
                cells.append(None if member is None else column.kind.of_json(member))
        return tuple(cells)


@dataclass(frozen=True, slots=True)
class ViewFile:
    """The views of one server in one database."""

    #: HOST:PORT.
    server: str | None
    #: sqlite:PATH, postgresql://... or mariadb://...
    database: str | None
    #: Installed before views are followed, so that a server that was restarted shows no empty ranges.
    joins: str
    views: tuple[DurableView, ...]


def parse_views(text: str) -> ViewFile:
    """Return what a file in TOML declares.

    Raises:
        ViewFileError: It is not TOML, has no view or a malformed one.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ViewFileError("the file", f"it is not TOML: {error}") from error
    if unknown := set(document) - _FILE:
        raise ViewFileError("the file", f"{min(unknown)!r} is no setting; there are {', '.join(sorted(_FILE))}")
    tables = document.get("view")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ViewFileError("the file", "it has no view; begin one with a line [[view]]")
    texts = {name: document.get(name) for name in ("server", "database", "joins")}
    for name, found in texts.items():
        if not isinstance(found, str | None):
            raise ViewFileError("the file", f"`{name}` is a text, not {found!r}")
    views = tuple(DurableView.parse(table) for table in tables)
    for what, names in (("name", [view.name for view in views]), ("table", [view.table for view in views])):
        if len(set(names)) < len(names):
            raise ViewFileError("the file", f"two views have one {what}")
    return ViewFile(texts["server"], texts["database"], texts["joins"] or "", views)


def _name(word: object, place: str, what: str) -> str:
    if not isinstance(word, str) or not word or "\0" in word or len(word.encode()) > 63:
        raise ViewFileError(place, f"`{what}` is a name of up to 63 bytes, not {word!r}")
    return word


def _pattern(name: str, word: object) -> Pattern:
    if not isinstance(word, str):
        raise ViewFileError(name, f"`keys` is a pattern such as karma|<author>, not {word!r}")
    try:
        pattern = parse_pattern(word, Span(0, len(word), 1, 1))
        check_pattern(pattern)
    except JoinError as error:
        raise ViewFileError(name, f"`keys`: {error.reason}; {error.hint}") from error
    return pattern


def _range(name: str, members: Mapping[str, object], pattern: Pattern | None) -> tuple[bytes, bytes | None]:
    bounds: list[bytes | None] = []
    for what in ("first", "last"):
        bound = members.get(what)
        if not isinstance(bound, str | None):
            raise ViewFileError(name, f"`{what}` is a key, not {bound!r}")
        bounds.append(None if bound is None else bound.encode())
    first, last = bounds[0] or b"", bounds[1]
    if pattern is None and bounds == [None, None]:
        raise ViewFileError(name, "name its range by `keys`, or by `first` and `last`")
    if pattern is not None:
        first = max(first, pattern.literal_prefix)
        last = lower(last, prefix_end(pattern.literal_prefix))
    if last is not None and last <= first:
        raise ViewFileError(name, f"its range from {first!r} to {last!r} is empty")
    return first, last


def _slot_columns(name: str, pattern: Pattern | None, declared: object) -> list[ViewColumn]:
    if not isinstance(declared, dict):
        raise ViewFileError(name, "`slots` is a table: slots.time = { column = 'at', type = 'integer' }")
    slots = [] if pattern is None else list(dict.fromkeys(slot.name for slot in pattern.slots()))
    if unknown := [slot for slot in declared if slot not in slots]:
        raise ViewFileError(name, f"`slots` names {unknown[0]!r}, which is no slot of `keys`")
    return [
        _column(name, f"slots.{slot}", declared.get(slot, slot), "slot", slot)
        for slot in slots
        if declared.get(slot) is not False
    ]


def _value_columns(name: str, members: Mapping[str, object]) -> list[ViewColumn]:
    value, fields = members.get("value"), members.get("fields", {})
    if not isinstance(fields, dict):
        raise ViewFileError(name, "`fields` is a table: fields.body = { column = 'body', type = 'text' }")
    columns = [] if value is None else [_column(name, "value", value, "value", "")]
    return columns + [
        _column(name, f"fields.{member}", declared, "field", member) for member, declared in fields.items()
    ]


def _column(
    name: str, place: str, declared: object, source: Literal["slot", "value", "field"], member: str
) -> ViewColumn:
    entry = {"column": declared} if isinstance(declared, str) else declared
    if not isinstance(entry, dict) or set(entry) - {"column", "type"}:
        raise ViewFileError(name, f"{place} is the name of a column, or {{ column = ..., type = ... }}")
    kind = entry.get("type", "text")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ViewFileError(name, f"{kind!r} is no type for {place}; there are {', '.join(KINDS)}")
    return ViewColumn(_name(entry.get("column", member), name, f"{place}.column"), KINDS[kind], source, member)


def names_of(columns: Sequence[ViewColumn]) -> tuple[str, ...]:
    """Return the names of all columns of a view's table."""
    return (KEY_COLUMN, *(column.name for column in columns))
