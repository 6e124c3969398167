"""Contexts whose rows sources decide about compute the same rows, each by itself: these share their tails."""

from typing import Any

import pytest

from pequod.engine.joins.contexts import Context
from tests.engine.test_unless import Both

FEED = "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:2> unless m|<user>|<poster> keep "
USERS = ("ann", "eve", "joe")


def feeds(keep: str, posts: int = 30) -> Both:
    both = Both(FEED + keep, " ".join(f"s|{user}|{poster}" for user in USERS for poster in ("bob", "liz")))
    for time in range(10, 10 + posts):
        both.put(f"p|{'bob' if time % 2 else 'liz'}|{time}")
    for user in USERS:
        both.engine.scan(b"t|%b|" % user.encode(), b"t|%b}" % user.encode())
    return both


def contexts(both: Both) -> dict[bytes, Context]:
    return dict(both.engine._catalog.find("t").contexts)


def tails(context: Context) -> list[bytes]:
    assert context.kept is not None
    rows: list[Any] = [context.rows, *(spare.rows for spare in context.kept.spares.values())]
    return [tail for each in rows for tail in each.everything().keys]


@pytest.mark.parametrize("keep", ["last 4 of <user>", "first 4 of <user>"])
def test_rows_of_several_contexts_have_one_tail(keep: str) -> None:
    both = feeds(keep)
    found = [{tail: id(tail) for tail in tails(context)} for context in contexts(both).values()]
    assert len(found) == len(USERS)
    assert found[0] == found[1] == found[2]
    ledger = both.engine.ledger
    assert (ledger.tail_count, ledger.tail_bytes) == (len(found[0]), sum(map(len, found[0])))
    assert ledger.row_bytes == 0, "no context has a tail of its own"


@pytest.mark.parametrize("keep", ["last 4 of <user>", "first 4 of <user>"])
def test_a_tail_goes_with_the_last_of_its_rows(keep: str) -> None:
    both = feeds(keep)
    both.rows("t")
    both.put("p|bob|99")
    both.put("p|liz|00")
    both.rows("t")
    for time in (99, 0, 39, 38, 37, 10, 11, 12):
        both.remove(f"p|{'bob' if time % 2 else 'liz'}|{time:02}")
        both.put(f"p|{'bob' if time % 2 else 'liz'}|{time:02}", "again")
        both.rows("t")
        both.remove(f"p|{'bob' if time % 2 else 'liz'}|{time:02}")
        both.rows("t")
    both.put("m|ann|bob")
    both.rows("t")
    assert 0 < both.engine.ledger.tail_count < 100
    both.engine.invalidate(b"t|ann|", b"t|ann}")
    both.engine._check()
    both.engine.invalidate(b"t|", b"t}")
    assert (both.engine.ledger.tail_count, both.engine.ledger.tail_bytes) == (0, 0)


def test_spare_rows_that_are_too_many_let_go_of_their_tails() -> None:
    both = feeds("last 4 of <user>", posts=4)
    both.rows("t")
    for time in range(20, 90):
        both.put(f"p|bob|{time}")
        both.rows("t")
    held = {tail for context in contexts(both).values() for tail in tails(context)}
    assert both.engine.ledger.tail_count == len(held) < 40


def test_where_posts_are_last_a_fan_out_makes_the_tail() -> None:
    text = "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:2> keep last 4 of <user>"
    both = Both(text, "s|ann|bob s|eve|bob p|bob|10")
    both.rows("t")
    assert both.engine.ledger.tail_count == 0
