"""Conditions of selection views: what they say, and which texts are none."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pequod_views.versioned import ColumnCondition, ConditionRefusedError, NameRefusedError, VersionedView


@pytest.mark.parametrize(
    ("text", "holding", "failing"),
    [
        ('status = "open"', ["open"], ["Open", "", None]),
        ('status != "open"', ["", "new"], ["open", None]),
        ('name < "é"', ["e", "z", ""], ["é", "ê", "\U0001f600", None]),
        ('name >= "b"', ["b", "ba"], ["a", "B", None]),
        ("votes >= 2", ["2", "2.0", "10", "02"], ["1.99", "-3", "many", "", "2e1", " 2", None]),
        ("votes != 2", ["3"], ["2.00", "x", None]),
        ("votes < 0.1", ["0.09999999999999999999999", "-1"], ["0.1", "0.10", None]),
        ('status in ["open", "new"]', ["open", "new"], ["closed", None]),
        ('votes in [1, "many"]', ["1", "1.0", "many"], ["2", None]),
        ("status in []", [], ["", "x", None]),
        ("status exists", ["", "x"], [None]),
        ('  "a column, 1" ="x" ', ["x"], ["y"]),
        ('"with \\" in it" exists', ["x"], [None]),
        ('exists = "x"', ["x"], [None]),
    ],
)
def test_a_condition_holds_for_these_values_and_for_no_others(
    text: str, holding: list[str | None], failing: list[str | None]
) -> None:
    condition = ColumnCondition.of(text)
    assert [value for value in (*holding, *failing) if condition.holds(value)] == holding


def test_a_condition_names_a_column_whatever_its_name_is() -> None:
    assert ColumnCondition.of('"with \\" in it" exists') == ColumnCondition('with " in it', "exists", ())
    assert ColumnCondition.of("größe-2 <= -1.50") == ColumnCondition("größe-2", "<=", (Decimal("-1.50"),))


@pytest.mark.parametrize(
    "text",
    ["", "status", "status = open", "status == 1", 'status in "x"', "status = null", "a = [1]", "2a = 1", "a = 1e3",
     "a = NaN", "a in [[1]]", "a exists b", 'a = "x" "y"', "a = true", "a = " + "[" * 100_000],
)  # fmt: skip
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ConditionRefusedError, match=r"the condition .* is refused"):
        ColumnCondition.of(text)


def test_a_column_and_a_text_that_are_no_unicode_are_refused() -> None:
    for condition in (ColumnCondition("\ud800", "exists", ()), ColumnCondition("a", "=", ("\ud800",))):
        with pytest.raises(NameRefusedError, match="surrogate"):
            VersionedView("v", "b", "k", (), (condition,))
