"""What reads will lack since the keys changed that they select by, and changes that are applied several at a time."""

import random

import pytest
from pequod_grammar import parse

from pequod.engine import UNLIMITED, Engine, LimitExceededError, MissingError, Range, RangeRows

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
JOINS = TIMELINE + "; karma|<poster> = count p|<poster>|<time>"


def timelines(memory_limit: int = UNLIMITED) -> Engine:
    engine = Engine(backed=[b"s", b"p"], memory_limit=memory_limit)
    engine.add_joins(parse(TIMELINE))
    return engine


def read(engine: Engine, user: bytes, since: bytes = b"") -> list[bytes]:
    return engine.scan(b"t|%b|%b" % (user, since), b"t|%b}" % user).values


def one_timeline(since: bytes = b"") -> Engine:
    """Return an engine that has shown ann's timeline, which is empty."""
    engine = timelines()
    engine.load(b"s|ann|", b"s|ann}", [])
    assert read(engine, b"ann", since) == []
    return engine


def test_the_posts_of_one_who_is_followed_now_are_foreseen() -> None:
    engine = one_timeline()
    engine.apply(b"s|ann|bob", b"1")
    assert engine.foresee([b"s|ann|bob"]) == [Range(b"p|bob|", b"p|bob}")]
    with pytest.raises(MissingError) as caught:
        read(engine, b"ann")
    assert caught.value.ranges == (Range(b"p|bob|", b"p|bob}"),), "what a read lacks"
    engine.load(b"p|bob|", b"p|bob}", [(b"p|bob|0100", b"Hi")])
    assert engine.foresee([b"s|ann|bob"]) == []
    assert read(engine, b"ann") == [b"Hi"]
    engine._check()


def test_what_is_foreseen_begins_where_the_timeline_does() -> None:
    engine = one_timeline(since=b"0050")
    engine.apply(b"s|ann|bob", b"1")
    assert engine.foresee([b"s|ann|bob"]) == [Range(b"p|bob|0050", b"p|bob}")]


def test_nothing_is_foreseen_for_timelines_that_nobody_has_read() -> None:
    engine = one_timeline()
    engine.load(b"s|eve|", b"s|eve}", [])
    engine.apply(b"s|eve|bob", b"1")
    assert engine.foresee([b"s|eve|bob", b"s|dan|bob", b"p|bob|0100", b"x|1", b"loose"]) == []


def test_nothing_is_foreseen_for_a_subscription_that_ended_or_never_changed() -> None:
    engine = one_timeline()
    engine.apply(b"s|ann|bob", b"1")
    engine.apply(b"s|ann|bob", None)
    assert engine.foresee([b"s|ann|bob"]) == []


def test_all_of_a_log_is_foreseen_until_it_is_long() -> None:
    engine = one_timeline()
    keys = [b"s|ann|%02d" % number for number in range(20)]
    for key in keys[:16]:
        engine.apply(key, b"1")
    assert engine.foresee(keys[15:16]) == [Range(b"p|%02d|" % at, b"p|%02d}" % at) for at in range(16)]
    engine.apply(keys[16], b"1")
    assert engine.foresee(keys[16:17]) == [], "it is not read any more"
    with pytest.raises(MissingError) as caught:
        read(engine, b"ann")
    assert len(caught.value.ranges) == 17


def test_to_foresee_changes_nothing() -> None:
    engine = one_timeline()
    engine.apply(b"s|ann|bob", b"1")
    before = engine.statistics(), engine.revision
    engine.foresee([b"s|ann|bob"])
    assert (engine.statistics(), engine.revision) == before


@pytest.mark.parametrize("work_max", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_changes_do_together_what_they_do_one_by_one(seed: int, work_max: int) -> None:
    draw = random.Random(seed)
    engines = [Engine(backed=[b"s", b"p"]) for _ in range(2)]
    for engine in engines:
        engine.add_joins(parse(JOINS))
        engine.load(b"s|ann|", b"s|ann}", [(b"s|ann|bob", b"1")])
        engine.load(b"s|liz|", b"s|liz}", [])
        engine.load(b"p|bob|", b"p|bob}", [(b"p|bob|0001", b"first")])
        engine.load(b"p|cat|0050", b"p|cat|0099", [])
        assert read(engine, b"ann") == [b"first"]
        assert read(engine, b"liz") == []
        assert engine.get(b"karma|bob") == b"1"
    users, posters = (b"ann", b"liz", b"eve"), (b"bob", b"cat", b"dan")
    for _ in range(12):
        changes = tuple(
            (
                b"s|%b|%b" % (draw.choice(users), draw.choice(posters))
                if draw.random() < 0.4
                else b"p|%b|%04d" % (draw.choice(posters), draw.randrange(100)),
                draw.choice([None, b"1", b"another", b"x" * 70_000]),
            )
            for _ in range(draw.randrange(12))
        )
        alone = sum(engines[0].apply(*change) for change in changes)
        at = together = 0
        while at < len(changes):
            before = at
            at, applied = engines[1].apply_some(changes, at, work_max)
            assert before < at <= len(changes)
            assert applied <= work_max
            together += applied
        assert together == alone
        for prefix in (b"s|ann", b"s|liz", b"p|bob", b"t|ann", b"t|liz", b"karma|bob"):
            assert answers(engines[0], prefix) == answers(engines[1], prefix)
        for engine in engines:
            engine._check()
    assert engines[0].revision == engines[1].revision


def answers(engine: Engine, prefix: bytes) -> object:
    try:
        return engine.scan(prefix, prefix + b"~")
    except MissingError as error:
        return error.lacking


def test_changes_of_keys_that_are_not_loaded_are_passed_over_at_once() -> None:
    engine = one_timeline()
    changes = [(b"p|bob|%04d" % number, b"Hi") for number in range(500)]
    assert engine.apply_some(changes, 0, 1) == (500, 0)
    assert engine.apply_some([*changes, (b"s|ann|bob", b"1"), (b"s|ann|cat", b"1")], 100, 1) == (501, 1)


def test_ranges_that_are_loaded_together_are_all_there() -> None:
    engine = one_timeline()
    engine.load_all(
        [
            RangeRows(b"p|bob|", b"p|bob}", [(b"p|bob|0100", b"Hi")]),
            RangeRows(b"p|cat|", b"p|cat}", ()),
            RangeRows(b"s|liz|", b"s|liz}", [(b"s|liz|bob", b"1")]),
        ]
    )
    assert read(engine, b"liz") == [b"Hi"]
    assert engine.loaded() == [
        Range(b"p|bob|", b"p|bob}"),
        Range(b"p|cat|", b"p|cat}"),
        *map(whole_of, (b"ann", b"liz")),
    ]
    engine._check()


def whole_of(user: bytes) -> Range:
    return Range(b"s|%b|" % user, b"s|%b}" % user)


def test_without_memory_for_all_ranges_none_of_them_is_loaded() -> None:
    engine = timelines(memory_limit=100_000)
    large = [(b"p|bob|%04d" % number, b"x" * 100) for number in range(600)]
    engine.load_all([RangeRows(b"p|cat|", b"p|cat}", [])])
    with pytest.raises(LimitExceededError):
        engine.load_all([RangeRows(b"p|dan|", b"p|dan}", []), RangeRows(b"p|bob|", b"p|bob}", large)])
    assert not engine.is_loaded(b"p|dan|0100")
    assert not engine.is_loaded(b"p|bob|0100")
    engine._check()
    engine.load_all([RangeRows(b"p|dan|", b"p|dan}", [])])
    assert engine.is_loaded(b"p|dan|0100")
