"""Checks that the values of a map share; each fault says its place and how to correct it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pequod.errors import ClusterMapError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@lru_cache(maxsize=256)
def is_name(name: str) -> bool:
    """Return whether a text is the name of a cluster, a server, or a home group."""
    return _NAME.fullmatch(name) is not None


def check_name(place: str, name: str) -> None:
    """Check the name of a cluster, a server, or a home group: they are parts of paths, and of text for people.

    Raises:
        ClusterMapError: It is no name.
    """
    if not is_name(name):
        raise ClusterMapError(
            place,
            f"{name!r} is no name; a name has 1 to 63 letters, digits, dots, dashes and underscores, and starts with "
            "a letter or a digit",
        )
