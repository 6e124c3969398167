"""Expiry on an engine: walks beside the naive model, reads while much is due, and what a deadline outlives."""

from random import Random

import pytest
from pequod_grammar import parse

from pequod.commands.kinds import ADD, PUT, PUT_TTL, REMOVE
from pequod.engine import ComputedKeyError, Engine, MissingError
from pequod.engine.testing import NaiveModel
from pequod.engine.transacting import transact
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, MET, Unmet
from pequod.language.deadlines import KEEP, NO_DEADLINE, TTL_MS_MAX
from pequod.language.errors import InvalidTtlError, NoDeadlineError, NotNumberError
from pequod.language.transactions import CommandList, Transaction

JOINS = """
    t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:2>;
    posts|<poster> = count p|<poster>|<time:2>;
    fans|<poster> = count s|<user>|<poster>;
"""
NAMES = (b"a", b"ab", b"b")
RANGES = [
    (b"", None),
    (b"p|", b"p}"),
    (b"t|a|", b"t|a}"),
    (b"t|ab|02", b"t|ab}"),
    (b"posts|", b"posts}"),
    (b"fans|", None),
]


class Walk:
    """An engine and a model that are told the same."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.engine = Engine()
        self.model = NaiveModel()
        self.now_ms = 1_000

    def key(self) -> bytes:
        random = self.random
        name = random.choice(NAMES)
        kind = random.randrange(5)
        if kind == 0:
            return b"loose%d" % random.randrange(3)
        if kind == 1:
            return b"s|%b|%b" % (random.choice(NAMES), name)
        return b"p|%b|%02d" % (name, random.randrange(6))

    def write(self) -> None:
        random, engine, model = self.random, self.engine, self.model
        key, value, ttl_ms = self.key(), b"%d" % random.randrange(3), random.randrange(1, 40)
        match random.randrange(9):
            case 0 | 1 | 2:
                engine.put_for(key, value, ttl_ms)
                model.put_for(key, value, ttl_ms)
            case 3:
                engine.put(key, value)
                model.put(key, value)
            case 4:
                engine.put_for(key, value, KEEP)
                model.put_for(key, value, None)
            case 5:
                assert engine.remove(key) == model.remove(key)
            case 6:
                assert engine.expire(key, ttl_ms) == model.expire(key, ttl_ms)
            case 7:
                assert engine.expire(key, 0) == model.expire(key, None)
            case _:
                rows = {self.key(): value for _ in range(3)}
                for_all = random.choice((0, KEEP, ttl_ms))
                engine.put_all(list(rows), list(rows.values()), for_all)
                for row in rows.items():
                    if for_all:
                        model.put_for(*row, None if for_all == KEEP else for_all)
                    else:
                        model.put(*row)

    def write_if(self) -> None:
        key, condition = self.key(), self.random.choice((IF_ABSENT, IF_PRESENT))
        outcome = self.model.write_if(key, b"7", condition)
        assert self.engine.write_if(key, b"7", condition, ttl_ms=5) == outcome
        if outcome:
            self.model.expire(key, 5)

    def transact(self) -> None:
        """A transaction of adds and puts for some time among other writes of the same keys."""
        kinds = [self.random.choice((ADD, ADD, ADD, PUT, PUT_TTL, PUT_TTL, REMOVE)) for _ in range(4)]
        keys = [self.key(), self.key()]
        arguments = [one for kind in kinds for one in (self.random.choice(keys), b"1")[: 1 if kind == REMOVE else 2]]
        numbers = [self.random.choice((KEEP, self.random.randrange(1, 40))) for kind in kinds if kind == PUT_TTL]
        transaction = Transaction((), CommandList(bytes(kinds), arguments, numbers))
        assert transact(self.engine, transaction, now=0.0) == self.model.transact(transaction)

    def look(self) -> None:
        first, last = self.random.choice(RANGES)
        limit, reverse = self.random.choice((None, 2)), self.random.random() < 0.3
        found = self.engine.scan(first, last, limit=limit, reverse=reverse)
        expected = self.model.scan(first, last, limit=limit, reverse=reverse)
        assert list(zip(*found, strict=True)) == expected
        assert self.engine.count(first, last) == len(self.model.scan(first, last))
        key = self.key()
        assert self.engine.get(key) == self.model.get(key)
        at_ms = self.model.deadlines.get(key)
        expected_ms = NO_DEADLINE if at_ms is None else at_ms - self.now_ms
        assert self.engine.remaining_ms(key) == (expected_ms if key in self.model.base else None)


@pytest.mark.parametrize("seed", range(10))
def test_walks_agree_with_the_model(seed: int) -> None:
    walk = Walk(Random(seed))
    for spec in parse(JOINS):
        walk.engine.add_joins([spec])
        walk.model.add(spec)
    for _ in range(200):
        walk.random.choice((walk.write, walk.write, walk.write_if, walk.transact, walk.look))()
        if walk.random.random() < 0.2:
            walk.now_ms += walk.random.randrange(12)
        walk.engine.expire_due(walk.now_ms, 1000)
        walk.model.tell(walk.now_ms)
    walk.engine._check()
    assert walk.engine.expired_count > 10


@pytest.mark.parametrize("seed", range(10))
def test_while_much_is_due_reads_show_none_of_it_and_joins_agree_with_what_is_there(seed: int) -> None:
    """Base keys are as the model has them though nothing was removed ahead; computed ones fit the base keys there."""
    walk = Walk(Random(seed))
    engine, model = walk.engine, walk.model
    engine.add_joins(parse(JOINS))
    for _ in range(200):
        walk.random.choice((walk.write, walk.write, walk.write_if, walk.transact))()
        if walk.random.random() < 0.2:
            walk.now_ms += walk.random.randrange(12)
        engine.expire_due(walk.now_ms, walk.random.randrange(2))
        model.tell(walk.now_ms)
        key = walk.key()
        assert engine.get(key) == model.get(key)
        for first, last in ((b"p|a", b"p|b"), (b"s|", b"s}"), (b"loose", b"loose9")):
            reverse = walk.random.random() < 0.3
            limit = walk.random.choice((None, 1, 2))
            found = engine.scan(first, last, limit=limit, reverse=reverse)
            assert list(zip(*found, strict=True)) == model.scan(first, last, limit=limit, reverse=reverse)
        if not walk.random.randrange(5):
            agrees(engine)
            engine._check()
    while engine.expire_due(walk.now_ms, 3):
        agrees(engine)
    assert engine._store.slice(b"", None).keys == sorted(model.base)


def agrees(engine: Engine) -> None:
    """What joins compute is what they would from the base keys that are there now."""
    present = NaiveModel()
    for spec in parse(JOINS):
        present.add(spec)
    present.base = dict(zip(*engine._store.slice(b"", None), strict=True))
    for first, last in ((b"t|", b"t}"), (b"posts|", b"posts}"), (b"fans|", b"fans}")):
        found = engine.scan(first, last)
        assert list(zip(*found, strict=True)) == present.scan(first, last)


def test_a_watch_is_told_of_keys_that_expire_and_of_what_joins_compute_from_them() -> None:
    engine, woken = Engine(), list[bool]()
    engine.add_joins(parse(JOINS))
    engine.expire_due(1_000, 10)
    engine.put_for(b"p|a|01", b"x", 5)
    engine.put(b"p|a|02", b"y")
    watch = engine.watch(b"p", None, lambda: woken.append(True))
    revision = engine.revision
    assert engine.expire_due(1_004, 10) == 0
    assert engine.expire_due(1_005, 10) == 1
    assert engine.revision == revision + 1
    assert engine.settle(watch) == [(b"p|a|01", b"x", None), (b"posts|a", b"2", b"1")]
    assert woken


@pytest.mark.parametrize("values", [[b"x", b"y", b"x"], [b"y", b"x", b"y"], [b"x", b"x", b"x"]])
def test_a_put_of_many_counts_as_its_puts_where_it_takes_deadlines_away(values: list[bytes]) -> None:
    together, alone = Engine(), Engine()
    keys = [b"p|a", b"p|b", b"p|a"]
    for engine in (together, alone):
        engine.put_for(b"p|a", b"x", 5)
        engine.put_for(b"p|b", b"x", 5)
    together.put_all(keys, values)
    for key, value in zip(keys, values, strict=True):
        alone.put(key, value)
    assert together.revision == alone.revision
    assert not together.deadlines
    assert together.base_rows() == alone.base_rows()


def test_the_earliest_go_first_and_no_more_than_asked_for() -> None:
    engine = Engine()
    engine.expire_due(1_000, 10)
    for number in range(10):
        engine.put_for(b"k|%d" % number, b"", 10 - number)
    assert engine.expire_due(2_000, 3) == 3
    assert engine._store.slice(b"", None).keys == [b"k|%d" % number for number in range(7)]
    assert engine.get(b"k|3") is None
    assert engine.expire_due(2_000, 100) == 6
    assert (engine.expired_count, len(engine.deadlines), engine.deadlines.first_ms) == (10, 0, None)


def test_a_clock_that_steps_back_shows_nothing_again() -> None:
    engine = Engine()
    engine.expire_due(1_000, 10)
    engine.put_for(b"k|1", b"", 10)
    engine.put_for(b"k|2", b"", 500)
    assert engine.expire_due(1_020, 10) == 1
    assert engine.expire_due(500, 10) == 0
    assert engine.scan(b"k|", b"k}").keys == [b"k|2"]
    assert engine.remaining_ms(b"k|2") == 1_000


def test_a_removed_key_has_no_deadline_when_it_comes_again() -> None:
    engine = Engine()
    engine.expire_due(1_000, 10)
    for ending in (engine.remove, lambda key: engine.remove_range(key, key + b"\0")):
        engine.put_for(b"k|1", b"", 10)
        ending(b"k|1")
        engine.put(b"k|1", b"")
        assert engine.remaining_ms(b"k|1") == NO_DEADLINE


def test_an_add_in_a_transaction_leaves_the_deadline_and_what_else_is_written_takes_it_away() -> None:
    engine = Engine()
    engine.expire_due(1_000, 10)
    keys = [b"k|%d" % number for number in range(1, 5)]
    for key in keys:
        engine.put_for(key, b"4", 50)
    engine.put_for(b"k|due", b"4", 10)
    engine.expire_due(1_010, 0)
    kinds = [ADD, ADD, PUT, ADD, REMOVE, ADD, ADD, PUT, ADD]
    arguments = [
        b"k|1",
        b"1",
        b"k|1",
        b"1",
        b"k|2",
        b"1",
        b"k|2",
        b"1",
        b"k|3",
        b"k|3",
        b"1",
        b"k|4",
        b"1",
        b"k|4",
        b"9",
    ]
    done = transact(engine, Transaction((), CommandList(bytes(kinds), [*arguments, b"k|due", b"1"])), now=0.0)
    assert done.outcomes == [b"5", b"6", None, b"2", True, b"1", b"5", None, b"1"]
    assert [engine.remaining_ms(key) for key in (*keys, b"k|due")] == [40, *[NO_DEADLINE] * 4]
    engine.put(b"text", b"no number")
    refused = CommandList(bytes([PUT, ADD]), [b"k|1", b"", b"text", b"1"])
    with pytest.raises(NotNumberError):
        transact(engine, Transaction((), refused), now=0.0)
    assert engine.remaining_ms(b"k|1") == 40


def test_a_removal_of_a_key_that_is_due_finds_nothing() -> None:
    engine = Engine()
    engine.expire_due(1_000, 10)
    engine.put_for(b"k|1", b"", 10)
    engine.expire_due(1_010, 0)
    assert not engine.remove(b"k|1")
    assert not engine.expire(b"k|1", 10)
    engine.put_for(b"k|1", b"", 10)
    engine.expire_due(1_020, 0)
    assert engine.write_if(b"k|1", b"", IF_PRESENT) == Unmet(None)
    assert engine.write_if(b"k|1", b"", IF_ABSENT) == MET


def test_what_a_join_computes_lives_as_long_as_its_sources() -> None:
    engine = Engine()
    engine.add_joins(parse(JOINS))
    engine.expire_due(1_000, 10)
    engine.put_for(b"p|a|01", b"x", 10)
    assert engine.remaining_ms(b"posts|a") == NO_DEADLINE
    with pytest.raises(ComputedKeyError):
        engine.expire(b"posts|a", 10)
    with pytest.raises(ComputedKeyError):
        engine.put_for(b"posts|a", b"", 10)
    engine.expire_due(1_010, 10)
    assert engine.get(b"posts|a") is None


def test_what_cannot_be_is_refused_by_name() -> None:
    engine = Engine(backed=[b"db"])
    for write in (
        lambda ttl_ms: engine.put_for(b"k", b"", ttl_ms),
        lambda ttl_ms: engine.expire(b"k", ttl_ms),
        lambda ttl_ms: engine.write_if(b"k", b"", IF_ABSENT, ttl_ms=ttl_ms),
    ):
        with pytest.raises(InvalidTtlError, match="at most a hundred years"):
            write(TTL_MS_MAX + 1)
    for refused in (
        lambda: engine.put_for(b"db|1", b"", 5),
        lambda: engine.expire(b"db|1", 5),
        lambda: engine.expire(b"db|1", 0),
        lambda: engine.remaining_ms(b"db|1"),
        lambda: engine.write_if(b"db|1", b"", IF_ABSENT, ttl_ms=5),
    ):
        with pytest.raises(NoDeadlineError, match=r"db\|1"):
            refused()
    assert engine.revision == 0


def test_a_long_range_with_much_due_is_left_to_slices_where_others_wait() -> None:
    engine = Engine(at_once=False)
    engine.expire_due(1_000, 10)
    for number in range(6_000):
        engine.put_for(b"k|%04d" % number, b"", 10)
    engine.put(b"k|9", b"")
    engine.expire_due(2_000, 0)
    with pytest.raises(MissingError) as lacking:
        engine.scan(b"k|", b"k}")
    (due,) = lacking.value.due
    assert due.at_ms == 2_000
    assert 0 < engine.expired_count < 1_000
    while engine.expire_due(2_000, 500):
        engine._check()
    assert engine.scan(b"k|", b"k}").keys == [b"k|9"]


def test_memory_is_counted() -> None:
    engine = Engine()
    engine.expire_due(1_000, 10)
    for number in range(1_000):
        engine.put(b"k|%d" % number, b"")
    engine.make_room()
    before = engine.ledger.total_bytes
    for number in range(1_000):
        engine.expire(b"k|%d" % number, 10)
    engine.make_room()
    assert engine.ledger.total_bytes - before == engine.deadlines.byte_count > 10_000
