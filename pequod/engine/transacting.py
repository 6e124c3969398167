"""A transaction on an engine, and the parts of it that databases share: which list runs, and what its commands give.

    compares -> chosen -> then       GET a      read
                                     PUT a 1    written {a: 1}
                                     ADD a 2    read, what is written is the sum: written {a: 3}
                                     SCAN a b   read, with what is written laid over it
             -> all reads are done, and fit into the reply -> the writes, in one turn

No write is done before everything that may fail is done, so a transaction that fails leaves nothing to take back.

>>> from pequod.commands.kinds import GET, PUT
>>> from pequod.engine import Engine
>>> from pequod.language.transactions import IS_ABSENT
>>> put = Transaction((KeyCompare(b"a", IS_ABSENT),), CommandList(bytes([PUT, GET]), [b"a", b"1", b"a"], []))
>>> transact(Engine(), put, now=0.0)
Transacted(held=True, outcomes=[None, b'1'])
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pequod.answers.rows import Rows
from pequod.answers.transacted import Outcome, Transacted
from pequod.commands.columns import bounds_of
from pequod.commands.kinds import ADD, COUNT, GET, PUT, PUT_TTL, RANGES, REMOVE, SCAN_DOWN, WRITES
from pequod.engine.answer import Answer, answer
from pequod.engine.batch import united
from pequod.engine.engine import Engine
from pequod.escapes import shown
from pequod.language.conditions import Met, Unmet
from pequod.language.deadlines import KEEP, deadline_after
from pequod.language.decimals import added, number_of_delta, parse_number
from pequod.language.errors import (
    BackedKeyError,
    ComputedKeyError,
    LimitExceededError,
    NoDeadlineError,
    TransactionError,
)
from pequod.language.missing import MissingError
from pequod.language.transactions import (
    EQUAL,
    GREATER,
    IS_ABSENT,
    IS_PRESENT,
    LESS,
    NOT_EQUAL,
    CommandList,
    KeyCompare,
    Transaction,
)

#: What the writes of a transaction leave, by key; None: the key is removed.
Written = dict[bytes, bytes | None]
#: Returns what a read gives: it takes the kind, two arguments and the number of a command.
Read = Callable[[int, bytes, bytes, int], Answer]
#: What a row takes in a reply beside its key and its value, at most.
_ROW_BYTES = 8


class TransactionLimits(NamedTuple):
    """The limits on what a transaction gives; 0: none."""

    #: Bytes of all its rows and values.
    reply_bytes_max: int = 0
    #: Rows of one scan: other calls wait meanwhile.
    rows_max: int = 0


NO_LIMITS = TransactionLimits()


def refuse(transaction: Transaction, commands_max: int) -> None:
    """Pass if a transaction can run, whatever is in the store.

    Raises:
        TransactionError, LimitExceededError: It cannot; see `Transaction.refuse_misfits`.
        InvalidDeltaError: One of its adds, in either list, adds what is no number.
        InvalidTtlError: One of its puts, in either list, has a time to live that no key can have.
    """
    transaction.refuse_misfits(commands_max)
    for compare in transaction.compares:
        if compare.operator in (LESS, GREATER) and parse_number(compare.value) is None:
            raise TransactionError(
                f"key {shown(compare.key)} is compared by order with {shown(compare.value)}, which is no number",
                "numbers are written as 12 or -0.5, with 64 characters at most; other values are compared by = and !=",
            )
    for kind, _, second, number in (*transaction.then.commands(), *transaction.otherwise.commands()):
        if kind == ADD:
            number_of_delta(second)
        elif kind == PUT_TTL and number != KEEP:
            deadline_after(0, number)


def holds(compare: KeyCompare, present: bytes | None) -> bool:
    """Return whether the present value of a key, None if it is absent, is what a compare asks for."""
    operator, value = compare.operator, compare.value
    if operator in (IS_ABSENT, IS_PRESENT):
        return (present is None) == (operator == IS_ABSENT)
    if operator in (EQUAL, NOT_EQUAL):
        return (present == value) == (operator == EQUAL)
    number, other = None if present is None else parse_number(present), parse_number(value)
    if number is None or other is None:
        return False
    return number < other if operator == LESS else number > other


def chosen(transaction: Transaction, present: Callable[[bytes], bytes | None]) -> tuple[bool, CommandList]:
    """Return whether all compares hold, and the commands that run therefore.

    Args:
        present: Returns the present value of a key.
    """
    held = all(holds(compare, present(compare.key)) for compare in transaction.compares)
    return held, transaction.then if held else transaction.otherwise


def outcomes_of(
    commands: CommandList,
    read: Read,
    limits: TransactionLimits,
    computes: Callable[[bytes, bytes | None], bool] = lambda _first, _last: False,
) -> tuple[list[Outcome], Written]:
    """Return what commands give, in order, and what they leave; nothing is written.

    Args:
        read: Reads what was there before.
        computes: Returns whether joins compute keys of a range: behind a write, these are not known.

    Raises:
        TransactionError: A read of computed keys stands behind a write.
        NotNumberError, SumTooLongError: An add finds a value that is no number, or its sum has too many digits.
        LimitExceededError: What they give is too much for a reply.
    """
    outcomes: list[Outcome] = []
    written: Written = {}
    room = limits.reply_bytes_max
    for kind, first, second, number in commands.commands():
        if kind in (PUT, PUT_TTL):
            written[first] = second
            outcomes.append(None)
            continue
        bounds = bounds_of(kind, first, second)
        if kind not in WRITES and written and computes(*bounds):
            raise TransactionError(
                f"a read of computed keys from {shown(first)} on stands behind a write",
                "put it before the writes, or read after the transaction",
            )
        outcome = _over(kind, first, second, number, read, written, limits.rows_max)
        assert not isinstance(outcome, Met | Unmet | float), "no command has a condition, or asks how long a key lives"
        if kind == REMOVE:
            written[first] = None
        elif kind == ADD:
            assert isinstance(outcome, bytes), "adds give sums"
            written[first] = outcome
        outcomes.append(outcome)
        room -= _size(outcome)
        if limits.reply_bytes_max and room < 0:
            raise LimitExceededError("reply_bytes_max", limits.reply_bytes_max - room, limits.reply_bytes_max)
    return outcomes, written


def _over(kind: int, first: bytes, second: bytes, number: int, read: Read, written: Written, rows_max: int) -> Answer:
    """Return what a command other than a put gives, with what is written before it laid over what is read."""
    if kind not in RANGES:
        value = written[first] if first in written else read(GET, first, b"", 0)
        if kind == ADD:
            assert value is None or isinstance(value, bytes), "gets give values"
            return added(first, value, second)
        return value is not None if kind == REMOVE else value
    own = {key: value for key, value in written.items() if first <= key and (not second or key < second)}
    if kind == COUNT:
        count = read(COUNT, first, second, 0)
        assert isinstance(count, int), "counts give numbers"
        return count + sum((value is not None) - (read(GET, key, b"", 0) is not None) for key, value in own.items())
    # Of the rows that are read, one may go for each key that is removed.
    most = number if number and (not rows_max or number <= rows_max) else rows_max + 1 if rows_max else 0
    rows = read(kind, first, second, most + len(own) if most else 0)
    assert isinstance(rows, Rows), "scans give rows"
    if own:
        found: Written = dict(zip(*rows, strict=True))
        found |= own
        left = sorted(((key, value) for key, value in found.items() if value is not None), reverse=kind == SCAN_DOWN)
        left = left[: most or None]
        rows = Rows([key for key, _ in left], [value for _, value in left])
    if rows_max and len(rows.keys) > rows_max:
        raise LimitExceededError("rows_max", len(rows.keys), rows_max)
    return rows


def _size(outcome: Answer) -> int:
    match outcome:
        case bytes():
            return len(outcome) + _ROW_BYTES
        case Rows():
            return sum(map(len, outcome.keys)) + sum(map(len, outcome.values)) + _ROW_BYTES * len(outcome.keys)
        case _:
            return 0


def transact(engine: Engine, transaction: Transaction, now: float, limits: TransactionLimits = NO_LIMITS) -> Transacted:
    """Run a transaction on an engine, in one turn, all or none.

    Requires:
        `refuse` has passed it.

    Raises:
        TransactionError: It compares a computed key, or reads computed keys behind a write.
        NotNumberError, SumTooLongError: One of its adds is refused.
        ComputedKeyError, InvalidKeyError, LimitExceededError: One of its writes is refused, in either list; or what it
            gives is too much.
        BackedKeyError: A database owns one of the keys that are compared or written, and decides.
        NoDeadlineError: As `backed_key`.
        MissingError: Ranges that its reads need are not loaded; all of them are named.
    """
    if (backed := backed_key(engine, transaction)) is not None:
        raise BackedKeyError(backed)
    held, commands = chosen(transaction, lambda key: engine.get(key, now=now))
    missing: list[MissingError] = []

    def read(kind: int, first: bytes, second: bytes, number: int) -> Answer:
        try:
            return answer(engine, kind, first, second, number, now)
        except MissingError as error:
            missing.append(error.with_traceback(None))
            return Rows([], []) if kind in RANGES and kind != COUNT else 0 if kind == COUNT else None

    outcomes, written = outcomes_of(commands, read, limits, engine.computes)
    if missing:
        raise united(missing)
    puts = {key: value for key, value in sorted(written.items()) if value is not None}
    deadlines = [
        one for key, ttl_ms in commands.ttls().items() if key in puts for one in engine.later_deadlines([key], ttl_ms)
    ]
    engine.put_all(list(puts), list(puts.values()))
    engine.set_deadlines(deadlines)
    for key, value in written.items():
        if value is None:
            engine.discard(key)
    return Transacted(held, outcomes)


def backed_key(engine: Engine, transaction: Transaction) -> bytes | None:
    """Return a key that is compared or may be written and that a database owns; None: the engine decides.

    Raises:
        TransactionError, ComputedKeyError, InvalidKeyError, LimitExceededError: As `transact`.
        NoDeadlineError: A key is to expire that a database owns which keeps no deadlines.
    """
    found: bytes | None = None
    for compare in transaction.compares:
        try:
            if engine.owned_by_database(compare.key):
                found = compare.key
        except ComputedKeyError as error:
            raise TransactionError(
                f"key {shown(compare.key)} is compared, and the join {error.join!r} computes it: with a database "
                "behind the server it would be of an earlier moment",
                "compare the keys from which it is computed",
            ) from error
    for key, value in transaction.writes():
        if engine.owned_by_database(key, value or b""):
            found = key
    for commands in (transaction.then, transaction.otherwise) if found is not None else ():
        for key, ttl_ms in commands.ttls().items():
            if ttl_ms not in (0, KEEP) and not engine.has_backed_deadlines and engine.owned_by_database(key):
                raise NoDeadlineError(key)
    return found


# Where a database decides.


def locked_keys(transaction: Transaction) -> list[bytes]:
    """Return the keys whose rows no other writer may change meanwhile, in their order, each once."""
    singles = [first for first, last in transaction.ranges_read() if last == first + b"\0"]
    return sorted({*transaction.decided_by(), *singles})


def ranges_needed(commands: CommandList) -> list[tuple[bytes, bytes | None]]:
    """Return the ranges whose rows commands have to be shown to give what they give."""
    written = [(key, key + b"\0") for key in commands.written_keys()]
    return [*written, *(one for one in commands.ranges_read() if one[1] is None or one[0] < one[1])]


def reader_of(rows: Mapping[bytes, bytes]) -> Read:
    """Return what reads rows as commands do."""
    keys: Sequence[bytes] = sorted(rows)

    def read(kind: int, first: bytes, second: bytes, number: int) -> Answer:
        if kind == GET:
            return rows.get(first)
        found = keys[bisect_left(keys, first) : bisect_left(keys, second) if second else None]
        if kind == COUNT:
            return len(found)
        found = list(found if kind != SCAN_DOWN else reversed(found))[: number or None]
        return Rows(found, [rows[key] for key in found])

    return read
