"""The endpoints of `/v1`, each with what it takes, so that routing, checking and the OpenAPI page go by one table."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote_from_bytes

from pequod_proto import pequod_pb2 as pb

from pequod.errors import BadRequestError
from pequod.interface.transaction_forms import FormError, form_of, parts_of
from pequod.interface.transaction_parts import transaction_of_parts
from pequod.json_bytes import json_bytes
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, IfValue, coded
from pequod.language.deadlines import TTL_MS_MAX
from pequod.transaction_messages import transacted_of, transaction_request
from pequod_server.gateway import inspection
from pequod_server.gateway.asked import (
    BYTES,
    COUNT,
    FLAG,
    FRESHNESS,
    RANGE,
    TEXT,
    Asked,
    Endpoint,
    Json,
    JsonAnswer,
    MakeCall,
    schema,
)
from pequod_server.gateway.forms import Form, flag_of, number_of

#: The rows of a page, if its request does not say how many.
PAGE_ROWS: Final = 100

_TTL: Final[Json] = {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": TTL_MS_MAX / 1000}
_CONDITION: Final[Json] = {
    "description": "What must be: the key absent or present, or with this value.",
    "oneOf": [
        {"type": "string", "enum": ["absent", "present"]},
        {"type": "object", "properties": {"value": BYTES}, "required": ["value"], "additionalProperties": False},
    ],
}
_LIST: Final[Json] = {"type": "array", "items": {"type": "object"}}


async def _get(asked: Asked, call: MakeCall) -> JsonAnswer:
    reply = await call("Get", pb.GetRequest(key=asked.key, freshness=asked.level()))
    value = reply.value if reply.HasField("value") else None
    members: Json = {"key": json_bytes(asked.key), "value": None if value is None else json_bytes(value)}
    return JsonAnswer(members, 404 if value is None else 200, reply.header.token)


async def _put(asked: Asked, call: MakeCall) -> JsonAnswer:
    form = Form.of_body(asked.body)
    value, ttl_ms, keep_ttl = form.data("value"), form.ttl_ms("ttl_s"), form.flag("keep_ttl")
    condition = _condition(form)
    form.end()
    if ttl_ms and keep_ttl:
        raise BadRequestError("ttl_s and keep_ttl contradict each other; give one of them")
    if condition is None:
        request = pb.PutRequest(key=asked.key, value=value, ttl_ms=ttl_ms, keep_ttl=keep_ttl)
        return JsonAnswer({"met": True}, 200, (await call("Put", request)).header.token)
    number, expected = condition
    return await _write_if(
        pb.WriteIfRequest(
            key=asked.key, value=value, condition=number, expected=expected, ttl_ms=ttl_ms, keep_ttl=keep_ttl
        ),
        call,
    )


async def _remove(asked: Asked, call: MakeCall) -> JsonAnswer:
    form = Form.of_body(asked.body or b"{}")
    condition = _condition(form)
    form.end()
    if condition is None:
        reply = await call("Remove", pb.RemoveRequest(key=asked.key))
        return JsonAnswer({"removed": reply.removed}, 200, reply.header.token)
    number, expected = condition
    return await _write_if(pb.WriteIfRequest(key=asked.key, condition=number, expected=expected), call)


async def _write_if(request: pb.WriteIfRequest, call: MakeCall) -> JsonAnswer:
    reply = await call("WriteIf", request)
    if reply.met:
        return JsonAnswer({"met": True}, 200, reply.header.token)
    present = json_bytes(reply.present) if reply.HasField("present") else None
    return JsonAnswer({"met": False, "present": present}, 412, reply.header.token)


def _condition(form: Form) -> tuple[int, bytes] | None:
    """Return the condition in the member `if`, as messages have it."""
    if not form.has("if"):
        return None
    # A null is a condition that a program has lost: the write would be done whatever is there.
    match form.take("if"):
        case "absent":
            return coded(IF_ABSENT)
        case "present":
            return coded(IF_PRESENT)
        case dict() as members:
            wanted = Form(members, "if")
            value = wanted.data("value")
            wanted.end()
            return coded(IfValue(value))
        case _:
            raise BadRequestError('if must be "absent", "present" or {"value": ...}')


async def _add(asked: Asked, call: MakeCall) -> JsonAnswer:
    form = Form.of_body(asked.body)
    delta = form.take("delta")
    form.end()
    if isinstance(delta, bool) or not isinstance(delta, (int, str)):
        raise BadRequestError('delta must be an integer, or a decimal as text, such as "0.5"')
    reply = await call("Add", pb.AddRequest(key=asked.key, delta=str(delta).encode("utf-8", "replace")))
    return JsonAnswer({"value": json_bytes(reply.value)}, 200, reply.header.token)


async def _expire(asked: Asked, call: MakeCall) -> JsonAnswer:
    form = Form.of_body(asked.body)
    form.need("ttl_s")
    ttl_ms = form.ttl_ms("ttl_s")
    form.end()
    reply = await call("Expire", pb.ExpireRequest(key=asked.key, ttl_ms=ttl_ms))
    return JsonAnswer({"was_there": reply.was_there}, 200 if reply.was_there else 404, reply.header.token)


async def _ttl(asked: Asked, call: MakeCall) -> JsonAnswer:
    reply = await call("Ttl", pb.TtlRequest(key=asked.key, freshness=asked.level()))
    if not reply.HasField("remaining_ms"):
        return JsonAnswer({"key": json_bytes(asked.key), "ttl_s": None}, 404, reply.header.token)
    forever = reply.remaining_ms == (1 << 64) - 1
    ttl_s = None if forever else reply.remaining_ms / 1000
    return JsonAnswer({"key": json_bytes(asked.key), "ttl_s": ttl_s}, 200, reply.header.token)


async def _scan(asked: Asked, call: MakeCall) -> JsonAnswer:
    query = asked.query
    limit = number_of("limit", query["limit"]) if "limit" in query else PAGE_ROWS
    flags: Json = {name: flag_of(name, query[name]) for name in ("reverse", "keys_only") if name in query}
    request = pb.ScanRequest(**asked.range(), **flags, limit=limit, one_chunk=True, freshness=asked.level())
    reply = await call("Scan", request)
    if reply is None:
        return JsonAnswer({"rows": [], "next": None})
    if request.keys_only:
        members: Json = {"keys": [json_bytes(key) for key in reply.keys]}
    else:
        pairs = zip(reply.keys, reply.values, strict=True)
        members = {"rows": [[json_bytes(key), json_bytes(value)] for key, value in pairs]}
    members["next"] = _next_page(asked, reply.resume_key) if reply.HasField("resume_key") else None
    return JsonAnswer(members, 200, reply.header.token)


def _next_page(asked: Asked, resume_key: bytes) -> str:
    end = "last" if asked.query.get("reverse") == b"true" else "first"
    query = dict(asked.query) | {end: resume_key}
    return "/v1/scan?" + "&".join(f"{name}={quote_from_bytes(value, safe='')}" for name, value in query.items())


async def _count(asked: Asked, call: MakeCall) -> JsonAnswer:
    reply = await call("Count", pb.CountRequest(**asked.range(), freshness=asked.level()))
    return JsonAnswer({"count": reply.count}, 200, reply.header.token)


async def _remove_range(asked: Asked, call: MakeCall) -> JsonAnswer:
    if not asked.range():
        raise BadRequestError("say which keys to remove: prefix, or first and last")
    reply = await call("RemoveRange", pb.RemoveRangeRequest(**asked.range()))
    return JsonAnswer({"removed": reply.removed}, 200, reply.header.token)


async def _transact(asked: Asked, call: MakeCall) -> JsonAnswer:
    try:
        transaction = transaction_of_parts(*parts_of(asked.body))
    except FormError as error:
        raise BadRequestError(f"the body: {error}") from None
    reply = await call("Transaction", transaction_request(transaction))
    return JsonAnswer(form_of(transacted_of(transaction, reply)), 200, reply.header.token)


_KEY: Final = "/v1/keys/{key}"
_ABSENT_STATUS: Final = {404: "There is no such key."}
_UNMET_STATUS: Final = {412: "The condition does not hold; `present` is the present value, null if there is none."}

ENDPOINTS: Final = (
    Endpoint("GET", _KEY, "Read one value; a computed key is computed if need be.", _get, FRESHNESS,
             statuses=_ABSENT_STATUS),
    Endpoint("PUT", _KEY, "Write one key, under a condition or with a time to live if wanted.", _put,
             body=schema({"value": BYTES, "if": _CONDITION, "ttl_s": _TTL, "keep_ttl": FLAG}, needed=("value",)),
             statuses=_UNMET_STATUS),
    Endpoint("DELETE", _KEY, "Remove one key, under a condition if wanted.", _remove,
             body=schema({"if": _CONDITION}), has_optional_body=True, statuses=_UNMET_STATUS),
    Endpoint("POST", "/v1/add/{key}", "Add to a number, exactly, and return the sum.", _add,
             body=schema({"delta": {"type": ["integer", "string"]}}, needed=("delta",))),
    Endpoint("GET", "/v1/ttl/{key}", "Tell when a key expires; null: never.", _ttl, FRESHNESS, statuses=_ABSENT_STATUS),
    Endpoint("PUT", "/v1/ttl/{key}", "Have a key expire; null: never.", _expire,
             body=schema({"ttl_s": _TTL}, needed=("ttl_s",)), statuses=_ABSENT_STATUS),
    Endpoint("GET", "/v1/scan", "Read rows in the order of their keys; `next` is the page behind them.", _scan,
             {**RANGE, "limit": (f"The most rows of a page; by default {PAGE_ROWS}.", COUNT),
              "reverse": ("From the last key down.", FLAG), "keys_only": ("Leave values out.", FLAG), **FRESHNESS}),
    Endpoint("GET", "/v1/count", "Count the keys of a range.", _count, {**RANGE, **FRESHNESS}),
    Endpoint("DELETE", "/v1/range", "Remove the keys of a range.", _remove_range, RANGE),
    Endpoint("POST", "/v1/transaction", "Compare keys, then run one of two lists of commands, all or none.", _transact,
             body=schema(dict.fromkeys(("compares", "then", "otherwise"), _LIST))),
    Endpoint("GET", "/v1/joins", "List the joins.", inspection.joins),
    Endpoint("POST", "/v1/joins", "Add joins.", inspection.add_joins, body=schema({"text": TEXT}, needed=("text",))),
    Endpoint("POST", "/v1/joins/check", "Tell what a text of joins would add, or its error; nothing changes.",
             inspection.check_joins, body=schema({"text": TEXT}, needed=("text",))),
    Endpoint("DELETE", "/v1/joins/{key}", "Drop a join by its name.", inspection.drop_join),
    Endpoint("GET", "/v1/explain", "Tell how a join is evaluated, or what a read of a range would do.",
             inspection.explain, {"join": ("The name of the join.", TEXT), **RANGE}),
    Endpoint("GET", "/v1/statistics", "Tell what the server holds and has done.", inspection.statistics),
    Endpoint("GET", "/v1/slow", "Tell of the latest slow calls, the latest first.", inspection.slow_calls),
    Endpoint("GET", "/v1/cluster", "Tell the map of the cluster and its servers; `map` is null without one.",
             inspection.cluster),
    Endpoint("GET", "/v1/views", "Tell of the durable views and lakes that the settings name: stages, ages.",
             inspection.views_and_lakes),
)  # fmt: skip
