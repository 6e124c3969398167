"""Changes of keys, as watches deliver them."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A key's value before and after; None where the key is absent."""

    key: bytes
    old: bytes | None
    new: bytes | None
