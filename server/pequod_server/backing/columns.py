r"""How the values of a column become the bytes of a slot, and back.

Values travel as the text that the database writes for them, so that a loaded row and the same row in a change feed give
the same bytes. For each kind of column, `cut` relates its order to that of its packed bytes: it turns a bound on bytes
into the bound on the column that splits the rows at the same place.

>>> time = Padded(4)
>>> time.pack("100"), time.cut(b"01"), time.cut(b"0099x")
(b'0100', '100', '100')
>>> Text(None).cut(b"bob\x00")
'bob\x01'
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, Literal

from pequod.language.numbers import decode_i64, encode_i64
from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER
from pequod_server.backing.errors import PackError
from pequod_server.backing.values import bytes_of, text_of

_INTEGER: Final = re.compile(r"-?[0-9]+").fullmatch
_PLAIN: Final = re.compile(r"0|-?[1-9][0-9]*").fullmatch
_BIGINT_END: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Microseconds from the epoch to the end of the year 9999, the last year that can be written.
_TIME_END: Final = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
SqlType = Literal["text", "bigint", "timestamptz", "uuid", "bytea"]


@dataclass(frozen=True, slots=True)
class Equal:
    """The column has this value."""

    value: str


@dataclass(frozen=True, slots=True)
class Between:
    """The column lies in ``[low, high)``; None is unbounded."""

    low: str | None
    high: str | None


Term = Equal | Between


class Column(ABC):
    """The kind of one slot: how its values are packed, and how their order relates to that of the bytes."""

    #: The SQL type in which values are compared.
    sql_type: ClassVar[SqlType]
    #: The type whose order is that of the packed bytes; text orders by bytes.
    order_type: ClassVar[SqlType]

    @abstractmethod
    def pack(self, text: str) -> bytes:
        """Return the bytes of the slot.

        Raises:
            PackError: The value cannot be packed; the caller fills in its place.
        """

    def pack_sent(self, sent: bytes) -> bytes:
        """Return the bytes of the slot for a value as a database sends its text; the same as `pack`, but faster.

        Raises:
            PackError: As `pack` does.
        """
        return self.pack(sent.decode())

    @abstractmethod
    def unpack(self, packed: bytes) -> str | None:
        """Return the value that is packed as these bytes, None if no value is."""

    @abstractmethod
    def cut(self, bound: bytes) -> str | None:
        """Return the least value whose packed form is at or above ``bound``, None if all are below."""

    def equal(self, packed: bytes) -> Term | None:
        """Return the condition for the values that are packed as these bytes; None if there are none."""
        value = self.unpack(packed)
        return None if value is None else Equal(value)

    def between(self, low: bytes, high: bytes | None) -> Term | None:
        """Return the condition for the values packed into ``[low, high)``; None if there are none."""
        if high is not None and high <= low:
            return None
        start = self.cut(low) if low else None
        if low and start is None:
            return None
        stop = None if high is None else self.cut(high)
        return None if start is not None and start == stop else Between(start, stop)


@dataclass(frozen=True, slots=True)
class Text(Column):
    """Text as its UTF-8 bytes: without a `|` if the slot is delimited, else of exactly ``width`` bytes."""

    width: int | None
    sql_type: ClassVar[SqlType] = "text"
    order_type: ClassVar[SqlType] = "text"

    def pack(self, text: str) -> bytes:
        """Return the bytes of the slot."""
        packed = text.encode("utf-8", "surrogateescape")
        if b"\0" in packed:
            raise PackError("", f"{text!r} contains a NUL character")
        _check_shape(packed, self.width)
        return packed

    def pack_sent(self, sent: bytes) -> bytes:
        """Return the bytes of the slot for a value as a database sends its text."""
        # A database that sends text never sends a NUL.
        return sent if _has_shape(sent, self.width) else self.pack(sent.decode())

    def unpack(self, packed: bytes) -> str | None:
        """Return the value that is packed like this, None if no value is."""
        try:
            text = packed.decode()
            return text if self.pack(text) == packed else None
        except (UnicodeDecodeError, PackError):
            return None

    def cut(self, bound: bytes) -> str | None:
        """Return the least value at or above ``bound`` when packed, None if all are below."""
        # UTF-8 sorts as its code points do, so any bytes have a place among all texts.
        valid = _valid_prefix(bound)
        rest = bound[len(valid.encode()) :]
        if not rest:
            return valid
        place = bisect_left(_CODE_POINTS, rest, key=lambda point: chr(point).encode())
        if place < len(_CODE_POINTS):
            return valid + chr(_CODE_POINTS[place])
        return _successor(valid)


@dataclass(frozen=True, slots=True)
class Padded(Column):
    """A whole number, 0 or more, padded with zeros to ``width`` digits."""

    width: int
    sql_type: ClassVar[SqlType] = "bigint"
    order_type: ClassVar[SqlType] = "bigint"

    def pack(self, text: str) -> bytes:
        """Return the bytes of the slot."""
        if not _INTEGER(text):
            raise PackError("", f"{text!r} is not a whole number")
        return self.pack_number(int(text))

    def pack_sent(self, sent: bytes) -> bytes:
        """Return the bytes of the slot for a value as a database sends its text."""
        if len(sent) <= self.width and sent.isdigit():
            return sent.zfill(self.width)
        return self.pack(sent.decode())

    def pack_number(self, number: int) -> bytes:
        """Return the digits of ``number``, with zeros in front."""
        if number < 0:
            raise PackError("", f"{number} is negative, and would not sort where it belongs")
        packed = b"%0*d" % (self.width, number)
        if len(packed) > self.width:
            raise PackError("", f"{number} has more than the {self.width} digits of the slot")
        return packed

    def unpack(self, packed: bytes) -> str | None:
        """Return the value that is packed like this, None if no value is."""
        if len(packed) != self.width or not packed.isdigit() or int(packed) >= _BIGINT_END:
            return None
        return str(int(packed))

    def cut(self, bound: bytes) -> str | None:
        """Return the least value at or above ``bound`` when packed, None if all are below."""
        number = _first(min(10**self.width, _BIGINT_END), self.pack_number, bound)
        return None if number >= _BIGINT_END else str(number)


@dataclass(frozen=True, slots=True)
class Plain(Column):
    """A whole number in its shortest form, which sorts as text: only equality can use an index."""

    sql_type: ClassVar[SqlType] = "bigint"
    order_type: ClassVar[SqlType] = "text"

    def pack(self, text: str) -> bytes:
        """Return the bytes of the slot."""
        if not _INTEGER(text):
            raise PackError("", f"{text!r} is not a whole number")
        return b"%d" % int(text)

    def unpack(self, packed: bytes) -> str | None:
        """Return the value that is packed like this, None if no value is."""
        text = packed.decode("utf-8", "replace")
        return text if _PLAIN(text) and -_BIGINT_END <= int(text) < _BIGINT_END else None

    def cut(self, bound: bytes) -> str | None:
        """Return the least value at or above ``bound`` when packed, None if all are below."""
        return Text(None).cut(bound)


@dataclass(frozen=True, slots=True)
class Signed(Column):
    """A whole number of 64 bits as 16 hexadecimal digits that sort as the numbers do: `<slot:i64>`."""

    sql_type: ClassVar[SqlType] = "bigint"
    order_type: ClassVar[SqlType] = "bigint"

    def pack(self, text: str) -> bytes:
        """Return the bytes of the slot."""
        if not _INTEGER(text):
            raise PackError("", f"{text!r} is not a whole number")
        return encode_i64(int(text)).encode()

    def unpack(self, packed: bytes) -> str | None:
        """Return the value that is packed like this, None if no value is."""
        try:
            return str(decode_i64(packed))
        except ValueError:
            return None

    def cut(self, bound: bytes) -> str | None:
        """Return the least value at or above ``bound`` when packed, None if all are below."""
        place = _first(2 * _BIGINT_END, lambda number: encode_i64(number - _BIGINT_END).encode(), bound)
        return None if place == 2 * _BIGINT_END else str(place - _BIGINT_END)


@dataclass(frozen=True, slots=True)
class Time(Column):
    """A moment as whole seconds or microseconds since 1970, padded with zeros to ``width`` digits."""

    #: Microseconds in one step of the slot: 1 or 1,000,000.
    step_us: int
    width: int
    sql_type: ClassVar[SqlType] = "timestamptz"
    order_type: ClassVar[SqlType] = "timestamptz"

    def pack(self, text: str) -> bytes:
        """Return the bytes of the slot."""
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise PackError("", f"{text!r} is no moment of the years 1 to 9999") from error
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return self._digits.pack_number((moment - _EPOCH) // timedelta(microseconds=self.step_us))

    def unpack(self, packed: bytes) -> str | None:
        """Return the value that is packed like this, None if no value is."""
        steps = self._digits.unpack(packed)
        return None if steps is None or int(steps) > self._end else self._text(int(steps))

    def cut(self, bound: bytes) -> str | None:
        """Return the least value at or above ``bound`` when packed, None if all are below."""
        steps = self._digits.cut(bound)
        return None if steps is None or int(steps) > self._end else self._text(int(steps))

    def equal(self, packed: bytes) -> Term | None:
        """Return the condition for the values that are packed as these bytes."""
        # A second holds many moments.
        if self.step_us == 1:
            return Column.equal(self, packed)
        return None if self.unpack(packed) is None else self.between(packed, prefix_end(packed))

    @property
    def _digits(self) -> Padded:
        return Padded(self.width)

    @property
    def _end(self) -> int:
        return _TIME_END // self.step_us

    def _text(self, steps: int) -> str:
        return (_EPOCH + timedelta(microseconds=steps * self.step_us)).isoformat(sep=" ")


@dataclass(frozen=True, slots=True)
class Uuid(Column):
    """A UUID in its usual form: 36 characters, lower case."""

    width: int | None
    sql_type: ClassVar[SqlType] = "uuid"
    order_type: ClassVar[SqlType] = "uuid"

    def pack(self, text: str) -> bytes:
        """Return the bytes of the slot."""
        try:
            return str(uuid.UUID(text)).encode()
        except ValueError as error:
            raise PackError("", f"{text!r} is no UUID") from error

    def unpack(self, packed: bytes) -> str | None:
        """Return the value that is packed like this, None if no value is."""
        try:
            text = str(uuid.UUID(packed.decode()))
        except ValueError:
            return None
        return text if text.encode() == packed else None

    def cut(self, bound: bytes) -> str | None:
        """Return the least value at or above ``bound`` when packed, None if all are below."""
        number = _first(1 << 128, lambda n: str(uuid.UUID(int=n)).encode(), bound)
        return None if number == 1 << 128 else str(uuid.UUID(int=number))


@dataclass(frozen=True, slots=True)
class WholeKey(Column):
    """A whole key as the bytes that it is."""

    sql_type: ClassVar[SqlType] = "bytea"
    order_type: ClassVar[SqlType] = "bytea"

    def pack(self, text: str) -> bytes:
        """Return the key."""
        return bytes_of(text)

    def pack_sent(self, sent: bytes) -> bytes:
        """Return the key that a database sends."""
        return bytes_of(sent.decode("ascii"))

    def unpack(self, packed: bytes) -> str | None:
        """Return the text of the key."""
        return text_of(packed)

    def cut(self, bound: bytes) -> str | None:
        """Return the least key at or above ``bound``: itself."""
        return text_of(bound)


def _has_shape(packed: bytes, width: int | None) -> bool:
    return len(packed) == width if width is not None else packed != b"" and DELIMITER not in packed


def _check_shape(packed: bytes, width: int | None) -> None:
    if _has_shape(packed, width):
        return
    text = packed.decode("utf-8", "replace")
    if width is not None:
        raise PackError("", f"{text!r} is {len(packed)} bytes long, and the slot is {width} wide")
    if not packed:
        raise PackError("", "it is empty, and a slot never is")
    raise PackError("", f"{text!r} contains a `|`, which ends the slot; give the slot a width, or leave such rows out")


def _first(end: int, pack: Callable[[int], bytes], bound: bytes) -> int:
    """Return the least number below ``end`` that packs to ``bound`` or above, ``end`` if none does."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        if pack(middle) < bound:
            low = middle + 1
        else:
            high = middle
    return low


class _CodePoints:
    """All characters that a text may hold, in order: neither NUL nor halves of surrogate pairs."""

    def __len__(self) -> int:
        return 0x110000 - 0x800 - 1

    def __getitem__(self, place: int) -> int:
        return place + 1 if place + 1 < 0xD800 else place + 1 + 0x800


_CODE_POINTS: Final = _CodePoints()


def _valid_prefix(bound: bytes) -> str:
    head = bound.partition(b"\0")[0]
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        return head[: error.start].decode()


def _successor(text: str) -> str | None:
    """Return the least text above all that start with ``text``."""
    stem = text.rstrip("\U0010ffff")
    if not stem:
        return None
    after = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if after == 0xD800 else after)
