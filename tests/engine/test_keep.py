"""Joins with `keep`: only the last or the first rows of each group are there, for all who read."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from random import Random

import pytest
from pequod_grammar import parse, parse_some

from pequod.engine import Engine, JoinError, MissingError
from pequod.engine.joins import capped
from pequod.engine.joins.capped import Cap
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.frames import Frames
from tests.engine.test_unless import Both

FEED = "t|<user>|<time:1>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:1> keep last 2 of <user>"
FOLLOWS = "s|ann|bob s|ann|liz s|eve|liz"
POSTS = "p|bob|1 p|bob|3 p|liz|2 p|liz|4"


@pytest.fixture(params=[1, 8])
def spares(request: pytest.FixtureRequest) -> Iterator[int]:
    """Few and many spare rows of each group."""
    before, capped.SPARES_MIN = capped.SPARES_MIN, request.param
    yield request.param
    capped.SPARES_MIN = before


def test_each_group_has_its_last_rows() -> None:
    both = Both(FEED, f"{FOLLOWS} {POSTS}")
    assert list(both.rows("t")) == ["t|ann|3|bob", "t|ann|4|liz", "t|eve|2|liz", "t|eve|4|liz"]


def test_or_its_first_ones() -> None:
    both = Both(FEED.replace("last", "first"), f"{FOLLOWS} {POSTS}")
    assert list(both.rows("t")) == ["t|ann|1|bob", "t|ann|2|liz", "t|eve|2|liz", "t|eve|4|liz"]
    both.put("p|liz|0")
    assert list(both.rows("t"))[:2] == ["t|ann|0|liz", "t|ann|1|bob"]


def test_without_of_all_rows_are_one_group() -> None:
    both = Both("top|<score:1>|<who> = copy score|<who>|<score:1> keep last 2", "score|a|5 score|b|7 score|c|6")
    assert list(both.rows("top")) == ["top|6|c", "top|7|b"]
    both.remove("score|b|7")
    both.put("score|b|1")
    assert list(both.rows("top")) == ["top|5|a", "top|6|c"]


def test_a_read_of_a_part_shows_only_rows_that_are_among_those_of_the_group() -> None:
    both = Both(FEED, f"{FOLLOWS} {POSTS}")
    assert both.engine.scan(b"t|ann|1", b"t|ann|4").keys == [b"t|ann|3|bob"]
    assert both.engine.get(b"t|ann|2|liz") is None
    assert both.engine.count(b"t|ann|", b"t|ann|4") == 1
    assert both.engine.scan(b"t|ann|2", b"t|eve|3").keys == [b"t|ann|3|bob", b"t|ann|4|liz", b"t|eve|2|liz"]
    both.rows("t")


def test_a_row_that_comes_pushes_one_out_and_old_ones_change_nothing() -> None:
    both = Both(FEED, f"{FOLLOWS} {POSTS}")
    for post in ("p|bob|5", "p|bob|0", "p|liz|7", "p|liz|1", "p|bob|6"):
        both.put(post)
        both.rows("t")
    assert list(both.rows("t"))[:2] == ["t|ann|6|bob", "t|ann|7|liz"]


def test_the_rows_behind_take_the_places_of_those_that_go(spares: int) -> None:
    posts = [f"p|bob|{time}" for time in "0123456789abcdefghijklmnopqrstuvwxyz"]
    both = Both(FEED, f"{FOLLOWS} {' '.join(posts)}")
    for post in reversed(posts):
        both.rows("t")
        both.remove(post)
    assert both.rows("t") == {}
    computed = both.engine._catalog.find("t").counters.computed_ranges
    assert computed == 1, f"with {spares} spare rows, the same context was filled again"


def test_a_row_beyond_what_is_known_may_change_while_it_is_not_seen(spares: int) -> None:
    both = Both(FEED, f"{FOLLOWS} {' '.join(f'p|bob|{time}' for time in range(10))}")
    both.rows("t")
    both.put("p|bob|0", "new")
    both.remove("p|bob|1")
    both.put("p|liz|1", "hers")
    for time in reversed(range(2, 10)):
        both.remove(f"p|bob|{time}")
    assert both.rows("t") == {"t|ann|0|bob": "new", "t|ann|1|liz": "hers", "t|eve|1|liz": "hers"}
    assert spares


@pytest.mark.usefixtures("spares")
def test_subscriptions_that_change_bring_and_take_rows() -> None:
    both = Both(FEED, f"{FOLLOWS} {POSTS}")
    for time in "56789":
        both.put(f"p|liz|{time}")
    both.rows("t")
    both.remove("s|ann|liz")
    assert list(both.rows("t"))[:2] == ["t|ann|1|bob", "t|ann|3|bob"]
    both.put("s|ann|liz")
    both.put("p|bob|8")
    assert list(both.rows("t"))[:2] == ["t|ann|8|liz", "t|ann|9|liz"]


@pytest.mark.usefixtures("spares")
def test_joins_above_see_the_rows_that_are_kept_and_no_others() -> None:
    both = Both(f"{FEED}; n|<user> = count t|<user>|<time:1>|<poster>", f"{FOLLOWS} {POSTS}")
    assert both.rows("n") == {"n|ann": "2", "n|eve": "2"}
    both.put("p|bob|9")
    assert both.rows("n") == {"n|ann": "2", "n|eve": "2"}
    for post in ("p|bob|9", "p|bob|3", "p|bob|1", "p|liz|2"):
        both.remove(post)
        both.rows("n")
    assert both.rows("n") == {"n|ann": "1", "n|eve": "1"}


@pytest.mark.usefixtures("spares")
def test_a_watch_tells_what_is_pushed_out_and_what_takes_its_place() -> None:
    both = Both(FEED, f"s|ann|bob {' '.join(f'p|bob|{time}' for time in range(5))}")
    both.rows("t")
    watch = both.engine.watch(b"t|ann|", b"t|ann}", lambda: None)
    both.put("p|bob|5")
    told = [(change.key, change.new) for change in both.engine.settle(watch)]
    assert sorted(told) == [(b"t|ann|3|bob", None), (b"t|ann|5|bob", b"x")]
    for time in "5432":
        both.remove(f"p|bob|{time}")
    rows = {b"t|ann|5|bob", b"t|ann|4|bob"}
    for change in both.engine.settle(watch):
        (rows.discard if change.new is None else rows.add)(change.key)
    assert rows == {b"t|ann|0|bob", b"t|ann|1|bob"}


@pytest.mark.parametrize("end", ["last", "first"])
def test_counts_keep_groups_of_several_slots(end: str) -> None:
    text = f"n|<room>|<day:1>|<who> = count say|<room>|<day:1>|<who>|<k> keep {end} 1 of <room>, <day>"
    both = Both(text, "say|a|1|x|1 say|a|1|x|2 say|a|1|y|1 say|a|2|x|1 say|b|1|y|1")
    assert len(both.rows("n")) == 3
    both.engine.invalidate(b"n|", b"n}")
    assert len(both.engine.scan(b"n|a|1|x", b"n|b|").keys) == 2
    for key in ("say|a|1|y|1", "say|a|1|x|2", "say|a|1|x|1"):
        both.remove(key)
        both.rows("n")
    both.put("say|a|1|z|1")
    assert both.rows("n")["n|a|1|z"] == "1"


def test_pull_and_snapshot_keep_as_well() -> None:
    for maintenance in ("pull", "snapshot 10"):
        both = Both(f"t|<a>|<b> = {maintenance} copy s|<a>|<b> keep last 2 of <a>", "s|a|1 s|a|2 s|a|3 s|b|1")
        assert both.engine.scan(b"t|a|1", b"t|a|3").keys == [b"t|a|2"]
        assert list(both.rows("t")) == ["t|a|2", "t|a|3", "t|b|1"]


POSTED = [f"{number:04d}" for number in range(3000)]


def test_the_memory_of_a_full_group_stays_flat_while_posts_go_on() -> None:
    text = "t|<u>|<time:4>|<p> = check s|<u>|<p> copy p|<p>|<time:4> keep last 20 of <u>"
    both = Both(text, f"s|ann|bob s|eve|bob {' '.join(f'p|bob|{time}' for time in POSTED[:200])}")
    engine, most = both.engine, []
    for user in ("ann", "eve"):
        engine.scan(f"t|{user}|".encode(), f"t|{user}}}".encode())
    for number, time in enumerate(POSTED[200:]):
        engine.put(f"p|bob|{time}".encode(), b"x")
        if number % 100 == 0:
            # Nobody reads eve's.
            engine.scan(b"t|ann|", b"t|ann}")
        most.append(engine.ledger.entry_count)
    plan = engine._catalog.find("t").plan_at(1)
    assert plan.cap is not None
    assert max(most) <= 2 * plan.cap.held
    assert engine.scan(b"t|eve|", b"t|eve}").keys == [f"t|eve|{time}|bob".encode() for time in POSTED[-20:]]
    engine._check()


def test_a_log_without_rows_leaves_no_more_rows_than_reads_may_see() -> None:
    both = Both(FEED, f"{FOLLOWS} {POSTS}")
    both.engine.scan(b"t|ann|", b"t|ann}")
    both.put("p|bob|7")
    both.put("s|ann|zed")
    assert list(both.rows("t"))[:2] == ["t|ann|4|liz", "t|ann|7|bob"]


@pytest.mark.usefixtures("spares")
def test_fan_outs_and_removals_in_any_order() -> None:
    both = Both(FEED, "s|ann|bob s|ann|liz p|bob|0")
    both.rows("t")
    random = Random(3)
    for _ in range(600):
        key = f"p|{random.choice(['bob', 'liz'])}|{random.choice('0123456789abcdefghij')}"
        if random.random() < 0.6:
            both.put(key, random.choice("xy"))
        elif key.encode() in both.model.base:
            both.remove(key)
        if random.random() < 0.3:
            assert both.engine.scan(b"t|ann|", b"t|ann}").keys == [
                row[0] for row in both.model.scan(b"t|ann|", b"t|ann}")
            ]
        both.engine._check()
    both.rows("t")


DECIDED = (
    "t|<user>|<time:1>|<to:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:1>|<to:3>"
    " check s|<user>|<to> unless mute|<user>|<to>|<why> unless off|<user> keep {end} 2 of <user>"
)
REPLIES = "s|ann|bob s|ann|liz p|bob|1|bob p|bob|2|eve p|bob|3|liz p|liz|4|eve p|liz|5|bob p|liz|6|eve"


@pytest.mark.parametrize("end", ["last", "first"])
def test_sources_behind_the_posts_say_which_rows_are_among_the_last(end: str) -> None:
    both = Both(DECIDED.format(end=end), REPLIES)
    assert list(both.rows("t|ann")) == (
        ["t|ann|3|liz|bob", "t|ann|5|bob|liz"] if end == "last" else ["t|ann|1|bob|bob", "t|ann|3|liz|bob"]
    )
    for key in ("s|ann|eve", "mute|ann|liz|loud", "mute|ann|liz|rude", "p|liz|7|bob", "mute|ann|eve|x", "off|ann"):
        both.put(key)
        both.rows("t|ann")
    for key in ("off|ann", "mute|ann|liz|loud", "s|ann|eve", "mute|ann|liz|rude", "p|liz|7|bob", "s|ann|bob"):
        both.remove(key)
        both.rows("t|ann")


def test_a_key_that_comes_before_any_post_counts_for_later_ones() -> None:
    both = Both(DECIDED.format(end="last"), "s|ann|bob")
    assert both.rows("t|ann") == {}
    for key in ("p|bob|1|bob", "mute|ann|bob|x", "p|bob|2|bob"):
        both.put(key)
        both.rows("t|ann")
    both.remove("mute|ann|bob|x")
    assert list(both.rows("t|ann")) == ["t|ann|1|bob|bob", "t|ann|2|bob|bob"]


def test_such_sources_cost_one_place_of_a_group_and_not_one_of_each_row() -> None:
    posts = [f"p|bob|{time}|{to}" for time in "0123456789" for to in ("bob", "eve", "liz")]
    both = Both(DECIDED.format(end="last"), f"s|ann|bob s|ann|liz {' '.join(posts)}")
    both.rows("t|ann")
    # p|bob|, p|liz|; s|ann| twice; mute|ann|, off|ann
    assert both.engine.statistics().joins["t"].updaters == 6


def test_what_decides_is_missed_with_the_first_source_and_the_posts_next() -> None:
    engine = Engine(backed=[b"s", b"p", b"mute"])
    engine.add_joins(parse(DECIDED.format(end="last")))
    loads = []
    for _ in range(2):
        with pytest.raises(MissingError) as lacking:
            engine.scan(b"t|ann|", b"t|ann}")
        loads.append([(each.first, each.last) for each in lacking.value.ranges])
        for first, last in loads[-1]:
            engine.load(first, last, [(b"s|ann|bob", b"")] if first == b"s|ann|" else [])
    assert engine.scan(b"t|ann|", b"t|ann}").keys == []
    assert sorted(loads[0]) == [(b"mute|ann|", b"mute|ann}"), (b"s|ann|", b"s|ann}")]
    assert loads[1] == [(b"p|bob|", b"p|bob}")]


def forget_refills(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Context, "is_short", property(lambda _: False))
    patch.setattr(Context, "_check", lambda _: None)


def keep_over_two_contexts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cap, "widen", lambda _, first, last: (first, last))


def forget_the_edge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cap, "is_beyond", lambda self, tail, other: (tail > other) == self.is_last)


def wait_for_rows_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Frames, "add_all", lambda *_: None)


@pytest.mark.parametrize("fault", [None, wait_for_rows_alone])
def test_planted_faults_of_deciding_sources_are_found(fault: Callable[[pytest.MonkeyPatch], None] | None) -> None:
    with pytest.MonkeyPatch.context() as patch, nullcontext() if fault is None else pytest.raises(AssertionError):
        if fault is not None:
            fault(patch)
        both = Both(DECIDED.format(end="last"), REPLIES)
        for key in ("s|ann|eve", "mute|ann|liz|loud", "off|ann"):
            both.engine.scan(b"t|ann|", b"t|ann}")
            both.put(key)
        both.rows("t|ann")


@pytest.mark.parametrize("fault", [None, forget_refills, keep_over_two_contexts, forget_the_edge])
def test_planted_faults_are_found(fault: Callable[[pytest.MonkeyPatch], None] | None) -> None:
    """The same steps are right without a fault, and differ from the naive model with each."""
    with pytest.MonkeyPatch.context() as patch, nullcontext() if fault is None else pytest.raises(AssertionError):
        if fault is not None:
            fault(patch)
        both = Both(FEED, f"{FOLLOWS} {' '.join(f'p|bob|{time}' for time in '0123456789abcdefghijklmnopqr')}")
        assert both.engine.scan(b"t|ann|1", b"t|ann|k").keys == []
        both.rows("t")
        for time in "rqponmlkjihgfedcba9":
            both.remove(f"p|bob|{time}")
            both.put(f"p|bob|{time}" if time in "gd" else f"p|liz|{time}")
        both.rows("t")
        for time in "rqponmlkjihgfedcba9":
            both.remove(f"p|liz|{time}")
        both.rows("t")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (FEED, "push; a first read computes the last 10 rows of a group; at most 34 of its rows are held"),
        (FEED.replace("last", "first"), "push; a first read computes the first 10 rows of a group; at most 18"),
        ("t|<a>|<b> = count s|<a>|<b>|<c> keep last 4", "push; a first read computes all rows of a group; all of"),
        ("t|<a>|<b> = pull copy s|<a>|<b> keep last 2 of <a>", "pull; a read computes the last 2 rows of a group"),
    ],
)
def test_explain_says_what_it_costs(text: str, shown: str) -> None:
    engine = Engine()
    engine.add_joins(parse(text))
    assert engine.explain_join("t").maintenance.startswith(shown)


def test_a_first_read_reads_the_ends_of_its_sources() -> None:
    posts = [f"p|{who}|{time}" for who in ("bob", "liz") for time in "0123456789abcdefghijklmnopqrstuvwxyz"]
    both = Both(FEED, f"{FOLLOWS} {' '.join(posts)}")
    assert both.engine.scan(b"t|ann|", b"t|ann}").keys == [b"t|ann|z|bob", b"t|ann|z|liz"]
    read = both.engine._catalog.find("t").counters.rows_computed
    assert read == 2 + capped.SPARES_MIN, "hers, with spare ones"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("t|<a>|<b> = copy p|<a>|<b> keep last 0 of <a>", "write a number from 1 to 100,000"),
        ("t|<a>|<b> = copy p|<a>|<b> keep last 100001", "write a number from 1 to 100,000"),
        ("t|<a>|<b> = copy p|<a>|<b> keep last 2 of <b>", "are not the first slots of the output"),
        ("t|<a>|<b> = copy p|<a>|<b> keep last 2 of <a>, <b>", "write `of <a>`, or fewer of these"),
        ("t|<a> = copy p|<a> keep last 2 of <a>", "write it without `of`"),
        ("t|all = count p|<a> keep last 2", "leave `keep` out"),
        ("t|<a> = copy p|<a> keep 2", "'2' stands where `last` or `first` is expected"),
        ("t|<a> = copy p|<a> keep last", "where a number of keys is expected"),
        ("t|<a> = copy p|<a> keep last 2.5", "'2.5' is no number of keys"),
        ("t|<a>|<b> = copy p|<a>|<b> keep last 2 of a", "'a' stands where a slot is expected"),
        ("t|<a>|<b> = copy p|<a>|<b> keep last 2 of <a:3>", "write <a>: its width is the output's"),
        ("t|<a>|<b>|<c> = copy p|<a>|<b>|<c> keep last 2 of <a> <b>", "several slots stand between commas"),
        ("t|<a> = copy p|<a> keep last 2 check q|<a>", "`keep` ends a join"),
        ("t|<a> = keep last 2 copy p|<a>", "`keep` ends a join"),
        ("t|<a> = copy p|<a> keep last 2 u|<a> = copy p|<a>", "put a `;` between them"),
        ("t|<a> = copy p|<a> kep last 2", "did you mean `keep`?"),
        ("t|<a>|<b> = copy p|<a>|<b> limit 10", "`keep last 10 of <user>`"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, shown: str) -> None:
    with pytest.raises(JoinError) as caught:
        Engine().add_joins(parse_some(text))
    assert shown in f"{caught.value}"


@pytest.mark.parametrize("end", ["keep last 400 of <user>", "keep first 1 of <user>, <time>", "keep last 100000"])
def test_it_is_printed_as_it_is_written(end: str) -> None:
    text = FEED.replace("keep last 2 of <user>", end)
    (spec,) = parse(text)
    assert str(spec) == text
    assert spec != parse(FEED)[0]
