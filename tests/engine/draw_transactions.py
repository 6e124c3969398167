"""Draws transactions over the keys of walks: compares of values that are there and of others, and any commands."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from pequod.answers.transacted import Transacted
from pequod.commands.columns import range_arguments
from pequod.commands.kinds import ADD, COUNT, GET, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod.engine import Engine, JoinSpec, LimitExceededError
from pequod.engine.transacting import transact
from pequod.language.errors import NotNumberError, SumTooLongError, TransactionError
from pequod.language.transactions import EQUAL, GREATER, IS_ABSENT, LESS, CommandList, KeyCompare, Transaction
from tests.engine.draw import draw_bound, draw_key, draw_range
from tests.engine.draw_records import draw_value

#: Equal numbers with several texts among them, and what is none.
NUMBERS = (b"0", b"-0.0", b"1", b"1.50", b"1.5", b"-2", b"no")
#: What is added, to texts as well; the last one is soon too long.
DELTAS = (b"1", b"-1", b"+02", b"0.5", b"-.25", b"9" * 18, b"9" * 64)


def outcome_of(engine: Engine, transaction: Transaction, now: float) -> Transacted | None:
    """Run a transaction; return None if it is refused, and check that nothing is done then."""
    before = engine.revision
    try:
        return transact(engine, transaction, now)
    except (TransactionError, NotNumberError, SumTooLongError, LimitExceededError):
        # Computed keys behind a write; a value that is no number, or will be too long; or there is no memory.
        assert engine.revision == before
        return None


def draw_transaction(random: Random, specs: list[JoinSpec], base: Mapping[bytes, bytes]) -> Transaction:
    """Draw a transaction; its compares often hold."""

    def key() -> bytes:
        return random.choice(sorted(base)) if base and random.random() < 0.5 else draw_key(random, specs)

    compares = []
    for _ in range(random.choice([0, 1, 1, 2])):
        operator, compared = random.randint(IS_ABSENT, GREATER), key()
        value = b""
        if operator in (LESS, GREATER):
            value = random.choice(NUMBERS[:-1])
        elif operator >= EQUAL:
            value = base.get(compared, b"") if random.random() < 0.6 else draw_value(random, specs)
        compares.append(KeyCompare(compared, operator, value))
    return Transaction(tuple(compares), _draw_list(random, specs, key()), _draw_list(random, specs, key()))


def _draw_list(random: Random, specs: list[JoinSpec], key: bytes) -> CommandList:
    kinds, arguments, numbers = bytearray(), list[bytes](), list[int]()
    for _ in range(random.randrange(6)):
        kind = random.choice([GET, PUT, PUT, REMOVE, ADD, ADD, SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT])
        kinds.append(kind)
        one = key if random.random() < 0.4 else draw_key(random, specs)
        match kind:
            case 2:
                arguments += (one, draw_value(random, specs))
            case 10:
                arguments += (one, random.choice(DELTAS))
            case 3:
                arguments.append(one)
            case 1:
                arguments.append(draw_bound(random, specs) or one)
            case _:
                arguments += range_arguments(*draw_range(random, specs))
        if kind in (SCAN_LIMIT, SCAN_DOWN):
            numbers.append(random.choice([0, 1, 2, 3]))
    return CommandList(bytes(kinds), arguments, numbers)
