"""Loading rows that another program computed: no reader waits, nothing of a failed load stays, bad rows are refused."""

from __future__ import annotations

from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine import (
    Backfill,
    BackfillEndedError,
    Engine,
    InvalidPieceError,
    MissingError,
    NotBackfillableError,
    Piece,
    Range,
    UnknownJoinError,
)
from tests.engine.backfilling import draw_pieces, source_rows

TIMELINE = "t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:3>"
BASE = {b"s|ann|bob": b"1", b"s|ann|liz": b"1", b"s|bob|liz": b"1", b"p|bob|100": b"Hi", b"p|liz|110": b"Ho"}


def started(join: str = TIMELINE, **arguments: int) -> tuple[Engine, Backfill]:
    engine = Engine()
    engine.add_joins(parse(join))
    for key, value in BASE.items():
        engine.put(key, value)
    name = engine.joins()[0].name
    backfill = engine.backfills.begin(
        name, b"", None, engine.revision, level=arguments.get("level"), record_bytes_max=arguments.get("bytes", 1 << 20)
    )
    return engine, backfill


def test_reads_after_a_load_compute_nothing() -> None:
    engine, backfill = started()
    ann = Piece(b"t|ann|", b"t|ann}", [b"100|bob", b"110|liz"], [b"Hi", b"Ho"])
    loaded = engine.backfills.load(backfill, [ann, Piece(b"t|bob|", b"t|bob}", [b"110|liz"], [b"Ho"])])
    assert (loaded.range_count, loaded.row_count) == (2, 3)
    assert engine.scan(b"t|ann|", b"t|ann}").keys == [b"t|ann|100|bob", b"t|ann|110|liz"]
    assert engine.get(b"t|bob|110|liz") == b"Ho"
    assert engine.statistics().joins["t"].computed_ranges == 0
    engine._check()


def test_what_changes_between_begin_and_load_is_applied() -> None:
    engine, backfill = started()
    engine.put(b"p|bob|100", b"edited")
    engine.put(b"p|bob|120", b"new")
    engine.remove(b"p|liz|110")
    engine.remove(b"s|ann|liz")
    engine.put(b"s|ann|eve", b"1")
    engine.put(b"p|eve|130", b"far")
    assert source_rows(backfill, 2) == BASE
    engine.backfills.load(backfill, [Piece(b"t|ann|", b"t|ann}", [b"100|bob", b"110|liz"], [b"Hi", b"Ho"])])
    expected = {b"t|ann|100|bob": b"edited", b"t|ann|120|bob": b"new", b"t|ann|130|eve": b"far"}
    assert dict(zip(*engine.scan(b"t|ann|", b"t|ann}"), strict=True)) == expected
    engine.put(b"p|eve|140", b"further")
    assert engine.get(b"t|ann|140|eve") == b"further"
    assert engine.statistics().joins["t"].computed_ranges == 0


def test_what_changes_more_than_once_is_applied_as_it_is_at_last() -> None:
    engine, backfill = started()
    engine.put(b"p|bob|100", b"a")
    engine.put(b"p|bob|100", b"b")
    engine.put(b"p|bob|120", b"c")
    engine.remove(b"p|bob|120")
    engine.remove(b"p|liz|110")
    engine.put(b"p|liz|110", b"d")
    ann = Piece(b"t|ann|", b"t|ann}", [b"100|bob", b"110|liz"], [b"Hi", b"Ho"])
    engine.backfills.load(backfill, [ann])
    engine.put(b"p|bob|130", b"e")
    engine.backfills.load(backfill, [Piece(b"t|bob|", b"t|bob}", [b"110|liz"], [b"Ho"])])
    assert engine.scan(b"t|ann|", b"t|ann}").values == [b"b", b"d", b"e"]
    assert engine.scan(b"t|bob|", b"t|bob}").values == [b"d"]
    assert engine.statistics().joins["t"].computed_ranges == 0
    engine._check()


def test_equal_tails_and_values_are_shared_in_the_room_that_the_record_leaves() -> None:
    _, backfill = started(bytes=600)
    one, other = backfill.share([bytes([65, 66]), bytes([65, 66])])
    assert one is other
    assert backfill.share([bytes([65, 66])])[0] is one
    backfill.share([b"%04d" % number for number in range(3)])
    assert backfill.share([bytes([65, 66])])[0] is not one, "what is too much is forgotten"


def test_a_context_that_a_reader_made_first_stays_as_it_is() -> None:
    engine, backfill = started()
    engine.put(b"p|bob|120", b"new")
    before = engine.scan(b"t|ann|", b"t|ann}")
    ann = Piece(b"t|ann|", b"t|ann}", [b"100|bob", b"110|liz"], [b"Hi", b"Ho"])
    assert engine.backfills.load(backfill, [ann]).skipped_count == 1
    assert engine.scan(b"t|ann|", b"t|ann}") == before


def test_a_load_fills_the_gaps_of_a_context_that_is_there_in_part() -> None:
    engine, backfill = started()
    engine.scan(b"t|ann|105", b"t|ann|200")
    engine.put(b"p|liz|090", b"early")
    engine.put(b"p|liz|115", b"late")
    ann = Piece(b"t|ann|", b"t|ann}", [b"100|bob", b"110|liz"], [b"Hi", b"Ho"])
    assert engine.backfills.load(backfill, [ann]).range_count == 2
    tails = [key[len(b"t|ann|") :] for key in engine.scan(b"t|ann|", b"t|ann}").keys]
    assert tails == [b"090|liz", b"100|bob", b"110|liz", b"115|liz"]
    assert engine.statistics().joins["t"].contexts == 1
    engine._check()


def test_contributions_are_added_up_and_taken_away() -> None:
    engine, backfill = started("n|<user> = check s|<user>|<poster> count p|<poster>|<time:3>")
    engine.remove(b"p|liz|110")
    engine.backfills.load(backfill, [Piece(b"n|", b"n}", [b"ann", b"bob"], [], [2, 1])])
    assert dict(zip(*engine.scan(b"n|", b"n}"), strict=True)) == {b"n|ann": b"1"}
    assert engine.statistics().joins["n"].computed_ranges == 0


def test_a_backfill_whose_record_is_full_ends_and_harms_nothing() -> None:
    engine, backfill = started(bytes=2_000)
    for number in range(100):
        engine.put(b"p|eve|%03d" % number, b"x")
    assert backfill.ended is not None
    assert "backfill_bytes_max" in backfill.ended
    assert not backfill.record
    with pytest.raises(BackfillEndedError, match="begin again for what is left"):
        engine.backfills.load(backfill, [])
    assert engine.count(b"t|ann|", b"t|ann}") == 2
    assert not list(engine.backfills)
    engine._check()


def test_dropping_the_join_ends_its_backfills() -> None:
    engine, backfill = started()
    engine.drop_join("t")
    engine.add_joins(parse(TIMELINE))
    with pytest.raises(BackfillEndedError):
        engine.backfills.load(backfill, [])


def test_a_join_that_computes_a_source_ends_the_backfill() -> None:
    engine, backfill = started()
    engine.add_joins(parse("p|<poster>|<time:3>|x = copy q|<poster>|<time:3>"))
    assert backfill.ended is None, "no key is of both patterns"
    engine.add_joins(parse("s|<user>|<poster>|x = copy f|<poster>|<user>; v|<a> = count q|<a>|<b>"))
    assert backfill.ended is None
    for key in BASE:
        engine.remove(key)
    engine.add_joins(parse("s|<user>|<poster> = copy f|<poster>|<user>"))
    assert backfill.ended is not None


@pytest.mark.parametrize(
    ("join", "reason"),
    [
        ("t|<u> = pull count s|<u>|<p>", "not as push"),
        ("t|<u> = snapshot 3 count s|<u>|<p>", "not as push"),
        ("t|<u> = copy s|<u> check p|<u>", "its value source is not the last one"),
        ("x|<u>|<p> = copy s|<u>|<p>; t|<u> = count x|<u>|<p>", "joins compute some of its sources"),
    ],
)
def test_joins_that_nobody_else_can_compute_are_refused(join: str, reason: str) -> None:
    engine = Engine()
    engine.add_joins(parse(join))
    with pytest.raises(NotBackfillableError, match=reason):
        engine.backfills.begin("t", b"", None, 0, level=None, record_bytes_max=1000)
    with pytest.raises(UnknownJoinError):
        engine.backfills.begin("nobody", b"", None, 0, level=None, record_bytes_max=1000)


def test_a_backfill_over_a_database_begins_once_its_sources_are_loaded_and_ends_when_they_are_forgotten() -> None:
    engine = Engine(backed=[b"p"])
    engine.add_joins(parse(TIMELINE))
    engine.put(b"s|ann|bob", b"1")

    def begin() -> Backfill:
        return engine.backfills.begin("t", b"", None, 0, level=None, record_bytes_max=1000)

    with pytest.raises(MissingError) as missing:
        begin()
    assert [*missing.value.ranges] == [Range(b"p|", b"p}")]
    engine.load(b"p|", b"p}", [(b"p|bob|100", b"Hi")])
    backfill = begin()
    engine.apply(b"p|bob|110", b"later")
    assert backfill.source_rows(b"p|", b"p}", 10).keys == [b"p|bob|100"]
    engine.backfills.load(backfill, [Piece(b"t|ann|", b"t|ann}", [b"100|bob"], [b"Hi"])])
    assert engine.scan(b"t|ann|", b"t|ann}").values == [b"Hi", b"later"]
    engine.forget(b"p|bob|", b"p|bob}")
    with pytest.raises(BackfillEndedError, match="not loaded any more"):
        engine.backfills.load(backfill, [])
    engine._check()


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (Piece(b"t|ann|", b"t|bob}", [], []), "fix 0 slots"),
        (Piece(b"t|ann}", b"t|ann|", [], []), "not within the backfill's range"),
        (Piece(b"s|ann|", b"s|ann}", [], []), "not within the backfill's range"),
        (Piece(b"t|ann|", b"t|ann}", [b"100|bob"], []), "1 tails and 0 values"),
        (Piece(b"t|ann|", b"t|ann}", [b"2", b"1"], [b"", b""]), "do not ascend"),
        (Piece(b"t|ann|", b"t|ann}", [b"1", b"1"], [b"", b""]), "do not ascend"),
        (Piece(b"t|ann|2", b"t|ann}", [b"100|bob"], [b""]), "outside"),
        (Piece(b"t|ann|", b"t|ann}", [b"100|bob"], [b""], [1]), "1 times"),
    ],
)
def test_malformed_pieces_are_refused_and_change_nothing(piece: Piece, reason: str) -> None:
    engine, backfill = started()
    good = Piece(b"t|bob|", b"t|bob}", [b"110|liz"], [b"Ho"])
    with pytest.raises(InvalidPieceError, match=reason):
        engine.backfills.load(backfill, [good, piece])
    assert engine.statistics().joins["t"].contexts == 0
    engine._check()


def test_contributions_that_cannot_be_are_found_where_they_matter() -> None:
    engine, backfill = started("n|<user> = check s|<user>|<poster> count p|<poster>|<time:3>")
    engine.remove(b"p|liz|110")
    with pytest.raises(InvalidPieceError, match="not those of the sources"):
        engine.backfills.load(backfill, [Piece(b"n|", b"n}", [b"ann"], [], [2])])
    assert dict(zip(*engine.scan(b"n|", b"n}"), strict=True)) == {b"n|ann": b"1"}
    engine._check()


@pytest.mark.parametrize(
    ("operator", "has_another"),
    [*((operator, False) for operator in ("copy", "count", "sum", "avg", "min", "max")), ("copy", True), ("min", True)],
)
def test_what_goes_must_have_been_there(operator: str, has_another: bool) -> None:
    """A contribution that the piece does not have goes: the piece is not of the backfill's revision."""
    engine = Engine()
    engine.add_joins(parse(f"n|<user> = check s|<user>|<poster> {operator} p|<poster>|<time:3>"))
    for key in BASE:
        engine.put(key, key[-3:])
    backfill = engine.backfills.begin("n", b"", None, engine.revision, level=None, record_bytes_max=1 << 20)
    engine.remove(b"p|liz|110")
    piece = Piece(b"n|", b"n}", [b"ann"], [b"100"], [1], [b"p|bob|100"] if operator == "copy" else [])
    if not has_another:
        piece = Piece(b"n|", b"n}", [], [], [])
    with pytest.raises(InvalidPieceError, match="not those of the sources"):
        engine.backfills.load(backfill, [piece])
    assert engine.scan(b"n|ann", b"n|b").values == [b"1" if operator == "count" else b"100"]
    engine._check()


def test_equal_bytes_are_one_object_in_all_timelines() -> None:
    engine, backfill = started()
    for user in (b"ann", b"bob"):
        tails, values = [bytes(bytearray(b"110|liz"))], [bytes(bytearray(b"Ho"))]
        tails, values = backfill.share(tails), backfill.share(values)
        engine.backfills.load(backfill, [Piece(b"t|%b|" % user, b"t|%b}" % user, tails, values)])
    one, other = engine.scan(b"t|ann|", b"t|ann}").values, engine.scan(b"t|bob|", b"t|bob}").values
    assert one[0] is other[0]


def test_pieces_of_all_sizes_in_any_order_make_the_same() -> None:
    for seed in range(30):
        random = Random(seed)
        engine, backfill = started(level=seed % 3)
        pieces = draw_pieces(random, backfill, BASE)
        for _ in range(2):
            engine.backfills.load(backfill, random.sample(pieces, len(pieces)))
        assert engine.count(b"t|", b"t}") == 3
        engine._check()


def test_what_no_read_can_fix_and_what_a_database_owns_is_not_backfilled() -> None:
    with pytest.raises(NotBackfillableError, match="cannot fix 4"):
        started(level=4)
    engine = Engine(backed=[b"article"])
    engine.add_joins(parse("by|<author>|<id> = copy article|<id> with author = <author>"))
    with pytest.raises(NotBackfillableError, match="a database owns"):
        engine.backfills.begin("by", b"", None, engine.revision, level=None, record_bytes_max=1 << 20)


def test_a_backfill_ends_when_a_database_comes_to_own_a_source() -> None:
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    backfill = engine.backfills.begin("t", b"", None, engine.revision, level=1, record_bytes_max=1 << 20)
    engine.back([b"p"])
    assert backfill.ended == "a database owns some of its sources now"
    engine._check()
