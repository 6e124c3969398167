"""Conditions of selection views, on the columns of a base record.

They are a closed set in text, and not functions of a program: all processes over a store have to agree which records a
view has, and a sweep is to find the same ones a year later.

    status = "open"        !=  <  <=  >  >=         a text, compared by its bytes, or a number, compared as a number
    status in ["open", "new"]
    status exists                                   it was written, and not with NULL
    "a column" = "x"                                a column whose name is no word

A column that has NULL or was never written meets no condition, and neither does a text that is no number where a number
is asked for, not even `!=`.

>>> ColumnCondition.of('votes >= 2').holds("10"), ColumnCondition.of('votes >= "2"').holds("10")
(True, False)
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Self

from pequod.errors import PequodError

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
_CONDITION: Final = re.compile(
    rf"\s*(?P<column>{_TEXT}|[^\W\d][\w-]*)\s*(?:(?P<exists>exists)|(?P<sign>!=|<=|>=|=|<|>|in\b)\s*(?P<operand>.+?))\s*",
    re.DOTALL,
)
_SIGNS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ConditionRefusedError(PequodError):
    """A text is no condition of a view."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"the condition {text!r} is refused: {reason}")
        self.text = text
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """What a column has to be; `of` reads one."""

    column: str
    #: One of `_SIGNS`, `in` or `exists`.
    sign: str
    #: One for a sign, any number for `in`, none for `exists`.
    operands: tuple[str | Decimal, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the condition that a text says.

        Raises:
            ConditionRefusedError: It says none.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            forms = 'it is `column = "text"`, with !=, <, <=, > or >= for =, `column in ["a", "b"]` or `column exists`'
            raise ConditionRefusedError(text, forms)
        column = found["column"]
        if column.startswith('"'):
            column = _literal(text, column)
        if found["exists"] is not None:
            return cls(column, "exists", ())
        operand = _literal(text, found["operand"])
        operands = operand if found["sign"] == "in" and isinstance(operand, list) else [operand]
        if found["sign"] == "in" and not isinstance(operand, list):
            raise ConditionRefusedError(text, "behind `in` is a list in square brackets")
        if not all(isinstance(one, (str, Decimal)) for one in operands):
            raise ConditionRefusedError(text, "a column is compared with texts, in double quotes, and with numbers")
        return cls(column, found["sign"], tuple(operands))

    def holds(self, value: str | None) -> bool:
        """Return whether a value of the column meets it."""
        if value is None:
            return False
        match self.sign:
            case "exists":
                return True
            case "in":
                return any(_compares(operator.eq, value, operand) for operand in self.operands)
            case _:
                return _compares(_SIGNS[self.sign], value, self.operands[0])


def number_of(text: str | None) -> Decimal | None:
    """Return the number that a text is: digits, perhaps with a sign and a point, and no exponent."""
    return Decimal(text) if text is not None and _NUMBER.fullmatch(text) else None


def hold(conditions: Sequence[ColumnCondition], value: Callable[[str], str | None]) -> bool:
    """Return whether a record meets all conditions.

    Args:
        value: Returns what a column has.
    """
    return all(condition.holds(value(condition.column)) for condition in conditions)


def _compares(sign: Callable[[Any, Any], bool], value: str, operand: str | Decimal) -> bool:
    if isinstance(operand, str):
        # The characters of two texts have the order of their bytes in UTF-8.
        return sign(value, operand)
    number = number_of(value)
    return number is not None and sign(number, operand)


def _literal(text: str, literal: str) -> Any:
    """Return what a text or a number in JSON says, or a list of them."""
    try:
        return json.loads(literal, parse_float=_number, parse_int=_number, parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise ConditionRefusedError(
            text, f"{literal!r} is no text in double quotes and no number; two conditions are two texts"
        ) from error


def _number(text: str) -> Decimal:
    number = number_of(text)
    if number is None:
        raise ValueError(f"{text} has an exponent")
    return number
