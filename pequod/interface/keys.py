"""The calls of one key, which all clients have.

client.put("p|1", "Hi", ttl_s=30) -> Turn.put, Turn.last_result -> None

`KeyCalls` in sync_keys.py is generated from this file: `make interface`.
"""

from __future__ import annotations

from typing import Any, overload

from pequod.calls import Data, Delta
from pequod.freshness import Freshness
from pequod.interface.carried import Carried, outcome_of
from pequod.language.conditions import Condition, Met, Unmet


class AsyncKeyCalls(Carried):
    """The calls of one key whose callers await."""

    async def get(self, key: Data, *, freshness: Freshness | None = None) -> bytes | None:
        """Return the value of ``key``, None if the key is absent."""
        turn = self._reading(freshness)
        turn.get(key)
        value: bytes | None = outcome_of(await turn.last_result(len(key)))
        return value

    @overload
    async def put(
        self, key: Data, value: Data, *, condition: None = None, ttl_s: float | None = None, keep_ttl: bool = False
    ) -> None: ...

    @overload
    async def put(
        self, key: Data, value: Data, *, condition: Condition, ttl_s: float | None = None, keep_ttl: bool = False
    ) -> Met | Unmet: ...

    async def put(
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
        turn = self._writing()
        turn.put(key, value, condition=condition, ttl_s=ttl_s, keep_ttl=keep_ttl)
        return outcome_of(await turn.last_result(len(key) + len(value)))

    @overload
    async def remove(self, key: Data, *, condition: None = None) -> bool: ...

    @overload
    async def remove(self, key: Data, *, condition: Condition) -> Met | Unmet: ...

    async def remove(self, key: Data, *, condition: Condition | None = None) -> Any:
        """Remove a base key; return whether it was there, or, with a condition, what came of it as `put` does."""
        turn = self._writing()
        turn.remove(key, condition=condition)
        return outcome_of(await turn.last_result(len(key)))

    async def add(self, key: Data, delta: Delta) -> bytes:
        """Add a number to the value of a base key, 0 if it is absent; return the sum, which is the new value.

        Decimals are exact. If the call is cut off, whether it was done is not known, and it is not made again.

        Args:
            delta: An int, a `decimal.Decimal`, or plain digits such as ``"-0.5"``.

        Raises:
            NotNumberError, SumTooLongError: The value is no number, or the sum is too long; nothing was added.
            ComputedKeyError: An installed join computes the key.
        """
        turn = self._writing()
        turn.add(key, delta)
        total: bytes = outcome_of(await turn.last_result(len(key)))
        return total

    async def expire(self, key: Data, ttl_s: float) -> bool:
        """Have a base key expire after some seconds; return whether it is there.

        Raises:
            ComputedKeyError, InvalidTtlError, NoDeadlineError: As `put`.
        """
        turn = self._writing()
        turn.expire(key, ttl_s)
        was_there: bool = outcome_of(await turn.last_result(len(key)))
        return was_there

    async def persist(self, key: Data) -> bool:
        """Have a base key live for ever; return whether it is there."""
        turn = self._writing()
        turn.persist(key)
        was_there: bool = outcome_of(await turn.last_result(len(key)))
        return was_there

    async def ttl(self, key: Data, *, freshness: Freshness | None = None) -> float | None:
        """Return how many seconds a key lives from now on: infinity without a deadline, None if the key is absent."""
        turn = self._reading(freshness)
        turn.ttl(key)
        left_s: float | None = outcome_of(await turn.last_result(len(key)))
        return left_s
