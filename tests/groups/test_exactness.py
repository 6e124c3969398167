"""Answers over two groups equal an evaluation of the joins over each group's data as of its position in the token.

Commits, breaks, failovers, moves, evictions and reads in any order, drawn from a seed; each await of the databases may
be held for a while, so that loads, feeds and moves overlap in many ways.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from pequod_grammar import parse
from pequod_server.backing import BackingUnavailableError, FakeStore, KeyRange, turns
from pequod_server.backing.fake import Step
from pequod_server.database.databases import Databases, HomeGroup
from pequod_server.freshness.levels import Levels

from pequod.engine import Engine
from pequod.engine.base import presence
from pequod.engine.testing import NaiveModel
from pequod.errors import StaleError, TokenLostError
from pequod.freshness import After, Latest, Token
from tests.engine.earlier import live_before
from tests.groups.pair import JOINS, store

NAMES = ("bob", "dan", "moe", "zoe")
CUTS = (b"p|c", b"p|m", b"p|n")
STEPS = 120
JOBS = 4
RANGES = ((b"t|ann|", b"t|ann}"), (b"t|", b"t}"), (b"p|", b"p}"), (b"p|dan|", b"p|moe}"), (b"karma|", b"karma}"))


class Machine:
    """Two groups, an engine over them, and clients that do one thing after another.

    Attributes:
        rows: The rows of each group as of each position of each timeline.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.stores = {name: store(name) for name in "AB"}
        self.rows: dict[tuple[bytes, int, int], dict[bytes, bytes]] = {}
        self.cut = CUTS[1]
        for one in self.stores.values():
            self.note(one)
        self.engine = Engine()
        self.databases = Databases(self.engine, self.groups())
        live_before(self.draw, self.engine, [b"p", b"s", b"v"])
        self.engine.add_joins(parse(JOINS))
        self.levels = Levels(self.engine, self.databases, 1)
        self.seen = Token({})
        self.held: set[tuple[str, Step]] = set()
        self.answers = 0

    def groups(self) -> list[HomeGroup]:
        a = (KeyRange(b"p|", self.cut), KeyRange(b"s|", b"s}"))
        b = (KeyRange(self.cut, b"p}"), KeyRange(b"v|", b"v}"))
        return [HomeGroup("A", self.stores["A"], a), HomeGroup("B", self.stores["B"], b)]

    def note(self, one: FakeStore) -> None:
        """Remember the rows of a store as they are."""
        self.rows[one.history.database, one.timeline, len(one._log)] = dict(one.rows)

    def commit(self) -> None:
        draw = self.draw
        one = self.stores[draw.choice("AB")]
        changes: dict[bytes, bytes | None] = {}
        for _ in range(draw.randint(1, 6)):
            name = draw.choice(NAMES)
            key = draw.choice([b"s|ann|%s", b"p|%s|0100", b"p|%s|0200", b"v|%s|ann", b"v|%s|liz"]) % name.encode()
            value = b"" if key[:1] == b"s" else b"%d" % draw.randint(0, 9)
            changes[key] = draw.choice([value, value, None])
        one.commit(changes)
        self.note(one)

    async def move(self) -> None:
        self.cut = self.draw.choice(CUTS)
        await self.databases.assign(self.groups())

    def expected(self, token: Token, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        """Evaluate the joins over each group's rows as of its position."""
        model = NaiveModel()
        for spec in parse(JOINS):
            model.add(spec)
        for mark, position in token.positions.items():
            for key, value in self.rows[mark.database, mark.timeline, position].items():
                owner = self.databases.assignment.owner_of(key)
                if owner is not None and owner.store.history.database == mark.database:  # type: ignore[attr-defined]
                    model.put(key, value)
        return model.scan(first, last)

    async def read(self) -> None:
        first, last = self.draw.choice(RANGES)
        level = self.draw.choice([None, After(self.seen, 5.0), After(self.seen, 0.01), Latest(0.05)])
        demand = self.levels.demand(level)
        try:
            rows = await self.levels.read(lambda: self.engine.scan(first, last), [(first, last)], demand)
        except (StaleError, BackingUnavailableError):
            return
        except TokenLostError:
            self.seen = Token({})
            return
        token = Token.parse(self.levels.token)
        assert list(zip(*rows, strict=True)) == self.expected(token, first, last)
        self.answers += 1
        if self.draw.random() < 0.3:
            self.seen = token

    async def hold(self, one: FakeStore) -> None:
        """Hold a step of a store for some turns of the loop, unless it is held."""
        step: Step = self.draw.choice(["load", "changes", "latest"])
        if (one.name, step) in self.held:
            return
        self.held.add((one.name, step))
        async with one.held(step):
            for _ in range(self.draw.randint(1, 20)):
                await asyncio.sleep(0)
        self.held.discard((one.name, step))

    async def step(self) -> None:
        draw = self.draw
        one = self.stores[draw.choice("AB")]
        match draw.randrange(20):
            case 0:
                one.fail(draw.choice(["load", "latest", "changes"]))
            case 1 if one._broken is None:
                one.break_feed("told to", is_lost=draw.random() < 0.5)
            case 2 if draw.random() < 0.5:
                one.fail_over(lost=draw.randint(0, min(2, len(one._log))))
                for at in range(len(one._log) + 1):
                    earlier = self.rows[one.history.database, one.timeline - 1, at]
                    self.rows[one.history.database, one.timeline, at] = earlier
            case 3:
                await self.move()
            case 4:
                self.engine.evict(draw.randint(1, 3))
            case 5 | 6:
                await self.hold(one)
            case 7 | 8 | 9 | 10 | 11:
                self.commit()
            case _:
                await self.read()
        self.engine._check()
        self.databases._check()

    async def client(self) -> None:
        for _ in range(STEPS):
            await self.step()
            for _ in range(self.draw.randint(0, 3)):
                await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(8))
async def test_answers_are_exact_at_the_tokens_vector(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every look at the clock ends a slice, and parts are small.
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(turns, "WORK_MAX", 1)
    monkeypatch.setattr(presence, "PART_ROWS_MAX", 2)
    machine = Machine(seed)
    await machine.databases.start()
    try:
        await asyncio.gather(*(machine.client() for _ in range(JOBS)))
        machine.stores["A"]._failures.clear()
        machine.stores["B"]._failures.clear()
        await machine.databases.caught_up()
        for first, last in RANGES:
            rows = await machine.levels.read(
                lambda first=first, last=last: machine.engine.scan(first, last),  # type: ignore[misc]
                [(first, last)],
                machine.levels.demand(Latest(30.0)),
            )
            token = Token.parse(machine.levels.token)
            assert list(zip(*rows, strict=True)) == machine.expected(token, first, last)
        assert machine.answers > 50
        assert all(one.followed.history == machine.stores[one.name].history for one in machine.databases.all)
    finally:
        machine.levels.stop()
        await machine.databases.stop()


async def test_the_oracle_finds_a_change_that_is_not_taken() -> None:
    machine = Machine(0)
    await machine.databases.start()
    try:
        machine.stores["A"].commit({b"s|ann|bob": b"", b"p|bob|0100": b"1"})
        machine.note(machine.stores["A"])
        await machine.databases.caught_up()
        first, last = RANGES[0]
        await machine.levels.read(lambda: machine.engine.scan(first, last), [(first, last)], None)
        machine.engine.apply(b"p|bob|0100", b"planted")
        rows = machine.engine.scan(first, last)
        assert list(zip(*rows, strict=True)) != machine.expected(Token.parse(machine.levels.token), first, last)
    finally:
        machine.levels.stop()
        await machine.databases.stop()
