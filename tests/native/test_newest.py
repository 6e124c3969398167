"""A first check of a timeline that keeps its last rows takes these natively, from the ends of all groups."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine.base import rows
from pequod.engine.joins import capped
from tests.native.core import hot

assert hot.INTERFACE

JOIN = "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:2> keep last 3 of <user>"


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Leaves of two rows, and one spare row."""
    leaf, spares = rows.set_leaf_max(2), capped.SPARES_MIN
    capped.SPARES_MIN = 1
    yield
    rows.set_leaf_max(leaf)
    capped.SPARES_MIN = spares


def _engine(random: Random) -> tuple[Engine, list[tuple[bytes, bytes]]]:
    """Return an engine with posters and posts, and the rows of the timeline if it had all."""
    engine, found = Engine(), []
    engine.add_joins(parse(JOIN))
    for poster in range(random.randrange(1, 6)):
        engine.put(b"s|ann|%d" % poster, b"")
        for time in random.sample(range(30), random.randrange(12)):
            value = b"%d-%d" % (poster, time)
            engine.put(b"p|%d|%02d" % (poster, time), value)
            found.append((b"t|ann|%02d|%d" % (time, poster), value))
        for time in random.sample(range(40), random.randrange(6)):
            engine.put(b"p|%d|%02dx" % (poster, time), b"a key of another kind")
    return engine, sorted(found)


@pytest.mark.parametrize("seed", range(40))
def test_the_last_rows_of_all_are_taken(seed: int) -> None:
    engine, found = _engine(Random(seed))
    assert list(zip(*engine.scan(b"t|ann|", b"t|ann}"), strict=True)) == found[-3:]
    gone = found.pop() if found else (b"t|ann|00|0", b"")
    _, _, time, poster = gone[0].split(b"|")
    engine.remove(b"p|%s|%s" % (poster, time))
    engine.put(b"p|0|31", b"new")
    if engine.get(b"s|ann|0") is not None:
        found.append((b"t|ann|31|0", b"new"))
    assert list(zip(*engine.scan(b"t|ann|", b"t|ann}"), strict=True)) == found[-3:]
    engine._check()


@pytest.mark.parametrize("seed", range(20))
def test_of_those_from_a_key_on_no_others_are_looked_at(seed: int) -> None:
    random = Random(seed)
    engine, found = _engine(random)
    since = b"t|ann|%02d" % random.randrange(30)
    wanted = [row for row in found[-3:] if row[0] >= since]
    assert list(zip(*engine.scan(since, b"t|ann}"), strict=True)) == wanted
    assert list(zip(*engine.scan(b"t|ann|", b"t|ann}"), strict=True)) == found[-3:]
    engine._check()


def test_what_is_no_list_of_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match="newest_from takes"):
        hot.newest_from([b"p|0|"], {}, b"", 2, 3)
    with pytest.raises(TypeError, match="newest_from takes"):
        hot.newest_from([b"p|0|"], hot.HotGroups(), b"", 2, 0)
