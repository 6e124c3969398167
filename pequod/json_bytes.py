r"""Keys and values, which are bytes, in JSON: a string if they are UTF-8, else an object with one member.

>>> json_bytes(b"caf\xc3\xa9"), json_bytes(b"\xff\x00")
('café', {'base64': '/wA='})
"""

from __future__ import annotations

from base64 import b64decode, b64encode


def json_bytes(data: bytes) -> str | dict[str, str]:
    """Return bytes as a value for JSON: text if they are UTF-8, otherwise ``{"base64": ...}``."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def bytes_of_json(value: object) -> bytes:
    """Return the bytes that `json_bytes` wrote as ``value``.

    Raises:
        ValueError: It is neither text nor ``{"base64": ...}``.
    """
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError('it holds half of a surrogate pair, which is no text; use {"base64": ...}') from None
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except ValueError as error:
            raise ValueError(f"it is no base64: {error}") from None
    raise ValueError('it must be text in quotes or {"base64": ...}')
