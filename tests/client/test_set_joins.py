"""`set_joins`: the joins of one declaration become the only ones, for all clients."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pequod_grammar import parse

import pequod
from pequod.answers.joins import Join
from pequod.engine import Engine
from pequod.errors import JoinError, UnavailableError
from pequod.interface.declared import JoinPlan, carry_out, plan_of
from tests.client.conftest import ServerProcess
from tests.client.test_clients import EVERYBODY

KARMA = "karma|<author> = count vote|<author>|<voter>"
SUMMED = "karma|<author> = sum vote|<author>|<voter>"
FEED = "feed|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
ALL = f"{KARMA}; {FEED};"


def _texts(joins: tuple[Join, ...] | list[Join]) -> list[str]:
    return [join.text for join in joins]


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
def test_joins_come_stay_and_go(
    server: ServerProcess, connect: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with connect(server.target) as client:
        planned = client.set_joins(ALL, dry_run=True)
        assert ([join.name for join in planned.added], planned.dropped, planned.kept) == (["", ""], (), ())
        assert client.joins() == []
        done = client.set_joins(ALL)
        assert done.added == tuple(client.joins())
        assert _texts(done.added) == _texts(planned.added)
        client.put("vote|ann|bob", "5")
        assert client.get("karma|ann") == b"1"

        # The same, written in another way and order.
        again = (
            "# ours\n" + FEED.replace(" = ", "\n  = push ") + " ; " + KARMA.replace(" count ", "  count ") + " // it"
        )
        unchanged = client.set_joins(again)
        assert not unchanged
        assert _texts(unchanged.kept) == _texts(client.joins())

        with caplog.at_level(logging.WARNING, "pequod.joins"):
            changed = client.set_joins(f"{FEED}; {SUMMED}")
        assert changed
        assert (_texts(changed.added), _texts(changed.dropped)) == ([SUMMED], [KARMA])
        assert [join.name for join in changed.added] == ["karma.2"]
        assert caplog.records == []
        assert client.get("karma|ann") == b"5"
        assert _texts(client.joins()) == [_texts(unchanged.kept)[1], SUMMED]
        assert _texts(client.set_joins(KARMA).dropped) == [SUMMED, _texts(unchanged.kept)[1]]


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{FEED};\nkarma|<a> = coutn vote|<a>|<b>", "line 2, column 13: 'coutn' is no operator"),
        (f"{KARMA};\n{SUMMED}", f"line 2, column 1: nothing of this join would be shown: `{KARMA}`"),
        (f"{FEED};\na|<x> = copy b|<x>;\nb|<x> = copy a|<x>", "line 2, column 1: the join would read its own output"),
        (f"{FEED};\nrow|<x> = copy b|<x>", "line 2, column 1: the join would compute the key 'row|1'"),
        ("# nothing", "the text declares no join"),
    ],
)
def test_what_is_refused_changes_nothing(
    server: ServerProcess, connect: Callable[[str], Any], text: str, shown: str
) -> None:
    with connect(server.target) as client:
        client.set_joins(KARMA)
        client.put("row|1", "x")
        with pytest.raises(JoinError) as caught:
            client.set_joins(text)
        assert shown in str(caught.value)
        assert _texts(client.joins()) == [KARMA]


def test_warnings_of_new_joins_are_logged_and_returned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "pequod.joins"), pequod.open() as client:
        (join,) = client.set_joins("last|<room> = copy message|<room>|<time>").added
    assert "ambiguous" in join.warnings[0]
    assert [record.name for record in caplog.records] == ["pequod.joins"]


def test_joins_that_turn_round_are_replaced_although_both_would_be_a_circle() -> None:
    with pequod.open() as client:
        client.put("a|1", "x")
        client.set_joins("b|<x> = copy a|<x>")
        assert client.get("b|1") == b"x"
        client.remove("a|1")
        client.set_joins("a|<x> = copy b|<x>")
        client.put("b|1", "y")
        assert (client.get("a|1"), len(client.joins())) == (b"y", 1)


class Interrupted:
    """An engine's joins, added and dropped until a call fails."""

    def __init__(self, engine: Engine, text: str, calls_max: int) -> None:
        self.engine = engine
        self._text = text
        self._calls_left = calls_max

    def plan(self) -> JoinPlan:
        """Return the plan for what is installed now."""
        return plan_of(self._text, [Join(join.name, str(join.spec)) for join in self.engine.joins()])

    def _count(self) -> None:
        self._calls_left -= 1
        if self._calls_left < 0:
            raise UnavailableError("here", "cut off")

    async def add(self, text: str) -> list[Join]:
        """Install the joins of a text."""
        self._count()
        return [Join(join.name, str(join.spec)) for join in self.engine.add_joins(parse(text))]

    async def drop(self, name: str) -> None:
        """Drop a join."""
        self._count()
        self.engine.drop_join(name)


@pytest.mark.parametrize(("calls", "seen"), [(0, b"1"), (1, b"1"), (2, b"1"), (3, b"5")])
def test_a_call_that_fails_in_between_leaves_rows_and_the_next_one_ends_it(calls: int, seen: bytes) -> None:
    engine = Engine()
    engine.add_joins(parse(f"{KARMA}; {FEED}"))
    engine.put(b"vote|ann|bob", b"5")
    interrupted = Interrupted(engine, SUMMED, calls)
    if calls < 3:
        with pytest.raises(UnavailableError):
            asyncio.run(carry_out(interrupted.plan(), SUMMED, interrupted.add, interrupted.drop))
    else:
        asyncio.run(carry_out(interrupted.plan(), SUMMED, interrupted.add, interrupted.drop))
    assert engine.get(b"karma|ann") == seen
    ended = Interrupted(engine, SUMMED, 3)
    asyncio.run(carry_out(ended.plan(), SUMMED, ended.add, ended.drop))
    assert [str(join.spec) for join in engine.joins()] == [SUMMED]
    assert engine.get(b"karma|ann") == b"5"


def test_a_join_that_another_client_has_dropped_meanwhile_is_gone() -> None:
    engine = Engine()
    engine.add_joins(parse(f"{KARMA}; {FEED}"))
    ours = Interrupted(engine, SUMMED, 9)
    plan = ours.plan()
    engine.drop_join("karma")
    with pequod.open() as client:
        client.set_joins(KARMA)

    async def drop(name: str) -> None:
        if name == "karma":
            raise pequod.errors.UnknownJoinError(name)
        await ours.drop(name)

    asyncio.run(carry_out(plan, SUMMED, ours.add, drop))
    assert [str(join.spec) for join in engine.joins()] == [SUMMED]


def test_an_installed_join_that_the_client_cannot_read_is_another_one() -> None:
    newer = Join("t", "t|<a> = hotly copy x|<a>")
    plan = plan_of(KARMA, [newer])
    assert (plan.changes.dropped, _texts(plan.changes.added)) == ((newer,), [KARMA])
