"""Parses records once for all the indexes that look at them."""

from __future__ import annotations

from typing import Final

from pequod.language.collector import LONG_BYTES, collector_paused
from pequod.language.parsing import read_json

_NOT_PARSED: Final[tuple[bytes, object]] = (b"", None)


class RecordParser:
    """Parses values, each once for all the indexes that look at a change: the old value and the new one."""

    __slots__ = ("_earlier", "_latest")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget what was parsed: a long record takes thirty times its bytes."""
        self._latest = self._earlier = _NOT_PARSED

    def __call__(self, value: bytes) -> object:
        """Return the value of some bytes in JSON, None if they are none: `parse_value`, without the call."""
        latest = self._latest
        if latest[0] is value:
            return latest[1]
        earlier = self._earlier
        if earlier[0] is value:
            return earlier[1]
        self._earlier = latest
        try:
            if len(value) < LONG_BYTES:
                found = read_json(value)
            else:
                with collector_paused():
                    found = read_json(value)
        except ValueError:
            found = None
        self._latest = value, found
        return found
