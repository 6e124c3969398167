"""Steps of a walk that write by the present value: on the native core where that can do it, or as a database does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from pequod.commands.kinds import ADD, PUT_IF, REMOVE_IF
from pequod.engine import BackedKeyError, LimitExceededError
from pequod.errors import NotNumberError, SumTooLongError
from pequod.language.conditions import Condition, coded
from tests.engine.natively import run_one

if TYPE_CHECKING:
    from tests.engine.pair import Pair


def take_write_if(pair: Pair, key: bytes, value: bytes | None, condition: Condition) -> None:
    """Write under a condition."""
    number, expected = coded(condition)
    kind, arguments = (REMOVE_IF, [key, expected]) if value is None else (PUT_IF, [key, value, expected])
    _take(pair, key, kind, arguments, number, lambda: pair.model.write_if(key, value, condition))


def take_add(pair: Pair, key: bytes, delta: bytes) -> None:
    """Add to a value."""
    _take(pair, key, ADD, [key, delta], None, lambda: pair.model.add_to(key, delta))


def _take(
    pair: Pair, key: bytes, kind: int, arguments: list[bytes], number: int | None, expected: Callable[[], object]
) -> None:
    """Have the engine run a command, or a database decide it, and compare what comes of it with the model.

    Args:
        expected: Has the model do the same; None is a refusal.
    """
    if pair.model.computes(key):
        return
    before = pair.model.base.get(key)
    if pair.is_backed(key):
        with pytest.raises(BackedKeyError):
            run_one(pair.engine, kind, arguments, number, now=pair.now)
        expected()
        if (after := pair.model.base.get(key)) != before:
            pair.engine.apply(key, after)
    else:
        with suppress(LimitExceededError):
            found: object = None
            with suppress(NotNumberError, SumTooLongError):
                found = run_one(pair.engine, kind, arguments, number, now=pair.now)
            pair.same(found, expected())
    pair.changed()
