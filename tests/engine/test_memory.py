"""The ledger against what a process really takes, and what holding a limit means for callers."""

import subprocess
import sys
import tracemalloc

import pytest
from pequod_grammar import parse

from pequod.engine import PINNED, UNLIMITED, Engine, LimitExceededError, MissingError, Range, prefix_end
from tests.engine.joins import TIMELINE, engine_with, put_all

#: Made in a process of its own: name -> code that fills `engine`, which has the timeline join.
SHAPES = {
    "small values": """
for poster in range(200):
    for time in range(1000):
        engine.put(b"p|%04d|%04d" % (poster, time), b"%d" % time)
""",
    "large values": """
for poster in range(40):
    for time in range(20):
        engine.put(b"p|%04d|%04d" % (poster, time), bytes(50_000) + b"%d" % time)
""",
    "many timelines": """
for user in range(5_000):
    for poster in range(10):
        engine.put(b"s|%05d|%s" % (user, name((user + poster) % 500)), b"1")
for poster in range(500):
    for time in range(8):
        engine.put(b"p|%s|%04d" % (name(poster), time), b"what a poster says %d" % time)
for user in range(5_000):
    engine.scan(b"t|%05d|" % user, b"t|%05d}" % user)
for poster in range(500):
    for time in range(8, 16):
        engine.put(b"p|%s|%04d" % (name(poster), time), b"what a poster says %d" % time)
""",
    "many subscriptions of one byte": """
for user in range(2400):
    for poster in range(100):
        engine.put(b"s|%05d|%s" % (user, name((user + 37 * poster) % 2400)), b"1")
    engine.scan(b"t|%05d|" % user, b"t|%05d}" % user)
""",
    "many subscriptions": """
for user in range(2400):
    for poster in range(100):
        engine.put(b"s|%05d|%s" % (user, name((user + 37 * poster) % 2400)), b"%07d" % poster)
    engine.scan(b"t|%05d|" % user, b"t|%05d}" % user)
""",
    "few large timelines": """
for poster in range(1000):
    for time in range(20):
        engine.put(b"p|%04d|%04d" % (poster, time), b"what a poster says %d" % time)
for user in range(50):
    for poster in range(1000):
        engine.put(b"s|%05d|%04d" % (user, poster), b"1")
    engine.scan(b"t|%05d|" % user, b"t|%05d}" % user)
""",
    "aggregates": """
engine.add_joins(parse("c|<a:3>|<b> = count v|<a:3>|<b>|<c>; m|<a:3>|<b> = max v|<a:3>|<b>|<c>"))
for a in range(100):
    for b in range(100):
        for c in range(4):
            engine.put(b"v|%03d|%03d|%d" % (a, b, c), b"%d" % (a * b * c + 1000))
    for table in (b"c", b"m"):
        engine.scan(b"%b|%03d|" % (table, a), b"%b|%03d}" % (table, a))
""",
    "feeds of which sources decide": """
engine.add_joins(parse("h|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4> "
                       "unless m|<user>|<poster> keep last 100 of <user>"))
for poster in range(300):
    for time in range(12):
        engine.put(b"p|%s|%04d" % (name(poster), time), b"what a poster says %d" % time)
for user in range(1500):
    for poster in range(20):
        engine.put(b"s|%05d|%s" % (user, name((user * 7 + poster) % 300)), b"1")
    engine.scan(b"h|%05d|" % user, b"h|%05d}" % user)
""",
    "many tables": """
for table in range(10_000):
    engine.put(b"user%d|a" % table, b"1")
""",
}

PROGRAM = """
import gc, os
from pequod.engine import Engine
from pequod_grammar import parse

def name(number):
    # Of 16 lengths, as memory comes in pieces of 16 bytes: one length alone would fit them well or badly.
    return b"%0*d" % (4 + number % 16, number)

def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

engine = Engine(memory_limit=1 << 40)
engine.add_joins(parse("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>"))
gc.collect()
gc.disable()
# What imports have left free is used up first: data that goes there would not let the process grow.
ballast = []
for size in (40, 100, 200, 400, 2_000, 20_000):
    full = resident_bytes() + (256 << 10)
    while resident_bytes() < full:
        ballast += [bytes(size) for _ in range((16 << 10) // size + 1)]
before = resident_bytes()
{fill}
grown = resident_bytes() - before
print(grown, engine.statistics().memory.total_bytes)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_ledger_is_what_the_process_takes(shape: str) -> None:
    code = PROGRAM.replace("{fill}", SHAPES[shape])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    grown, estimated = map(int, done.stdout.split())
    assert grown > 8 << 20, "too little to tell"
    assert 0.95 < estimated / grown < 1.05, (grown, estimated)


def test_the_least_recently_read_timelines_go_first() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"p|bob|0001": "Hi"} | {f"s|u{number}|bob": "" for number in range(100)})
    for number in range(100):
        engine.scan(b"t|u%d|" % number, b"t|u%d}" % number)
    engine.scan(b"t|u0|", b"t|u0}")
    taken = engine.statistics().memory.total_bytes
    engine.limit_memory(taken - 50_000)
    live = [name for name in range(100) if _is_computed(engine, b"t|u%d|" % name)]
    assert 0 in live
    assert live[1:] == list(range(100 - len(live) + 1, 100))
    assert 0 < engine.ledger.evictions < 50


def test_what_is_watched_pinned_or_of_a_higher_priority_stays() -> None:
    engine = Engine(priorities={"kept": PINNED, "dear": 1})
    for table in ("plain", "dear", "kept", "seen"):
        engine.add_joins(parse(f"{table}|<a>|<b> = copy v|<a>|<b>"))
    engine.put(b"v|1|1", b"x")
    for name in (b"kept", b"dear", b"seen", b"plain"):
        engine.scan(name + b"|1|", name + b"|1}")
    watch = engine.watch(b"seen|", b"seen}", lambda: None)
    assert engine.evict(1) == 1
    assert [_is_computed(engine, name + b"|1|") for name in (b"plain", b"dear", b"seen", b"kept")] == [0, 1, 1, 1]
    assert engine.evict(10) == 1
    assert [_is_computed(engine, name + b"|1|") for name in (b"plain", b"dear", b"seen", b"kept")] == [0, 0, 1, 1]
    engine.unwatch(watch)
    engine.evict(10)
    assert [_is_computed(engine, name + b"|1|") for name in (b"seen", b"kept")] == [0, 1]
    engine._check()


def test_puts_beyond_the_limit_are_refused_and_lose_nothing() -> None:
    engine = Engine(memory_limit=1 << 20)
    count = 0
    with pytest.raises(LimitExceededError, match="memory_limit is 1048576") as caught:
        while True:
            engine.put(b"p|bob|%06d" % count, bytes(1000))
            count += 1
    assert caught.value.setting == "memory_limit"
    assert count > 700
    revision = engine.revision
    with pytest.raises(LimitExceededError):
        engine.put(b"p|liz|1", bytes(1000))
    assert engine.revision == revision
    assert engine.count(b"p|", b"p}") == count
    # What takes no more room is taken.
    engine.put(b"p|bob|000000", bytes(999))
    assert engine.remove(b"p|bob|000001")
    assert engine.remove(b"p|bob|000002")
    engine.put(b"p|liz|1", bytes(1000))
    assert engine.get(b"p|liz|1") == bytes(1000)
    engine._check()


def test_computed_ranges_make_room_for_puts() -> None:
    engine = engine_with(TIMELINE)
    engine.limit_memory(1 << 20)
    put_all(engine, {f"s|u{number:03}|bob": "" for number in range(300)})
    for number in range(300):
        engine.scan(b"t|u%03d|" % number, b"t|u%03d}" % number)
    contexts = engine.ledger.context_count
    for number in range(600):
        engine.put(b"p|bob|%04d" % number, bytes(1000))
    assert engine.ledger.context_count < contexts
    assert len(engine.scan(b"t|u001|", b"t|u001}").keys) == 600
    assert engine.make_room()
    engine._check()


def test_a_read_that_needs_more_than_there_is_is_refused_and_others_go_on() -> None:
    engine = engine_with(TIMELINE)
    engine.limit_memory(2 << 20)
    put_all(engine, {f"s|u{user:03}|p{poster}": "" for user in range(60) for poster in range(10)})
    put_all(engine, {f"p|p{poster}|{time:04}": "Hi" for poster in range(10) for time in range(100)})
    with pytest.raises(LimitExceededError, match="memory_limit"):
        engine.scan(b"t|", b"t}")
    engine._check()
    for user in range(60):
        assert len(engine.scan(b"t|u%03d|" % user, b"t|u%03d}" % user).keys) == 1000
        assert engine.make_room()
    assert engine.ledger.refusals == 1
    engine._check()


def _is_computed(engine: Engine, prefix: bytes) -> bool:
    found = engine.explain_range(prefix, prefix_end(prefix))
    return any(coverage.parts[0].state != "absent" for coverage in found.joins)


def _backed_timelines(users: int, memory_limit: int) -> Engine:
    engine = Engine(backed=[b"s", b"p"], memory_limit=memory_limit)
    engine.add_joins(parse(TIMELINE))
    for user in range(users):
        _read(engine, user)
    return engine


def _read(engine: Engine, user: int) -> list[bytes]:
    """Read a timeline of ten posts; the database has one poster for each user."""
    while True:
        try:
            return engine.scan(b"t|u%03d|" % user, b"t|u%03d}" % user).keys
        except MissingError as error:
            for first, last in error.ranges:
                name = first[2:6]
                rows = [(b"s|%b|p%b" % (name, name[1:]), b"")] if first.startswith(b"s|") else []
                rows += [(b"p|%b|%04d" % (name, time), bytes(100)) for time in range(10 * (not rows))]
                engine.load(first, last, rows)


def test_loaded_ranges_go_like_computed_ones_and_come_back() -> None:
    engine = _backed_timelines(300, 300_000)
    ledger = engine.ledger
    assert 0 < ledger.loaded_bytes <= ledger.total_bytes <= ledger.limit_bytes
    assert 20 < engine.loaded_range_count < 600
    assert ledger.evictions > 300
    # The least recently used went: the latest are there, the first are not.
    computed = engine.statistics().joins["t"].computed_ranges
    assert len(_read(engine, 299)) == 10
    assert engine.statistics().joins["t"].computed_ranges == computed
    loaded = engine.loaded()
    assert Range(b"p|p000|", b"p|p000}") not in loaded
    assert Range(b"p|p299|", b"p|p299}") in loaded
    for user in range(300):
        assert len(_read(engine, user)) == 10
    engine._check()


def test_what_was_computed_from_an_evicted_range_goes_with_it() -> None:
    engine = _backed_timelines(1, UNLIMITED)
    assert engine.evict(1) == 1
    # What is computed goes before what it was computed from.
    assert _is_computed(engine, b"t|u000|") is False
    assert len(engine.loaded()) == 2
    _read(engine, 0)
    engine.forget(b"p|p000|", b"p|p000}")
    assert _is_computed(engine, b"t|u000|") is False
    assert engine.evict(10) == 1
    assert engine.loaded() == []
    engine._check()


def test_a_load_that_cannot_fit_is_refused_before_anything_goes() -> None:
    engine = _backed_timelines(50, 300_000)
    loaded = engine.loaded()
    with pytest.raises(LimitExceededError, match="memory_limit"):
        engine.load(b"p|big|", b"p|big}", [(b"p|big|%04d" % time, bytes(1000)) for time in range(400)])
    assert engine.loaded() == loaded
    engine._check()


def test_a_large_load_goes_in_parts() -> None:
    engine = Engine(backed=[b"p"])
    engine.load(b"p|", b"p}", [(b"p|bob|%06d" % time, b"x") for time in range(10_000)])
    assert engine.loaded() == [Range(b"p|", b"p}")]
    assert engine.loaded_range_count == 20
    engine.get(b"p|bob|000000")
    for _ in range(2000):
        engine.get(b"p|bob|009999")
    assert (engine.evict(5), engine.loaded_range_count) == (5, 15)
    assert engine.get(b"p|bob|009999") == b"x"
    with pytest.raises(MissingError):
        engine.get(b"p|bob|000000")
    engine._check()


def test_pinned_tables_stay() -> None:
    engine = Engine(backed=[b"s", b"p"], priorities={"s": PINNED})
    for name in (b"s", b"p"):
        engine.load(name + b"|", name + b"}", [(name + b"|a|b", b"1")])
    # Until it is read, what was loaded waits for its reader.
    assert engine.evict(10) == 0
    assert engine.scan(b"p|", b"p}").values == engine.scan(b"s|", b"s}").values == [b"1"]
    assert engine.evict(10) == 1
    assert engine.loaded() == [Range(b"s|", b"s}")]


@pytest.mark.parametrize("maintenance", ["", "pull "])
def test_a_read_takes_no_more_than_the_limit_before_it_is_refused(maintenance: str) -> None:
    engine = Engine(memory_limit=4 << 20)
    engine.add_joins(parse(TIMELINE.replace(" = ", f" = {maintenance}", 1)))
    put_all(engine, {f"s|u{user:03}|p{poster}": "" for user in range(100) for poster in range(10)})
    put_all(engine, {f"p|p{poster}|{time:04}": "Hi" for poster in range(10) for time in range(200)})
    stored_bytes = engine.ledger.stored_bytes
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceededError, match="memory_limit"):
            engine.scan(b"t|", b"t}")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < engine.ledger.limit_bytes - stored_bytes
    assert len(engine.scan(b"t|u001|", b"t|u001}").keys) == 2000
    engine._check()


def test_many_rows_at_once_are_taken_or_refused_as_a_whole() -> None:
    engine = engine_with(TIMELINE)
    engine.limit_memory(1 << 20)
    put_all(engine, {f"s|u{number:03}|bob": "" for number in range(100)})
    for number in range(100):
        engine.scan(b"t|u%03d|" % number, b"t|u%03d}" % number)
    keys = [b"p|bob|%04d" % number for number in range(1000)]
    before = engine.revision
    with pytest.raises(LimitExceededError, match="memory_limit"):
        engine.put_all(keys, [bytes(1000)] * 1000)
    assert engine.revision == before
    assert engine.count(b"p|", b"p}") == 0
    # Computed ranges go for what fits.
    engine.put_all(keys[:800], [bytes(1000)] * 800)
    assert engine.count(b"p|", b"p}") == 800
    with pytest.raises(LimitExceededError):
        engine.put_all(keys[700:], [bytes(1000)] * 300)
    # The same rows once more need no more room, and shorter ones less.
    engine.put_all(keys[:800], [bytes(900)] * 800)
    assert engine.make_room()
    engine._check()
