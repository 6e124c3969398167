"""Scans with a limit, backwards, and in pieces."""

from tests.engine.joins import CELEBRITY, TIMELINE, engine_with, put_all, scan


def test_limits_and_reverse() -> None:
    engine = engine_with(CELEBRITY)
    put_all(engine, {"s|ann|bob": "", **{f"p|bob|{n:04}": str(n) for n in range(20)}, "cp|bob|0100": "c"})
    every = engine.scan(b"t|ann|", b"t|ann}")
    assert len(every.keys) == 21
    down = engine.scan(b"t|ann|", b"t|ann}", reverse=True)
    assert (down.keys, down.values) == (every.keys[::-1], every.values[::-1])
    assert engine.scan(b"t|ann|", b"t|ann}", limit=3).keys == every.keys[:3]
    assert engine.scan(b"t|ann|", b"t|ann}", limit=3, reverse=True).keys == down.keys[:3]
    assert engine.scan(b"t|ann|", b"t|ann}", limit=0).keys == []
    assert engine.scan(b"t|ann}", b"t|ann|").keys == []
    assert engine.scan(b"", None).keys == sorted(engine.scan(b"", None).keys)


def test_a_limited_scan_brings_up_no_more_timelines_than_it_takes() -> None:
    engine = engine_with(TIMELINE)
    users = [f"u{number:02}" for number in range(40)]
    put_all(engine, {f"s|{user}|bob": "1" for user in users} | {"p|bob|0100": "Hi", "p|bob|0120": "again"})
    for user in users:
        scan(engine, f"t|{user}|")
    engine.remove(b"s|u39|bob")
    assert len(engine.scan(b"t|", b"t}", limit=5).keys) == 5
    assert engine.statistics().joins["t"].log_entries == 1, "the last timeline was not looked at"
    assert len(engine.scan(b"t|", b"t}").keys) == 78
    assert engine.statistics().joins["t"].log_entries == 0


def test_a_limited_scan_goes_on_where_rows_have_gone() -> None:
    engine = engine_with(TIMELINE)
    users = [f"u{number:02}" for number in range(40)]
    put_all(engine, {f"s|{user}|bob": "1" for user in users} | {"p|bob|0100": "Hi"})
    for user in users:
        scan(engine, f"t|{user}|")
    for user in users[:30]:
        engine.remove(f"s|{user}|bob".encode())
    assert engine.scan(b"t|", b"t}", limit=3).keys == [b"t|u30|0100|bob", b"t|u31|0100|bob", b"t|u32|0100|bob"]
    assert len(engine.scan(b"t|", b"t}", limit=50).keys) == 10


def test_a_scan_in_pieces_over_joins_side_by_side_is_the_whole() -> None:
    engine = engine_with(f"{TIMELINE}; u|<user>|<poster> = copy s|<user>|<poster>")
    put_all(engine, {f"s|u{number:02}|bob": "1" for number in range(20)} | {"p|bob|0100": "Hi", "tt|1": "", "t": ""})
    for number in range(0, 20, 3):
        scan(engine, f"t|u{number:02}|")
        scan(engine, f"u|u{number:02}|")
    pieces, first = [], b""
    while keys := engine.scan(first, None, limit=4).keys:
        pieces += keys
        first = keys[-1] + b"\0"
    assert pieces == engine.scan(b"", None).keys
    assert len(pieces) == 63


def test_a_limited_scan_computes_a_gap_no_further_than_it_takes() -> None:
    chain = f"""{TIMELINE}; d|<user>|<time:4>|<poster> = copy t|<user>|<time:4>|<poster>;
        n|<user>|<poster> = count d|<user>|<time:4>|<poster>"""
    users = [f"u{number:04}" for number in range(1000)]
    for table, most in (("t", 200), ("d", 400), ("n", 500)):
        engine = engine_with(chain)
        put_all(engine, {f"s|{user}|bob": "1" for user in users} | {"p|bob|0100": "Hi"})
        first = table.encode() + b"|"
        assert len(engine.scan(first, first[:-1] + b"}", limit=20).keys) == 20
        computed = sum(join.rows_computed for join in engine.statistics().joins.values())
        assert computed <= most, "a piece of the gap is enough"


def test_gaps_in_pieces_give_what_they_give_whole() -> None:
    joins = f"""{TIMELINE}; n|<user> = count t|<user>|<time:4>|<poster>; f|<poster:3>|<user> = copy s|<user>|<poster:3>;
        w|<poster:3><time:4> = copy p|<poster:3>|<time:4>; v|<user>|<poster> = pull copy s|<user>|<poster>;
        k|<user>|<time:4>|<poster> = copy t|<user>|<time:4>|<poster> keep last 2 of <user>"""
    rows = {f"s|{user}|{poster}": "1" for user in ("a", "a|b", "ab", "b") for poster in ("bob", "liz", "\x00|}")}
    rows |= {f"s|u{number}|bob": "1" for number in range(300)}
    rows |= {f"p|{poster}|{time:04}": "Hi" for poster in ("bob", "liz", "\x00|}") for time in range(0, 90, 7)}
    whole = engine_with(joins)
    put_all(whole, rows)
    for table in b"tnfwvk":
        first, last = b"%c|" % table, b"%c}" % table
        every = whole.scan(first, last).keys
        assert every
        for limit in (1, 7, 100):
            engine, pieces, at = engine_with(joins), [], first
            put_all(engine, rows)
            while keys := engine.scan(at, last, limit=limit).keys:
                pieces += keys
                at = keys[-1] + b"\0"
            assert pieces == every


def test_a_limited_scan_of_stored_rows_looks_at_no_timelines_behind_them() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {f"p|bob|{time:04}": "Hi" for time in range(50)} | {"s|ann|bob": "1"})
    assert len(engine.scan(b"", None, limit=20).keys) == 20
    assert engine.statistics().joins["t"].rows_computed == 0
    assert len(engine.scan(b"", None, limit=100).keys) == 100
    assert engine.statistics().joins["t"].rows_computed == 50
