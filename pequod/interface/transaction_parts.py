r"""What callers build transactions of: compares of keys, and commands.

>>> compares = [value_of("account|ann") > 40, absent("closed|ann")]
>>> made = transaction_of_parts(compares, [Put("account|ann", "0"), Add("account|bob", 40)], [Get("account|ann")])
>>> made.compares[0], made.then.kinds, made.otherwise.arguments
(KeyCompare(key=b'account|ann', operator=6, value=b'40'), b'\x02\n', [b'account|ann'])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from pequod.calls import Data, Delta, to_bytes
from pequod.interface.commands import Commands
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

#: What `<` and `>` compare with: a number, or its digits.
Comparable = Data | int | Decimal


class ValueOf:
    """The present value of a key, to be compared: with ``==`` and ``!=`` as bytes, with ``<`` and ``>`` as a number."""

    __slots__ = ("_key",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, key: Data) -> None:
        self._key = to_bytes(key)

    def __eq__(self, value: Data) -> KeyCompare:  # type: ignore[override]
        return KeyCompare(self._key, EQUAL, to_bytes(value))

    def __ne__(self, value: Data) -> KeyCompare:  # type: ignore[override]
        return KeyCompare(self._key, NOT_EQUAL, to_bytes(value))

    def __lt__(self, number: Comparable) -> KeyCompare:
        return KeyCompare(self._key, LESS, _digits(number))

    def __gt__(self, number: Comparable) -> KeyCompare:
        return KeyCompare(self._key, GREATER, _digits(number))

    def __bool__(self) -> bool:
        raise TypeError(f"the value of {self._key!r} is not known here; compare it, as value_of(key) == value")


def value_of(key: Data) -> ValueOf:
    """Return the present value of a base key, to be compared: ``value_of(key) == b"v"``, also !=, < and >.

    ``!=`` also holds if the key is absent; ``<`` and ``>`` hold if both are numbers, as `sum` of a join takes them.
    """
    return ValueOf(key)


def absent(key: Data) -> KeyCompare:
    """Return the compare that a base key is not there."""
    return KeyCompare(to_bytes(key), IS_ABSENT)


def present(key: Data) -> KeyCompare:
    """Return the compare that a base key is there, with any value."""
    return KeyCompare(to_bytes(key), IS_PRESENT)


@dataclass(frozen=True, slots=True)
class Get:
    """Get a value: it is the outcome, None if the key is absent."""

    key: Data

    def add_to(self, commands: Commands) -> None:
        """Add it to commands."""
        commands.get(self.key)


@dataclass(frozen=True, slots=True)
class Put:
    """Write a base key; the outcome is None."""

    key: Data
    value: Data
    #: The seconds after which the key expires; without it never. Or it expires when it would have.
    ttl_s: float | None = None
    keep_ttl: bool = False

    def add_to(self, commands: Commands) -> None:
        """Add it to commands."""
        commands.put(self.key, self.value, ttl_s=self.ttl_s, keep_ttl=self.keep_ttl)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a base key; the outcome is whether it was there."""

    key: Data

    def add_to(self, commands: Commands) -> None:
        """Add it to commands."""
        commands.remove(self.key)


@dataclass(frozen=True, slots=True)
class Add:
    """Add a number to a base key, which counts as 0 if it is absent; the sum is the outcome."""

    key: Data
    delta: Delta

    def add_to(self, commands: Commands) -> None:
        """Add it to commands."""
        commands.add(self.key, self.delta)


@dataclass(frozen=True, slots=True)
class Scan:
    """Read the rows of ``[first, last)`` that start with ``prefix``; they are the outcome, as `Rows`."""

    first: Data = b""
    last: Data | None = None
    prefix: Data = b""
    limit: int | None = None
    reverse: bool = False

    def add_to(self, commands: Commands) -> None:
        """Add it to commands."""
        commands.scan(self.first, self.last, prefix=self.prefix, limit=self.limit, reverse=self.reverse)


@dataclass(frozen=True, slots=True)
class Count:
    """Count the keys of ``[first, last)`` that start with ``prefix``; their number is the outcome."""

    first: Data = b""
    last: Data | None = None
    prefix: Data = b""

    def add_to(self, commands: Commands) -> None:
        """Add it to commands."""
        commands.count(self.first, self.last, prefix=self.prefix)


TransactionCommand = Get | Put | Remove | Add | Scan | Count


def transaction_of_parts(
    compares: Iterable[KeyCompare], then: Iterable[TransactionCommand], otherwise: Iterable[TransactionCommand]
) -> Transaction:
    """Return a transaction.

    Raises:
        TypeError: A compare is none, such as the result of ``value_of(key) is ...``, or a command is none.
    """
    compared = tuple(compares)
    for one in compared:
        if not isinstance(one, KeyCompare):
            raise TypeError(f"{one!r} is no compare; these are value_of(key) == value, absent(key) and present(key)")
    return Transaction(compared, _list(then), _list(otherwise))


def _list(parts: Iterable[TransactionCommand]) -> CommandList:
    commands = Commands()
    for one in parts:
        if not isinstance(one, TransactionCommand):
            raise TypeError(f"{one!r} is no command of a transaction; these are Get, Put, Remove, Add, Scan and Count")
        one.add_to(commands)
    return CommandList(bytes(commands.kinds), commands.arguments, commands.numbers)


def _digits(number: Comparable) -> bytes:
    if isinstance(number, bytes | str):
        return to_bytes(number)
    if isinstance(number, bool) or not isinstance(number, int | Decimal):
        raise TypeError(f"{number!r} is compared by order; give an int, a Decimal, or the digits as text")
    return f"{number:f}".encode() if isinstance(number, Decimal) else str(number).encode()
