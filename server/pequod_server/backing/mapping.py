"""Key patterns tied to relations.

    p|<poster>|<time:10>   <-   posts (poster text, time bigint, body text)
      ^ slot: a column            value: one column, or several as a JSON object

>>> mapping = Mapping.parse({
...     "keys": "p|<poster>|<time:10>", "table": "posts", "slots": {"time": {"type": "integer"}}, "value": "body",
... })
>>> mapping.key(["bob", "100"])
b'p|bob|0000000100'
>>> mapping.columns_of(b"p|bob|0000000100")
{'poster': 'bob', 'time': '100'}
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pequod_grammar.patterns import parse_pattern

from pequod.errors import JoinError, Span
from pequod.language.patterns import Matcher, compile_builder, compile_matcher, may_overlap
from pequod.language.ranges import lower, prefix_end
from pequod.language.rules import check_pattern
from pequod.language.spec import DELIMITER, NumberForm, Pattern, Slot
from pequod_server.backing.boxes import Box, Cutter
from pequod_server.backing.columns import Column, Padded, Plain, Signed, Text, Time, Uuid, WholeKey
from pequod_server.backing.errors import MappingError, PackError
from pequod_server.backing.values import Form

_MEMBERS: Final = {"keys", "table", "slots", "value", "where", "unique", "fields", "expires"}
#: The table of a generic mapping: keys and their values, for programs that want no schema.
GENERIC_TABLE: Final = "pequod_base"
#: Its column of deadlines.
GENERIC_EXPIRES: Final = "expires_at"
FieldType = Literal["text", "integer", "uuid"]
_FIELD_TYPES: Final = ("text", "integer", "uuid")
_TYPES: Final = ("text", "integer", "timestamp_s", "timestamp_us", "uuid")


@dataclass(frozen=True, slots=True)
class SlotColumn:
    """The column that fills a slot."""

    slot: Slot
    name: str
    column: Column


@dataclass(frozen=True, slots=True)
class Mapping:
    """One pattern and the relation of its keys.

    Invariants:
        1. ``slots`` has each slot of the pattern once, in the order of the key.
        2. ``form`` is "object" exactly if the value is a list of columns, "bytes" only in a generic mapping.
        3. ``bounds`` are not empty, in order and disjoint.
    """

    pattern: Pattern
    #: As in the file: a name, or a schema and a name.
    table: str
    slots: tuple[SlotColumn, ...]
    #: The columns of the value.
    value: tuple[str, ...]
    form: Form
    #: An SQL condition on the columns of the table; rows that do not meet it have no key.
    condition: str | None
    #: Whether the database must ensure that no two rows have one key.
    is_unique: bool
    #: The column of the instants at which rows expire, integers in milliseconds since 1970; None: there is none.
    expires: str | None
    #: The columns of the value by which rows are asked for when joins read them by these fields -> their types.
    fields: AnyMapping[str, FieldType]
    #: The tables whose keys they are, and the ranges in which all keys lie.
    tables: tuple[bytes, ...]
    bounds: tuple[tuple[bytes, bytes | None], ...]
    _matcher: Matcher = field(repr=False, compare=False)
    #: Makes a key from its packed slots, in their order.
    build: Callable[[Sequence[bytes]], bytes] = field(repr=False, compare=False)
    _cutter: Cutter = field(repr=False, compare=False)

    @staticmethod
    def parse(members: AnyMapping[str, object]) -> Mapping:
        """Return the mapping that a table of the configuration declares.

        Raises:
            MappingError: A setting is missing or unknown, or settings contradict each other.
        """
        name = str(members.get("keys", "without keys"))
        unknown = set(members) - _MEMBERS
        if unknown:
            raise MappingError(name, f"{min(unknown)!r} is no setting; there are {', '.join(sorted(_MEMBERS))}")
        pattern = _pattern(name, _text(name, members, "keys"))
        slots = _slots(name, pattern, members.get("slots", {}))
        value, form = _value(name, members.get("value", []))
        condition = _text(name, members, "where") if "where" in members else None
        unique = members.get("unique", True)
        if not isinstance(unique, bool):
            raise MappingError(name, f"`unique` is true or false, not {unique!r}")
        columns = {slot.slot.name: slot.column for slot in slots}
        numbers = {slot.slot.name: number for number, slot in enumerate(slots)}
        return Mapping(
            pattern,
            _text(name, members, "table"),
            slots,
            value,
            form,
            condition,
            unique,
            _expires(name, members, [*(slot.name for slot in slots), *value]),
            _fields(name, members.get("fields", {}), value if form == "object" else ()),
            (pattern.literal_prefix.partition(DELIMITER)[0],),
            ((pattern.literal_prefix, prefix_end(pattern.literal_prefix)),),
            compile_matcher(pattern),
            compile_builder(pattern.parts, numbers),
            Cutter(pattern.parts, columns),
        )

    @staticmethod
    def generic(tables: Iterable[bytes]) -> Mapping:
        """Return the mapping of tables to `GENERIC_TABLE`, a table of keys and values, both bytes.

        Args:
            tables: The names of tables; none: keys of all tables.
        """
        pattern = Pattern((Slot("key"),))
        slot = SlotColumn(Slot("key"), "key", WholeKey())
        names = tuple(sorted(set(tables)))
        starts = [name + DELIMITER for name in names]
        tests = b"|".join(map(re.escape, starts))
        return Mapping(
            pattern,
            table=GENERIC_TABLE,
            slots=(slot,),
            value=("value",),
            form="bytes",
            condition=None,
            is_unique=True,
            expires=GENERIC_EXPIRES,
            fields={},
            tables=names,
            bounds=tuple((start, prefix_end(start)) for start in sorted(starts)) or ((b"", None),),
            _matcher=Matcher(re.compile(b"((?:%b).*)" % tests, re.DOTALL).fullmatch, ("key",), b""),
            build=compile_builder(pattern.parts, {"key": 0}),
            _cutter=Cutter(pattern.parts, {"key": slot.column}),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns that are read, each once: those of slots, of the value, and that of deadlines."""
        names = [*(slot.name for slot in self.slots), *self.value]
        return tuple(dict.fromkeys(names if self.expires is None else [*names, self.expires]))

    @property
    def first(self) -> bytes:
        """The lower bound of all keys of the pattern."""
        return self.bounds[0][0]

    @property
    def last(self) -> bytes | None:
        """The upper bound of all keys of the pattern."""
        return self.bounds[-1][1]

    @property
    def identity(self) -> str:
        """A short name for the records of this mapping's triggers; it is another one when slots or table change."""
        definition = json.dumps([str(self.pattern), self.table, [slot.name for slot in self.slots]])
        return hashlib.sha256(definition.encode()).hexdigest()[:10]

    def key(self, texts: Sequence[str | None]) -> bytes:
        """Return the key of a row, from the texts of the slots' columns.

        Raises:
            PackError: The row has no key: a value is NULL, too wide, or not allowed in its slot.
        """
        packed = []
        for slot, text in zip(self.slots, texts, strict=True):
            if text is None:
                raise PackError(self._place(slot), "it is NULL")
            try:
                packed.append(slot.column.pack(text))
            except PackError as error:
                raise PackError(self._place(slot), error.reason) from error
        return self.build(packed)

    def _place(self, slot: SlotColumn) -> str:
        return f"column {slot.name} of {self.table}, slot {slot.slot} of {self.pattern}"

    def columns_of(self, key: bytes) -> dict[str, str] | None:
        """Return the texts of the slots' columns for ``key``; None if no row can have it."""
        match = self._matcher.match(key)
        if match is None:
            return None
        packed = dict(zip(self._matcher.names, match.groups(), strict=True))
        texts = {slot.name: slot.column.unpack(packed[slot.slot.name]) for slot in self.slots}
        if None in texts.values():
            return None
        return {name: text for name, text in texts.items() if text is not None}

    def boxes(self, first: bytes, last: bytes | None) -> list[Box]:
        """Return conditions that together select every row with its key in ``[first, last)``, and few other rows."""
        return self._cutter.boxes(first, last)

    def clip(self, first: bytes, last: bytes | None) -> tuple[bytes, bytes | None] | None:
        """Return the part of ``[first, last)`` in which keys of the pattern can lie; None if they lie elsewhere."""
        low, high = max(first, self.first), lower(last, self.last)
        return None if high is not None and high <= low else (low, high)


def parse_mappings(text: str) -> tuple[Mapping, ...]:
    """Return the mappings of a configuration in TOML: an array of tables named `mapping`.

    Raises:
        MappingError: The text is not TOML, has no mapping or a malformed one; or two mappings may share keys.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MappingError("file", f"it is not TOML: {error}") from error
    tables = document.get("mapping")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise MappingError("file", "it holds no mapping; start one with a line [[mapping]]")
    mappings = tuple(Mapping.parse(table) for table in tables)
    for number, mapping in enumerate(mappings):
        for other in mappings[:number]:
            if may_overlap(mapping.pattern, other.pattern):
                raise MappingError(
                    str(mapping.pattern), f"a key could also be of {other.pattern}; a key comes from one relation only"
                )
    return mappings


def _text(name: str, members: AnyMapping[str, object], member: str) -> str:
    text = members.get(member)
    if not isinstance(text, str) or not text.strip():
        raise MappingError(name, f"`{member}` is missing; it is a text")
    return text


def _expires(name: str, members: AnyMapping[str, object], others: Sequence[str]) -> str | None:
    if "expires" not in members:
        return None
    column = _text(name, members, "expires")
    if column in others:
        raise MappingError(name, f"`expires` names {column!r}, which a slot or the value has already")
    return column


def _pattern(name: str, word: str) -> Pattern:
    try:
        pattern = parse_pattern(word, Span(0, len(word), 1, 1))
        check_pattern(pattern)
    except JoinError as error:
        raise MappingError(name, f"{error.reason}; {error.hint}") from error
    if not any(pattern.slots()):
        raise MappingError(name, "the pattern has no slot, so no column can make its keys; add one, such as <id>")
    return pattern


def _slots(name: str, pattern: Pattern, declared: object) -> tuple[SlotColumn, ...]:
    if not isinstance(declared, dict):
        raise MappingError(name, "`slots` is a table: slots.time = { column = 'created', type = 'integer' }")
    slots = {slot.name: slot for slot in pattern.slots()}
    unknown = [slot for slot in declared if slot not in slots]
    if unknown:
        raise MappingError(name, f"`slots` names {unknown[0]!r}, which is no slot of the pattern")
    found = []
    for slot in slots.values():
        entry = declared.get(slot.name, {})
        if isinstance(entry, str):
            entry = {"column": entry}
        if not isinstance(entry, dict) or set(entry) - {"column", "type"}:
            raise MappingError(name, f"slots.{slot.name} is the name of a column, or {{ column = ..., type = ... }}")
        column, kind = entry.get("column", slot.name), entry.get("type", "text")
        if not isinstance(column, str) or not column:
            raise MappingError(name, f"slots.{slot.name}.column is the name of a column, not {column!r}")
        found.append(SlotColumn(slot, column, _column(name, slot, kind)))
    names = [slot.name for slot in found]
    if len(set(names)) < len(names):
        raise MappingError(name, "two slots have the same column; give the slots one name instead")
    return tuple(found)


def _fields(name: str, declared: object, value: Sequence[str]) -> dict[str, FieldType]:
    if not isinstance(declared, dict):
        raise MappingError(name, "`fields` is a table: fields.author = 'text'")
    found: dict[str, FieldType] = {}
    for column, kind in declared.items():
        if column not in value:
            raise MappingError(
                name, f"`fields` names {column!r}, which is no column of `value`, a list of names for a JSON object"
            )
        if kind not in _FIELD_TYPES:
            raise MappingError(name, f"{kind!r} is no type for fields.{column}; there are {', '.join(_FIELD_TYPES)}")
        found[column] = kind
    return found


def column_of(slot: Slot, kind: FieldType | None) -> Column | None:
    """Return the column for a field of a type in a slot: its values are packed as the field's are.

    Returns:
        None if it has no type, or no values that the slot takes.
    """
    match kind, slot.form:
        case "text", None:
            return Text(slot.width)
        case "uuid", None if slot.width in {None, 36}:
            return Uuid(slot.width)
        case "integer", None:
            return Plain() if slot.width is None else Padded(slot.width)
        case "integer", NumberForm.I64:
            return Signed()
        case _:
            return None


def _column(name: str, slot: Slot, kind: object) -> Column:
    match kind:
        case "text":
            return Text(slot.width)
        case "integer":
            return Plain() if slot.width is None else Padded(slot.width)
        case "timestamp_s" | "timestamp_us":
            if slot.width is None:
                usual = 10 if kind == "timestamp_s" else 16
                raise MappingError(name, f"a {kind} is padded with zeros: give {slot} a width, <{slot.name}:{usual}>")
            return Time(1_000_000 if kind == "timestamp_s" else 1, slot.width)
        case "uuid":
            if slot.width not in {None, 36}:
                raise MappingError(name, f"a uuid has 36 characters: write <{slot.name}:36>, or no width")
            return Uuid(slot.width)
        case _:
            raise MappingError(name, f"{kind!r} is no type for {slot}; there are {', '.join(_TYPES)}")


def _value(name: str, declared: object) -> tuple[tuple[str, ...], Form]:
    match declared:
        case str() if declared:
            return (declared,), "column"
        case list() if all(isinstance(column, str) and column for column in declared):
            if len(set(declared)) < len(declared):
                raise MappingError(name, "`value` names a column twice")
            return tuple(declared), "object" if declared else "column"
        case _:
            raise MappingError(name, "`value` is the name of a column, or a list of names for a JSON object")
