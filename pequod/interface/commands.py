"""The commands of batches, which calls of one command share: checked and added to columns, with a server or without.

    commands.put(k, v); commands.scan(a, b)    kinds      2 4
                                               arguments  k v a b

Bench row: client: encode.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable

from pequod.calls import Data, Delta, Result, to_bytes, to_delta, to_limit, to_range
from pequod.commands import kinds
from pequod.commands.columns import range_arguments
from pequod.freshness import Freshness
from pequod.interface.seen import Seen
from pequod.language.conditions import Condition, coded
from pequod.language.deadlines import to_ttl_ms


class Commands:
    """Commands in the order in which they will run; one with wrong arguments raises and is not added.

    A read may say how fresh its answer has to be; otherwise it is as fresh as all of them.

    Args:
        freshness: How fresh the answers of its reads have to be, but for those that say it themselves.
    """

    __slots__ = ("arguments", "freshness", "kinds", "numbers", "overrides")

    def __init__(self, freshness: Freshness | None = None) -> None:
        self.kinds = bytearray()
        self.arguments: list[bytes] = []
        self.numbers: list[int] = []
        self.freshness = freshness
        #: By position, ascending.
        self.overrides: dict[int, Freshness] = {}

    def __len__(self) -> int:
        return len(self.kinds)

    def get(self, key: Data, *, freshness: Freshness | None = None) -> None:
        """Get a value."""
        self.arguments.append(key if type(key) is bytes else to_bytes(key))
        if freshness is not None:
            self.overrides[len(self.kinds)] = freshness
        self.kinds.append(kinds.GET)

    def put(
        self,
        key: Data,
        value: Data,
        *,
        condition: Condition | None = None,
        ttl_s: float | None = None,
        keep_ttl: bool = False,
    ) -> None:
        """Write a base key; with a condition, only if its present value meets it.

        Args:
            condition: On the present value.
            ttl_s: The seconds after which the key expires; None: never.
            keep_ttl: It expires when it would have without this write.

        Raises:
            InvalidTtlError: No key can live as long as that.
        """
        if condition is None and ttl_s is None and not keep_ttl:
            self.arguments += (to_bytes(key), to_bytes(value))
            self.kinds.append(kinds.PUT)
            return
        ttl_ms = to_ttl_ms(ttl_s, keep=keep_ttl)
        if condition is None:
            self.arguments += (to_bytes(key), to_bytes(value))
            self.numbers.append(ttl_ms)
            self.kinds.append(kinds.PUT_TTL)
            return
        number, expected = coded(condition)
        self.arguments += (to_bytes(key), to_bytes(value), expected)
        self.numbers += (number, ttl_ms)
        self.kinds.append(kinds.PUT_IF)

    def expire(self, key: Data, ttl_s: float) -> None:
        """Have a base key expire after some seconds.

        Raises:
            InvalidTtlError: No key can live as long as that.
        """
        ttl_ms = to_ttl_ms(ttl_s)
        self.arguments.append(to_bytes(key))
        self.numbers.append(ttl_ms)
        self.kinds.append(kinds.EXPIRE)

    def persist(self, key: Data) -> None:
        """Have a base key live for ever."""
        self.arguments.append(to_bytes(key))
        self.numbers.append(0)
        self.kinds.append(kinds.EXPIRE)

    def ttl(self, key: Data, *, freshness: Freshness | None = None) -> None:
        """Ask how many seconds a key lives from now on."""
        self.arguments.append(to_bytes(key))
        if freshness is not None:
            self.overrides[len(self.kinds)] = freshness
        self.kinds.append(kinds.TTL)

    def remove(self, key: Data, *, condition: Condition | None = None) -> None:
        """Remove a base key; with a condition, only if its present value meets it."""
        if condition is None:
            self.arguments.append(to_bytes(key))
            self.kinds.append(kinds.REMOVE)
            return
        number, expected = coded(condition)
        self.arguments += (to_bytes(key), expected)
        self.numbers.append(number)
        self.kinds.append(kinds.REMOVE_IF)

    def add(self, key: Data, delta: Delta) -> None:
        """Add a number to a base key; the result is the sum."""
        self.arguments += (to_bytes(key), to_delta(delta))
        self.kinds.append(kinds.ADD)

    def scan(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        limit: int | None = None,
        reverse: bool = False,
        freshness: Freshness | None = None,
    ) -> None:
        """Read the rows of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""
        if (
            last
            and type(first) is type(last) is bytes
            and limit is None
            and freshness is None
            and not (reverse or prefix)
        ):
            self.arguments += (first, last)
            self.kinds.append(kinds.SCAN)
            return
        bounds = to_range(first, last, prefix)
        limit = to_limit(limit)
        # No rows are those of an empty range.
        self.arguments += range_arguments(*bounds) if limit != 0 else range_arguments(b"", b"")
        if freshness is not None:
            self.overrides[len(self.kinds)] = freshness
        if reverse or limit:
            self.kinds.append(kinds.SCAN_DOWN if reverse else kinds.SCAN_LIMIT)
            self.numbers.append(limit or 0)
        else:
            self.kinds.append(kinds.SCAN)

    def count(
        self,
        first: Data = b"",
        last: Data | None = None,
        *,
        prefix: Data = b"",
        freshness: Freshness | None = None,
    ) -> None:
        """Count the keys of ``[first, last)`` that start with ``prefix``; without ``last`` to the end."""
        self.arguments += range_arguments(*to_range(first, last, prefix))
        if freshness is not None:
            self.overrides[len(self.kinds)] = freshness
        self.kinds.append(kinds.COUNT)


class Turn(Commands):
    """Commands of calls: each call adds one and waits for its result. Concurrent calls may share a turn."""

    __slots__ = ()

    @abstractmethod
    def last_result(self, argument_bytes: int, /) -> Awaitable[Result]:
        """Return the result of the command that was just added; ``argument_bytes`` is its approximate length."""

    @abstractmethod
    def tell(self, session: Seen, /) -> None:
        """Have a session note the state that the command shows, before its caller gets the result."""
