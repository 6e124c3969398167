"""An engine notes changes of base data for a keeper elsewhere, and goes back to the rows that this one has."""

from __future__ import annotations

from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.errors import DiskFullError
from pequod.language.conditions import IF_ABSENT
from pequod.language.deadlines import KEEP

TIMELINE = "t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
KEYS = [b"s|ann|bob", b"s|ann|liz", b"p|bob|100", b"p|bob|120", b"p|liz|110", b"loose", b"\xff"]


def changed(engine: Engine, random: Random) -> None:
    """Change base data in one of the ways that there are."""
    key, value = random.choice(KEYS), b"%d" % random.randrange(3)
    match random.randrange(9):
        case 0 | 1:
            engine.put(key, value)
        case 2:
            engine.remove(key)
        case 3:
            keys = sorted(random.sample(KEYS, 3))
            engine.put_all(keys, [value] * 3)
        case 4:
            first, last = sorted(random.sample(KEYS, 2))
            engine.remove_range(first, last)
        case 5:
            engine.put_for(key, value, random.choice([0, 10, 1000, KEEP]))
        case 6:
            engine.expire(key, random.choice([0, 10, 1000]))
        case 7:
            engine.expire_due(engine.deadlines.now_ms + random.randrange(20), random.choice([1, 100]))
        case _:
            engine.write_if(key, random.choice([None, value]), IF_ABSENT)
    if not random.randrange(4):
        engine.scan(b"t|ann|", b"t|ann}")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_watched", [False, True])
def test_what_is_noted_is_what_has_changed(seed: int, is_watched: bool) -> None:
    random, engine, effects, kept = Random(seed), Engine(), dict[bytes, bytes | None](), dict[bytes, bytes]()
    deadlines: dict[bytes, int] = {}
    engine.add_joins(parse(TIMELINE))
    if is_watched:
        engine.watch(b"p|", b"p}", lambda: None)
    engine.record(effects)
    for _ in range(300):
        revision = engine.revision
        changed(engine, random)
        if effects:
            assert engine.revision > revision, "a change is counted"
        for key, value in effects.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value
            deadlines.pop(key, None)
        deadlines |= engine.deadlines.among(list(effects))
        effects.clear()
        assert deadlines == dict(engine.deadlines.among(KEYS)), "a change of a deadline alone is noted, too"
        rows = engine.base_rows()
        assert dict(zip(rows.keys, rows.values, strict=True)) == kept
    engine.record(None)
    engine.put(b"p|bob|100", b"unnoted")
    assert effects == {}
    engine._check()


@pytest.mark.parametrize("seed", range(10))
def test_what_could_not_be_kept_is_undone_with_all_that_follows_from_it(seed: int) -> None:
    random, engine, effects = Random(seed), Engine(), dict[bytes, bytes | None]()
    engine.add_joins(parse(TIMELINE))
    for _ in range(50):
        changed(engine, random)
    engine.scan(b"t|ann|", b"t|ann}")
    base, before = engine.base_rows(), engine.scan(b"", None)
    kept = dict(zip(base.keys, base.values, strict=True))
    engine.record(effects)
    for _ in range(20):
        changed(engine, random)
    revision = engine.revision
    engine.restore({key: kept.get(key) for key in effects}, {})
    assert engine.scan(b"", None) == before
    assert engine.revision >= revision, "revisions never go back"
    engine._check()


def test_no_write_is_taken_while_nothing_can_be_kept_and_reads_go_on() -> None:
    engine = Engine()
    engine.put(b"p|bob|100", b"Hi")
    engine.refuse_writes(lambda: DiskFullError("data", 7))
    for write in (
        lambda: engine.put(b"p|bob|120", b"again"),
        lambda: engine.remove(b"p|bob|100"),
        lambda: engine.put_all([b"a", b"b"], [b"1", b"2"]),
        lambda: engine.remove_range(b"p|", b"p}"),
        lambda: engine.write_if(b"p|bob|120", b"again", IF_ABSENT),
    ):
        with pytest.raises(DiskFullError, match="7 bytes are free"):
            write()
    assert engine.scan(b"", None).keys == [b"p|bob|100"]
    engine.refuse_writes(None)
    engine.put(b"p|bob|120", b"again")
    assert engine.get(b"p|bob|120") == b"again"


def test_a_life_goes_on_from_the_revision_of_the_one_before() -> None:
    engine = Engine()
    engine.put(b"a", b"1")
    engine.go_on_from(40)
    engine.put(b"a", b"2")
    assert engine.revision == 41
