"""Cells of views from members of records: all digits, and no number in one member hides the others."""

import json
from decimal import Decimal

import pytest
from pequod_views.errors import UnfitError
from pequod_views.kinds import KINDS, parse_json

LONG = "123456789012345678901234567890"


@pytest.mark.parametrize("other", ["1e400", "1e99999999999999999999", "9" * 5000, LONG])
def test_a_number_of_any_size_does_not_hide_the_other_members(other: str) -> None:
    if other == "1e99999999999999999999":
        with pytest.raises(UnfitError, match="is no JSON"):
            parse_json(f'{{"a":7,"b":{other}}}'.encode())
        return
    found = parse_json(f'{{"a":7,"b":{other}}}'.encode())
    assert isinstance(found, dict)
    assert KINDS["integer"].of_json(found["a"]) == 7
    with pytest.raises(UnfitError):
        KINDS["integer"].of_json(found["b"])


def test_json_in_a_column_keeps_the_digits() -> None:
    text = f'{{"a": [{LONG}, 12345678901234567.89, 1.5, 1.50, 7, 1e30], "b": "é"}}'
    cell = KINDS["json"].of_json(parse_json(text.encode()))
    assert isinstance(cell, str)
    assert json.loads(cell, parse_float=Decimal) == json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize("text", [r'["\u0000"]', r'["\u00001.5"]', r'["\u00001.5", 1.5]', '["\\ud800"]'])
def test_texts_that_databases_refuse_in_json_are_unfit(text: str) -> None:
    with pytest.raises(UnfitError):
        KINDS["json"].of_json(parse_json(text.encode()))
