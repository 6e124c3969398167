"""Base rows of one moment, taken in slices, while others write.

    walk       a slice, a turn for others, a slice ..     keys that change behind the walk are noted
    the end    the notes replace what was taken           the rows are those of the moment at which the walk ended

No turn takes longer than its slice. A key in front of the walk is taken as it is when the walk comes there, so only
what changes behind it is kept twice: little, as the walk takes less than a second for a million rows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pequod.engine import Engine, Rows

#: A key and when it expires, in milliseconds since 1970.
Deadline = tuple[bytes, int]
#: Rows that are taken in one turn: a millisecond or so.
SLICE_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rows in key order, and the deadlines of those among them that have one."""

    rows: Rows
    deadlines: list[Deadline]


@dataclass(slots=True)
class Taken:
    """The rows of one moment."""

    #: In key order, as they were when the walk came by.
    slices: deque[Slice] = field(default_factory=deque)
    #: Changes behind the walk: each key's value, or None, and its deadline, or None.
    changes: dict[bytes, tuple[bytes | None, int | None]] = field(default_factory=dict)

    @property
    def has_deadlines(self) -> bool:
        """Whether any key may have a deadline."""
        changed = any(at_ms is not None for _, at_ms in self.changes.values())
        return changed or any(one.deadlines for one in self.slices)

    def drain(self) -> Iterator[Slice]:
        """Yield the rows of the moment in key order; each slice is let go as it is given."""
        keys = deque(sorted(self.changes))
        while self.slices:
            one = self.slices.popleft()
            last, changed = one.rows.keys[-1], []
            while keys and keys[0] <= last:
                changed.append(keys.popleft())
            yield self._mended(one, changed) if changed else one
        if keys:
            yield self._mended(Slice(Rows([], []), []), [*keys])

    def _mended(self, one: Slice, changed: list[bytes]) -> Slice:
        values: dict[bytes, bytes | None] = dict(zip(one.rows.keys, one.rows.values, strict=True))
        deadlines: dict[bytes, int | None] = dict(one.deadlines)
        for key in changed:
            values[key], deadlines[key] = self.changes[key]
        rows = sorted((key, value) for key, value in values.items() if value is not None)
        instants = [(key, at_ms) for key, at_ms in sorted(deadlines.items()) if at_ms is not None]
        return Slice(Rows([key for key, _ in rows], [value for _, value in rows]), instants)


async def take_rows(engine: Engine, is_stopped: Callable[[], bool]) -> Taken:
    """Return the base rows of the moment at which this ends, or what was taken when it is stopped.

    Requires:
        All base rows are in memory, and clients wrote them; nothing else records the engine's changes.

    Cost:
        0.2 s or so for a million rows, in turns of a millisecond or so.
    """
    taken, effects, cursor = Taken(), dict[bytes, bytes | None](), b""
    engine.record(effects)
    try:
        while not is_stopped():
            _note(engine, taken, effects, cursor)
            rows = engine.base_rows(cursor, None, SLICE_ROWS)
            if not rows.keys:
                break
            taken.slices.append(Slice(rows, engine.deadlines.among(rows.keys) if engine.deadlines else []))
            cursor = rows.keys[-1] + b"\0"
            await asyncio.sleep(0)
    finally:
        engine.record(None)
    return taken


def _note(engine: Engine, taken: Taken, effects: dict[bytes, bytes | None], cursor: bytes) -> None:
    """Note what has changed behind the walk since the last turn."""
    behind = [key for key in effects if key < cursor]
    deadlines = dict(engine.deadlines.among(behind)) if engine.deadlines else {}
    for key in behind:
        taken.changes[key] = (effects[key], deadlines.get(key))
    effects.clear()


def in_slices(rows: Rows, deadlines: list[Deadline]) -> Iterator[Slice]:
    """Yield rows that are here already, in slices."""
    instants = dict(deadlines)
    for at in range(0, len(rows.keys), SLICE_ROWS):
        keys = rows.keys[at : at + SLICE_ROWS]
        found = [(key, instants[key]) for key in keys if key in instants] if instants else []
        yield Slice(Rows(keys, rows.values[at : at + SLICE_ROWS]), found)
