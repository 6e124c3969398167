"""Paged tables: some of their rows are on a disk alone. Reads, writes and evictions are exact all the same."""

from collections.abc import Callable
from random import Random
from unittest.mock import patch

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, LimitExceededError, MissingError, Range
from pequod.engine.base import presence
from pequod.language.deadlines import KEEP
from tests.engine.paging import PagedWalk, Shelf


@pytest.mark.parametrize("seed", range(40))
def test_walks_agree_with_the_model(seed: int) -> None:
    with patch.object(presence, "PART_ROWS_MAX", 2):
        walk = PagedWalk(Random(seed))
        for number in range(120):
            walk.step()
            if number % 8 == 0:
                walk.engine._check()
        walk.engine._check()
        walk.end()


def test_tables_come_to_be_paged_while_their_rows_are_there() -> None:
    with patch.object(presence, "PART_ROWS_MAX", 2):
        walk = PagedWalk(Random(1))
        while walk.paged_count < 5:
            walk.step()
        walk.end()


def test_puts_beyond_the_limit_have_the_largest_table_go_and_what_was_computed_from_the_rest_stays() -> None:
    effects: dict[bytes, bytes | None] = {}
    engine, told = Engine(memory_limit=400_000), list[bytes]()
    engine.add_joins(parse("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>"))
    engine.record(effects)
    engine.keep(told.append)
    engine.put(b"small|1", b"1")
    engine.put(b"s|ann|bob", b"1")
    engine.put(b"p|bob|0000", b"Hi")
    assert len(engine.scan(b"t|ann|", b"t|ann}").keys) == 1
    for number in range(3000):
        engine.put(b"p|liz|%04d" % number, b"x" * 100)
    assert told == [b"p"]
    assert not engine.is_paged(b"small|") and not engine.is_paged(b"s|")
    assert engine.ledger.total_bytes <= 400_000 and engine.ledger.evictions
    assert len(effects) == 3003, "no put was refused"
    engine._check()


def test_a_table_whose_rows_a_join_computes_stays() -> None:
    engine = Engine(memory_limit=100_000)
    engine.add_joins(parse("posts|<poster> = count p|<poster>|<time:4>"))
    engine.record({})
    engine.keep(lambda _: None)
    with pytest.raises(LimitExceededError):
        for number in range(3000):
            engine.put(b"posts|a|%04d" % number, b"x" * 100)
    assert not engine.has_paged
    engine._check()


@pytest.mark.parametrize("write", ["remove", "keep", "expire"])
def test_a_write_that_loads_its_key_has_room_though_the_last_read_has_used_all_memory(write: str) -> None:
    engine = Engine(memory_limit=60_000)
    engine.record({})
    engine.page(b"p")
    engine.take_in(b"p|", b"p|b", [b"p|a%03d" % number for number in range(90)], [b"x" * 400] * 90)
    assert len(engine.scan(b"p|", b"p|b").keys) == 90
    writes: dict[str, Callable[[], object]] = {
        "remove": lambda: engine.remove(b"p|z"),
        "keep": lambda: engine.put_for(b"p|z", b"1", KEEP),
        "expire": lambda: engine.expire(b"p|z", 1000),
    }
    with pytest.raises(MissingError):
        writes[write]()
    engine.take_in(b"p|y", b"p}", [b"p|z"], [b"y" * 20_000])
    writes[write]()
    engine._check()


@pytest.mark.parametrize("seed", range(10))
def test_what_could_not_be_kept_is_undone_of_rows_that_are_here_and_of_those_that_are_not(seed: int) -> None:
    random, shelf, engine = Random(seed), Shelf(), Engine(memory_limit=1 << 40)
    keys = [b"p|%02d" % number for number in range(20)]
    shelf.rows = dict.fromkeys(keys[::2], b"kept")
    shelf.deadlines = {keys[2]: 5_000, keys[8]: 6_000, keys[12]: 7_000}
    kept, deadlines = dict(shelf.rows), dict(shelf.deadlines)
    engine.record(shelf.effects)
    engine.page(b"p")
    shelf.give(engine, Range(keys[5], keys[15]))
    for _ in range(20):
        key = random.choice(keys)
        if random.random() < 0.3 and not engine.is_away(key):
            engine.remove(key)
        elif random.random() < 0.3:
            engine.put_for(key, b"for a while", 9_000)
        else:
            engine.put(key, b"for ever")
    changed = set(shelf.effects)
    assert {engine.is_away(key) for key in changed} == {True, False}
    engine.record(None)
    engine.restore(
        {key: kept.get(key) for key in shelf.effects},
        {key: at_ms for key, at_ms in deadlines.items() if key in changed},
    )
    shelf.effects.clear()
    engine.record(shelf.effects)
    shelf.give(engine, Range(b"p|", b"p}"))
    assert dict(zip(*engine.scan(b"p|", b"p}"), strict=True)) == kept
    assert dict(engine.deadlines.among(keys)) == deadlines
    assert not engine.take_away_deadlines()
    engine._check()
