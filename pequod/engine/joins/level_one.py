"""How a key that is read leads to a context, where one slot of the output is fixed.

t|<user>|<time>|<poster>      scan from t|ann|0100      slot_start 2, up to the next |, and 1 byte    t|ann|
"""

from __future__ import annotations

from typing import NamedTuple

from pequod.language.spec import DELIMITER, JoinSpec, Slot


class LevelOne(NamedTuple):
    """How the prefix of a level-one context is cut from the first key of a read."""

    #: Up to here all keys are the same; -1: there are no such contexts.
    slot_start: int
    #: The width of the slot; 0: it goes up to the next delimiter.
    slot_width: int
    #: The length of the literal behind it.
    slot_follow: int

    def cut(self, first: bytes) -> bytes | None:
        """Return the prefix, None if the key has none."""
        start, width, follow = self
        if start < 0:
            return None
        stop = start + width if width else first.find(DELIMITER, start)
        return None if stop < 0 else first[: stop + follow]


def level_one_of(spec: JoinSpec) -> LevelOne:
    """Return how the prefixes of a join's level-one contexts are cut."""
    parts = spec.output.parts
    slot = parts[1] if len(parts) > 1 else None
    if len(parts) < 3 or not isinstance(slot, Slot):
        return LevelOne(-1, 0, 0)
    follow = len(parts[2]) if isinstance(parts[2], bytes) else 0
    return LevelOne(len(spec.output.literal_prefix), slot.width or 0, follow)
