"""Statistics collected in steps, with everything changing between them."""

import random

from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine.shown.statistics import collect

JOINS = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
karma|<author> = count vote|<author>|<voter>
"""
USERS = 30


def _filled() -> Engine:
    engine = Engine()
    engine.add_joins(parse(JOINS))
    for user in range(USERS):
        engine.put(b"s|%02d|%02d" % (user, user % 3), b"1")
        engine.put(b"vote|%02d|x" % user, b"")
        # Two ranges of one context.
        engine.scan(b"t|%02d|1" % user, b"t|%02d|2" % user)
        engine.scan(b"t|%02d|4" % user, b"t|%02d|5" % user)
    for time in range(1000, 2000, 10):
        engine.put(b"p|01|%04d" % time, b"text")
    engine.scan(b"karma|", b"karma}")
    return engine


def test_steps_of_any_size_find_the_same() -> None:
    engine = _filled()
    whole = engine.statistics()
    assert (whole.joins["t"].contexts, whole.joins["t"].status_ranges) == (USERS, 2 * USERS)
    assert whole.joins["t"].rows == 10 * 100
    assert whole.joins["t"].key_bytes == 10 * 100 * len("1000|01")
    assert whole.joins["karma"].rows == USERS
    assert whole.revision == engine.revision
    for step in (1, 50, 1000):
        steps = collect(engine._store, engine._catalog, engine.ledger, lambda: engine.revision, 0.0, step)
        count = 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                assert end.value == whole
                break
            count += 1
        assert count >= (USERS if step == 1 else 1)


def test_only_sums_count_what_is_no_number() -> None:
    engine, names = Engine(), ("sum", "avg", "min", "max", "count")
    engine.add_joins(parse(";".join(f"{name}|<a> = {name} v|<a>|<b>" for name in names)))
    engine.put(b"v|a|1", b"no number")
    engine.put(b"v|a|2", b"2")
    for name in names:
        engine.scan(b"%s|" % name.encode(), b"%s}" % name.encode())
    found = {name: join.not_a_number for name, join in engine.statistics().joins.items()}
    assert found == {"sum": 1, "avg": 1, "min": 0, "max": 0, "count": 0}


def test_anything_may_change_between_steps() -> None:
    for seed in range(10):
        chance, engine = random.Random(seed), _filled()

        def change(chance: random.Random = chance, engine: Engine = engine) -> None:
            user, poster = chance.randrange(USERS), chance.randrange(3)
            match chance.randrange(6):
                case 0:
                    engine.evict(3)
                case 1:
                    engine.scan(b"t|%02d|" % user, b"t|%02d}" % user)
                case 2:
                    engine.put(b"p|%02d|%04d" % (poster, chance.randrange(10_000)), b"text")
                case 3:
                    engine.remove(b"s|%02d|%02d" % (user, poster))
                case 4:
                    engine.put(b"s|%02d|%02d" % (user, poster), b"1")
                case _ if chance.random() < 0.1 and engine.joins():
                    engine.drop_join(engine.joins()[0].name)
                case _:
                    engine.scan(b"t|", b"t}")

        for _ in collect(engine._store, engine._catalog, engine.ledger, lambda engine=engine: engine.revision, 0.0, 1):  # type: ignore[misc]
            change()
        engine._check()
        for name, join in engine.statistics().joins.items():
            contexts = {status.context for status in engine._catalog.find(name).coverage}
            assert join.contexts == len(contexts)
            assert join.rows == sum(len(context.rows) for context in contexts)
            assert join.updaters == sum(context.updaters_count for context in contexts)


def test_a_join_is_as_old_as_the_first_change_that_waits() -> None:
    engine = Engine()
    engine.add_joins(parse(JOINS))
    engine.tell_time(100.0)
    for user in (b"01", b"02"):
        engine.put(b"s|%s|09" % user, b"1")
        engine.scan(b"t|%s|" % user, b"t|%s}" % user)
    engine.put(b"p|09|1000", b"eager changes make nothing old")

    def age_s(now: float) -> float:
        return engine.statistics(now=now).joins["t"].age_s

    assert age_s(107.0) == 0.0
    engine.tell_time(110.0)
    engine.put(b"s|01|08", b"1")
    engine.tell_time(120.0)
    engine.put(b"s|01|07", b"1")
    engine.put(b"s|02|08", b"1")
    assert age_s(125.0) == 15.0
    engine.scan(b"t|01|", b"t|01}", now=126.0)
    assert age_s(126.0) == 6.0
    assert age_s(119.0) == 0.0, "a change after the moment of asking is no age below zero"
    engine.scan(b"t|02|", b"t|02}", now=127.0)
    assert age_s(200.0) == 0.0


def test_what_is_computed_from_old_rows_is_as_old() -> None:
    engine = Engine()
    engine.add_joins(parse(f"{JOINS}; u|<user>|<time:4> = count t|<user>|<time>|<poster>"))
    engine.put(b"s|ann|bob", b"1")
    engine.scan(b"u|ann|", b"u|ann}")
    engine.tell_time(5.0)
    engine.put(b"s|ann|cid", b"1")
    joins = engine.statistics(now=7.0).joins
    assert (joins["t"].age_s, joins["u"].age_s, joins["u"].log_entries, joins["karma"].age_s) == (2.0, 2.0, 0, 0.0)


def test_a_snapshot_join_is_as_old_as_its_oldest_snapshot() -> None:
    engine = Engine()
    engine.add_joins(parse("top|<author> = snapshot 30 sum vote|<author>|<voter>"))
    for now, author in ((10.0, b"ann"), (14.0, b"bob")):
        engine.put(b"vote|%s|x" % author, b"1")
        engine.get(b"top|%s" % author, now=now)
    assert engine.statistics(now=20.0).joins["top"].age_s == 10.0
    engine.get(b"top|ann", now=41.0)
    assert engine.statistics(now=42.0).joins["top"].age_s == 28.0


def test_the_total_of_memory_is_that_of_its_kinds() -> None:
    engine = Engine(backed=[b"p"])
    engine.add_joins(
        parse("""
        t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
        best|<poster> = max p|<poster>|<time:2>;
        shown|<text>|<id> = copy r|<id> with n = <text>
        """)
    )
    for poster in (b"bob", b"liz"):
        engine.load(b"p|%b|" % poster, b"p|%b}" % poster, [(b"p|%b|%02d" % (poster, time), b"9") for time in range(20)])
    engine.put_all([b"s|ann|bob", b"r|1"], [b"1", b'{"n": "long"}'])
    for first, last in ((b"t|ann|", b"t|ann}"), (b"best|bob", b"best|bob\0"), (b"shown|long|", b"shown|long}")):
        assert engine.scan(first, last).keys
    engine.apply(b"p|bob|20", b"10")
    # A server tells what it keeps for watches.
    engine.ledger.change_watches(777)
    # The timeline has a log from now on.
    engine.put(b"s|ann|liz", b"1")
    memory = engine.statistics().memory
    kinds = [
        memory.stored_bytes,
        memory.loaded_bytes,
        memory.row_bytes,
        memory.context_bytes,
        memory.updater_bytes,
        memory.log_bytes,
        memory.state_bytes,
        memory.index_bytes,
        memory.watch_bytes,
    ]
    assert all(kinds), f"there is something of each kind: {kinds}"
    assert memory.total_bytes == sum(kinds)
