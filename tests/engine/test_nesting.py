"""Joins over joins over joins: what works at the greatest depth, and that nothing deeper is installed."""

from collections.abc import Callable

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, JoinError, JoinSpec, NotWatchableError
from pequod.engine.joins import connected
from pequod.language import cycles
from pequod.language.cycles import NESTING_MAX
from pequod.language.patterns import may_overlap as overlap
from pequod.language.spec import Pattern
from tests.engine.joins import scan

#: What a caller of an embedded engine, or the server, may have on the stack.
_CALLERS = 300
#: By names: a join of a chain, how many sources it goes through, and rows that are seen at the end of it.
CHAINS = {
    "copy": ("t{at}|<a>|<b> = copy t{below}|<b>|<a>", 1, {"t0|x|x": "1"}),
    "pull": ("t{at}|<a> = pull copy t{below}|<a>", 1, {"t0|x": "1"}),
    "snapshot": ("t{at}|<a> = snapshot 10 copy t{below}|<a>", 1, {"t0|x": "1"}),
    "sum": ("t{at}|<a> = sum t{below}|<a>", 1, {"t0|x": "1"}),
    "record": ("t{at}|<a> = copy t{below}|<a> with k = 1", 1, {"t0|x": '{"k":1}'}),
    "field": ("t{at}|<a>|<b> = copy t{below}|<c>|<b> with a = <a>", 1, {"t0|x|x": '{"a":"x"}'}),
    "field, pull": ("t{at}|<a>|<b> = pull copy t{below}|<c>|<b> with a = <a>", 1, {"t0|x|x": '{"a":"x"}'}),
    "check": ("t{at}|<a> = check s|<a> copy t{below}|<a>", 2, {"t0|x": "1", "s|x": ""}),
    "checked": ("t{at}|<a> = check t{below}|<a> copy s|<a>", 1, {"t0|x": "1", "s|x": "1"}),
}


def _chain(text: str, first: int, stop: int) -> list[JoinSpec]:
    return [spec for at in range(first, stop) for spec in parse(text.format(at=at + 1, below=at))]


def _deep(calls: int, do: Callable[[], None]) -> None:
    if calls:
        _deep(calls - 1, do)
    else:
        do()


@pytest.mark.parametrize("name", CHAINS)
def test_all_calls_work_at_the_greatest_depth(name: str) -> None:
    text, width, rows = CHAINS[name]
    # Its last join reads the table of `s` inside the others.
    length = (NESTING_MAX - (name == "checked")) // width

    def use() -> None:
        engine = Engine()
        engine.add_joins(_chain(text, 0, length))
        last, first = f"t{length}|", "t0|"

        def see(*, is_there: bool, now: float) -> None:
            assert bool(scan(engine, last, now=now)) is is_there
            assert engine.count(last.encode(), None, now=now) >= is_there
            engine.get(last.encode() + b"x", now=now)
            engine.explain_join(f"t{length}")
            engine.explain_range(b"", None, now=now)
            engine.statistics()

        for key, value in rows.items():
            engine.put(key.encode(), value.encode())
        see(is_there=True, now=0.0)
        try:
            watch = engine.watch(last.encode(), None, lambda: None)
        except NotWatchableError:
            watch = None
        for now, (key, value) in enumerate(rows.items(), 1):
            engine.remove(key.encode())
            see(is_there=False, now=1000.0 * now * length)
            engine.put(key.encode(), value.encode())
            see(is_there=True, now=1000.0 * (now + 0.5) * length)
        if watch is not None:
            engine.settle(watch)
            engine.unwatch(watch)
        engine.evict(3)
        see(is_there=True, now=1e9)
        engine.invalidate(first.encode(), None)
        see(is_there=True, now=1e9)
        engine.drop_join("t1")
        see(is_there=False, now=1e9)

    _deep(_CALLERS, use)


@pytest.mark.parametrize("name", CHAINS)
def test_nothing_deeper_is_installed(name: str) -> None:
    text, width, _ = CHAINS[name]
    engine = Engine()
    with pytest.raises(JoinError, match=rf"through {NESTING_MAX + (max(1, width))} sources.*{NESTING_MAX} are"):
        engine.add_joins(_chain(text, 0, NESTING_MAX // width + (name != "checked")))
    assert engine.joins() == []


def test_a_join_that_connects_two_chains_is_refused_whatever_came_first() -> None:
    text, half = "t{at}|<a> = copy t{below}|<a>", NESTING_MAX // 2
    chain = _chain(text, 0, NESTING_MAX + 1)
    middle = chain[half]
    for order in (chain, chain[::-1], [*chain[half + 1 :], *chain[:half]]):
        engine = Engine()
        for spec in order:
            if spec is not middle:
                engine.add_joins([spec])
        with pytest.raises(JoinError, match=r"t65\|<a> \.\. t1\|<a>"):
            engine.add_joins([middle])
        assert len(engine.joins()) == NESTING_MAX
        engine._check()
        engine.drop_join("t1")
        engine.add_joins([middle])
        engine._check()


def test_sources_of_one_join_are_inside_each_other() -> None:
    """A chain of 62 below the third source of a join is too deep, and below its second it is not."""
    engine = Engine()
    engine.add_joins(_chain("t{at}|<a> = copy t{below}|<a>", 0, NESTING_MAX - 2))
    engine.add_joins(parse(f"fits|<a> = check s|<a> copy t{NESTING_MAX - 2}|<a>"))
    with pytest.raises(JoinError, match="through 65 sources"):
        engine.add_joins(parse(f"deep|<a> = check s|<a> check r|<a> copy t{NESTING_MAX - 2}|<a>"))


def test_joins_that_branch_below_each_other_are_looked_at_once_each() -> None:
    """Each reads the two before it, so that the ways down from the last one are millions."""
    count = 30
    engine = Engine()
    engine.add_joins(parse(";".join(f"t{at + 2}|<a> = check t{at}|<a> copy t{at + 1}|<a>" for at in range(count))))
    engine.put(b"t0|x", b"")
    engine.put(b"t1|x", b"1")
    assert scan(engine, f"t{count + 1}|") == {f"t{count + 1}|x": "1"}
    watch = engine.watch(b"t%d|" % (count + 1), b"t%d}" % (count + 1), lambda: None)
    engine.remove(b"t0|x")
    assert [change.new for change in engine.settle(watch)] == [None]
    engine.drop_join("t2")
    engine._check()


def test_pairs_of_joins_are_compared_only_within_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def may_overlap(*pair: Pattern) -> bool:
        nonlocal compared
        compared += 1
        return overlap(*pair)

    monkeypatch.setattr(cycles, "may_overlap", may_overlap)
    monkeypatch.setattr(connected, "may_overlap", may_overlap)
    engine = Engine()
    count = 200
    specs = [
        spec
        for chain in range(count // 20)
        for at in range(20)
        for spec in parse(f"c{chain}t{at + 1}|<a> = copy c{chain}t{at}|<a>")
    ]
    engine.add_joins(specs)
    assert compared <= 2 * count
    compared = 0
    for spec in parse("other|<a> = copy c0t20|<a>; another|<a> = copy c1t20|<a>"):
        engine.add_joins([spec])
    assert compared <= 2 * (count + 3)
