"""The description of `/v1` that tools read, in OpenAPI 3.1, made of the table of endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pequod_server.gateway.asked import Endpoint, Json, schema
from pequod_server.gateway.endpoints import ENDPOINTS

_ERROR: Final = schema(
    {
        "error": schema(
            {
                "code": {"type": "string", "description": "gRPC's code."},
                "reason": {"type": "string", "description": "The class of the error; docs/api.md lists them."},
                "message": {"type": "string"},
                "facts": {"type": "object", "additionalProperties": {"type": "string"}},
            },
            needed=("code", "reason", "message", "facts"),
        )
    },
    needed=("error",),
)


def description(watch: Mapping[str, tuple[str, Json]]) -> Json:
    """Return the description.

    Args:
        watch: The parameters of a watch.
    """
    paths: dict[str, Json] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    events = {"200": {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}}
    paths["/v1/watch"] = {
        "get": {
            "summary": "Send the rows of a range and then its changes, as Server-Sent Events.",
            "operationId": "get_watch",
            "parameters": _query(watch),
            "responses": events | _failures(),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pequod", "version": "1", "description": "An ordered key-value cache with cache joins."},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # With an access file, a token is needed; without one, everybody may do everything.
        "security": [{}, {"token": []}],
    }


def _operation(endpoint: Endpoint) -> Json:
    path = [
        {
            "name": "key",
            "in": "path",
            "required": True,
            "description": "Any bytes, percent-encoded.",
            "schema": {"type": "string", "minLength": 1},
        }
    ]
    operation: Json = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method} {endpoint.path}".lower()
        .replace("/v1/", "")
        .replace("/{key}", " one")
        .replace(" ", "_"),
        "parameters": [*(path if "{key}" in endpoint.path else []), *_query(endpoint.query)],
        "responses": {
            "200": _response("Done."),
            **{str(status): _response(text) for status, text in endpoint.statuses.items()},
            **{status: one for status, one in _failures().items() if int(status) not in endpoint.statuses},
        },
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": endpoint.body}}
        operation["requestBody"] = {"required": not endpoint.has_optional_body, "content": content}
    return operation


def _query(parameters: Mapping[str, tuple[str, Json]]) -> list[Json]:
    return [
        {"name": name, "in": "query", "required": False, "description": text, "schema": kind}
        for name, (text, kind) in parameters.items()
    ]


def _response(text: str) -> Json:
    return {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}


def _failures() -> Json:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    texts = {
        400: "The request is not right.",
        401: "The caller is not known.",
        403: "The caller's role lacks a right.",
        404: "There is no such thing.",
        409: "It does not go with the present state.",
        413: "The body is too long.",
        415: "The body is no JSON.",
        429: "A limit is reached; `facts.setting` names it.",
        503: "The server stops, or its database does not answer.",
    }
    return {str(status): {"description": text, "content": content} for status, text in texts.items()}
