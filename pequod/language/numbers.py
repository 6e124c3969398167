"""Numbers in slots: ``<x:i64>`` and ``<x:f64>`` have 16 hexadecimal digits that sort as the numbers do.

    -1    7fffffffffffffff        i64: the number above the least one
     0    8000000000000000
    -1.5  4007ffffffffffff        f64: the bits of a double, all inverted below zero, else only the sign
     1.5  bff8000000000000

>>> encode_i64(-1) < encode_i64(0) < encode_i64(7), decode_i64(encode_i64(-1))
(True, -1)
>>> encode_f64(-1.5) < encode_f64(0) < encode_f64(1e300), decode_f64(encode_f64(-1.5))
(True, -1.5)
"""

from __future__ import annotations

import struct
from math import isfinite

_SIGN = 1 << 63
_ALL = (1 << 64) - 1


def encode_i64(number: int) -> str:
    """Return the digits of an integer from -2**63 up to 2**63 - 1, as ``<x:i64>`` has them in keys.

    Raises:
        ValueError: The number is larger or smaller.
    """
    if not -_SIGN <= number < _SIGN:
        raise ValueError(f"{number} does not fit into 64 bits")
    return f"{number + _SIGN:016x}"


def decode_i64(digits: str | bytes) -> int:
    """Return the integer of a slot ``<x:i64>``.

    Raises:
        ValueError: These are not 16 hexadecimal digits.
    """
    return _bits_of(digits) - _SIGN


def encode_f64(number: float) -> str:
    """Return the digits of a number, as ``<x:f64>`` has them in keys.

    Raises:
        ValueError: A double does not hold the number exactly, or it is infinite or no number.
    """
    try:
        double = float(number)
    except OverflowError:
        raise ValueError(f"a double does not hold {number}") from None
    if not isfinite(double) or double != number:
        raise ValueError(f"a double does not hold {number}")
    # The sum makes +0.0 of -0.0: equal numbers have equal digits.
    (bits,) = struct.unpack(">Q", struct.pack(">d", double + 0.0))
    return f"{bits ^ (_ALL if bits & _SIGN else _SIGN):016x}"


def decode_f64(digits: str | bytes) -> float:
    """Return the number of a slot ``<x:f64>``.

    Raises:
        ValueError: These are not 16 hexadecimal digits, or not those of a number.
    """
    bits = _bits_of(digits)
    (double,) = struct.unpack(">d", struct.pack(">Q", bits ^ (_SIGN if bits & _SIGN else _ALL)))
    if not isfinite(double):
        raise ValueError(f"{digits!r} are not the digits of a number")
    return float(double)


def _bits_of(digits: str | bytes) -> int:
    text = digits if isinstance(digits, str) else digits.decode("ascii", "replace")
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"{digits!r} are not 16 hexadecimal digits in lower case")
    return int(text, 16)
