"""The look for numbers that a double does not keep: none is overlooked, natively or by the twin in Python."""

from __future__ import annotations

from decimal import Decimal

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from pequod.language.parsing import _MAY_LOSE
from tests.native.core import hot

DIGITS = st.text("0123456789", min_size=1, max_size=24)
INTEGERS = st.builds(lambda sign, digits: f"{sign}{int(digits)}", st.sampled_from(["", "-"]), DIGITS)
NUMBERS = st.builds(
    lambda integer, point, exponent: integer + point + exponent,
    INTEGERS,
    st.just("") | DIGITS.map(lambda digits: f".{digits}"),
    st.just("")
    | st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 400)),
)
AROUND = st.sampled_from(["{}", "[{}]", "[1, {}]", '{{"a":{}}}', '{{"a": {}, "b": "12e999"}}', "\n{}\t"])


def is_kept(number: str) -> bool:
    """Tell whether what orjson reads is the number, to the last digit."""
    try:
        found = orjson.loads(number)
    except orjson.JSONDecodeError:
        return False
    return Decimal(repr(found)) == Decimal(number)


@given(NUMBERS, AROUND)
@example("-9223372036854775809", "{}")
@example("18446744073709551616", "[{}]")
@example("1234567890123456789e5", "{}")
@example("12345678901234567.89", '{{"a":{}}}')
@example("1e400", "{}")
def test_no_number_is_overlooked_that_a_double_does_not_keep(number: str, around: str) -> None:
    text = around.format(number).encode()
    if not is_kept(number):
        assert hot.may_lose(text)
        assert _MAY_LOSE(text)


@given(st.integers(-(10**14), 10**14), AROUND.filter(lambda text: "999" not in text))
def test_usual_numbers_take_the_quick_way(number: int, around: str) -> None:
    text = around.format(number).encode()
    assert not hot.may_lose(text)
    assert not _MAY_LOSE(text)
