"""Values of rows that expire: bytes that know the instant, in milliseconds since 1970.

    database  ... | value 'ann' | expires_at 1767225600000      <->      TimedValue(b"ann", 1767225600000)

A store shows such values in what it loads and in what its feed tells, and takes them in what it writes. It never shows
a row that is due, though it is deleted later.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from typing import Final, Self

from pequod.engine import Engine, Rows
from pequod.engine.base.deadlines import Deadlines
from pequod.language.deadlines import KEEP, deadline_after
from pequod.language.errors import NoDeadlineError
from pequod_server.backing.store import RowChange

#: No instant is above this one, which is in the year 6429.
INSTANT_MAX: Final = (1 << 47) - 1
#: Rows that are looked at in one step.
_STEP: Final = 4096


class LastingClock:
    """A wall clock that stands still while the machine's is set back, so that nothing that was due is shown again."""

    def __init__(self) -> None:
        self._latest_ms = 0

    def __call__(self) -> int:
        """Return the present instant, in milliseconds since 1970."""
        self._latest_ms = max(self._latest_ms, self.wall_ms())
        return self._latest_ms

    @staticmethod
    def wall_ms() -> int:
        """Return what the machine's clock says."""
        return time.time_ns() // 1_000_000


#: By which all stores of the process go.
now_ms: Final = LastingClock()


class TimedValue(bytes):
    """The value of a row that expires.

    Attributes:
        at_ms: When. Of a value that is written it may be KEEP: the row keeps the deadline that it has.
    """

    at_ms: int

    def __new__(cls, value: bytes, at_ms: int) -> Self:
        """Return a value with a deadline."""
        made = super().__new__(cls, value)
        made.at_ms = at_ms
        return made


def timed(value: bytes, ttl_ms: int) -> bytes:
    """Return a value that is written with a time to live, as commands have it: KEEP, or 0 for ever.

    Raises:
        InvalidTtlError: It is longer than a hundred years.
    """
    if ttl_ms == KEEP:
        return TimedValue(value, KEEP)
    return TimedValue(value, deadline_after(now_ms(), ttl_ms)) if ttl_ms else value


def over(earlier: bytes | None, value: bytes) -> bytes:
    """Return a value that is written over another one, or (None) a removal, in the same transaction.

    What keeps a deadline keeps that of the earlier write: of the writes of a key only the last one is carried out.
    """
    if deadline_of(value) != KEEP:
        return value
    at_ms = deadline_of(earlier)
    return TimedValue(value, at_ms) if at_ms else bytes(value)


def deadline_of(value: bytes | None) -> int:
    """Return when a row with this value expires, 0: never; or KEEP."""
    return value.at_ms if isinstance(value, TimedValue) else 0


def is_due(value: bytes | None) -> bool:
    """Return whether a row with this value has expired."""
    return isinstance(value, TimedValue) and value.at_ms <= now_ms()


def shown(value: bytes, text: str | None) -> bytes | None:
    """Return the value of a row as a store shows it, None if the row is due.

    Args:
        text: What the column of deadlines holds, None for NULL: the row never expires.
    """
    if text is None:
        return value
    made = TimedValue(value, min(max(int(text), 0), INSTANT_MAX))
    return None if is_due(made) else made


def deadlines_of(values: Sequence[bytes | None]) -> list[int]:
    """Return when rows with these values expire, 0: never; an empty list if none does."""
    if TimedValue not in set(map(type, values)):
        return []
    return [deadline_of(value) for value in values]


def with_deadlines(values: Sequence[bytes], deadlines: Sequence[int]) -> list[bytes]:
    """Return values with their deadlines, as `deadlines_of` gives them."""
    if not deadlines:
        return list(values)
    return [TimedValue(value, at_ms) if at_ms else value for value, at_ms in zip(values, deadlines, strict=True)]


def lasting_values(deadlines: Deadlines, rows: Rows) -> list[bytes]:
    """Return the values of base rows with the deadlines that an engine has for their keys."""
    at_ms = dict(deadlines.among(rows.keys)) if deadlines else {}
    return with_deadlines(rows.values, [at_ms.get(key, 0) for key in rows.keys] if at_ms else [])


def lasting_changes(deadlines: Deadlines, changes: list[RowChange]) -> list[RowChange]:
    """Return changes with the deadlines that an engine has now for their keys."""
    at_ms = dict(deadlines.among([key for key, value in changes if value is not None])) if deadlines else {}
    return [
        RowChange(key, value if value is None or key not in at_ms else TimedValue(value, at_ms[key]))
        for key, value in changes
    ]


def deadlines_after(engine: Engine, rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, int]]:
    """Return the deadlines that keys have once rows are written to an engine, for `Engine.set_deadlines`."""
    found: list[tuple[bytes, int]] = []
    for key, value in rows:
        at_ms = deadline_of(value)
        if at_ms == KEEP:
            found += engine.later_deadlines([key], KEEP)
        elif at_ms:
            found.append((key, min(at_ms, INSTANT_MAX)))
    return found


def untimed(rows: list[tuple[bytes, bytes]]) -> Generator[None, None, dict[bytes, int]]:
    """Have rows hold plain values, without those that are due; what the generator returns is when the others expire.

    Yields:
        None, after each step of a millisecond or so.
    """
    deadlines: dict[bytes, int] = {}
    gone: set[bytes] = set()
    for at, (key, value) in enumerate(rows):
        if isinstance(value, TimedValue):
            if is_due(value):
                gone.add(key)
            if value.at_ms != KEEP:
                deadlines[key] = value.at_ms
            rows[at] = (key, bytes(value))
        if at % _STEP == _STEP - 1:
            yield
    if gone:
        rows[:] = [row for row in rows if row[0] not in gone]
    return deadlines


def untimed_changes(changes: Sequence[RowChange]) -> tuple[Sequence[RowChange], dict[bytes, int]]:
    """Return changes with plain values, and when their rows expire; a row that is due is gone."""
    deadlines: dict[bytes, int] = {}
    plain: list[RowChange] = []
    for at, (key, value) in enumerate(changes):
        if not isinstance(value, TimedValue):
            deadlines.pop(key, None)
            continue
        plain = plain or list(changes)
        plain[at] = RowChange(key, None if is_due(value) else bytes(value))
        # A store without deadlines may show a value as it was written.
        if value.at_ms != KEEP:
            deadlines[key] = value.at_ms
    return plain or changes, deadlines


def refuse_deadline(key: bytes, value: bytes) -> None:
    """Pass if the row of a key need not expire: its table has no column of deadlines.

    Raises:
        NoDeadlineError: It is to expire.
    """
    if deadline_of(value) not in (0, KEEP):
        raise NoDeadlineError(key)
