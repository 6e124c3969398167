"""Requests of endpoints, taken apart, and the rows of the table of endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pequod_proto import pequod_pb2 as pb

from pequod.errors import BadRequestError
from pequod.freshness import Token
from pequod_server.gateway.forms import flag_of, number_of, query_of

Json: TypeAlias = "dict[str, Any]"
#: Makes a call of the service, by its name, with its request, and returns its reply.
MakeCall: TypeAlias = "Callable[[str, Any], Awaitable[Any]]"

_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
BYTES: Final[Json] = {
    "description": "Text if the bytes are UTF-8, otherwise an object with their base64.",
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"base64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}},
            "required": ["base64"],
            "additionalProperties": False,
        },
    ],
}
FLAG: Final[Json] = {"type": "boolean", "default": False}
COUNT: Final[Json] = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
TEXT: Final[Json] = {"type": "string"}
RANGE: Final[Mapping[str, tuple[str, Json]]] = {
    "prefix": ("Only keys that start with this.", TEXT),
    "first": ("The first key; by default the first of all.", TEXT),
    "last": ("The end, which the range is without; by default the end of all.", TEXT),
}
FRESHNESS: Final[Mapping[str, tuple[str, Json]]] = {
    "after": ("At least the state that this token names.", TEXT),
    "latest": ("At least everything that was committed before.", FLAG),
    "max_age_ms": ("No older than this.", COUNT),
}


def schema(properties: Json, *, needed: tuple[str, ...] = ()) -> Json:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties, "required": list(needed), "additionalProperties": False}


@dataclass(frozen=True)
class JsonAnswer:
    """The reply of an endpoint."""

    members: Json
    status: int = 200
    #: The token of the state that has answered.
    token: bytes = b""


@dataclass(frozen=True)
class Asked:
    """A request, taken apart."""

    #: The key in the path; empty: the endpoint has none.
    key: bytes
    query: Mapping[str, bytes]
    body: bytes

    def level(self) -> pb.Freshness | None:
        """Return how fresh the answer has to be."""
        query = self.query
        given = [name for name in FRESHNESS if name in query]
        if len(given) > 1:
            raise BadRequestError(f"{' and '.join(given)} say how fresh the answer has to be; give one of them")
        if "after" in query:
            return pb.Freshness(after=bytes(Token.parse(query["after"].decode("ascii", "replace"))))
        if "max_age_ms" in query:
            age_ms = number_of("max_age_ms", query["max_age_ms"])
            return pb.Freshness(max_age_ms=min(age_ms, (1 << 32) - 1))
        return pb.Freshness(latest=True) if "latest" in query and flag_of("latest", query["latest"]) else None

    def range(self) -> Json:
        """Return the members of a message that names a range."""
        return {name: self.query[name] for name in RANGE if name in self.query}


def parameters_of(place: str, raw_query: str, known: Mapping[str, object]) -> Mapping[str, bytes]:
    """Return the parameters of a query.

    Raises:
        BadRequestError: One of them is not known at this place, or occurs twice.
    """
    query = query_of(raw_query)
    for name in query:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise BadRequestError(f"{place} has no parameter {name!r}; {takes}")
    return query


#: Answers a request.
Respond: TypeAlias = "Callable[[Asked, MakeCall], Awaitable[JsonAnswer]]"


@dataclass(frozen=True)
class Endpoint:
    """One row of the table."""

    method: str
    path: str
    summary: str
    respond: Respond
    #: By name: what a parameter of the query says, and its schema.
    query: Mapping[str, tuple[str, Json]] = field(default_factory=dict)
    body: Json | None = None
    #: Whether the body may be missing.
    has_optional_body: bool = False
    #: Statuses beside 200 that are no errors of the request.
    statuses: Mapping[int, str] = field(default_factory=dict)

    def asked(self, key: bytes, raw_query: str, body: bytes) -> Asked:
        """Return a request, taken apart.

        Raises:
            BadRequestError: It has a parameter or a body that the endpoint does not take.
        """
        query = parameters_of(f"{self.method} {self.path}", raw_query, self.query)
        if body and self.body is None:
            raise BadRequestError(f"{self.method} {self.path} takes no body")
        return Asked(key, query, body)
