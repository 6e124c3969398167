"""The endpoints about joins, statistics and the cluster."""

from __future__ import annotations

from typing import Any

from pequod_proto import pequod_pb2 as pb

from pequod.cluster.messages import state_of
from pequod.cluster.owners import Owners
from pequod.errors import BadRequestError, NoClusterError
from pequod.language.ranges import within
from pequod_server.gateway.asked import Asked, JsonAnswer, MakeCall
from pequod_server.gateway.forms import Form, json_of
from pequod_server.gateway.local_calls import RefusedCallError


async def joins(_asked: Asked, call: MakeCall) -> JsonAnswer:
    """List the joins."""
    return JsonAnswer(json_of(await call("ListJoins", pb.ListJoinsRequest())))


async def add_joins(asked: Asked, call: MakeCall) -> JsonAnswer:
    """Add joins."""
    return JsonAnswer(json_of(await call("AddJoin", pb.AddJoinRequest(text=_text_of(asked)))))


async def check_joins(asked: Asked, call: MakeCall) -> JsonAnswer:
    """Tell what a text of joins would add, or what is wrong with it."""
    return JsonAnswer(json_of(await call("CheckJoin", pb.CheckJoinRequest(text=_text_of(asked)))))


def _text_of(asked: Asked) -> str:
    form = Form.of_body(asked.body)
    text = form.data("text")
    form.end()
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise BadRequestError("text: joins are text") from None


async def drop_join(asked: Asked, call: MakeCall) -> JsonAnswer:
    """Drop a join by its name."""
    try:
        request = pb.DropJoinRequest(name=asked.key.decode())
    except UnicodeDecodeError:
        raise BadRequestError("the name of a join is text") from None
    await call("DropJoin", request)
    return JsonAnswer({})


async def explain(asked: Asked, call: MakeCall) -> JsonAnswer:
    """Tell how a join is evaluated, or what a read of a range would do."""
    query = asked.range()
    name = asked.query.get("join")
    if (name is not None) == bool(query):
        raise BadRequestError("say which join to explain, or which range: prefix, or first and last")
    if name is not None:
        return JsonAnswer(json_of(await call("Explain", pb.ExplainRequest(join=name.decode("utf-8", "replace")))))
    first, last = within(query.get("prefix", b""), query.get("first", b""), query.get("last"))
    return JsonAnswer(json_of(await call("Explain", pb.ExplainRequest(range=pb.Range(first=first, last=last)))))


async def statistics(_asked: Asked, call: MakeCall) -> JsonAnswer:
    """Tell what the server holds and has done, and of each hot group the servers that it is read at."""
    reply = await call("Stats", pb.StatsRequest())
    told: dict[str, Any] = json_of(reply)
    if not reply.heat.groups:
        return JsonAnswer(told)
    owners = await _owners(call)
    for group, one in zip(reply.heat.groups, told["heat"]["groups"], strict=True):
        one["read_at"] = [] if owners is None else list(owners.places_of(group.group))
    return JsonAnswer(told)


async def _owners(call: MakeCall) -> Owners | None:
    """Return who computes what in the cluster of the server; None: it belongs to none that the caller may see."""
    try:
        return Owners(state_of(await call("FollowCluster", pb.FollowClusterRequest(once=True))))
    except RefusedCallError:
        return None


async def slow_calls(_asked: Asked, call: MakeCall) -> JsonAnswer:
    """Tell of the latest slow calls."""
    return JsonAnswer(json_of(await call("SlowCalls", pb.SlowCallsRequest())))


async def cluster(_asked: Asked, call: MakeCall) -> JsonAnswer:
    """Tell the map of the cluster and its servers; without a map if the server belongs to none."""
    try:
        return JsonAnswer(json_of(await call("FollowCluster", pb.FollowClusterRequest(once=True))))
    except RefusedCallError as error:
        if error.reason != NoClusterError.__name__:
            raise
        return JsonAnswer({"map": None, "servers": []})


async def views_and_lakes(_asked: Asked, call: MakeCall) -> JsonAnswer:
    """Tell of durable views and lakes; their call has a name of its own here alone, and no message."""
    return JsonAnswer(await call("ViewsAndLakes", pb.StatsRequest()))
