"""Logs over a database's ranges: applied natively where all that they bring is loaded, and by Python otherwise."""

from collections.abc import Sequence
from unittest.mock import patch

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, MissingError
from pequod.engine.joins.collecting import apply_log
from pequod.engine.joins.contexts import Context
from pequod.engine.reads import reader
from tests.native.core import hot

assert hot.INTERFACE

TIMELINE = "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


def timeline(since: bytes = b"") -> Engine:
    """Return an engine that has shown ann's timeline from a time on, with bob's two posts."""
    engine = Engine(backed=[b"s", b"p"])
    engine.add_joins(parse(TIMELINE))
    engine.load(b"s|ann|", b"s|ann}", [(b"s|ann|bob", b"1")])
    engine.load(b"p|bob|", b"p|bob}", [(b"p|bob|05", b"five"), (b"p|bob|07", b"seven")])
    # From the second read on, the end of the range leads to the context.
    for _ in range(2):
        engine.scan(b"t|ann|" + since, b"t|ann}")
    return engine


def read_natively(engine: Engine, since: bytes = b"") -> Sequence[bytes] | None:
    """Return the values of ann's timeline if the core applies its log, if there is one; else None."""
    applied = list[bool]()

    def noted(context: Context, read_number: int) -> bool:
        applied.append(apply_log(context, read_number))
        return applied[-1]

    with patch.object(reader, "apply_log", noted):
        try:
            rows = engine.scan(b"t|ann|" + since, b"t|ann}")
        except MissingError:
            return None
    return rows.values if all(applied) else None


def follow_cat(engine: Engine) -> None:
    engine.apply(b"s|ann|cat", b"1")


def test_what_is_loaded_is_brought_natively() -> None:
    engine = timeline()
    follow_cat(engine)
    engine.load(b"p|cat|", b"p|cat}", [(b"p|cat|06", b"six")])
    assert read_natively(engine) == [b"five", b"six", b"seven"]
    engine.apply(b"p|cat|08", b"eight")
    assert read_natively(engine) == [b"five", b"six", b"seven", b"eight"], "it waits for her posts"
    engine._check()


def test_one_who_has_no_posts_brings_nothing() -> None:
    engine = timeline()
    follow_cat(engine)
    engine.load(b"p|cat|", b"p|cat}", [])
    assert read_natively(engine) == [b"five", b"seven"]
    engine._check()


@pytest.mark.parametrize(
    ("first", "last"),
    [(b"p|cat|05", b"p|cat}"), (b"p|cat|", b"p|cat|05"), (b"p|bu|", b"p|cat"), (b"p|cat}", b"p|d")],
    ids=["end", "beginning", "before", "behind"],
)
def test_what_is_loaded_in_part_is_lacking(first: bytes, last: bytes) -> None:
    engine = timeline()
    follow_cat(engine)
    engine.load(first, last, [])
    assert read_natively(engine) is None
    with pytest.raises(MissingError):
        engine.scan(b"t|ann|", b"t|ann}")
    engine._check()


def test_parts_that_touch_are_enough_and_a_gap_between_them_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod.engine.base.presence.PART_ROWS_MAX", 1)
    engine = timeline()
    follow_cat(engine)
    for first, last, time in (
        (b"p|ca", b"p|cat|03", b"01"),
        (b"p|cat|06", b"p|cat|09", b"08"),
        (b"p|cat|09", b"p|d", b"09"),
    ):
        engine.load(first, last, [(b"p|cat|" + time, b"at " + time)])
        assert read_natively(engine) is None
    engine.load(b"p|cat|03", b"p|cat|06", [(b"p|cat|04", b"at 04")])
    assert len([one for one in engine.loaded() if one.first < b"p|cat}" and one.last > b"p|cat|"]) == 1
    assert engine.count_loaded(b"p|cat|", b"p|cat}") == 4
    assert read_natively(engine) == [b"at 01", b"at 04", b"five", b"seven", b"at 08", b"at 09"]
    engine._check()


def test_only_what_the_timeline_shows_has_to_be_loaded() -> None:
    engine = timeline(since=b"06")
    follow_cat(engine)
    engine.load(b"p|cat|06", b"p|cat}", [(b"p|cat|06", b"six")])
    assert read_natively(engine, b"06") == [b"six", b"seven"]
    engine._check()


def test_a_key_of_the_log_that_is_not_loaded_any_more_is_lacking() -> None:
    engine = timeline()
    follow_cat(engine)
    engine.load(b"p|cat|", b"p|cat}", [])
    engine.forget(b"s|ann|cat", b"s|ann|cat\0")
    with pytest.raises(MissingError):
        engine.scan(b"t|ann|", b"t|ann}")


def test_a_timeline_that_others_follow_is_brought_up_to_date_by_python() -> None:
    engine = timeline()
    told: list[None] = []
    watch = engine.watch(b"t|ann|", b"t|ann}", lambda: told.append(None))
    follow_cat(engine)
    engine.load(b"p|cat|", b"p|cat}", [(b"p|cat|06", b"six")])
    assert read_natively(engine) is None
    assert [change.key for change in engine.settle(watch)] == [b"t|ann|06|cat"]
    engine._check()
