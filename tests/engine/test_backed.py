"""Tables that a database owns: what is missing is said at once, absence is remembered, forgetting is exact."""

import pytest
from pequod_grammar import parse

from pequod.engine import BackedKeyError, Engine, JoinError, LimitExceededError, MissingError, Range, prefix_end
from pequod.engine.base.presence import PART_ROWS_MAX, Presence
from pequod.engine.writes.forgetter import FORGOTTEN_MAX
from pequod.language.missing import NextGroups
from tests.engine.joins import TIMELINE

Rows = dict[bytes, bytes]


def timelines() -> Engine:
    engine = Engine(backed=[b"s", b"p"])
    engine.add_joins(parse(TIMELINE))
    return engine


def whole(prefix: bytes) -> tuple[bytes, bytes | None]:
    return prefix, prefix_end(prefix)


def load(engine: Engine, database: Rows, first: bytes, last: bytes | None) -> None:
    engine.load(first, last, [(key, value) for key, value in database.items() if last is None or first <= key < last])


def missing(engine: Engine, first: bytes, last: bytes | None) -> tuple[Range, ...]:
    with pytest.raises(MissingError) as caught:
        engine.scan(first, last)
    engine._check()
    return caught.value.ranges


def test_a_read_names_every_missing_range_that_it_can_tell() -> None:
    engine = timelines()
    posters = [b"%04d" % number for number in range(1000)]
    database = {b"s|ann|" + poster: b"" for poster in posters} | {
        b"p|" + poster + b"|0100": b"Hi" for poster in posters
    }
    first = missing(engine, *whole(b"t|ann|"))
    assert first == (whole(b"s|ann|"),)
    load(engine, database, *first[0])
    second = missing(engine, *whole(b"t|ann|"))
    assert second == tuple(whole(b"p|" + poster + b"|") for poster in posters)
    for one in second:
        load(engine, database, *one)
    assert len(engine.scan(*whole(b"t|ann|")).keys) == 1000


def test_only_what_the_bounds_of_a_read_need_is_missing() -> None:
    engine = timelines()
    load(engine, {b"s|ann|bob": b""}, *whole(b"s|ann|"))
    assert missing(engine, b"t|ann|0100", b"t|ann|0200") == ((b"p|bob|0100", b"p|bob|0200"),)


def test_a_read_does_what_it_can_before_it_gives_up() -> None:
    engine = timelines()
    database = {b"s|ann|bob": b"", b"p|bob|0100": b"Hi"}
    load(engine, database, *whole(b"s|ann|"))
    load(engine, database, *whole(b"p|bob|"))
    engine.scan(*whole(b"t|ann|"))
    assert b"s|ann|" not in [first for first, _ in missing(engine, *whole(b"t|"))]
    assert engine.scan(*whole(b"t|ann|")).values == [b"Hi"]


def test_absence_is_remembered() -> None:
    engine = timelines()
    assert missing(engine, *whole(b"p|bob|")) == (whole(b"p|bob|"),)
    engine.load(b"p|bob|", b"p|bob}", [])
    assert engine.scan(*whole(b"p|bob|")).keys == []
    assert engine.get(b"p|bob|0100") is None
    with pytest.raises(MissingError, match="1 ranges"):
        engine.get(b"p|liz|0100")


def test_changes_count_where_something_is_loaded() -> None:
    engine = timelines()
    load(engine, {b"s|ann|bob": b""}, *whole(b"s|ann|"))
    load(engine, {}, *whole(b"p|bob|"))
    assert engine.scan(*whole(b"t|ann|")).keys == []
    assert engine.apply(b"p|bob|0100", b"Hi")
    assert not engine.apply(b"p|liz|0100", b"nobody asked")
    assert not engine.apply(b"x|1", b"not backed")
    assert engine.scan(*whole(b"t|ann|")).values == [b"Hi"]
    assert engine.apply(b"s|ann|liz", b"")
    assert missing(engine, *whole(b"t|ann|")) == (whole(b"p|liz|"),)
    load(engine, {b"p|liz|0090": b"Ho"}, *whole(b"p|liz|"))
    assert engine.scan(*whole(b"t|ann|")).values == [b"Ho", b"Hi"]
    engine._check()


def test_forgetting_drops_what_was_computed_from_it_and_nothing_else() -> None:
    engine = timelines()
    database = {b"s|ann|bob": b"", b"s|liz|cat": b"", b"p|bob|0100": b"Hi", b"p|cat|0100": b"Mew"}
    load(engine, database, b"s|", b"s}")
    load(engine, database, b"p|", b"p}")
    assert len(engine.scan(*whole(b"t|ann|")).keys) == len(engine.scan(*whole(b"t|liz|")).keys) == 1
    engine.forget(b"p|bob|", b"p|bob}")
    engine._check()
    assert engine.scan(*whole(b"t|liz|")).values == [b"Mew"]
    assert missing(engine, *whole(b"t|ann|")) == (whole(b"p|bob|"),)
    assert Range(b"p|bob|", b"p|bob}") not in engine.loaded()


def test_loading_anew_replaces_what_was_there() -> None:
    engine = timelines()
    load(engine, {b"s|ann|bob": b""}, *whole(b"s|"))
    load(engine, {b"p|bob|0100": b"Hi", b"p|bob|0110": b"gone"}, *whole(b"p|"))
    engine.scan(*whole(b"t|ann|"))
    load(engine, {b"p|bob|0100": b"Ho"}, *whole(b"p|bob|"))
    assert engine.scan(*whole(b"t|ann|")).values == [b"Ho"]
    engine._check()


def test_a_watch_tells_what_differs_once_a_forgotten_range_is_back() -> None:
    engine = timelines()
    load(engine, {b"s|ann|bob": b""}, *whole(b"s|"))
    load(engine, {b"p|bob|0100": b"Hi", b"p|bob|0110": b"stays"}, *whole(b"p|"))
    watches = [engine.watch(*whole(prefix), lambda: None) for prefix in (b"t|ann|", b"p|bob|")]
    engine.forget(b"p|", b"p}")
    for watch in watches:
        with pytest.raises(MissingError):
            engine.settle(watch)
    load(engine, {b"p|bob|0110": b"stays", b"p|bob|0120": b"new"}, *whole(b"p|bob|"))
    told = [[(change.key, change.old, change.new) for change in engine.settle(watch)] for watch in watches]
    assert told == [
        [(b"t|ann|0100|bob", b"Hi", None), (b"t|ann|0120|bob", None, b"new")],
        [(b"p|bob|0100", b"Hi", None), (b"p|bob|0120", None, b"new")],
    ]


def test_clients_write_no_keys_of_the_database() -> None:
    engine = timelines()
    with pytest.raises(BackedKeyError, match="write it to the database"):
        engine.put(b"p|bob|0100", b"Hi")
    with pytest.raises(BackedKeyError, match="write it to the database"):
        engine.remove(b"p|bob|0100")
    engine.put(b"x|1", b"ours")
    assert engine.get(b"x|1") == b"ours"


def test_no_join_computes_keys_of_the_database() -> None:
    engine = timelines()
    with pytest.raises(JoinError, match="belong to the database"):
        engine.add_joins(parse("p|<a>|<b> = copy x|<a>|<b>"))
    assert len(engine.joins()) == 1


def test_ranges_that_touch_are_one_and_a_piece_can_be_taken_out() -> None:
    presence = Presence()
    for first, last in [(b"a", b"c"), (b"e", b"g"), (b"c", b"e"), (b"x", b"z")]:
        presence.add(first, last, 1)
        presence._check()
    assert [part.range for part in presence] == [(b"a", b"g"), (b"x", b"z")]
    presence.forget(b"b", b"f")
    presence._check()
    assert [part.range for part in presence] == [(b"a", b"b"), (b"f", b"g"), (b"x", b"z")]
    assert presence.gaps(b"", b"y", 1) == [(b"", b"a"), (b"b", b"f"), (b"g", b"x")]
    assert presence.holds(b"x", b"z", 1)
    assert not presence.holds(b"x", b"zz", 1)


def test_large_parts_stay_parts_and_a_read_goes_over_several() -> None:
    presence = Presence()
    for first, last in [(b"a", b"c"), (b"c", b"e"), (b"e", b"g")]:
        presence.add(first, last, PART_ROWS_MAX)
    presence.add(b"g", b"h", 0)
    assert [part.range for part in presence] == [(b"a", b"c"), (b"c", b"e"), (b"e", b"h")]
    assert presence.holds(b"b", b"f", 7)
    assert [part.last_used for part in presence] == [7, 7, 7]
    assert not presence.holds(b"b", b"i", 8)


def test_a_range_that_is_forgotten_piece_by_piece_is_forgotten() -> None:
    """A range that was empty when it was loaded, and grew: a single part, with many contexts on it."""
    engine = timelines()
    readers = 3 * FORGOTTEN_MAX
    load(engine, {b"s|%04d|bob" % number: b"" for number in range(readers)}, *whole(b"s|"))
    load(engine, {}, *whole(b"p|"))
    for number in range(3 * FORGOTTEN_MAX):
        engine.apply(b"p|bob|%04d" % number, b"Hi")
    for number in range(readers):
        engine.scan(b"t|%04d|1500" % number, b"t|%04d}" % number)
    watch = engine.watch(b"p|", b"p}", lambda: None)
    database = {b"p|bob|0000": b"Hi", b"p|bob|0003": b"changed"}
    pieces = 0
    while engine.forget_some(b"p|bob|0001", b"p}"):
        pieces += 1
        engine._check()
    assert pieces >= 6, "pieces are small"
    assert engine.loaded()[0] == Range(b"p|", b"p|bob|0001")
    assert engine.loaded()[1:] == [Range(*whole(b"s|"))]  # type: ignore[arg-type]
    assert watch.lost == [(b"p|bob|0001", b"p}")], "a watch keeps one range for it, not one for each piece"
    assert not engine.forget_some(b"p|bob|0001", b"p}")
    assert missing(engine, *whole(b"t|0007|")) == (Range(b"p|bob|0001", b"p|bob}"),)
    load(engine, database, b"p|bob|0001", b"p}")
    changes = engine.settle(watch)
    assert (b"p|bob|0003", b"Hi", b"changed") in changes
    assert len(changes) == 3 * FORGOTTEN_MAX - 1
    assert engine.scan(*whole(b"t|0007|")).values == [b"Hi", b"changed"]
    engine.unwatch(watch)


def test_a_table_is_backed_from_a_moment_on() -> None:
    """Databases may be named while the server runs: what was computed without them is right no more."""
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    engine.put(b"s|ann|bob", b"1")
    assert engine.scan(*whole(b"t|ann|")).keys == []
    timeline, posts = (engine.watch(*whole(prefix), lambda: None) for prefix in (b"t|ann|", b"p|"))
    before = engine.revision
    for name, why in ((b"t", "computed keys"), (b"s", "clients have written")):
        with pytest.raises(ValueError, match=why):
            engine.back([b"p", name])
    assert engine.revision == before, "nothing has changed"
    engine.back([b"p"])
    assert engine.revision == before + 1
    assert timeline.ended is not None
    assert posts.lost == [whole(b"p|")]
    assert engine.backed_reads(*whole(b"t|ann|")) == (whole(b"p|"),)
    assert engine.backed_reads(b"p|bob|", b"s|") == ((b"p|bob|", b"p}"),)
    assert engine.backed_reads(*whole(b"s|")) == ()
    assert missing(engine, *whole(b"t|ann|")) == (whole(b"p|bob|"),)
    load(engine, {b"p|bob|0100": b"Hi"}, *whole(b"p|bob|"))
    assert engine.scan(*whole(b"t|ann|")).values == [b"Hi"]
    engine.back([b"p"])
    assert engine.revision == before + 2, "it is backed already; one row was loaded"
    with pytest.raises(BackedKeyError):
        engine.put(b"p|bob|0200", b"Ho")


def test_a_load_beside_what_may_not_go_is_refused_as_a_whole() -> None:
    engine = Engine(backed=[b"p"], memory_limit=1 << 20)
    engine.add_joins(parse("t|<u>|<x> = copy q|<u>|<x>"))
    for user in range(40):
        engine.put(b"q|%02d|1" % user, b"x")
        engine.scan(b"t|%02d|" % user, b"t|%02d}" % user)
    watch = engine.watch(b"t|", b"t}", lambda: None)
    engine.weigh()
    engine.ledger.limit(engine.ledger.total_bytes + 100)
    rows = {b"p|%02d" % number: b"x" * 100 for number in range(20)}
    with pytest.raises(LimitExceededError):
        load(engine, rows, *whole(b"p|"))
    assert engine.loaded() == []
    assert missing(engine, *whole(b"p|")) == (whole(b"p|"),)
    engine.unwatch(watch)
    load(engine, rows, *whole(b"p|"))
    assert len(engine.scan(*whole(b"p|")).keys) == 20
    for number in range(4000):
        engine.apply(b"p|%02d" % (number % 20), b"%0100d" % number)
    assert engine.ledger.total_bytes <= engine.ledger.limit_bytes
    engine._check()


def test_what_is_forgotten_is_reported() -> None:
    """A server ends the subscriptions of ranges that its engine has forgotten by itself."""
    engine = timelines()
    load(engine, {b"p|bob|0100": b"Hi", b"p|bob|0300": b"Ho"}, *whole(b"p|bob|"))
    engine.forget(b"p|bob|0300", b"p|bob}")
    engine.report_forgotten()
    engine.report_forgotten()
    assert engine.forgotten() == [], "what was forgotten before is nobody's business"
    assert engine.absent(b"p|bob|", b"p|liz|") == [Range(b"p|bob|0300", b"p|liz|")]
    engine.forget(b"p|bob|0100", b"p|bob|0200")
    engine.forget(b"p|bob|0050", b"p|bob|0100")
    assert engine.forgotten() == [Range(b"p|bob|0050", b"p|bob|0200")]
    assert engine.forgotten() == []
    engine.back([b"x"])
    load(engine, {b"x|1": b"a"}, *whole(b"x|"))
    engine.release(*whole(b"x|"))
    engine.release(*whole(b"p|bob|"))
    engine.evict(1)
    assert engine.forgotten(), "evicted is forgotten as well, of tables that came later too"
    assert [engine.is_followed(key) for key in (b"s|ann|bob", b"none|1", b"none")] == [False] * 3


def test_rows_that_wait_for_a_read_stay_until_the_read_is_given_up() -> None:
    engine = timelines()
    for poster in (b"bob", b"liz"):
        load(engine, {b"p|" + poster + b"|0100": b"Hi"}, *whole(b"p|" + poster + b"|"))
    assert engine.evict(2) == 0
    engine.release(*whole(b"p|bob|"))
    assert engine.evict(2) == 1
    assert (engine.is_loaded(b"p|bob|0100"), engine.is_loaded(b"p|liz|0100")) == (False, True)


def test_the_parts_of_loaded_ranges_are_counted_within_bounds() -> None:
    engine = Engine(backed=[b"p", b"s"])
    engine.add_joins(parse(TIMELINE))
    for first, last in ((b"p|1", b"p|3"), (b"p|5", b"p|6"), (b"p|7", b"p|9"), (b"s|1", b"s|2")):
        load(engine, {}, first, last)
    bounds = [b"%s|%d" % (table, number) for table in (b"p", b"s") for number in range(10)]
    for first in bounds:
        for last in bounds:
            over = [one for one in engine.loaded() if first < last and one.first < last and first < one.last]
            assert engine.count_loaded(first, last) == len(over), (first, last)
    assert engine.count_loaded(b"", None) == engine.loaded_range_count == 4


def test_a_log_names_all_that_it_lacks_and_is_applied_when_it_is_there() -> None:
    engine = timelines()
    database = {b"p|%s|01%02d" % (poster, time): poster for poster in (b"bob", b"eve", b"liz") for time in range(3)}
    load(engine, {b"s|ann|bob": b""}, *whole(b"s|ann|"))
    load(engine, database, *whole(b"p|bob|"))
    since = (b"t|ann|0101", b"t|ann}")
    assert [key[-3:] for key in engine.scan(*since).keys] == [b"bob", b"bob"]
    for key, value in ((b"s|ann|eve", b""), (b"s|ann|liz", b""), (b"s|ann|bob", None)):
        assert engine.apply(key, value)
    before = engine.statistics().joins["t"]
    assert missing(engine, *since) == ((b"p|eve|0101", b"p|eve}"), (b"p|liz|0101", b"p|liz}"))
    load(engine, database, *whole(b"p|eve|"))
    assert missing(engine, *since) == ((b"p|liz|0101", b"p|liz}"),)
    load(engine, database, *whole(b"p|liz|"))
    assert [key[-8:] for key in engine.scan(*since).keys] == [b"0101|eve", b"0101|liz", b"0102|eve", b"0102|liz"]
    after = engine.statistics().joins["t"]
    assert (after.log_applied - before.log_applied, after.computed_ranges) == (3, before.computed_ranges)
    # The timeline waits at what its log brought, and no longer at what it took away.
    for key in (b"p|eve|0103", b"p|bob|0103"):
        assert engine.apply(key, b"new")
    assert [key[-8:] for key in engine.scan(b"t|ann|0103", b"t|ann}").keys] == [b"0103|eve"]
    engine.forget(*whole(b"p|eve|"))
    assert missing(engine, *since) == ((b"p|eve|0101", b"p|eve}"),)
    engine._check()


def test_a_subscription_that_came_and_went_needs_nothing() -> None:
    engine = timelines()
    load(engine, {}, *whole(b"s|ann|"))
    assert not engine.scan(*whole(b"t|ann|")).keys
    for value in (b"", None):
        assert engine.apply(b"s|ann|eve", value)
    assert not engine.scan(*whole(b"t|ann|")).keys
    engine._check()


def test_the_groups_that_a_read_needs_next_follow_from_keys() -> None:
    first = NextGroups(b"s|ann|", b"p|", None, b"|", b"0100", None)
    keys = [b"s|ann|bob", b"s|ann|", b"s|ann|a|b", b"s|ann|liz"]
    assert first.of(keys) == [(b"p|bob|0100", b"p|bob}"), (b"p|liz|0100", b"p|liz}")]
    second = NextGroups(b"s|ann|", b"p|", 3, b"", b"5", b"7")
    assert second.of([b"s|ann|bob", b"s|ann|liza"]) == [(b"p|bob5", b"p|bob7")]
    assert second._replace(first=b"7").of([b"s|ann|bob"]) == [], "nothing is between the bounds"
