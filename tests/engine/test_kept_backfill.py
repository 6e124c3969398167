"""Backfills of joins that keep some rows of each group: what is loaded, what changes meanwhile, and what is behind."""

from __future__ import annotations

import pytest
from pequod_grammar import parse

from pequod.engine import Backfill, Engine, InvalidPieceError, NotBackfillableError, Piece
from tests.engine.joins import engine_with, put_all, scan

FEED = "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:2> keep last 2 of <user>"
#: Equal keys are added up, so that all of them are loaded.
TOP = "top|<poster>|<user> = check s|<user>|<poster> count p|<poster>|<time:2> keep first 1 of <poster>"
POSTS = {f"p|bob|{time:02}": f"post {time}" for time in range(10, 16)}
FOLLOWS = {"s|ann|bob": "", "s|eve|liz": ""}


def started(join: str = FEED, **options: int) -> tuple[Engine, Backfill]:
    engine = engine_with(join)
    put_all(engine, POSTS | FOLLOWS)
    name = engine.joins()[0].name
    begin = engine.backfills.begin
    return engine, begin(name, b"", None, engine.revision, level=options.get("level"), record_bytes_max=1 << 20)


def ann(*times: str) -> Piece:
    """Return the piece of ann's timeline with some of bob's posts."""
    tails = [f"{time}|bob".encode() for time in times]
    return Piece(b"t|ann|", b"t|ann}", tails, [f"post {time}".encode() for time in times])


def load(engine: Engine, backfill: Backfill, *pieces: Piece) -> None:
    engine.backfills.load(backfill, pieces)
    engine._check()


def test_the_rows_that_are_kept_do_and_those_behind_them_are_read_when_they_are_wanted() -> None:
    engine, backfill = started()
    load(engine, backfill, ann("14", "15"))
    assert list(scan(engine, "t|")) == ["t|ann|14|bob", "t|ann|15|bob"]
    engine.remove(b"p|bob|15")
    engine.put(b"p|bob|01", b"old")
    assert list(scan(engine, "t|ann|")) == ["t|ann|13|bob", "t|ann|14|bob"]
    engine._check()


@pytest.mark.parametrize("times", [("14", "15"), ("12", "13", "14", "15"), tuple(map(str, range(10, 16)))])
def test_what_changes_before_the_rows_are_loaded_is_right(times: tuple[str, ...]) -> None:
    engine, backfill = started()
    engine.remove(b"p|bob|15")
    engine.remove(b"p|bob|14")
    engine.put(b"p|bob|11", b"edited")
    engine.put(b"p|liz|12", b"of liz")
    engine.put(b"s|ann|liz", b"")
    load(engine, backfill, ann(*times))
    assert scan(engine, "t|ann|") == {"t|ann|12|liz": "of liz", "t|ann|13|bob": "post 13"}
    engine.remove(b"p|bob|13")
    engine.remove(b"p|liz|12")
    assert scan(engine, "t|ann|") == {"t|ann|11|bob": "edited", "t|ann|12|bob": "post 12"}
    engine._check()


def test_a_group_with_fewer_rows_than_are_kept_has_all_of_them() -> None:
    engine, backfill = started()
    put_all(engine, {"p|liz|20": "new"})
    load(engine, backfill, Piece(b"t|eve|", b"t|eve}", [], []))
    computed = engine._reads.rows_computed
    assert scan(engine, "t|eve|") == {"t|eve|20|liz": "new"}
    engine.remove(b"p|liz|20")
    assert scan(engine, "t|eve|") == {}
    assert engine._reads.rows_computed == computed, "nothing is behind it"


def test_the_range_of_a_backfill_has_whole_groups_and_so_do_pieces() -> None:
    engine = engine_with(FEED)
    put_all(engine, POSTS | FOLLOWS)
    backfill = engine.backfills.begin("t", b"t|ann|12", b"t|eve|15", 1, level=None, record_bytes_max=1 << 20)
    assert (backfill.first, backfill.last, backfill.plan.level) == (b"t|ann|", b"t|eve}", 1)
    for first, last in ((b"t|ann|14", b"t|ann}"), (b"t|ann|", b"t|ann|15")):
        with pytest.raises(InvalidPieceError, match="they have a part of a group"):
            engine.backfills.load(backfill, [Piece(first, last, [], [])])


def test_contexts_have_whole_groups() -> None:
    with pytest.raises(NotBackfillableError, match="its groups are those of 1 slots"):
        started(level=2)
    _, backfill = started(FEED.removesuffix(" of <user>"))
    assert backfill.plan.level == 0
    (spec,) = parse(FEED)
    assert spec.keep is not None


def test_rows_that_add_up_are_loaded_whole() -> None:
    engine, backfill = started(TOP)
    engine.put(b"s|aaa|bob", b"")
    load(engine, backfill, Piece(b"top|bob|", b"top|bob}", [b"ann"], [], [6]))
    assert scan(engine, "top|bob|") == {"top|bob|aaa": "6"}
    engine.remove(b"s|aaa|bob")
    engine.remove(b"p|bob|10")
    assert scan(engine, "top|bob|") == {"top|bob|ann": "5"}
    engine._check()
