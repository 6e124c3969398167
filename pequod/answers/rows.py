"""Rows as calls give them."""

from __future__ import annotations

from typing import NamedTuple

from pequod.native import core


class Rows(NamedTuple):
    """Rows of a range as parallel lists, in key order (descending for a read in reverse)."""

    keys: list[bytes]
    values: list[bytes]


if core is not None:
    core.use_rows(Rows)
