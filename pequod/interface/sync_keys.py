"""The calls of one key, for callers that wait, from any thread.

Generated from pequod/interface/keys.py by `make interface`.
"""

from __future__ import annotations

from typing import Any, overload

from pequod.calls import Data, Delta
from pequod.freshness import Freshness
from pequod.interface.keys import AsyncKeyCalls
from pequod.interface.waiting import Waiter
from pequod.language.conditions import Condition, Met, Unmet


class KeyCalls:
    """The calls of one key whose callers wait; they may be in any thread."""

    __slots__ = ("_calls", "_iterate", "_wait")

    def __init__(self, calls: AsyncKeyCalls, waiter: Waiter) -> None:
        self._calls = calls
        self._wait = waiter.run
        self._iterate = waiter.iterate

    def get(self, key: Data, *, freshness: Freshness | None = None) -> bytes | None:
        """Return the value of ``key``, None if the key is absent."""
        return self._wait(self._calls.get(key, freshness=freshness))

    @overload
    def put(
        self, key: Data, value: Data, *, condition: None = None, ttl_s: float | None = None, keep_ttl: bool = False
    ) -> None: ...

    @overload
    def put(
        self, key: Data, value: Data, *, condition: Condition, ttl_s: float | None = None, keep_ttl: bool = False
    ) -> Met | Unmet: ...

    def put(
        self,
        key: Data,
        value: Data,
        *,
        condition: Condition | None = None,
        ttl_s: float | None = None,
        keep_ttl: bool = False,
    ) -> Any:
        """Write a base key; with a condition, return `Met` (true), or `Unmet` (false) with the present value.

        Args:
            condition: The present value has to meet it; otherwise nothing is written.
            ttl_s: The seconds after which the key expires; without it never, though it had a deadline before.
            keep_ttl: Instead: the key expires when it would have without this write.

        Raises:
            ComputedKeyError: An installed join computes it.
            InvalidTtlError: No key can live as long as that.
            NoDeadlineError: It is to expire, and a database owns it that keeps no deadlines.
        """
        return self._wait(self._calls.put(key, value, condition=condition, ttl_s=ttl_s, keep_ttl=keep_ttl))

    @overload
    def remove(self, key: Data, *, condition: None = None) -> bool: ...

    @overload
    def remove(self, key: Data, *, condition: Condition) -> Met | Unmet: ...

    def remove(self, key: Data, *, condition: Condition | None = None) -> Any:
        """Remove a base key; return whether it was there, or, with a condition, what came of it as `put` does."""
        return self._wait(self._calls.remove(key, condition=condition))

    def add(self, key: Data, delta: Delta) -> bytes:
        """Add a number to the value of a base key, 0 if it is absent; return the sum, which is the new value.

        Decimals are exact. If the call is cut off, whether it was done is not known, and it is not made again.

        Args:
            delta: An int, a `decimal.Decimal`, or plain digits such as ``"-0.5"``.

        Raises:
            NotNumberError, SumTooLongError: The value is no number, or the sum is too long; nothing was added.
            ComputedKeyError: An installed join computes the key.
        """
        return self._wait(self._calls.add(key, delta))

    def expire(self, key: Data, ttl_s: float) -> bool:
        """Have a base key expire after some seconds; return whether it is there.

        Raises:
            ComputedKeyError, InvalidTtlError, NoDeadlineError: As `put`.
        """
        return self._wait(self._calls.expire(key, ttl_s))

    def persist(self, key: Data) -> bool:
        """Have a base key live for ever; return whether it is there."""
        return self._wait(self._calls.persist(key))

    def ttl(self, key: Data, *, freshness: Freshness | None = None) -> float | None:
        """Return how many seconds a key lives from now on: infinity without a deadline, None if the key is absent."""
        return self._wait(self._calls.ttl(key, freshness=freshness))
