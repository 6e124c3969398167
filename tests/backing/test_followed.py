"""How far the feed of a database has come."""

from __future__ import annotations

import pytest
from pequod_server.backing import History
from pequod_server.database.followed import Followed

from pequod.freshness import NO_TOKEN, Mark, Token

DATABASE = b"fake"
PRESENT = Mark(DATABASE, 2)


@pytest.mark.parametrize(
    ("token", "is_passed"),
    [
        (NO_TOKEN, True),
        (Token({PRESENT: 10}), True),
        (Token({PRESENT: 11}), False),
        (Token({Mark(DATABASE, 1): 3}), False),
        (Token({Mark(DATABASE, 3): 3}), False),
        (Token({Mark(b"else", 2): 3}), False),
        (Token({PRESENT: 10, Mark(b"else", 2): 3}), False),
    ],
)
def test_what_has_been_passed_for_sure(token: Token, is_passed: bool) -> None:
    followed = Followed()
    assert not followed.has_passed(token), "the feed does not stand yet"
    followed.move(4, history=History(DATABASE, 1))
    followed.move(10, history=History(DATABASE, 2, {1: 4}))
    assert followed.has_passed(token) is is_passed
