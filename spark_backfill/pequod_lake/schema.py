"""The schema of a lake, from a file in TOML.

    [[id]]
    name = "user"                       # texts that tables hold as numbers

    [[table]]
    name = "posts"
    key = ["id"]                        # the primary key; rows of one key replace each other
    columns = { id = "int64", author = "id:user", created = "timestamp", body = "text" }
    timestamp = "created"               # the row with the largest one wins; without it, the row that came last
    partial = true                      # rows may set some columns and leave the others as they are
    views.by_author = ["author", "created", "id"]     # one more sort order

>>> schema = LakeSchema.parse('''
... [[table]]
... name = "posts"
... key = ["id"]
... columns = { id = "int64", body = "text" }
... ''')
>>> schema.table("posts").key
('id',)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pequod_lake.errors import LakeSchemaError

#: The types of columns, as they are in files.
TYPES: Final[dict[str, Any]] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "timestamp": pa.timestamp("us"),
}
#: The least and the largest timestamp, in microseconds since 1970: years 1 to 9999. Python and SQL have no others.
TIMESTAMP_MIN_US: Final = -62_135_596_800_000_000
TIMESTAMP_MAX_US: Final = 253_402_300_799_999_999
#: Types whose order is not the same everywhere: NaN in floating point.
_NOT_IN_KEYS: Final = {"double"}
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_ID: Final = "id:"

#: Whether a row removes its key; the moment of a row; the moment of the removal that a partial row comes after.
DELETED: Final = "_deleted"
TIME: Final = "_ts"
DELETED_TIME: Final = "_dts"


def set_time(column: str) -> str:
    """Return the name of the hidden column that holds when a column of a partial table was set."""
    return f"_ts_{column}"


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column of a table."""

    name: str
    #: One of `TYPES`; of a column with ids, the type of what users see.
    kind: str
    #: The name of the ids, if the files hold numbers in place of texts.
    ids: str | None = None
    #: Whether rows may leave it out; then it is null.
    is_optional: bool = False

    @property
    def type(self) -> Any:
        """The Arrow type of what users see."""
        return TYPES[self.kind]

    @property
    def stored_type(self) -> Any:
        """The Arrow type in files, from the stage `remapped` on."""
        return pa.int64() if self.ids else self.type


@dataclass(frozen=True, slots=True)
class LakeView:
    """A sort order of a table.

    Invariants:
        1. The primary key is part of ``key``, so that no two rows of a run are equal in it.
        2. ``columns`` holds the key.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table and its sort orders."""

    name: str
    columns: tuple[LakeColumn, ...]
    key: tuple[str, ...]
    #: The column whose largest value wins; None if the last row to come wins.
    timestamp: str | None
    is_partial: bool
    #: The secondary views.
    views: tuple[LakeView, ...]
    #: By view, the numbers of the fields of its files, if columns were added or dropped: each column keeps its own.
    numbers: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def data_columns(self) -> tuple[LakeColumn, ...]:
        """The columns that are not part of the primary key."""
        return tuple(column for column in self.columns if column.name not in self.key)

    @property
    def primary(self) -> LakeView:
        """The primary view: all columns, in the order of the primary key."""
        return LakeView("", self.key, self.names)

    @property
    def has_ids(self) -> bool:
        """Whether rows pass the stage `id-remap`."""
        return any(column.ids for column in self.columns)

    @property
    def keeps_markers(self) -> bool:
        """Whether the authority keeps delete markers: a row with an older timestamp may still come."""
        return self.timestamp is not None

    def column(self, name: str) -> LakeColumn:
        """Return a column.

        Raises:
            LakeSchemaError: There is none of this name.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise LakeSchemaError(f"table {self.name}", f"it has no column {name!r}; it has {', '.join(self.names)}")

    def view(self, name: str) -> LakeView:
        """Return a view; the primary view has the empty name.

        Raises:
            LakeSchemaError: There is none of this name.
        """
        for view in (self.primary, *self.views):
            if view.name == name:
                return view
        names = ", ".join(view.name for view in self.views) or "none"
        raise LakeSchemaError(f"table {self.name}", f"it has no view {name!r}; it has {names}")

    def hidden(self) -> tuple[tuple[str, Any], ...]:
        """Return the names and types of the columns that users do not see."""
        if self.is_partial:
            times = ((set_time(column.name), pa.int64()) for column in self.data_columns)
            return ((TIME, pa.int64()), (DELETED_TIME, pa.int64()), *times)
        time = ((TIME, pa.int64()),) if self.timestamp else ()
        return ((DELETED, pa.bool_()), *time)

    def stored(self, view: LakeView, *, raw: bool = False) -> Any:
        """Return the Arrow schema of the files of a view; with ``raw``, those of the stage `ingest`.

        Each field has the number of its column in DuckLake.
        """
        columns = [column for column in self.columns if column.name in view.columns]
        visible = [(one.name, one.type if raw else one.stored_type) for one in columns]
        # A secondary view has only rows that are there: delete markers and times are looked up in the primary one.
        fields = visible if view.name else [*visible, *self.hidden()]
        numbers = dict(dict(self.numbers).get(view.name, ())) or {name: at for at, (name, _) in enumerate(fields, 1)}
        return pa.schema(
            [pa.field(name, kind, metadata={"PARQUET:field_id": str(numbers[name])}) for name, kind in fields]
        )


@dataclass(frozen=True, slots=True)
class LakeSchema:
    """The tables of a lake.

    Invariants:
        1. For each set of ids there is a table of them, `ids_table(name)`, which users do not write.
    """

    #: The text of the file.
    text: str
    tables: tuple[LakeTable, ...]
    #: The names of the ids.
    ids: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> LakeSchema:
        """Return the schema that a file declares.

        Raises:
            LakeSchemaError: It declares none, or contradicts itself.
        """
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise LakeSchemaError("schema", f"it is not TOML: {error}") from error
        _refuse_unknown("schema", document, {"table", "id", "change"})
        ids = tuple(_name("id", entry) for entry in _entries(document, "id"))
        changes = _entries(document, "change")
        tables = tuple(changed_table(_table(entry, ids), entry, changes, ids) for entry in _entries(document, "table"))
        if not tables:
            raise LakeSchemaError("schema", "it has no table; start one with a line [[table]]")
        names = [*(table.name for table in tables), *ids]
        for name in names:
            if names.count(name) > 1:
                raise LakeSchemaError("schema", f"the name {name} is used twice")
        return LakeSchema(text, tables, ids)

    @property
    def all_tables(self) -> tuple[LakeTable, ...]:
        """The tables, and those of the ids."""
        return (*self.tables, *(ids_table(name) for name in self.ids))

    @property
    def has_ids(self) -> bool:
        """Whether there is anything to remap."""
        return any(table.has_ids for table in self.tables)

    def table(self, name: str) -> LakeTable:
        """Return a table.

        Raises:
            LakeSchemaError: There is none of this name.
        """
        for table in self.all_tables:
            if table.name == name:
                return table
        raise LakeSchemaError("lake", f"it has no table {name!r}; it has {', '.join(one.name for one in self.tables)}")


def ids_table(name: str) -> LakeTable:
    """Return the table that holds the numbers of texts, in both orders."""
    columns = (LakeColumn("key", "text"), LakeColumn("id", "int64"))
    view = LakeView("by_id", ("id", "key"), ("key", "id"))
    return LakeTable(f"ids_{name}", columns, ("key",), None, is_partial=False, views=(view,))


def _entries(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise LakeSchemaError("schema", f"`{name}` is an array of tables; start each with a line [[{name}]]")
    return entries


def _refuse_unknown(place: str, members: Mapping[str, Any], known: set[str]) -> None:
    if unknown := set(members) - known:
        raise LakeSchemaError(place, f"{min(unknown)!r} is no setting; there are {', '.join(sorted(known))}")


def _name(what: str, members: Mapping[str, Any]) -> str:
    if what == "id":
        _refuse_unknown("id", members, {"name"})
    name = members.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or "__" in name or name.startswith("ids_"):
        raise LakeSchemaError(
            what, f"the name is {name!r}; a name has lower-case letters, digits and single _, and no ids_ at its start"
        )
    return name


def _table(members: Mapping[str, Any], ids: tuple[str, ...]) -> LakeTable:
    name = _name("table", members)
    place = f"table {name}"
    _refuse_unknown(place, members, {"name", "key", "columns", "timestamp", "partial", "views"})
    declared = members.get("columns")
    if not isinstance(declared, dict) or not declared:
        raise LakeSchemaError(place, "`columns` is missing; it is a table of names and types")
    columns = tuple(_column(place, column, kind, ids) for column, kind in declared.items())
    kinds = {column.name: column.kind for column in columns}
    key = _names(place, "key", members.get("key"), kinds)
    timestamp = members.get("timestamp")
    if timestamp is not None and (timestamp in key or kinds.get(timestamp) not in {"timestamp", "int64"}):
        raise LakeSchemaError(place, "`timestamp` names a column of type timestamp or int64 that is not in the key")
    partial = members.get("partial", False)
    if not isinstance(partial, bool):
        raise LakeSchemaError(place, f"`partial` is true or false, not {partial!r}")
    views = members.get("views", {})
    if not isinstance(views, dict):
        raise LakeSchemaError(place, '`views` is a table of names and columns: views.by_time = ["time", "id"]')
    return LakeTable(
        name,
        columns,
        key,
        timestamp,
        is_partial=partial,
        views=tuple(_view(place, view, declared, key, kinds) for view, declared in views.items()),
    )


def _column(place: str, name: str, kind: object, ids: tuple[str, ...]) -> LakeColumn:
    if not _NAME.fullmatch(name):
        raise LakeSchemaError(place, f"{name!r} is no name for a column; use lower-case letters, digits and _")
    if isinstance(kind, str) and kind.startswith(_ID):
        if kind.removeprefix(_ID) not in ids:
            raise LakeSchemaError(place, f"column {name}: there is no [[id]] with the name {kind.removeprefix(_ID)!r}")
        return LakeColumn(name, "text", kind.removeprefix(_ID))
    is_optional = isinstance(kind, str) and kind.endswith("?")
    kind = kind.removesuffix("?") if isinstance(kind, str) else kind
    if not isinstance(kind, str) or kind not in TYPES:
        raise LakeSchemaError(place, f"column {name}: {kind!r} is no type; there are {', '.join(TYPES)} and id:NAME")
    return LakeColumn(name, kind, is_optional=is_optional)


def _names(place: str, setting: str, declared: object, kinds: Mapping[str, str]) -> tuple[str, ...]:
    if not isinstance(declared, list) or not declared:
        raise LakeSchemaError(place, f"`{setting}` is a list of columns")
    for name in declared:
        if name not in kinds:
            raise LakeSchemaError(place, f"`{setting}` names {name!r}, which is no column")
        if kinds[name] in _NOT_IN_KEYS:
            raise LakeSchemaError(place, f"`{setting}` names {name}; a {kinds[name]} cannot be part of a key")
    if len(set(declared)) < len(declared):
        raise LakeSchemaError(place, f"`{setting}` names a column twice")
    return tuple(declared)


def _view(place: str, name: str, declared: object, key: tuple[str, ...], kinds: Mapping[str, str]) -> LakeView:
    if not _NAME.fullmatch(name) or "__" in name or name == "raw":
        raise LakeSchemaError(place, f"{name!r} is no name for a view; use lower-case letters, digits and single _")
    columns: object = list(kinds)
    if isinstance(declared, dict):
        _refuse_unknown(f"{place}, view {name}", declared, {"key", "columns"})
        columns, declared = declared.get("columns", columns), declared.get("key")
    order = _names(f"{place}, view {name}", "key", declared, kinds)
    if missing := set(key) - set(order):
        raise LakeSchemaError(
            place, f"view {name} must have {min(missing)}, which is part of the primary key, in its key"
        )
    # A view may hold columns of any type; only its key is restricted.
    anything = dict.fromkeys(kinds, "text")
    chosen = {*order, *_names(f"{place}, view {name}", "columns", columns, anything)}
    return LakeView(name, order, tuple(one for one in kinds if one in chosen))


def changed_table(
    table: LakeTable, members: Mapping[str, Any], changes: list[dict[str, Any]], ids: tuple[str, ...]
) -> LakeTable:
    """Return a table after columns were added and dropped."""
    mine = [one for one in changes if one.get("table") == table.name]
    if not mine:
        return table
    place = f"table {table.name}"
    now = dict(members) | {"columns": dict(members["columns"]), "views": dict(members.get("views", {}))}
    numbers = {
        view.name: {field.name: at for at, field in enumerate(table.stored(view), 1)}
        for view in (table.primary, *table.views)
    }
    known = set(table.names)
    for change in mine:
        _refuse_unknown("change", change, {"table", "add", "type", "drop"})
        if isinstance(name := change.get("add"), str):
            _add(place, now, name, change.get("type"), known)
        elif isinstance(name := change.get("drop"), str):
            _drop(place, now, name, table)
        else:
            raise LakeSchemaError(place, "a [[change]] names a column in `add` or in `drop`")
        table = _table(now, ids)
        for view in (table.primary, *table.views):
            told = numbers[view.name]
            for field in table.stored(view):
                told.setdefault(field.name, len(told) + 1)
    return replace(table, numbers=tuple((view, tuple(told.items())) for view, told in numbers.items()))


def _add(place: str, members: dict[str, Any], name: str, kind: object, known: set[str]) -> None:
    if name in known:
        raise LakeSchemaError(place, f"{name!r} is a column, or was one: files may still have it; take a new name")
    if not isinstance(kind, str) or kind not in TYPES:
        raise LakeSchemaError(place, f"a column of type {kind!r} cannot be added; there are {', '.join(TYPES)}")
    known.add(name)
    members["columns"] = members["columns"] | {name: f"{kind}?"}


def _drop(place: str, members: dict[str, Any], name: str, table: LakeTable) -> None:
    if name not in members["columns"]:
        raise LakeSchemaError(place, f"it has no column {name!r} to drop")
    if table.column(name).ids:
        raise LakeSchemaError(place, f"column {name} has ids, so it cannot be dropped")
    members["columns"] = {one: kind for one, kind in members["columns"].items() if one != name}
    for view, declared in members["views"].items():
        if isinstance(declared, dict) and name in declared.get("columns", []):
            rest = [one for one in declared["columns"] if one != name]
            members["views"][view] = declared | {"columns": rest or list(declared["key"])}
