"""One eviction takes a bounded time, whatever the number of things: it looks at few, and drops few at once."""

from __future__ import annotations

import pytest
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine.joins.contexts import Context
from pequod.engine.memory import eviction
from pequod.engine.writes import forgetter
from tests.engine.joins import TIMELINE, engine_with, put_all

_USERS = 300


def _timelines(engine: Engine) -> None:
    for user in range(_USERS):
        engine.scan(b"t|%03d|" % user, b"t|%03d}" % user)


def _live(engine: Engine) -> list[int]:
    """Return the users whose timelines are materialised; nothing is used by the look."""
    (join,) = engine._catalog
    return [user for user in range(_USERS) if join.holder(b"t|%03d|" % user, b"t|%03d}" % user) is not None]


def test_an_eviction_after_a_long_rest_looks_at_few_things_and_takes_the_least_recently_used_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"p|bob|0001": "Hi"} | {f"s|{user:03}|bob": "" for user in range(_USERS)})
    for _ in range(2):
        # The second time, all are used after their last look.
        _timelines(engine)
    looks = 0
    rank = Context.rank

    def counted(self: Context) -> eviction.Rank | None:
        nonlocal looks
        looks += 1
        return rank(self)

    monkeypatch.setattr(Context, "rank", counted)
    monkeypatch.setattr(eviction, "LOOKS_MAX", 10)
    assert engine.evict(5) == 5
    assert _live(engine) == list(range(5, _USERS))
    assert looks == 10
    assert engine.evict(20) == 20
    assert looks <= 10 + 3 * 10
    assert engine.evict(_USERS) == _USERS - 25
    engine._check()


def test_what_many_contexts_were_computed_from_goes_after_them_in_several_evictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(backed=[b"p"])
    engine.add_joins(parse(TIMELINE))
    engine.load(b"p|", b"p}", [(b"p|bob|0001", b"Hi")])
    put_all(engine, {f"s|{user:03}|bob": "" for user in range(_USERS)})
    _timelines(engine)
    monkeypatch.setattr(forgetter, "FORGOTTEN_MAX", 8)
    part = engine._backed.part_of(b"p|bob|0001")
    assert part is not None
    left = _USERS
    while engine.is_loaded(b"p|bob|0001"):
        engine._backed.evict(part)
        assert len(_live(engine)) >= left - 8
        left = len(_live(engine))
        engine._check()
    assert left == 0
