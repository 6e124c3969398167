"""What is invalidated is computed anew, from what is right."""

from __future__ import annotations

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, Rows, UnknownJoinError

JOINS = """
karma|<author> = count vote|<author>|<id>;
page|<author>|<id> = check article|<author>|<id> copy karma|<author>;
best|<author> = pull copy karma|<author>;
"""


def drift(engine: Engine, join: str, key: bytes, value: bytes) -> None:
    """Make one computed row wrong, as a defect would."""
    context = engine._catalog.find(join).coverage.find(key).context  # type: ignore[union-attr]
    context.rows.put(key[len(context.prefix) :], value)


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.add_joins(parse(JOINS))
    for key in (b"vote|ann|1", b"vote|ann|2", b"vote|bob|1", b"article|ann|1", b"article|bob|1"):
        engine.put(key, b"")
    for author in (b"ann", b"bob"):
        engine.scan(b"page|" + author + b"|", b"page|" + author + b"}")
    return engine


def test_a_wrong_row_is_right_again(engine: Engine) -> None:
    drift(engine, "page", b"page|ann|1", b"9")
    assert engine.get(b"page|ann|1") == b"9"
    revision = engine.revision
    assert engine.invalidate(b"page|ann|", b"page|ann}") == 2
    assert engine.revision == revision + 1
    assert engine.get(b"page|ann|1") == b"2"
    engine._check()


def test_what_a_wrong_row_was_computed_from_is_computed_anew_too(engine: Engine) -> None:
    drift(engine, "karma", b"karma|ann", b"9")
    engine.invalidate_join("page")
    assert engine.get(b"page|ann|1") == b"2"
    assert engine.get(b"karma|ann") == b"2"


def test_what_a_pull_join_shows_is_computed_anew(engine: Engine) -> None:
    drift(engine, "karma", b"karma|ann", b"9")
    assert engine.get(b"best|ann") == b"9"
    assert engine.invalidate(b"best|", b"best}") > 0
    assert engine.scan(b"best|", b"best}") == Rows([b"best|ann", b"best|bob"], [b"2", b"1"])


def test_watches_are_told_what_differs(engine: Engine) -> None:
    drift(engine, "page", b"page|ann|1", b"9")
    watch = engine.watch(b"page|", b"page}", lambda: None)
    engine.invalidate(b"page|ann|1", b"page|ann|2")
    assert engine.settle(watch) == [(b"page|ann|1", b"9", b"2")]


def test_nothing_else_goes(engine: Engine) -> None:
    revision = engine.revision
    assert engine.invalidate(b"vote|", b"vote}") == 0
    assert engine.invalidate(b"page|ann}", b"page|ann|") == 0
    assert engine.invalidate(b"page|carl|", b"page|carl}") == 0
    assert engine.revision == revision
    engine.invalidate(b"page|ann|", b"page|ann}")
    assert engine._catalog.find("page").coverage.find(b"page|bob|1") is not None
    with pytest.raises(UnknownJoinError):
        engine.invalidate_join("pages")


SNAPSHOTS = """
karma|<author> = snapshot 10 count vote|<author>|<id>;
page|<author>|<id> = check article|<author>|<id> copy karma|<author>;
kept|<author> = snapshot 10 copy karma|<author>;
best|<author> = pull copy karma|<author>;
top|<author> = pull copy best|<author>;
shelf|<id>|<author> = copy page|<author>|<id>;
"""


@pytest.mark.parametrize("shown", [b"karma|ann", b"page|ann|1", b"kept|ann", b"best|ann", b"top|ann", b"shelf|1|ann"])
def test_snapshots_below_a_read_are_taken_anew_if_they_are_too_old(shown: bytes) -> None:
    engine = Engine()
    engine.add_joins(parse(SNAPSHOTS))
    engine.put(b"article|ann|1", b"")
    engine.put(b"vote|ann|1", b"")
    assert engine.get(shown, now=1.0) == b"1"
    engine.put(b"vote|ann|2", b"")
    bounds = shown, shown + b"\0"
    assert engine.drop_snapshots(*bounds, since_s=1.0) == 0, "they are of this moment"
    assert engine.get(shown, now=2.0) == b"1"
    assert engine.drop_snapshots(*bounds, since_s=1.5) > 0
    assert engine.get(shown, now=2.0) == b"2"
    engine._check()


def test_no_snapshots_are_in_an_empty_range() -> None:
    engine = Engine()
    engine.add_joins(parse(SNAPSHOTS))
    engine.get(b"karma|ann", now=1.0)
    assert engine.drop_snapshots(b"karma|b", b"karma|a", since_s=5.0) == 0


@pytest.mark.parametrize("shown", [b"page|ann|1", b"kept|ann"])
def test_an_old_snapshot_is_not_shown_by_what_is_computed_first(shown: bytes) -> None:
    engine = Engine()
    engine.add_joins(parse(SNAPSHOTS))
    engine.put(b"article|ann|1", b"")
    engine.get(b"karma|ann", now=1.0)
    engine.put(b"vote|ann|1", b"")
    assert engine.drop_snapshots(shown, shown + b"\0", since_s=1.5) == 1
    assert engine.get(shown, now=2.0) == b"1"
