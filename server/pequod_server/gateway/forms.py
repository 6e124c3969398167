"""From what an HTTP request says to values, and from messages to JSON; what is not right is said with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pequod.errors import BadRequestError
from pequod.json_bytes import DoubledMemberError, bytes_of_json, json_bytes, read_json
from pequod.language.deadlines import to_ttl_ms

#: A percent sign that begins no byte.
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")


def decoded(place: str, raw: str) -> bytes:
    """Return the bytes that a part of a URL says.

    Args:
        place: Where the part stands, for the message.

    Raises:
        BadRequestError: Its percent-encoding is none.
    """
    if bad := _BAD_PERCENT.search(raw):
        raise BadRequestError(f"{place} has {bad[0]!r}, which encodes no byte; a percent sign itself is %25")
    return unquote_to_bytes(raw)


def query_of(raw: str) -> dict[str, bytes]:
    """Return the parameters of a query; percent-encoding may say any bytes.

    Raises:
        BadRequestError: One occurs twice, or is not encoded as parameters are.
    """
    found: dict[str, bytes] = {}
    for part in filter(None, raw.split("&")):
        name, _, value = part.partition("=")
        parameter = decoded("the name of a parameter", name).decode("utf-8", "replace")
        if parameter in found:
            raise BadRequestError(f"the parameter {parameter!r} occurs twice")
        found[parameter] = decoded(f"the parameter {parameter!r}", value.replace("+", " "))
    return found


def number_of(name: str, value: bytes) -> int:
    """Return a number of a query: 0 or more.

    Raises:
        BadRequestError: It is none.
    """
    if not value.isdigit() or len(value) > 18:
        raise BadRequestError(f"{name} must be a number of at most 18 digits, not {_shown(value)}")
    return int(value)


def flag_of(name: str, value: bytes) -> bool:
    """Return true or false of a query.

    Raises:
        BadRequestError: It is neither.
    """
    if value not in (b"true", b"false"):
        raise BadRequestError(f"{name} must be true or false, not {_shown(value)}")
    return value == b"true"


def _shown(value: bytes) -> str:
    return repr(value[:50].decode("utf-8", "backslashreplace"))


class Form:
    """An object of JSON, of which each member is taken once.

    Args:
        place: Where it stands, for messages; empty for the body itself.
    """

    def __init__(self, members: object, place: str = "") -> None:
        self._place = f"{place}." if place else ""
        if not isinstance(members, dict):
            raise BadRequestError(f"{place or 'the body'} must be an object, {{...}}")
        self._members: dict[str, Any] = dict(members)

    @classmethod
    def of_body(cls, body: bytes) -> Form:
        """Return the form that a body holds.

        Raises:
            BadRequestError: It is no object of JSON, or a member occurs twice.
        """
        try:
            members = read_json(body)
        except DoubledMemberError as error:
            raise BadRequestError(f"{error.name!r} occurs twice in one object") from None
        except ValueError as error:
            raise BadRequestError(f"the body must be JSON; {error}") from None
        return cls(members)

    def take(self, name: str) -> Any:
        """Return a member as it is, None if it is not there."""
        return self._members.pop(name, None)

    def has(self, name: str) -> bool:
        """Return whether there is a member of this name, which has not been taken."""
        return name in self._members

    def need(self, name: str) -> None:
        """Pass if there is a member of this name.

        Raises:
            BadRequestError: There is none.
        """
        if name not in self._members:
            raise BadRequestError(f"{self._place}{name} is missing")

    def data(self, name: str) -> bytes:
        """Return the bytes of a member that must be there.

        Raises:
            BadRequestError: It is not there, or is neither text nor ``{"base64": ...}``.
        """
        self.need(name)
        try:
            return bytes_of_json(self._members.pop(name))
        except ValueError as error:
            raise BadRequestError(f"{self._place}{name}: {error}") from None

    def flag(self, name: str) -> bool:
        """Return true or false; false if there is no such member.

        Raises:
            BadRequestError: It is neither.
        """
        value = self._members.pop(name, False)
        if not isinstance(value, bool):
            raise BadRequestError(f"{self._place}{name} must be true or false")
        return value

    def ttl_ms(self, name: str) -> int:
        """Return a time to live in milliseconds; 0 if there is none.

        Raises:
            BadRequestError: It is no number.
            InvalidTtlError: It is not above 0, or longer than a hundred years.
        """
        value = self.take(name)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadRequestError(f"{self._place}{name} must be a number of seconds, or null")
        return to_ttl_ms(value)

    def end(self) -> None:
        """Pass if each member has been taken.

        Raises:
            BadRequestError: One is left that nothing asks for.
        """
        if self._members:
            raise BadRequestError(f"{self._place}{next(iter(self._members))} is no member of this request")


def json_of(message: Message) -> dict[str, object]:
    """Return a message as JSON has it: bytes as `json_bytes` writes them, what is not set left out, but for numbers."""
    return dict(_members(message))


def _members(message: Message) -> Iterator[tuple[str, object]]:
    for field in message.DESCRIPTOR.fields:
        if field.name == "header" or (field.has_presence and not message.HasField(field.name)):
            continue
        value = getattr(message, field.name)
        if isinstance(value, Mapping):
            yield field.name, dict(value)
        elif field.is_repeated:
            yield field.name, [_value(field, one) for one in value]
        else:
            yield field.name, _value(field, value)


def _value(field: Any, value: Any) -> object:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return json_of(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values_by_number[value].name
    return json_bytes(value) if isinstance(value, bytes) else value
