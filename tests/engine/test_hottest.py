"""Statistics name the largest and the hottest contexts, and the number of rows that reads computed grows with them."""

from __future__ import annotations

from pequod_grammar import parse

from pequod.engine import Engine

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>"


def timelines(lengths: dict[str, int]) -> Engine:
    """Return an engine whose users follow a poster of their own, with so many posts."""
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    for user, length in lengths.items():
        engine.put(f"s|{user}|{user}".encode(), b"1")
        for number in range(length):
            engine.put(f"p|{user}|{number:04}".encode(), b"post")
    return engine


def scan(engine: Engine, user: str) -> None:
    engine.scan(f"t|{user}|".encode(), f"t|{user}}}".encode())


def test_statistics_name_the_largest_and_the_hottest_contexts() -> None:
    lengths = {f"u{number}": 10 * number for number in range(1, 9)}
    engine = timelines(lengths)
    for user in lengths:
        scan(engine, user)
    for times, user in ((3, "u2"), (7, "u1"), (1, "u8")):
        for _ in range(times):
            scan(engine, user)
    found = engine.statistics().joins["t"]
    assert [(one.prefix, one.rows) for one in found.largest] == [
        (f"t|u{number}|".encode(), 10 * number) for number in (8, 7, 6, 5, 4)
    ]
    assert [(one.prefix, one.hits) for one in found.hottest] == [(b"t|u1|", 7), (b"t|u2|", 3), (b"t|u8|", 1)]
    assert found.hits == 11


def test_reads_count_the_rows_that_they_compute() -> None:
    engine = timelines({"ann": 12, "bob": 5})
    assert engine.rows_computed == 0
    scan(engine, "ann")
    scan(engine, "ann")
    assert engine.rows_computed == 12
    scan(engine, "bob")
    assert engine.rows_computed == 17
