"""The rows of a versioned view: their names, their pointers, and where a base record belongs.

    base       ticket 2: assigned kim@1, then cy@5, then ray@3 (arrives last)
    view       root -> kim -> cy (live)        ray -> cy
               rows are (view key, base key); `next` points to a row with a newer key, of the live row to itself

    cells      own next, own ready, own from                the book-keeping
               column <name>                                a column of the base, whatever its name is

A pointer is a row and the time of that row's view key; its cell has the stamp of the turn that wrote it, see `turns`.

>>> Pointer.of(Pointer(5, row_of("cy")).text)
Pointer(time=5, row='key cy')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from pequod.errors import PequodError
from pequod_views.versioned.conditions import ColumnCondition, hold
from pequod_views.versioned.records import EMPTY, Cells, Put, StoredCell, StoredColumn

NEXT: Final = "own next"
#: Has the timestamp of `next` once a live row has all of its cells; readers wait for that.
READY: Final = "own ready"
#: The row that was live before, written with `next`: the row may have been part of the chain to it, which is cut then.
FROM: Final = "own from"
#: In the root: the number of the last turn, as earlier versions counted them.
_TURN: Final = "own turn"
#: The rows of a base record that no view key names: where it begins, and where it is while its view key is deleted.
ROOT: Final = "root"
GONE: Final = "gone"
_KEY: Final = "key "
_OWN: Final = frozenset({NEXT, READY, FROM, _TURN})
#: Before the name of a column of the base, in a cell of the view: so no column, whatever its name, is a cell above.
_COLUMN: Final = "column "
#: Before the name of a base column, in a cell of the base record whose base key is the view's name.
_DONE: Final = "done "


class NameRefusedError(PequodError):
    """A name or a value that a store cannot keep, or that would be taken for another one; nothing was done."""

    def __init__(self, what: str, text: str | None, reason: str) -> None:
        super().__init__(f"{what} {text!r} is refused: {reason}")
        self.what = what
        self.text = text
        self.reason = reason


class ViewRefusedError(PequodError):
    """What is no view of rows stands where one has to; nothing was done."""

    def __init__(self, view: object) -> None:
        name = getattr(view, "name", None)
        reason = f"{view!r} is no VersionedView"
        if hasattr(view, "rows_view"):
            reason = (
                f"the view {name!r} is one of groups: give its `rows_view` here, and the view itself to `get_groups`"
            )
        super().__init__(reason)
        self.view = name


class EarlierFormatError(PequodError):
    """A record of a view has cells that an earlier version wrote, where columns and book-keeping shared their names."""

    def __init__(self, view: str, key: str, name: str) -> None:
        super().__init__(
            f"{view}: the record {key!r} has the cell {name!r} of an earlier version, whose columns and "
            "book-keeping shared their names. Give the view another name and sweep: its rows are made anew from the "
            "base, which has lost nothing"
        )
        self.view = view
        self.key = key
        self.name = name


@dataclass(frozen=True, slots=True)
class VersionedView:
    """A view of a base table by another column, with some columns beside it (Definition 1), of all records or of some.

    Any text is the name of a column, also that of a cell of the book-keeping, an empty one or one with spaces.

    Raises:
        NameRefusedError: The view has no name or that of its base, a column is named twice, or a name is not Unicode.
    """

    name: str
    base: str
    #: The column whose value is the view key.
    key_column: str
    #: The columns that the view has as well.
    columns: tuple[str, ...]
    #: Records that do not meet all of these have no row in the view, as those without a view key.
    where: tuple[ColumnCondition, ...] = ()

    @property
    def deciders(self) -> tuple[str, ...]:
        """The columns that say where the row of a record is, the view key first."""
        if not self.where:
            return (self.key_column,)
        return tuple(dict.fromkeys((self.key_column, *(condition.column for condition in self.where))))

    @property
    def followed(self) -> tuple[str, ...]:
        """The columns whose updates concern the view, the view key first."""
        return tuple(dict.fromkeys((self.key_column, *self.columns, *self.deciders)))

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that rows have: with conditions also those that readers do not see."""
        return self.followed if self.where else self.columns

    def __post_init__(self) -> None:
        check_text("the view", self.name)
        check_text("the base table", self.base)
        if not self.name:
            raise NameRefusedError("the view", self.name, "marks in base records are kept under the view's name")
        if self.name == self.base:
            raise NameRefusedError("the view", self.name, "its base table has this name")
        for at, column in enumerate((self.key_column, *self.columns)):
            check_text("the column", column)
            if column in (self.key_column, *self.columns)[:at]:
                raise NameRefusedError("the column", column, f"the view {self.name!r} has it twice")
        for condition in self.where:
            check_text("the column", condition.column)
            for operand in condition.operands:
                check_text("the text", str(operand))


@dataclass(frozen=True, slots=True)
class Update:
    """A write of one cell of a base record.

    Raises:
        NameRefusedError: A text is not Unicode.
    """

    table: str
    key: str
    column: str
    cell: StoredCell

    def __post_init__(self) -> None:
        for what, text in (("the table", self.table), ("the key", self.key), ("the column", self.column)):
            check_text(what, text)
        if self.cell.value is not None:
            check_text("the value", self.cell.value)


def check_text(what: str, text: str) -> None:
    """Pass if a text is Unicode: a store cannot keep half of a character.

    Raises:
        NameRefusedError: It is not.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NameRefusedError(what, text, "it has half of a surrogate pair, which is no Unicode text") from None


def check_view(view: object) -> None:
    """Pass if a view is one of rows.

    Raises:
        ViewRefusedError: It is one of groups, or none at all.
    """
    if not isinstance(view, VersionedView):
        raise ViewRefusedError(view)


def check_views(views: Sequence[VersionedView]) -> None:
    """Pass if views can be kept in one store.

    Raises:
        NameRefusedError: Two views have one name, or one has the name of another one's base table.
        ViewRefusedError: One is a view of groups, or none at all.
    """
    for view in views:
        check_view(view)
    names = [view.name for view in views]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise NameRefusedError("the view", name, "another view has this name")
        if name in {view.base for view in views}:
            raise NameRefusedError("the view", name, "a base table has this name")


class Pointer(NamedTuple):
    """The row that a row points to."""

    #: The timestamp of the update that gave the record that row's view key. In a selection view, where several columns
    #: say which row it is, the stamp of the turn that placed the record there.
    time: int
    row: str

    @property
    def text(self) -> str:
        """The pointer as the value of a cell."""
        return f"{self.time} {self.row}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the pointer in the value of a cell."""
        time, row = text.split(" ", 1)
        return cls(int(time), row)


def base_column(name: str) -> StoredColumn:
    """Return a column of a base table."""
    return StoredColumn(name)


def view_column(name: str, base_key: str) -> StoredColumn:
    """Return the cell of a view's row for a column of the base."""
    return StoredColumn(_COLUMN + name, base_key)


def column_name(column: StoredColumn) -> str | None:
    """Return the column of the base that a cell of a view's row is for; None for a cell of the book-keeping."""
    return column.name.removeprefix(_COLUMN) if column.name.startswith(_COLUMN) else None


def check_cells(table: str, key: str, cells: Cells) -> None:
    """Pass if all cells of a view's record are of this format.

    Raises:
        EarlierFormatError: One is not.
    """
    for name, _ in cells:
        if name not in _OWN and not name.startswith(_COLUMN):
            raise EarlierFormatError(table, key, name)


def done_column(view: VersionedView, column: str) -> StoredColumn:
    """Return the mark in a base record whose timestamp is that of the column's newest propagated update."""
    return StoredColumn(_DONE + column, view.name)


def marks_of(view: VersionedView, updates: Sequence[Update]) -> Cells:
    """Return the cells of a base record that say that updates of it have been propagated."""
    return {done_column(view, update.column): StoredCell("", update.cell.timestamp) for update in updates}


def row_of(key: str | None) -> str:
    """Return the row of a view key."""
    return GONE if key is None else f"{_KEY}{key}"


def row_of_cells(view: VersionedView, base_key: str, row: str, cells: Cells) -> str:
    """Return the row that a record belongs in by the cells of the row where it is.

    In a view without conditions it is where the pointers say.
    """
    if not view.where:
        return row

    def value(name: str) -> str | None:
        return cells.get(view_column(name, base_key), EMPTY).value

    key = value(view.key_column)
    if key is not None and hold(view.where, value):
        return row_of(key)
    # A record that was never in the view need not leave it.
    return ROOT if row == ROOT else GONE


def row_of_base(view: VersionedView, cells: Cells) -> str | None:
    """Return where the row of a base record is once all of its cells are propagated; None without a view key."""

    def value(name: str) -> str | None:
        return cells.get(base_column(name), EMPTY).value

    key = value(view.key_column)
    return None if key is None or not hold(view.where, value) else row_of(key)


def likely_row(view: VersionedView, cells: Cells) -> str | None:
    """Return a guess of the live row by what a base record has; None: nothing is known."""
    column = base_column(view.key_column)
    if column not in cells:
        return None
    if cells[column].value is None:
        return GONE
    # Most records that a view selects out were never in it.
    return row_of_base(view, cells) or ROOT


def record_of(row: str, base_key: str) -> str:
    """Return the record of a row.

    Rows without a view key are records of their own: one for all would be a record that every update reads.
    """
    return row if row.startswith(_KEY) else f"{row} {base_key}"


def row_in(record: str, base_key: str) -> str:
    """Return the row of a base record in a record of the view."""
    return record if record.startswith(_KEY) else record.removesuffix(f" {base_key}")


def put_row(
    view: VersionedView,
    row: str,
    base_key: str,
    own: Mapping[str, StoredCell],
    quorum: int,
    columns: Cells | None = None,
) -> Put:
    """Return the request that writes cells of the book-keeping of a row, and columns with them."""
    assert own.keys() <= _OWN, "columns are cells of their own"
    named = {StoredColumn(name, base_key): cell for name, cell in own.items()}
    return Put(view.name, record_of(row, base_key), tuple({**named, **(columns or {})}.items()), quorum)


def put_columns(view: VersionedView, row: str, updates: Sequence[Update], quorum: int) -> Put:
    """Return the request that writes columns of a row."""
    cells = tuple((view_column(update.column, update.key), update.cell) for update in updates)
    return Put(view.name, record_of(row, updates[0].key), cells, quorum)


def guesses(*rows: str) -> list[str]:
    """Return rows to begin at, the likeliest first; the root is always right."""
    return [*dict.fromkeys(rows), ROOT]


def undone(view: VersionedView, base_key: str, cells: Cells) -> list[Update]:
    """Return the updates in a base record that have not been propagated to a view, as far as the record says.

    An update that a newer one has replaced is not among them: the view does not need it.
    """
    return [
        Update(view.base, base_key, name, cells[column])
        for name in view.followed
        if (column := base_column(name)) in cells
        and cells.get(done_column(view, name), EMPTY).timestamp < cells[column].timestamp
    ]
