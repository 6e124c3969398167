"""Reads of what is loaded of a database: answered natively, and used by eviction as those of Python."""

import random

import pytest
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import COUNT, GET, SCAN
from pequod.engine import Engine, MissingError
from pequod.engine.base.presence import PART_ROWS_MAX, Presence
from pequod.native import parse_batch
from tests.native.core import hot

assert hot.INTERFACE


def backed() -> Engine:
    """Return an engine with two parts of `p|bob|` that touch, one of `p|liz|`, and a table of clients."""
    engine = Engine(backed=[b"p"])
    engine.load(b"p|bob|", b"p|bob|5", [(b"p|bob|%d" % at, b"%d" % at) for at in range(5)])
    engine.load(b"p|bob|5", b"p|bob}", [(b"p|bob|%d" % at, b"%d" % at) for at in range(5, 9)])
    engine.load(b"p|liz|3", b"p|liz|7", [(b"p|liz|5", b"five")])
    engine.put(b"x|1", b"one")
    return engine


def presence_of(engine: Engine) -> Presence:
    table = engine._directory.by_name[b"p"].table
    assert table.presence is not None
    return table.presence


def replies(engine: Engine, *commands: tuple[int, bytes, bytes]) -> list[bytes | int | list[bytes]] | None:
    """Return what reads give natively; None: one of them is not quick."""
    arguments = [argument for kind, first, last in commands for argument in ([first] if kind == GET else [first, last])]
    request = pb.ExecuteRequest(kinds=bytes(kind for kind, *_ in commands), arguments=arguments)
    batch = parse_batch(request.SerializeToString(), 100, 100, 1 << 20)
    assert batch is not None
    if engine.run_quick(batch, 0.0):
        return None
    reply = pb.ExecuteReply.FromString(batch.reply(0, 0))
    keys, values, counts = list(reply.keys), list(reply.values), list(reply.counts)
    found: list[bytes | int | list[bytes]] = []
    for kind, *_ in commands:
        if kind == GET:
            found.append(values.pop(0) if values else b"")
        elif kind == COUNT:
            found.append(counts.pop(0))
        else:
            size = counts.pop(0)
            found.append(keys[:size])
            del keys[:size], values[:size]
    return found


def test_loaded_keys_and_ranges_are_read_natively_over_parts_that_touch() -> None:
    engine = backed()
    keys = [b"p|bob|%d" % at for at in range(9)]
    assert replies(engine, (GET, b"p|bob|7", b"")) == [b"7"]
    assert replies(engine, (SCAN, b"p|bob|", b"p|bob}")) == [keys]
    assert replies(engine, (COUNT, b"p|bob|4", b"p|bob|9")) == [5]
    assert replies(engine, (COUNT, b"p|liz|3", b"p|liz|7")) == [1]
    assert replies(engine, (GET, b"x|1", b"")) == [b"one"]


@pytest.mark.parametrize(
    "command",
    [
        (GET, b"p|liz|2", b""),
        (GET, b"p|liz|7", b""),
        (SCAN, b"p|liz|2", b"p|liz|4"),
        (SCAN, b"p|liz|3", b"p|liz|7\0"),
        (COUNT, b"p|bob|", b"p|bob}\0"),
        (COUNT, b"p|", b"p|z"),
    ],
)
def test_what_is_not_loaded_is_left_to_python(command: tuple[int, bytes, bytes]) -> None:
    engine = backed()
    assert replies(engine, command) is None
    kind, first, last = command
    with pytest.raises(MissingError):
        engine.get(first) if kind == GET else engine.scan(first, last)


def test_a_read_uses_the_parts_that_it_reads_and_no_others() -> None:
    engine = Engine(backed=[b"p"])
    # The first load is cut into two parts.
    for first, last, count in [(b"p|a|", b"p|b|", 2 * PART_ROWS_MAX), (b"p|b|", b"p|c|", PART_ROWS_MAX)]:
        engine.load(first, last, [(first + b"%04d" % at, b"") for at in range(count)])
    for part in presence_of(engine):
        part.last_used = 0
    before = engine._reads.number
    assert replies(engine, (COUNT, b"p|a|0001", b"p|a|0003")) == [2]
    assert [part.last_used for part in presence_of(engine)] == [before + 1, 0, 0]
    seam = b"p|a|%04d" % (PART_ROWS_MAX - 1), b"p|a|%04d" % (PART_ROWS_MAX + 1)
    assert replies(engine, (COUNT, *seam)) == [2]
    assert engine.get(b"p|b|0001") == b""
    assert [part.last_used for part in presence_of(engine)] == [before + 2, before + 2, before + 3]
    assert engine._reads.number == before + 3
    engine._check()


def test_a_scan_of_several_groups_counts_as_one_read() -> None:
    engine = Engine(backed=[b"p"])
    engine.add_joins(parse("n|<user> = count p|<user>|<time>"))
    engine.load(b"p|", b"p}", [(b"p|%b|1" % user, b"") for user in (b"ann", b"bob")])
    before = engine._reads.number
    assert len(engine.scan(b"p|ann|", b"p|c").keys) == 2
    assert {part.last_used for part in presence_of(engine)} == {before + 1}
    assert engine._reads.number == before + 1


def test_parts_that_are_united_and_cut_go_on_being_used() -> None:
    engine = backed()
    engine.forget(b"p|bob|2", b"p|bob|4")
    assert [part.range for part in presence_of(engine)][:2] == [(b"p|bob|", b"p|bob|2"), (b"p|bob|4", b"p|bob}")]
    assert replies(engine, (GET, b"p|bob|1", b""), (GET, b"p|bob|4", b"")) == [b"1", b"4"]
    assert replies(engine, (GET, b"p|bob|2", b"")) is None
    assert engine._reads.number in [part.last_used for part in presence_of(engine)]
    engine._check()


def test_what_is_native_is_what_is_loaded() -> None:
    rnd = random.Random(7)
    keys = [b"p|k|%02d" % at for at in range(60)]
    for _ in range(40):
        engine = Engine(backed=[b"p"])
        for _ in range(rnd.randrange(8)):
            first, last = sorted(rnd.sample(keys, 2))
            if not presence_of(engine).over(first, last):
                engine.load(first, last, [(key, key) for key in keys[::2] if first <= key < last])
        for _ in range(20):
            first, last = sorted(rnd.sample(keys, 2))
            is_there = not presence_of(engine).gaps(first, last, 0)
            found = replies(engine, (SCAN, first, last))
            assert (found is not None) == is_there
            if found is not None:
                assert found == [[key for key in keys[::2] if first <= key < last]]
            assert (replies(engine, (GET, first, b"")) is not None) == presence_of(engine).has(first)
