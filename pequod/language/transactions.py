r"""Transactions: compares of keys, and two lists of commands, of which one runs.

    compares   account|ann > 40   account|bob is present      all of them hold   ->  then
    then       PUT account|ann    PUT account|bob             one does not       ->  otherwise
    otherwise  GET account|ann

The list that runs does so at one revision, all or none. Its commands are those of batches, in order; those under a
condition are not among them, since compares are the conditions of a transaction.

>>> from pequod.commands.kinds import GET, PUT
>>> one = CommandList(bytes([PUT, GET]), [b"a", b"1", b"b"], [])
>>> list(one.commands()), one.written_keys(), one.ranges_read()
([(2, b'a', b'1', 0), (1, b'b', b'', 0)], [b'a'], [(b'b', b'b\x00')])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pequod.commands import columns
from pequod.commands.kinds import (
    ADD,
    CONDITIONAL,
    COUNT,
    GET,
    NAMES,
    NUMBER_COUNTS,
    PUT,
    PUT_TTL,
    REMOVE,
    SCANS,
    WRITES,
)
from pequod.escapes import shown
from pequod.language.deadlines import KEEP
from pequod.language.errors import LimitExceededError, TransactionError

# How the wire has what a compare asks for.
IS_ABSENT: Final = 1
IS_PRESENT: Final = 2
EQUAL: Final = 3
#: Holds for an absent key, too.
NOT_EQUAL: Final = 4
#: Hold if both the present value and the other one are numbers, as sums of joins take them.
LESS: Final = 5
GREATER: Final = 6

#: How many compares, and commands of both lists, a transaction has, unless the server's settings say it.
COMMANDS_MAX: Final = 128
#: The kinds of commands that transactions take.
_TAKEN: Final = frozenset({GET, PUT, PUT_TTL, REMOVE, ADD, COUNT}) | SCANS


class KeyCompare(NamedTuple):
    """What the present value of a base key has to be."""

    key: bytes
    operator: int
    #: Empty where there is nothing to compare with.
    value: bytes = b""

    def __bool__(self) -> bool:
        """Refuse `and`, `or`, `not` and chains such as ``1 < value < 3``, which would drop a compare in silence."""
        raise TypeError("a compare is decided where its key is: give each by itself, as in compares=[a, b]")


class CommandList(NamedTuple):
    """Commands as columns, as batches have them."""

    kinds: bytes = b""
    arguments: list[bytes] = []  # noqa: RUF012 - never changed
    numbers: list[int] = []  # noqa: RUF012 - never changed

    def commands(self) -> Iterator[tuple[int, bytes, bytes, int]]:
        """Yield kind, two arguments and number of each command; what it does not take is empty, or 0."""
        numbers = iter(self.numbers)
        for _, kind, first, second in columns.commands(self.kinds, self.arguments):
            yield kind, first, second, next(numbers) if NUMBER_COUNTS[kind] else 0

    def written_keys(self) -> list[bytes]:
        """Return the keys that commands write, in their order."""
        return [first for kind, first, _, _ in self.commands() if kind in WRITES]

    def ttls(self) -> dict[bytes, int]:
        """Return the time to live that commands leave each key that they write, as PUT_TTL has it.

        >>> CommandList(bytes([PUT_TTL, ADD, ADD]), [b"a", b"1", b"a", b"2", b"b", b"3"], [500]).ttls() == {
        ...     b"a": 500, b"b": KEEP,
        ... }
        True
        """
        found: dict[bytes, int] = {}
        for kind, key, _, number in self.commands():
            if kind == ADD or (kind == PUT_TTL and number == KEEP):
                found.setdefault(key, KEEP)
            elif kind in WRITES:
                found[key] = number
        return found

    def ranges_read(self) -> list[tuple[bytes, bytes | None]]:
        """Return the ranges that commands read, in their order; a remove and an add look at their key by themselves."""
        return [
            columns.bounds_of(kind, first, second) for kind, first, second, _ in self.commands() if kind not in WRITES
        ]


class Transaction(NamedTuple):
    """Compares, and the commands that run if all of them hold, or otherwise."""

    compares: tuple[KeyCompare, ...]
    then: CommandList
    otherwise: CommandList = CommandList()
    #: Of a transaction that may come again, which then is not done again; empty: it has none.
    request_id: bytes = b""

    def decided_by(self) -> list[bytes]:
        """Return the keys that are compared, and those that either list may write: their owner decides."""
        compared = [compare.key for compare in self.compares]
        return [*compared, *self.then.written_keys(), *self.otherwise.written_keys()]

    def writes(self) -> list[tuple[bytes, bytes | None]]:
        """Return what either list may write: keys with their values; None: it is removed, or not known yet (a sum)."""
        commands = [*self.then.commands(), *self.otherwise.commands()]
        return [(key, value if kind in (PUT, PUT_TTL) else None) for kind, key, value, _ in commands if kind in WRITES]

    def ranges_read(self) -> list[tuple[bytes, bytes | None]]:
        """Return the ranges that commands of either list read."""
        return [*self.then.ranges_read(), *self.otherwise.ranges_read()]

    def refuse_misfits(self, commands_max: int) -> None:
        """Pass if the transaction can run: its columns fit, and it has commands and compares as it may have.

        Raises:
            TransactionError: It cannot.
            LimitExceededError: It has more than ``transaction_commands_max`` compares, or commands in both lists.
        """
        for count in (len(self.compares), len(self.then.kinds) + len(self.otherwise.kinds)):
            if count > commands_max:
                raise LimitExceededError("transaction_commands_max", count, commands_max)
        for compare in self.compares:
            if not IS_ABSENT <= compare.operator <= GREATER:
                raise TransactionError(
                    f"the compare of key {shown(compare.key)} has operator {compare.operator}, which is none",
                    f"operators are {IS_ABSENT} to {GREATER}",
                )
        for name, one in (("then", self.then), ("otherwise", self.otherwise)):
            _refuse_list(name, one)


def _refuse_list(name: str, one: CommandList) -> None:
    for at, kind in enumerate(one.kinds):
        if kind in CONDITIONAL:
            raise TransactionError(
                f"command {at} of {name!r} is a {NAMES[kind]}, which has a condition of its own",
                "say the condition as a compare of the transaction, and the write without it",
            )
        if kind not in _TAKEN:
            raise TransactionError(
                f"command {at} of {name!r} is of kind {kind}, which transactions do not take",
                "they take gets, scans, counts, puts, removes and adds",
            )
    needed = columns.needs(one.kinds)
    for what, column, count in (
        ("arguments", one.arguments, needed.argument_count),
        ("numbers", one.numbers, needed.number_count),
    ):
        if len(column) != count:
            raise TransactionError(
                f"the commands of {name!r} have {len(column)} {what}, and their kinds take {count}",
                "the .proto has the arguments and numbers of each kind",
            )
