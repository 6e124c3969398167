"""First checks and logs that are collected natively, beside the kernel in Python and the loops that any join takes."""

from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine.joins import collecting
from pequod.engine.joins.timeline import general_way
from pequod.engine.reads import execution
from tests.native.core import hot

assert hot.INTERFACE

JOINS = {
    "delimited": "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    "fixed": "t|<user:1>|<time:2>|<poster:1> = check s|<user>|<poster> copy p|<poster>|<time>",
    "poster in the middle": "t|<user>|<time:2>|by|<poster>|of|<user> = check s|<user>|<poster> copy p|<poster>|<time>",
    "unlike prefix": "t|<user>|<time:2>|<poster> = check s|all|<user>|<poster> copy p|of|<poster>|<time>",
}
NAMES = st.sampled_from([b"a", b"b", b"c", b"ab", b"", b"a|b"])
TIMES = st.sampled_from([b"00", b"01", b"05", b"09", b"1", b"100", b""])
#: What it does, a user, a poster and a time; a second time for a check.
STEPS = st.lists(
    st.tuples(st.sampled_from(["post", "post", "drop", "follow", "follow", "leave", "check", "check"])).flatmap(
        lambda kind: st.tuples(st.just(kind[0]), NAMES, NAMES, TIMES, TIMES | st.none())
    ),
    max_size=40,
)


def take(engine: Engine, step: tuple[str, bytes, bytes, bytes, bytes | None], *, is_unlike: bool) -> object:
    kind, user, poster, time, until = step
    subscription = (b"s|all|%b|%b" if is_unlike else b"s|%b|%b") % (user, poster)
    post = (b"p|of|%b|%b" if is_unlike else b"p|%b|%b") % (poster, time)
    match kind:
        case "post":
            engine.put(post, poster * 2)
            return None
        case "drop":
            return engine.remove(post)
        case "follow":
            engine.put(subscription, b"1")
            return None
        case "leave":
            return engine.remove(subscription)
    last = b"t|%b}" % user if until is None else b"t|%b|%b" % (user, until)
    return engine.scan(b"t|%b|%b" % (user, time), last)


def shown(engine: Engine) -> object:
    """Return rows and ranges, and how many there are, which is the same whatever way they were made."""
    engine._check()
    (join,) = engine._catalog
    found = {}
    for prefix, context in join.contexts.items():
        rows = context.rows.everything()
        found[prefix] = (rows, [(one.first, one.last) for one in context.ranges], context.updaters_count)
    ledger = engine.ledger
    return found, ledger.entry_count, ledger.context_count, ledger.range_count, ledger.log_bytes


@pytest.mark.parametrize("name", JOINS)
# A post that goes into a timeline: the kernel shares its tail among all timelines, the loops make one for each row.
@example(
    steps=[
        ("check", b"a", b"ab", b"00", None),
        ("follow", b"a", b"b", b"09", None),
        ("check", b"a", b"ab", b"00", None),
        ("post", b"b", b"b", b"00", None),
    ]
)
@given(steps=STEPS)
def test_it_is_what_the_general_way_does(name: str, steps: list[tuple[str, bytes, bytes, bytes, bytes | None]]) -> None:
    native, python, general = engines = [Engine(), Engine(), Engine()]
    for engine in engines:
        engine.add_joins(parse(JOINS[name]))
    is_unlike = name == "unlike prefix"
    for step in steps:
        answer = take(native, step, is_unlike=is_unlike)
        with patch.object(collecting, "core", None):
            assert take(python, step, is_unlike=is_unlike) == answer, step
        with general_way():
            assert take(general, step, is_unlike=is_unlike) == answer, step
        assert shown(native) == shown(python) == shown(general), step
        ledgers = [(engine.ledger.row_bytes, engine.ledger.updater_bytes) for engine in (native, python)]
        assert ledgers[0] == ledgers[1], step


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The native calls that have done it, by their names."""
    done: list[str] = []
    for name in ("collect", "apply_log"):
        native = getattr(hot, name)

        def call(*arguments: object, name: str = name, native: object = native) -> object:
            found = native(*arguments)  # type: ignore[operator]
            done.append(name if found is not None and found is not False else f"no {name}")
            return found

        monkeypatch.setattr(hot, name, call)
    return done


def test_plain_first_checks_and_logs_are_native(collected: list[str]) -> None:
    # Without a limit, the scan that finds the context applies its log as well, in one call.
    engine = Engine(memory_limit=1 << 30)
    engine.add_joins(parse(JOINS["delimited"]))
    engine.put(b"s|a|b", b"1")
    engine.put(b"p|b|01", b"Hi")
    engine.put(b"p|c|02", b"Ho")
    assert engine.scan(b"t|a|", b"t|a}").values == [b"Hi"]
    engine.put(b"s|a|c", b"1")
    assert engine.scan(b"t|a|", b"t|a}").values == [b"Hi", b"Ho"]
    assert collected == ["collect", "apply_log"]
    engine.remove(b"s|a|b")
    engine.put(b"s|a|d", b"1")
    assert engine.scan(b"t|a|", b"t|a}").values == [b"Ho"]
    assert collected == ["collect", "apply_log", "apply_log"]
    # Of several ranges, the loops do it.
    engine.invalidate(b"t|", b"t}")
    assert engine.scan(b"t|a|0", b"t|a|1").values == [b"Ho"]
    assert engine.scan(b"t|a|2", b"t|a}").values == []
    engine.remove(b"s|a|c")
    assert engine.scan(b"t|a|2", b"t|a}").values == []
    assert collected[-1] == "no apply_log"
    engine._check()


@pytest.mark.parametrize("first", [b"t|a|", b"t|a|00", b"t|a|02"])
def test_a_first_check_of_a_part_of_a_timeline_is_native(collected: list[str], first: bytes) -> None:
    engine = Engine()
    engine.add_joins(parse(JOINS["delimited"]))
    engine.put_all([b"s|a|b", b"p|b|01", b"p|b|03", b"p|b|07"], [b"1", b"early", b"Hi", b"late"])
    expected = [b"Hi"] if first == b"t|a|02" else [b"early", b"Hi"]
    assert engine.scan(first, b"t|a|05").values == expected
    assert collected == ["collect"]
    engine.put(b"p|b|04", b"Ho")
    assert engine.scan(first, b"t|a|05").values == [*expected, b"Ho"]
    engine._check()


@pytest.mark.parametrize(("room_bytes", "is_due"), [(20_000, True), (80_000, False)])
def test_the_next_put_weighs_memory_if_a_log_has_brought_more_than_there_was_room_for(
    room_bytes: int,
    is_due: bool,
) -> None:
    engine = Engine(memory_limit=1 << 30)
    engine.add_joins(parse(JOINS["delimited"]))
    engine.put(b"s|a|b", b"1")
    engine.put(b"p|b|01", b"Hi")
    assert engine.scan(b"t|a|", b"t|a}").values == [b"Hi"]
    poster = b"long" * 100
    engine.put_all([b"p|%b|%02d" % (poster, time) for time in range(50)], [b"Ho"] * 50)
    engine.put(b"s|a|" + poster, b"1")
    engine.ledger.weigh_again(engine.revision + 1000, room_bytes)
    # As many rows as entries would have room; their tails have not.
    assert len(engine.scan(b"t|a|", b"t|a}").keys) == 51
    assert (engine.ledger.weigh_at <= engine.revision) == is_due
    engine._check()


def test_many_rows_are_not_plain(collected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "ROWS_AT_A_TIME", 3)
    engine = Engine()
    engine.add_joins(parse(JOINS["delimited"]))
    for poster in (b"b", b"c"):
        engine.put(b"s|a|%b" % poster, b"1")
        for time in range(2):
            engine.put(b"p|%b|%02d" % (poster, time), b"Hi")
    assert len(engine.scan(b"t|a|", b"t|a}").keys) == 4
    assert collected == ["no collect"]
    engine._check()


def test_without_a_native_core_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.add_joins(parse(JOINS["delimited"]))
    engine.put(b"s|a|b", b"1")
    engine.put(b"p|b|01", b"Hi")
    monkeypatch.setattr(collecting, "core", None)
    assert engine.scan(b"t|a|", b"t|a}").values == [b"Hi"]
    engine.put(b"s|a|c", b"1")
    assert engine.scan(b"t|a|", b"t|a}").values == [b"Hi"]
    engine._check()
