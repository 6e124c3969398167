"""Changes of keys, as watches deliver them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Change(NamedTuple):
    """A key's value before and after; None where the key is absent."""

    key: bytes
    old: bytes | None
    new: bytes | None

    @property
    def reason(self) -> Literal["", "expired"]:
        """Why the key is gone: `expired` if its deadline has come; empty for all other changes."""
        return ""


class Expired(Change):
    """The change of a base key that is gone because its deadline has come."""

    __slots__ = ()

    @property
    def reason(self) -> Literal["", "expired"]:
        """Why the key is gone."""
        return "expired"
