"""Group-by views: aggregates over the rows that one view key has, computed where they are read.

    view        assigned -> rows of tickets, with the columns that are counted and added up
    group       kim -> {tickets: 3, hours: 7.5}                       with `by`: kim -> open -> {...}, closed -> {...}

Nothing is kept but the rows. A sum that is kept would have to be increased once for each write, and in a store without
a master a write that is sent again counts twice, or one of unknown fate never. The row of each base record is what
makes a repeated write harmless, so it has to be there anyway. A read costs what the rows of its key cost.

>>> hours = GroupView("work", "ticket", "assigned", (GroupAggregate.of("hours", "sum hours"),))
>>> hours.groups_of({"1": {"hours": StoredCell("2.5", 1)}, "2": {"hours": StoredCell("-1", 1)}})
{(): {'hours': '1.5'}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import reduce
from typing import Final, Self

from pequod.errors import PequodError
from pequod_views.versioned.conditions import ColumnCondition, number_of
from pequod_views.versioned.records import EMPTY, StoredCell
from pequod_views.versioned.rows import VersionedView, check_text

#: Adds numbers with all their digits.
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_AGGREGATE: Final = re.compile(
    r"\s*(?:(?P<alone>count)|(?P<operator>count|sum|min|max)\s+(?P<column>\S(?:.*\S)?))\s*", re.DOTALL
)

#: A group, by the values of the columns of `by`; of a column without a value it is None.
Groups = dict[tuple[str | None, ...], dict[str, str | None]]
Rows = Mapping[str, Mapping[str, StoredCell]]


class AggregateRefusedError(PequodError):
    """A text is no aggregate of a view."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"the aggregate {text!r} is refused: {reason}")
        self.text = text
        self.reason = reason


@dataclass(frozen=True, slots=True)
class GroupAggregate:
    """A value of a group; `of` reads one."""

    name: str
    #: `count`, `sum`, `min` or `max`.
    operator: str
    #: None: the rows are counted.
    column: str | None

    @classmethod
    def of(cls, name: str, text: str) -> Self:
        """Return the aggregate that a text says: `count`, `count column`, `sum column`, `min column`, `max column`.

        Raises:
            AggregateRefusedError: It says none.
        """
        found = _AGGREGATE.fullmatch(text)
        if found is None:
            raise AggregateRefusedError(text, "it is `count`, or count, sum, min or max and the name of a column")
        return cls(name, found["alone"] or found["operator"], found["column"])

    def over(self, rows: Sequence[Mapping[str, StoredCell]]) -> str | None:
        """Return the value over rows, of which there is at least one.

        `count` of a column counts the rows that have a value there. The others know numbers alone: what is none is left
        out, and without any number the value is None.
        """
        if self.column is None:
            return str(len(rows))
        values = [row.get(self.column, EMPTY).value for row in rows]
        if self.operator == "count":
            return str(sum(value is not None for value in values))
        numbers = [number for value in values if (number := number_of(value)) is not None]
        if not numbers:
            return None
        match self.operator:
            case "sum":
                return _text(reduce(_EXACT.add, numbers))
            case "min":
                return _text(min(numbers))
            case _:
                return _text(max(numbers))


@dataclass(frozen=True, slots=True)
class GroupView:
    """Groups of the records of a base table: by one column, which is the key, and perhaps by others within it.

    Raises:
        AggregateRefusedError: There is none, or two have one name.
        NameRefusedError: See `VersionedView`.
    """

    name: str
    base: str
    #: The column whose value says which groups are read together.
    key_column: str
    aggregates: tuple[GroupAggregate, ...]
    #: The columns that tell the groups of one key apart.
    by: tuple[str, ...] = ()
    #: As in `VersionedView`.
    where: tuple[ColumnCondition, ...] = ()

    def __post_init__(self) -> None:
        names = [aggregate.name for aggregate in self.aggregates]
        if not names:
            raise AggregateRefusedError("", f"the view {self.name!r} has none")
        for at, name in enumerate(names):
            check_text("the aggregate", name)
            if name in names[:at]:
                raise AggregateRefusedError(name, f"the view {self.name!r} has it twice")
        # Refuses the names.
        _ = self.rows_view

    @property
    def rows_view(self) -> VersionedView:
        """The rows that the groups are computed from."""
        columns = (*self.by, *(one.column for one in self.aggregates if one.column is not None))
        return VersionedView(self.name, self.base, self.key_column, tuple(dict.fromkeys(columns)), self.where)

    def groups_of(self, rows: Rows) -> Groups:
        """Return the groups of the rows of one key; there is none without a row.

        Cost:
            O(rows).
        """
        parts: dict[tuple[str | None, ...], list[Mapping[str, StoredCell]]] = {}
        for row in rows.values():
            parts.setdefault(tuple(row.get(column, EMPTY).value for column in self.by), []).append(row)
        return {
            part: {aggregate.name: aggregate.over(own) for aggregate in self.aggregates} for part, own in parts.items()
        }


def _text(number: Decimal) -> str:
    """Return a number with the digits that it needs."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text
