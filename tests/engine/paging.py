"""An engine with paged tables, what keeps their rows, and the naive model, which are told the same."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from pequod_grammar import parse

from pequod.commands.kinds import ADD, PUT, REMOVE
from pequod.engine import Engine, MissingError, Range
from pequod.engine.testing import NaiveModel
from pequod.engine.transacting import transact
from pequod.language.conditions import IF_ABSENT, IF_PRESENT
from pequod.language.deadlines import KEEP, NO_DEADLINE
from pequod.language.missing import FirstRows, Lacking
from pequod.language.transactions import CommandList, Transaction

JOINS = """
    t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:2>;
    posts|<poster> = count p|<poster>|<time:2>;
    total|<poster> = sum p|<poster>|<time:2>;
    shown|<text>|<poster>|<time:2> = copy p|<poster>|<time:2> with n = <text>;
"""
#: They take the places of the joins, and these theirs.
OTHERS = """
    t|<user>|<time:2>|<poster> = check s|<poster>|<user> copy p|<poster>|<time:2> keep last 2 of <user>;
    posts|<poster> = count s|<poster>|<user>;
    total|<poster> = max p|<poster>|<time:2>;
    shown|<text>|<poster>|<time:2> = copy p|<poster>|<time:2> with n = <text>, n > 3;
"""
NAMES = (b"a", b"ab", b"b")
TABLES = (b"p", b"s", b"u")
RANGES = [
    (b"", None),
    (b"p|", b"p}"),
    (b"p|a|02", b"p|b|03"),
    (b"u|1", b"u|7"),
    (b"p|b", b"u|5"),
    (b"t|a|", b"t|a}"),
    (b"t|ab|02", b"t|ab}"),
    (b"posts|", b"posts}"),
    (b"total|", None),
]
#: So small that ranges end within the rows of every read.
STEP = 3

Result = TypeVar("Result")


class Shelf:
    """What keeps the rows of an engine: a dictionary, which is told what the engine records."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.deadlines: dict[bytes, int] = {}
        self.effects: dict[bytes, bytes | None] = {}

    def commit(self, engine: Engine) -> None:
        """Take what was recorded."""
        deadlines = dict(engine.deadlines.among(list(self.effects))) | engine.take_away_deadlines()
        for key, value in self.effects.items():
            self.deadlines.pop(key, None)
            if value is None:
                self.rows.pop(key, None)
                continue
            self.rows[key] = value
            if key in deadlines:
                self.deadlines[key] = deadlines[key]
        self.effects.clear()

    def give(self, engine: Engine, lacking: Lacking) -> None:
        """Have an engine take in what it lacks, some rows at a time."""
        assert isinstance(lacking, Range | FirstRows), "nothing else is lacking here"
        is_down, count = (lacking.is_down, lacking.row_count) if isinstance(lacking, FirstRows) else (False, 1 << 30)
        first, last = lacking.first, lacking.last
        while first < last and count > 0:
            self.commit(engine)
            keys = sorted(key for key in self.rows if first <= key < last)
            keys = keys[-STEP:] if is_down else keys[:STEP]
            is_end = len(keys) < STEP
            start = first if is_end or not is_down else keys[0]
            stop = last if is_end or is_down else keys[-1] + b"\0"
            found = [(key, self.deadlines[key]) for key in keys if key in self.deadlines]
            engine.take_in(start, stop, keys, [self.rows[key] for key in keys], found)
            first, last = (first, start) if is_down else (stop, last)
            count -= len(keys)


class PagedWalk:
    """An engine with paged tables beside the model."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.model = NaiveModel()
        # A table that is read by records is not paged while it is whole.
        self.specs = parse(JOINS)[: random.choice((3, 4))]
        #: How many tables came to be paged while all their rows were there.
        self.paged_count = 0
        for spec in self.specs:
            self.model.add(spec)
        self.shelf = Shelf()
        self.now_ms = 1_000
        self.engine = Engine()
        self.restart()

    def restart(self) -> None:
        """Begin with an engine that has nothing but the names of the tables, and the loose keys."""
        if self.shelf.effects:
            self.shelf.commit(self.engine)
        self.engine = Engine(memory_limit=1 << 40)
        self.engine.add_joins(self.specs)
        tables = {key.partition(b"|")[0] for key in self.shelf.rows if b"|" in key}
        for name in sorted(tables):
            self.engine.page(name)
        loose = {key: value for key, value in self.shelf.rows.items() if b"|" not in key}
        self.engine.put_all(list(loose), list(loose.values()))
        self.engine.restore_deadlines((key, at_ms) for key, at_ms in self.shelf.deadlines.items() if key in loose)
        self.engine.record(self.shelf.effects)
        self.engine.keep(self.count_paged)
        self.tell()

    def count_paged(self, _name: bytes) -> None:
        """Count a table that came to be paged."""
        self.paged_count += 1

    def tell(self) -> None:
        """Tell both the present instant."""
        self.model.tell(self.now_ms)
        self.engine.expire_due(self.now_ms, 1 << 30)

    def ask(self, read: Callable[[], Result]) -> Result:
        """Return what a call gives once it lacks nothing."""
        while True:
            try:
                return read()
            except MissingError as error:
                for one in error.lacking:
                    self.shelf.give(self.engine, one)

    def key(self) -> bytes:
        random = self.random
        match random.randrange(5):
            case 0:
                return b"loose%d" % random.randrange(2)
            case 1:
                return b"s|%b|%b" % (random.choice(NAMES), random.choice(NAMES))
            case 2:
                return b"u|%d" % random.randrange(9)
        return b"p|%b|%02d" % (random.choice(NAMES), random.randrange(6))

    def value(self) -> bytes:
        return self.random.choice((b"1", b"2", b'{"n": 3}', b"0.5"))

    def step(self) -> None:
        """Write, read, or do what nobody sees."""
        match self.random.randrange(14):
            case 0:
                self.now_ms += self.random.randrange(30)
            case 1 | 2:
                self.engine.evict(self.random.randrange(1, 5))
            case 3:
                self.shelf.commit(self.engine)
            case 4:
                self.move()
            case 5 | 6 | 7 | 8:
                self.write()
            case 9:
                self.replace()
            case 10:
                self.replace_some()
            case _:
                self.look()
        self.tell()

    def move(self) -> None:
        """Have a table be here as a whole, or the largest one of those be paged, or begin anew."""
        if self.random.random() < 0.3:
            self.restart()
            return
        if self.random.random() < 0.4:
            self.engine._memory.page_more()
            return
        name = self.random.choice(TABLES)
        if self.engine.is_paged(name + b"|"):
            self.shelf.give(self.engine, Range(name + b"|", name + b"}"))
            self.engine.hold_whole(name)

    def replace(self) -> None:
        """Begin to put a join in the place of another, or cancel what is under way."""
        number = self.random.randrange(len(self.specs))
        if (replacement := self.engine.replacement) is None:
            name = self.engine.joins()[number].name
            self.engine.begin_replacement(name, parse(self.random.choice((JOINS, OTHERS)))[number])
        elif self.random.random() < 0.2:
            self.engine.end_replacement(replacement, "cancelled")

    def replace_some(self) -> None:
        """Go on with it by some steps."""
        for _ in range(self.random.choice((1, 3, 100))):
            replacement = self.engine.replacement
            more = self.ask(self.engine.replace_some)
            if replacement is not None and replacement.is_in_place:
                old = next(spec for spec in self.specs if spec.output.table == replacement.new.spec.output.table)
                self.specs[self.specs.index(old)] = replacement.new.spec
                self.model.replace(old, replacement.new.spec)
            if not more:
                return

    def write(self) -> None:
        random, model, key, value = self.random, self.model, self.key(), self.value()
        engine, ttl_ms = self.engine, random.randrange(1, 40)
        match random.randrange(12):
            case 0 | 1:
                engine.put_for(key, value, ttl_ms)
                model.put_for(key, value, ttl_ms)
            case 2 | 3:
                engine.put(key, value)
                model.put(key, value)
            case 4:
                self.ask(lambda: engine.put_for(key, value, KEEP))
                model.put_for(key, value, None)
            case 5:
                assert self.ask(lambda: engine.remove(key)) == model.remove(key)
            case 6:
                assert self.ask(lambda: engine.expire(key, ttl_ms)) == model.expire(key, ttl_ms)
            case 7:
                assert self.ask(lambda: engine.expire(key, 0)) == model.expire(key, None)
            case 8:
                condition = random.choice((IF_ABSENT, IF_PRESENT))
                found = self.ask(lambda: engine.write_if(key, b"7", condition, ttl_ms=5))
                assert found == model.write_if(key, b"7", condition)
                if found:
                    model.expire(key, 5)
            case 9:
                self.transact()
            case 10:
                first, last = random.choice(((b"p|a|", b"p|a}"), (b"u|2", b"u|6")))
                removed = self.ask(lambda: engine.remove_range(first, last, 2))
                expected = [key for key in sorted(model.base) if first <= key < last][:2]
                assert removed == expected
                for one in expected:
                    model.remove(one)
            case _:
                rows = dict(sorted((self.key(), value) for _ in range(3)))
                engine.put_all(list(rows), list(rows.values()))
                for row in rows.items():
                    model.put(*row)

    def transact(self) -> None:
        kinds = [self.random.choice((ADD, PUT, REMOVE)) for _ in range(4)]
        keys = [b"u|%d" % self.random.randrange(9) for _ in range(2)]
        arguments = [one for kind in kinds for one in (self.random.choice(keys), b"1")[: 1 if kind == REMOVE else 2]]
        transaction = Transaction((), CommandList(bytes(kinds), arguments))
        expected = self.model.transact(transaction)
        if expected is not None:
            assert self.ask(lambda: transact(self.engine, transaction, now=0.0)) == expected

    def look(self) -> None:
        """Compare reads, and how long a key lives."""
        engine, model = self.engine, self.model
        first, last = self.random.choice(RANGES)
        limit, reverse = self.random.choice((None, 1, 2, 4)), self.random.random() < 0.3
        found = self.ask(lambda: engine.scan(first, last, limit=limit, reverse=reverse))
        assert list(zip(*found, strict=True)) == model.scan(first, last, limit=limit, reverse=reverse)
        if self.random.random() < 0.5:
            assert self.ask(lambda: engine.count(first, last)) == len(model.scan(first, last))
        key = self.key()
        assert self.ask(lambda: engine.get(key)) == model.get(key)
        remaining = self.ask(lambda: engine.remaining_ms(key))
        at_ms = model.deadlines.get(key)
        assert remaining == (None if key not in model.base else NO_DEADLINE if at_ms is None else at_ms - self.now_ms)

    def end(self) -> None:
        """Compare what is kept at the end."""
        self.shelf.commit(self.engine)
        kept = {key: value for key, value in self.shelf.rows.items() if not self.is_due(key)}
        assert kept == self.model.base
        assert {key: at_ms for key, at_ms in self.shelf.deadlines.items() if key in kept} == self.model.deadlines

    def is_due(self, key: bytes) -> bool:
        return self.shelf.deadlines.get(key, self.now_ms + 1) <= self.now_ms
