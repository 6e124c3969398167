"""Reads of the newest rows of a group, of which a join keeps the last ones: they need nothing below their first key."""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, MissingError
from pequod.engine.joins import capped
from pequod.engine.joins.capped import Kept
from pequod.engine.joins.contexts import Context
from pequod.language.ranges import Range, prefix_end
from tests.engine.test_unless import Both

FEED = "t|<user>|<time:1>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:1> keep last {count} of <user>"
TIMES = "0123456789abcdefghij"
POSTS = " ".join(f"p|{poster}|{time}" for poster in ("bob", "liz") for time in TIMES)
FOLLOWS = "s|ann|bob s|ann|liz s|eve|liz"


@pytest.fixture(autouse=True, params=[1, 8])
def spares(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few and many spare rows of each group."""
    before, capped.SPARES_MIN = capped.SPARES_MIN, request.param
    yield
    capped.SPARES_MIN = before


def check(both: Both, since: str, user: str = "ann") -> list[str]:
    """Return what a check of a timeline shows, which is what the model says."""
    first, last = f"t|{user}|{since}".encode(), f"t|{user}}}".encode()
    keys = both.engine.scan(first, last).keys
    assert keys == [key for key, _ in both.model.scan(first, last)]
    both.engine._check()
    return [key.decode() for key in keys]


def computed(both: Both) -> tuple[int, int]:
    """Return how many ranges and rows were computed."""
    counters = both.engine._catalog.find("t").counters
    return counters.computed_ranges, counters.rows_computed


def test_a_check_computes_the_rows_from_its_first_key_on() -> None:
    both = Both(FEED.format(count=10), f"{FOLLOWS} {POSTS}")
    assert len(check(both, "i")) == 4
    assert computed(both) == (1, 4)
    assert len(check(both, "j")) == 2
    assert computed(both) == (1, 4)


#: Sources behind the copied one, and whether all their keys of a timeline can be read at once, beside its newest rows.
BEHIND = {
    "check on|all": True,
    "check m|<poster>": False,
    "check m|<user>|<poster>": True,
    "unless m|<poster>|<user>": False,
    "unless m|<user>|<poster>": True,
}


@pytest.mark.parametrize("source", BEHIND)
def test_the_newest_rows_are_read_alone_if_what_decides_about_them_lies_together(source: str) -> None:
    copied = "t|<user>|<time:1>|<poster> = copy p|<user>|<time>|<poster>"
    both = Both(f"{copied} {source} keep last 2 of <user>", " ".join(f"p|ann|{time}|bob" for time in TIMES))
    (join,) = both.engine._catalog
    assert join.plan_at(1).reads_ends is BEHIND[source]
    for key in ("on|all", "m|bob", "m|ann|bob", "m|bob|ann"):
        check(both, "a")
        both.put(key, "")
        check(both, "a")


def test_nothing_below_it_is_loaded_from_a_database() -> None:
    engine = Engine(backed=[b"p"])
    engine.add_joins(parse(FEED.format(count=10)))
    engine.put(b"s|ann|bob", b"")
    with pytest.raises(MissingError) as lacking:
        engine.scan(b"t|ann|7", b"t|ann}")
    assert [(each.first, each.last) for each in lacking.value.ranges] == [(b"p|bob|7", b"p|bob}")]


def test_a_pull_join_computes_them_alone_too() -> None:
    both = Both(FEED.format(count=10).replace("= check", "= pull check"), f"{FOLLOWS} {POSTS}")
    assert len(check(both, "i")) == 4
    assert computed(both)[1] == 4


def test_of_the_first_rows_of_a_group_all_are_computed() -> None:
    both = Both(FEED.format(count=10).replace("last", "first"), f"{FOLLOWS} {POSTS}")
    assert check(both, "4") == ["t|ann|4|bob", "t|ann|4|liz"]
    assert computed(both)[1] > 10


def test_a_read_of_more_has_the_whole_group_computed_once() -> None:
    both = Both(FEED.format(count=10), f"{FOLLOWS} {POSTS}")
    check(both, "i")
    assert len(check(both, "h")) == 6
    check(both, "")
    check(both, "f")
    assert computed(both)[0] == 2


@pytest.mark.parametrize("count", [2, 5])
def test_an_end_follows_its_sources(count: int) -> None:
    both = Both(FEED.format(count=count), f"{FOLLOWS} {POSTS}")
    check(both, "h")
    for key in ("p|bob|k", "p|liz|k", "p|bob|l", "p|bob|3", "p|liz|m", "p|bob|m"):
        both.put(key)
        check(both, "h")
    for key in ("p|bob|m", "p|liz|m", "p|bob|l", "s|ann|liz", "p|bob|k", "p|bob|j", "p|bob|0", "p|bob|i", "p|bob|h"):
        both.remove(key)
        check(both, "h")
    assert check(both, "h") == []
    assert computed(both)[0] == 1
    both.put("s|ann|liz")
    check(both, "h")
    both.rows("t")


def test_a_read_of_all_timelines_takes_the_place_of_ends() -> None:
    both = Both(FEED.format(count=5), f"{FOLLOWS} {POSTS}")
    check(both, "j")
    check(both, "i", "eve")
    both.rows("t")
    check(both, "j")
    both.put("p|liz|z")
    both.rows("t")


def test_joins_above_and_watches_see_what_is_in_it() -> None:
    both = Both(f"{FEED.format(count=3)}; n|<user>|<poster> = count t|<user>|<time:1>|<poster>", f"{FOLLOWS} {POSTS}")
    check(both, "j")
    watch = both.engine.watch(b"t|ann|j", b"t|ann}", lambda: None)
    rows = {b"t|ann|j|bob", b"t|ann|j|liz"}
    for step in ("p|bob|k", "p|liz|k", "-p|liz|j", "-p|bob|k", "-p|liz|k"):
        (both.remove if step[0] == "-" else both.put)(step.removeprefix("-"))
        both.rows("n")
        for change in both.engine.settle(watch):
            assert (change.key in rows) is (change.old is not None)
            (rows.discard if change.new is None else rows.add)(change.key)
        assert sorted(rows) == [key for key, _ in both.model.scan(b"t|ann|j", b"t|ann}")]


def take_an_end_for_a_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Context, "is_end", property(lambda _: False))


def forget_where_an_end_begins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Kept, "range_of", lambda _, context, group: Range(context.prefix + group, context.end))


def end_a_group_too_soon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Kept, "range_of", lambda _, context, __: Range(context.first, prefix_end(context.first) or b""))


@pytest.mark.parametrize(
    "fault",
    [
        None,
        take_an_end_for_a_group,
        pytest.param(
            forget_where_an_end_begins,
            marks=pytest.mark.skipif(sys.flags.optimize > 0, reason="an assert of the engine finds it"),
        ),
        end_a_group_too_soon,
    ],
)
def test_any_checks_between_any_changes(fault: Callable[[pytest.MonkeyPatch], None] | None) -> None:
    """The same steps are right without a fault, and differ from the naive model with each."""
    with pytest.MonkeyPatch.context() as patch, nullcontext() if fault is None else pytest.raises(AssertionError):
        if fault is not None:
            patch.setattr(capped, "SPARES_MIN", 1)
            fault(patch)
        random = Random(5)
        both = Both(FEED.format(count=2), FOLLOWS)
        for step in range(240):
            if step % 12 == 0:
                both.engine.invalidate(b"t|", b"t}")
                since = random.choice(TIMES[:10])
                for poster in ("bob", "liz"):
                    both.put(f"p|{poster}|{random.choice(TIMES)}")
            posts = sorted((key for key in both.model.base if key.startswith(b"p|")), key=lambda key: key[-1])
            if random.random() < 0.4:
                both.put(f"p|{random.choice(['bob', 'liz'])}|{random.choice(TIMES)}", random.choice("xy"))
            elif posts:
                both.remove(posts[-1].decode())
            check(both, since if step % 12 < 11 else "", random.choice(["ann", "ann", "eve"]))
        both.rows("t")
