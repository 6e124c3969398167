"""One command on an engine: the only place that says what each kind of command does.

    (SCAN_DOWN, b"t|ann|", b"t|ann}", limit 2)  ->  Engine.scan, from the end down  ->  Rows

The table of kinds, pequod/commands/kinds.py, says what each takes and what it gives; batches, calls of one command and
stores in the process all have their commands answered here.

>>> from pequod.commands.kinds import GET, PUT, SCAN
>>> from pequod.engine import Engine
>>> engine = Engine()
>>> answer(engine, PUT, b"a", b"1", 0, now=0.0)
>>> answer(engine, GET, b"a", b"", 0, now=0.0)
b'1'
>>> answer(engine, SCAN, b"", b"", 0, now=0.0)
Rows(keys=[b'a'], values=[b'1'])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pequod.answers.rows import Rows
from pequod.commands import kinds
from pequod.engine.engine import Engine
from pequod.language.conditions import Met, Unmet, decoded
from pequod.language.deadlines import remaining_s

#: What a command gives: a value or None, nothing, whether the key was there, rows, a count, seconds that are left, or
#: what came of a condition; see `Gives`.
Answer = bytes | bool | int | float | Rows | Met | Unmet | None
#: Takes the engine, the first two arguments of a command (empty where it has fewer), its number, the time, and the
#: third argument and the second number, if one of them is neither empty nor 0.
Verb = Callable[..., Answer]


def _get(engine: Engine, key: bytes, _second: bytes, _number: int, now: float) -> bytes | None:
    return engine.get(key, now=now)


def _put(engine: Engine, key: bytes, value: bytes, _number: int, _now: float) -> None:
    engine.put(key, value)


def _remove(engine: Engine, key: bytes, _second: bytes, _number: int, _now: float) -> bool:
    return engine.remove(key)


def _scan(engine: Engine, first: bytes, last: bytes, limit: int, now: float) -> Rows:
    return engine.scan(first, last or None, limit=limit or None, now=now)


def _scan_down(engine: Engine, first: bytes, last: bytes, limit: int, now: float) -> Rows:
    return engine.scan(first, last or None, limit=limit or None, reverse=True, now=now)


def _count(engine: Engine, first: bytes, last: bytes, _number: int, now: float) -> int:
    return engine.count(first, last or None, now=now)


def _put_if(
    engine: Engine, key: bytes, value: bytes, number: int, now: float, expected: bytes = b"", ttl_ms: int = 0
) -> Met | Unmet:
    return engine.write_if(key, value, decoded(number, expected), ttl_ms=ttl_ms, now=now)


def _remove_if(engine: Engine, key: bytes, expected: bytes, number: int, now: float) -> Met | Unmet:
    return engine.write_if(key, None, decoded(number, expected), now=now)


def _add(engine: Engine, key: bytes, delta: bytes, _number: int, now: float) -> bytes:
    return engine.add(key, delta, now=now)


def _put_ttl(engine: Engine, key: bytes, value: bytes, ttl_ms: int, _now: float) -> None:
    engine.put_for(key, value, ttl_ms)


def _expire(engine: Engine, key: bytes, _second: bytes, ttl_ms: int, _now: float) -> bool:
    return engine.expire(key, ttl_ms)


def _ttl(engine: Engine, key: bytes, _second: bytes, _number: int, now: float) -> float | None:
    remaining_ms = engine.remaining_ms(key, now=now)
    return None if remaining_ms is None else remaining_s(remaining_ms)


#: By kind.
VERBS: Final[dict[int, Verb]] = {
    kinds.GET: _get,
    kinds.PUT: _put,
    kinds.REMOVE: _remove,
    kinds.SCAN: _scan,
    kinds.SCAN_LIMIT: _scan,
    kinds.SCAN_DOWN: _scan_down,
    kinds.COUNT: _count,
    kinds.PUT_IF: _put_if,
    kinds.REMOVE_IF: _remove_if,
    kinds.ADD: _add,
    kinds.PUT_TTL: _put_ttl,
    kinds.EXPIRE: _expire,
    kinds.TTL: _ttl,
}


def answer(
    engine: Engine,
    kind: int,
    first: bytes,
    second: bytes,
    number: int,
    now: float,
    third: bytes = b"",
    ttl_ms: int = 0,
) -> Answer:
    """Run one command, and return what it gives.

    Args:
        first, second, third: Its arguments, empty where it has fewer. An empty end of a range is none.
        number: The greatest number of rows of a scan, also of a SCAN; 0: no limit. Or the number of a condition,
            or a time to live.
        now: The time, for snapshots.
        ttl_ms: Its second number, 0 where it has none: the time to live that a PUT_IF gives its key.

    Requires:
        ``kind`` is in the table of kinds.

    Raises:
        MissingError, BackedKeyError: The command has to wait for ranges, or for a write to a database.
        PequodError: The command fails.
    """
    if third or ttl_ms:
        return VERBS[kind](engine, first, second, number, now, third, ttl_ms)
    return VERBS[kind](engine, first, second, number, now)
