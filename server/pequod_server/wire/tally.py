r"""How many entries the columns of a message have, before anything is made of its bytes.

    message  3a 00 3a 00 0a 01 6b    layout  field 7: messages, counted in slot 1; ...    counts  [0, 2]

Protobuf makes 30 to 170 bytes of an entry that has two on the wire. A message may have as many entries as there are
pairs of bytes in it, so they are counted first.

>>> keys, levels = bytes([BYTES, 0, 0]), bytes([MESSAGE, 1, 1])
>>> request = bytes(3) + keys + bytes(3 * 5) + levels + bytes(3 * 24)
>>> tally(b"\x3a\x00\x3a\x00\x0a\x01k", request + bytes(3 * FIELDS), (9, 9))
[0, 2]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pequod.native import core

#: For each type of message as many fields; fields of greater numbers are not known.
FIELDS: Final = 32
#: The types of fields, by protobuf's types of wires; of a SIZED one, a column of single bytes, the size counts.
NOT_KNOWN, VARINT, FIXED64, FIXED32, BYTES, MESSAGE, SIZED = range(7)
#: Three bytes for each field: its shape, the slot that counts its entries, 0 for none, and the type that it holds.
FIELD_BYTES: Final = 3
#: Types of wires: what follows a tag.
_WIRE_VARINT, _WIRE_FIXED64, _WIRE_BYTES, _WIRE_GROUP, _WIRE_GROUP_END, _WIRE_FIXED32 = range(6)
_SHAPES: Final = {VARINT: _WIRE_VARINT, FIXED64: _WIRE_FIXED64, FIXED32: _WIRE_FIXED32}
_SIZES: Final = {_WIRE_FIXED64: 8, _WIRE_FIXED32: 4}
#: Messages and groups in one another; bytes of a number, and of a tag or a length.
_DEPTH_MAX: Final = 100
_VARINT_BYTES: Final = 10
_LENGTH_BYTES: Final = 5
_TAG_MAX: Final = (1 << 32) - 1


def tally(message: bytes, layout: bytes, most: tuple[int, ...]) -> list[int] | None:
    """Return the counts of all slots; slot 0 counts the fields that are not known, also those in messages in it.

    Args:
        layout: For each type of message, that of ``message`` first, its fields in the order of their numbers from 0.
        most: For each slot the greatest count: the counting ends with the first one that is above it.

    Returns:
        None if protobuf refuses the bytes for another reason than strings that are not UTF-8.

    Requires:
        The types of messages in a message come behind its own in the layout.
    """
    found = _CountedMessage(message, layout, most)
    try:
        found.count(0, len(message), 0, 0)
    except _DamagedError:
        return None
    except _TooManyError:
        pass
    return found.counts


class _DamagedError(Exception):
    """Protobuf refuses the bytes."""


class _TooManyError(Exception):
    """A count is above the greatest one."""


class _CountedMessage:
    """A message that is counted."""

    __slots__ = ("_layout", "_message", "_most", "counts")

    def __init__(self, message: bytes, layout: bytes, most: tuple[int, ...]) -> None:
        self._message = message
        self._layout = layout
        self._most = most
        self.counts = [0] * len(most)

    def count(self, at: int, end: int, kind: int, depth: int) -> None:
        """Count what is in a message of a type, which goes from ``at`` to ``end``."""
        message, layout, base = self._message, self._layout, kind * FIELDS * FIELD_BYTES
        while at < end:
            tag = message[at]
            if tag < 0x80:
                at += 1
            else:
                tag, at = self._tag(at, end)
            number, wire = tag >> 3, tag & 7
            if not number:
                raise _DamagedError
            shape = slot = inner = NOT_KNOWN
            if number < FIELDS:
                place = base + number * FIELD_BYTES
                shape, slot, inner = layout[place : place + FIELD_BYTES]
            if wire == _WIRE_BYTES and (shape >= BYTES or (shape == VARINT and slot)):
                start, at = self._piece(at, end)
                self._entries(start, at, (shape, slot, inner), depth)
            elif shape != NOT_KNOWN and _SHAPES.get(shape) == wire:
                at = self._skipped(wire, at, end)
                if slot:
                    self._add(slot, 1)
            else:
                at = self._group(number, at, end, depth) if wire == _WIRE_GROUP else self._skipped(wire, at, end)
                self._add(0, 1)

    def _entries(self, start: int, end: int, field: tuple[int, int, int], depth: int) -> None:
        """Count what is in the bytes of a field."""
        shape, slot, inner = field
        if shape == SIZED:
            # Of two such fields protobuf takes the last.
            self.counts[slot] = 0
            self._add(slot, end - start)
        elif shape == VARINT:
            while start < end:
                start = self._skipped(_WIRE_VARINT, start, end)
                self._add(slot, 1)
        else:
            if slot:
                self._add(slot, 1)
            if shape == MESSAGE:
                self.count(start, end, inner, depth + 1)

    def _add(self, slot: int, count: int) -> None:
        self.counts[slot] += count
        if self.counts[slot] > self._most[slot]:
            raise _TooManyError

    def _number(self, at: int, end: int, bytes_max: int) -> tuple[int, int]:
        """Return a number, and where it ends; protobuf takes any last byte."""
        value = 0
        for shift in range(0, 7 * bytes_max, 7):
            if at >= end:
                raise _DamagedError
            byte = self._message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise _DamagedError

    def _tag(self, at: int, end: int) -> tuple[int, int]:
        tag, at = self._number(at, end, _LENGTH_BYTES)
        if tag > _TAG_MAX:
            raise _DamagedError
        return tag, at

    def _piece(self, at: int, end: int) -> tuple[int, int]:
        """Return where bytes begin and end."""
        size, at = self._number(at, end, _LENGTH_BYTES)
        if size > end - at:
            raise _DamagedError
        return at, at + size

    def _skipped(self, wire: int, at: int, end: int) -> int:
        """Return where a value ends that is no group."""
        if wire == _WIRE_VARINT:
            return self._number(at, end, _VARINT_BYTES)[1]
        if wire == _WIRE_BYTES:
            return self._piece(at, end)[1]
        at += _SIZES.get(wire, len(self._message) + 1)
        if at > end:
            raise _DamagedError
        return at

    def _group(self, number: int, at: int, end: int, depth: int) -> int:
        """Return where a group ends, with those in it, which is in ``depth`` messages."""
        open_groups = [number]
        while open_groups:
            if depth + len(open_groups) > _DEPTH_MAX:
                raise _DamagedError
            tag, at = self._tag(at, end)
            inner, wire = tag >> 3, tag & 7
            if wire == _WIRE_GROUP:
                open_groups.append(inner)
            elif wire != _WIRE_GROUP_END:
                at = self._skipped(wire, at, end)
            elif open_groups.pop() != inner:
                raise _DamagedError
        return at


if not TYPE_CHECKING and core is not None:
    tally = core.tally
