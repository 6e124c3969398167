"""Keys as text, for logs and labels: one line, printable, different for different keys."""

from __future__ import annotations

from typing import Final

#: Bytes of a key that stand in a line of the log.
_KEY_BYTES_SHOWN: Final = 64


def shown(name: bytes) -> str:
    r"""Return bytes as text, with escapes for what is not printable ASCII.

    >>> print(shown(b"p|ann|\xff\n"))
    p|ann|\xff\n
    """
    return repr(name)[2:-1]


def shortened(key: bytes) -> str:
    """Return the text of a key, cut where it grows long.

    >>> shortened(b"k" * 70)[-12:]
    'kkkkkk… (70)'
    """
    if len(key) <= _KEY_BYTES_SHOWN:
        return shown(key)
    return f"{shown(key[:_KEY_BYTES_SHOWN])}… ({len(key)})"
