"""Slots: which parts of keys are known, their numbers, and the slots that a range of outputs fixes (paper §3.1).

output   t|<user>|<time:10>|<poster>     a scan of [t|ann|0000000100, t|ann}) fixes <user>, as ann
numbers  user 0, time 1, poster 2
"""

from __future__ import annotations

from collections.abc import Sequence

from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER, JoinSpec, Pattern, Slot


def number_slots(spec: JoinSpec) -> dict[str, int]:
    """Number the slots of a join in order of appearance, the output's first."""
    names = dict.fromkeys(slot.name for role in spec.roles for slot in role.slots())
    return {name: number for number, name in enumerate(names)}


def known_run(parts: Sequence[bytes | Slot], known: set[str]) -> int:
    """Return how many parts, from the left, are literals or known slots."""
    for at, part in enumerate(parts):
        if isinstance(part, Slot) and part.name not in known:
            return at
    return len(parts)


def fix_slots(output: Pattern, first: bytes, last: bytes) -> list[bytes]:
    """Return the values of the leading slots that all output keys of ``[first, last)`` share (paper §3.1).

    >>> timeline = Pattern((b"t|", Slot("user"), b"|", Slot("time", 3)))
    >>> fix_slots(timeline, b"t|ann|100", b"t|ann}")
    [b'ann']
    >>> fix_slots(timeline, b"t|ann|100", b"t|bob|")
    []
    """
    values: dict[str, bytes] = {}
    at = 0
    for part in output.parts:
        if isinstance(part, Slot) and part.name not in values:
            end = _slot_end(part, first, at, last)
            if end is None:
                break
            shared = first[: end + 1] if part.width is None and end < len(first) else first[:end]
            above = prefix_end(shared)
            if above is not None and last > above:
                break
            values[part.name] = first[at:end]
        else:
            spelled = part if isinstance(part, bytes) else values[part.name]
            end = at + len(spelled)
            if first[at:end] != spelled:
                break
        at = end
    return list(values.values())


def _slot_end(slot: Slot, first: bytes, at: int, last: bytes) -> int | None:
    """Return where the slot's value ends in ``first``, None if ``first`` does not have all of it."""
    if slot.width is not None:
        end = at + slot.width
        return end if len(first) >= end else None
    end = first.find(DELIMITER, at)
    if end < 0 and last == first + b"\0":
        end = len(first)
    return end if end > at else None
