"""What is dropped is freed at once, by counting references: the server all but rests the cyclic collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator

import pytest
from pequod_grammar import parse

from pequod.engine import Engine

JOINS = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>;
c|<user>|<time:4> = count t|<user>|<time>|<poster>;
m|<poster> = max p|<poster>|<time:4>;
n|<user>|<poster> = snapshot 5 count t|<user>|<time:4>|<poster>
"""
USERS = 40
TIMES = 200


def _write(engine: Engine) -> None:
    for user in range(USERS):
        for poster in (b"ann", b"bob", b"liz"):
            engine.put(b"s|%03d|%s" % (user, poster), b"1")
    rows = [
        (b"p|%s|%04d" % (poster, time), b"%d" % time) for poster in (b"ann", b"bob", b"liz") for time in range(TIMES)
    ]
    engine.load(b"p|", b"p}", rows)


def _read(engine: Engine) -> None:
    for user in range(USERS):
        for table in (b"t", b"c", b"n"):
            engine.scan(b"%s|%03d|" % (table, user), b"%s|%03d}" % (table, user), now=1.0)
    engine.scan(b"m|", b"m}", now=1.0)
    for user in range(USERS):
        # Some logs that nobody has applied yet.
        engine.remove(b"s|%03d|bob" % user)


def _evict(engine: Engine) -> None:
    engine.evict(1 << 30)


def _limit(engine: Engine) -> None:
    engine.limit_memory(engine.ledger.total_bytes - engine.ledger.computed_bytes)


def _forget(engine: Engine) -> None:
    engine.forget(b"", None)
    engine.evict(1 << 30)


def _invalidate(engine: Engine) -> None:
    engine.invalidate(b"", None)


def _drop_joins(engine: Engine) -> None:
    for join in reversed(engine.joins()):
        engine.drop_join(join.name)


@pytest.fixture
def counted() -> Iterator[None]:
    """Rest the cyclic collector, with nothing left for it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("drop", [_evict, _limit, _forget, _invalidate, _drop_joins])
def test_what_is_dropped_leaves_no_cycles(drop: Callable[[Engine], None]) -> None:
    engine = Engine(backed=[b"p"])
    engine.add_joins(parse(JOINS))
    _write(engine)
    # The first reads compile plans, which makes some cycles.
    _read(engine)
    engine.evict(1 << 30)
    _write(engine)
    gc.collect()
    before = sys.getallocatedblocks()
    _read(engine)
    grown = sys.getallocatedblocks() - before
    assert engine.ledger.context_count >= USERS * 3
    drop(engine)
    assert engine.ledger.context_count == 0
    left = sys.getallocatedblocks() - before
    assert grown > 100 * USERS, "too little to tell"
    assert left < grown / 20, "only the joins' plans and sites stay"
    # A dropped join is a cycle of some hundred objects, whatever was computed of it.
    assert gc.collect() <= (0 if engine.joins() else 1000)
    engine._check()
