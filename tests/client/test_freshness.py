"""Tokens and levels, as clients and servers share them."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pequod.freshness
from pequod.errors import InvalidTokenError
from pequod.freshness import NO_TOKEN, TOKEN_BYTES_MAX, Mark, Token, after, database_of, max_age

MARKS = st.builds(Mark, st.binary(min_size=4, max_size=4), st.integers(0, 1 << 32))
TOKENS = st.builds(Token, st.dictionaries(MARKS, st.integers(0, (1 << 64) - 1), max_size=5))
ONE = Token({Mark(database_of("postgresql", 7, "twip"), 3): 0x1_6B37_4D848})


def test_the_examples_of_the_module_hold() -> None:
    assert doctest.testmod(pequod.freshness).failed == 0


@given(token=TOKENS)
def test_a_token_comes_back_from_its_bytes_and_its_text(token: Token) -> None:
    assert Token.parse(bytes(token)) == token
    assert Token.parse(str(token)) == token


def test_a_token_of_one_database_is_small() -> None:
    assert len(bytes(ONE)) <= 14
    assert str(ONE).isascii()
    assert not set(str(ONE)) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@given(one=TOKENS, other=TOKENS, third=TOKENS)
def test_merging_gives_the_least_token_that_has_all(one: Token, other: Token, third: Token) -> None:
    assert one.merged(other) == other.merged(one)
    assert one.merged(one) == one
    assert one.merged(other).merged(third) == one.merged(other.merged(third))
    assert one.merged(NO_TOKEN) == one


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\x00",
        b"\x02" + bytes(ONE)[1:],
        bytes(ONE)[:-1],
        bytes(ONE) + b"\0",
        bytes(ONE) + bytes(ONE)[1:],
        b"\x01abcd\x01" + b"\xff" * 9 + b"\x02",
        b"\x01abcd\x81\x00\x05",
        bytes(Token({Mark(number.to_bytes(4), 1): 1 for number in range(TOKEN_BYTES_MAX)})),
        "",
        "pq1.",
        "pq2." + str(ONE)[4:],
        str(ONE)[:-1],
        str(ONE) + "=",
        str(ONE) + "é",
        str(ONE) + "\n",
    ],
)
def test_what_is_no_token_is_refused(wrong: bytes | str) -> None:
    with pytest.raises(InvalidTokenError):
        after(wrong)


@given(data=st.binary(max_size=40))
def test_bytes_are_a_token_or_refused(data: bytes) -> None:
    try:
        token = Token.parse(data)
    except InvalidTokenError:
        return
    assert bytes(token) == data


def test_levels_are_checked() -> None:
    assert after(str(ONE)) == after(bytes(ONE)) == after(ONE)
    assert max_age(0.5).wait_s == 1.0
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="negative"):
            max_age(wrong)
