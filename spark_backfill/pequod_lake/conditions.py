"""Conditions of a query: a column compared with a value, all of them to be met.

>>> parse_condition("created>=5")
Condition(column='created', op='>=', value='5')
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, cast

import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.errors import LakeSchemaError
from pequod_lake.schema import LakeTable

Op = Literal["=", "<", "<=", ">", ">=", "in"]
_TEXT: Final = re.compile(r"([a-z][a-z0-9_]*)(<=|>=|=|<|>)(.*)", re.DOTALL)
_COMPARE: Final = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A column compared with a value; a null meets no condition."""

    column: str
    op: Op
    #: For `in` a sequence.
    value: Any


#: What a call takes: conditions, or tuples of their members.
Where = Sequence[Condition | tuple[str, Op, Any]]


def parse_condition(text: str) -> Condition:
    """Return the condition that a text such as ``id=5`` says; its value is a text.

    Raises:
        LakeSchemaError: It says none.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise LakeSchemaError(f"condition {text!r}", "it is a column, one of = < <= > >=, and a value")
    return Condition(match[1], cast("Op", match[2]), match[3])


@dataclass(frozen=True, slots=True)
class Bound:
    """A condition whose value has the type of its column."""

    column: str
    op: Op
    #: A scalar of Arrow; for `in` an array.
    value: Any

    def mask(self, values: Any) -> Any:
        """Return for each value whether it meets the condition; null counts as no where rows are filtered."""
        if self.op == "in":
            return pc.is_in(values, value_set=self.value)
        return _COMPARE[self.op](values, self.value)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return (self.column,)

    def mask_of(self, rows: Any) -> Any:
        """Return for each row whether it meets the condition."""
        return self.mask(rows[self.column])

    def may_be_in(self, box: Sequence[tuple[Any, Any] | None]) -> bool:
        """Return whether a row may meet the condition.

        Args:
            box: Of each of `columns` the least and the largest value; None if these are not known.
        """
        return box[0] is None or self.may_hold(*box[0])

    def may_hold(self, least: Any, most: Any) -> bool:
        """Return whether a value between ``least`` and ``most`` may meet the condition."""
        match self.op:
            case "=":
                value = self.value.as_py()
                return bool(least <= value <= most)
            case "<":
                return bool(least < self.value.as_py())
            case "<=":
                return bool(least <= self.value.as_py())
            case ">":
                return bool(most > self.value.as_py())
            case ">=":
                return bool(most >= self.value.as_py())
            case "in":
                return bool(
                    pc.any(pc.and_(pc.greater_equal(self.value, least), pc.less_equal(self.value, most))).as_py()
                )


@dataclass(frozen=True, slots=True)
class KeyBound:
    """A bound of the key as a whole: (a, b) >= (3, 7) is a > 3, or a = 3 and b >= 7."""

    columns: tuple[str, ...]
    #: Below it, or at least it.
    op: Literal["<", ">="]
    #: Scalars of Arrow, one for each column.
    values: tuple[Any, ...]

    def mask_of(self, rows: Any) -> Any:
        """Return for each row whether it meets the condition."""
        strict = _COMPARE["<" if self.op == "<" else ">"]
        mask = _COMPARE[self.op](rows[self.columns[-1]], self.values[-1])
        for name, value in zip(self.columns[-2::-1], self.values[-2::-1], strict=True):
            column = rows[name]
            mask = pc.or_(strict(column, value), pc.and_(pc.equal(column, value), mask))
        return mask

    def may_be_in(self, box: Sequence[tuple[Any, Any] | None]) -> bool:
        """Return whether a row may meet the condition; see `Bound.may_be_in`."""
        for pair, scalar in zip(box, self.values, strict=True):
            if pair is None:
                return True
            value = scalar.as_py()
            edge = pair[0] if self.op == "<" else pair[1]
            if edge != value:
                return bool(edge < value if self.op == "<" else edge > value)
        return self.op == ">="


#: What `LakeReader.read` filters rows by.
RowBound: TypeAlias = Bound | KeyBound


def bind(table: LakeTable, where: Where) -> tuple[Bound, ...]:
    """Return conditions with values of their columns' types, as users see them.

    Raises:
        LakeSchemaError: A column is not there, or a value does not fit its type; or texts that have ids are compared
            in another way than `=` and `in`.
    """
    return tuple(_bound(table, one if isinstance(one, Condition) else Condition(*one)) for one in where)


def _bound(table: LakeTable, condition: Condition) -> Bound:
    column = table.column(condition.column)
    place = f"condition on {column.name}"
    if condition.op not in {*_COMPARE, "in"}:
        raise LakeSchemaError(place, f"{condition.op!r} is no comparison; there are = < <= > >= and in")
    if column.ids and condition.op not in {"=", "in"}:
        raise LakeSchemaError(place, f"it is compared by {condition.op}; the order of ids says nothing, so use =")
    try:
        if condition.op == "in":
            return Bound(column.name, "in", pa.array([_fit(one, column.type) for one in condition.value], column.type))
        value = pa.scalar(_fit(condition.value, column.type), column.type)
        # A timestamp outside years 1 to 9999 is no value that Python has; bounds of files are compared with it.
        value.as_py()
        return Bound(column.name, condition.op, value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise LakeSchemaError(place, f"{condition.value!r} is no {column.kind}: {error}") from error


def _fit(value: Any, kind: Any) -> Any:
    """Return a value from a command line as one of its type; other values as they are."""
    if value is None:
        raise ValueError("a null meets no condition")
    if not isinstance(value, str) or pa.types.is_string(kind):
        return value
    if pa.types.is_binary(kind):
        return value.encode()
    if pa.types.is_timestamp(kind):
        return int(value) if value.lstrip("-").isdecimal() else datetime.fromisoformat(value)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[value]
    return float(value) if pa.types.is_floating(kind) else int(value)
