"""Messages that a client has compressed: made long again, no longer than a message may be, and not all at once."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, Final

#: The format as `zlib` takes it, by gRPC's names.
_FORMATS: Final = {"gzip": 31, "deflate": 15}
#: A message that is no longer is made in the event loop: a millisecond.
_AT_ONCE_BYTES: Final = 256 << 10


class InflateError(Exception):
    """A message cannot be made long again; the text says why."""


class OverlongError(Exception):
    """A message would be too long."""


async def inflated(data: bytes, encoding: str, bytes_max: int) -> bytes:
    """Return a message as it was before it was compressed.

    Raises:
        InflateError: It is not compressed as its call says.
        OverlongError: It is longer than ``bytes_max``.
    """
    inflate = _inflate(encoding)
    try:
        first = inflate.decompress(data, min(_AT_ONCE_BYTES, bytes_max + 1))
        if inflate.unconsumed_tail and len(first) <= bytes_max:
            # zlib does not keep Python's lock meanwhile.
            first += await asyncio.to_thread(inflate.decompress, inflate.unconsumed_tail, bytes_max + 1 - len(first))
    except zlib.error as error:
        raise InflateError(f"a message is no {encoding}: {error}") from None
    return _checked(first, inflate, encoding, bytes_max)


def inflated_at_once(data: bytes, encoding: str, bytes_max: int) -> bytes:
    """Return the same without a thread, whatever its length.

    Raises:
        InflateError: It is not compressed as its call says.
        OverlongError: It is longer than ``bytes_max``.
    """
    inflate = _inflate(encoding)
    try:
        whole = inflate.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise InflateError(f"a message is no {encoding}: {error}") from None
    return _checked(whole, inflate, encoding, bytes_max)


def _inflate(encoding: str) -> Any:
    if encoding not in _FORMATS:
        raise InflateError(f"a message is compressed, and the encoding of its call is {encoding or 'identity'!r}")
    return zlib.decompressobj(_FORMATS[encoding])


def _checked(whole: bytes, inflate: Any, encoding: str, bytes_max: int) -> bytes:
    if len(whole) > bytes_max:
        raise OverlongError
    if not inflate.eof:
        raise InflateError(f"a message of {encoding} is cut short")
    return whole
