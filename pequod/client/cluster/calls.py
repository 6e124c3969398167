"""Calls that have one reply: each goes to the server of its keys, or to one that calls about servers go to.

MultiGet          divided by the owners of its keys         Invalidate       every compute
MultiPut, ...     one home group, all or none                 AddJoin ...      one server, then the map is learned anew
RemoveRange       a home of each part of the range          Stats ...        one server
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from pequod_proto import pequod_pb2 as pb

from pequod.calls import token_of_reply
from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Nodes, Routed, Routes
from pequod.client.retry import is_harmless_twice, pause_s
from pequod.errors import (
    BackingStaleError,
    BackingUnavailableError,
    DeadlineExceededError,
    MixedWriteError,
    NotHomeError,
    PequodError,
    SettingError,
    UnavailableError,
)
from pequod.transaction_messages import transaction_of

#: Calls that change the joins of the cluster, and the one that tells that they are changed.
_JOINS: Final = frozenset({"AddJoin", "DropJoin", "ReplaceJoin", "ListReplacements"})


class Asking(Routed, Protocol):
    """A cluster that asks servers for their map."""

    def learn_newer(self, version: int) -> None:
        """See that a map of at least this version is known soon."""

    async def learn_from(self, node: Node) -> None:
        """Learn the map that a server goes by now."""


class Calling:
    """Makes calls that have one reply.

    Args:
        server: The id of the server that calls about a server go to; empty: the first that answers.
    """

    def __init__(self, cluster: Asking, server: str) -> None:
        self._cluster = cluster
        self._server = server

    @property
    def _routes(self) -> Routes:
        routes = self._cluster.routes
        assert routes is not None, "calls wait for the map"
        return routes

    async def call(self, name: str, request: Any, text: str | None, deadline: float) -> Any:
        """Make a call, and return its reply."""
        match request:
            case pb.MultiGetRequest():
                return await self._multi_get(request, deadline)
            case pb.MultiPutRequest():
                return await self._multi_put(request, deadline)
            case pb.TransactionRequest():
                return await self._transaction(request, deadline)
            case pb.RemoveRangeRequest():
                return await self._remove_range(request, deadline)
            case pb.InvalidateRequest():
                return await self._invalidate(request, deadline)
            case pb.SplitsRequest():
                return await self._at(lambda: self._routes.readers(request.first), name, request, deadline)
            case pb.ExplainRequest() if request.HasField("range"):
                return await self._at(lambda: self._routes.readers(request.range.first), name, request, deadline)
            case _:
                return await self._at(self._any, name, request, deadline, text)

    def _any(self) -> Nodes:
        """Return the servers for calls about a server."""
        nodes = self._routes.nodes
        if self._server:
            if self._server not in nodes:
                raise SettingError("target", f"no server of the cluster has the id {self._server!r}")
            return (nodes[self._server],)
        computes = [nodes[server.id] for server in self._routes.owners.computes]
        return (*computes, *(node for node in nodes.values() if node not in computes))

    async def _at(
        self,
        candidates: Callable[[], Nodes],
        name: str,
        request: Any,
        deadline: float,
        text: str | None = None,
    ) -> Any:
        """Make a call at the first of some nodes that answers."""
        clock = asyncio.get_running_loop().time
        pauses = 0
        # The refusal of a server that cannot load what a read needs: others may have it.
        lacking: PequodError | None = None
        while True:
            nodes = candidates()
            error: PequodError = UnavailableError(self._cluster.target, "no server has the role", is_unapplied=True)
            for node in in_turn(nodes):
                try:
                    return await self._once(node, name, request, deadline, text)
                except UnavailableError as failed:
                    error = failed
                    if not (failed.is_unapplied or is_harmless_twice(name, request)):
                        raise
                except (BackingUnavailableError, BackingStaleError) as refused:
                    if name != "MultiGet" or request.freshness.latest:
                        raise
                    lacking = lacking or refused
                except DeadlineExceededError as late:
                    raise (lacking or late) from None
                except NotHomeError as refused:
                    error = refused
                    self._cluster.learn_newer(refused.map_version)
                    break
            if lacking is not None:
                raise lacking
            pauses += 1
            wait_s = pause_s(pauses)
            if pauses > self._cluster.retries or clock() + wait_s >= deadline:
                raise error
            await asyncio.sleep(wait_s)

    async def _once(self, node: Node, name: str, request: Any, deadline: float, text: str | None) -> Any:
        """Make a call at a node; leave it if it gives no sign of life, and the call may be repeated."""
        clock = asyncio.get_running_loop().time
        is_harmless = is_harmless_twice(name, request)
        if not is_harmless:
            # Until there is a connection, nothing is sent that may have been applied.
            try:
                async with asyncio.timeout_at(deadline):
                    await leaving(node, node.connection.connected())
            except UnavailableError as error:
                raise UnavailableError(error.target, error.reason, is_unapplied=True) from None
            except TimeoutError:
                raise DeadlineExceededError(self._cluster.target, self._cluster.timeout_s) from None
        timeout_s = deadline - clock()
        if timeout_s <= 0:
            raise DeadlineExceededError(self._cluster.target, self._cluster.timeout_s)
        calling = node.connection.unary(name, request, text, timeout_s=timeout_s)
        reply = await (leaving if is_harmless else counted)(node, calling)
        if name in _JOINS:
            # Reads that follow go to servers that go by the map with this join.
            await self._cluster.learn_from(node)
        return reply

    async def _multi_get(self, request: pb.MultiGetRequest, deadline: float) -> pb.MultiGetReply:
        """Get the values of many keys, each from the owner of its group."""
        routes, keys = self._routes, request.keys
        places: dict[Node | None, list[int]] = {}
        for at, key in enumerate(keys):
            places.setdefault(routes.reader(key), []).append(at)
        if len(places) == 1:
            return await self._get(request, keys[0], deadline)
        values: list[bytes] = [b""] * len(keys)
        present = [False] * len(keys)

        async def get(positions: list[int]) -> list[pb.Header]:
            headers, done = [], 0
            while done < len(positions):
                part = pb.MultiGetRequest(keys=[keys[at] for at in positions[done:]])
                if request.HasField("freshness"):
                    part.freshness.CopyFrom(request.freshness)
                reply = await self._get(part, keys[positions[done]], deadline)
                for at, value, there in zip(positions[done:], reply.values, reply.present, strict=False):
                    values[at], present[at] = value, there
                done += len(reply.values)
                headers.append(reply.header)
            return headers

        headers = [header for found in await together([get(some) for some in places.values()]) for header in found]
        return pb.MultiGetReply(header=merged(headers), values=values, present=present)

    async def _get(self, request: pb.MultiGetRequest, key: bytes, deadline: float) -> pb.MultiGetReply:
        reply: pb.MultiGetReply = await self._at(lambda: self._routes.readers(key), "MultiGet", request, deadline)
        return reply

    async def _multi_put(self, request: pb.MultiPutRequest, deadline: float) -> Any:
        """Write many keys, all or none: they have one home group."""
        routes = self._routes
        if not request.keys:
            return await self._at(self._any, "MultiPut", request, deadline)
        if len({routes.home_group_of(key) for key in request.keys}) > 1:
            raise MixedWriteError("MultiPut")
        return await self._at(lambda: self._routes.writers(request.keys[0]), "MultiPut", request, deadline)

    async def _transaction(self, request: pb.TransactionRequest, deadline: float) -> Any:
        """Run a transaction, whose keys have one home group, at a compute: a home does not know which are computed."""
        transaction = transaction_of(request)
        keys = transaction.decided_by()
        if len({self._routes.home_group_of(key) for key in keys}) > 1:
            raise MixedWriteError("the transaction")
        first = next(iter((*keys, *(first for first, _ in transaction.ranges_read()))), b"")
        ways = lambda: self._routes.readers(first) or self._routes.writers(first)  # noqa: E731 - the map may change
        return await self._at(ways, "Transaction", request, deadline)

    async def _remove_range(self, request: pb.RemoveRangeRequest, deadline: float) -> Any:
        """Remove the keys of a range at a home of each part of it."""
        first, last = request.first, request.last if request.HasField("last") else None
        removed, headers = 0, []
        for start, stop in self._home_parts(first, last):
            part = pb.RemoveRangeRequest(first=start, last=stop, prefix=request.prefix)
            reply = await self._at(lambda start=start: self._routes.writers(start), "RemoveRange", part, deadline)  # type: ignore[misc]
            removed += reply.removed
            headers.append(reply.header)
        return pb.RemoveRangeReply(header=merged(headers), removed=removed)

    def _home_parts(self, first: bytes, last: bytes | None) -> list[tuple[bytes, bytes | None]]:
        """Return the parts of a range by home group; the range itself where the map has no home ranges."""
        homes = self._routes.state.map.home_ranges
        parts = []
        for home in homes:
            start = max(first, home.first)
            stop = last if home.last is None else home.last if last is None else min(last, home.last)
            if stop is None or start < stop:
                parts.append((start, stop))
        return parts if homes else [(first, last)]

    async def _invalidate(self, request: pb.InvalidateRequest, deadline: float) -> Any:
        """Drop computed rows wherever they may be."""
        nodes = [self._routes.nodes[server.id] for server in self._routes.owners.computes]
        calls = [self._at(lambda node=node: (node,), "Invalidate", request, deadline) for node in nodes]  # type: ignore[misc]
        replies = await together(calls)
        header = merged([reply.header for reply in replies])
        return pb.InvalidateReply(header=header, contexts=sum(reply.contexts for reply in replies))


def in_turn(nodes: Nodes) -> list[Node]:
    """Return nodes in the order in which they are tried: those that are away last, the latest to answer first."""
    return sorted(nodes, key=lambda node: (node.is_away, -node.answered_s if node.is_away else 0.0))


async def together(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    """Return what calls return that run at once; if one fails, end the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def counted(node: Node, call: Awaitable[Any]) -> Any:
    """Await a call at a node, which learns of its end."""
    node.begin()
    error: BaseException | None = None
    try:
        return await call
    except BaseException as failed:
        error = failed
        raise
    finally:
        node.end(error)


async def leaving(node: Node, call: Awaitable[Any]) -> Any:
    """Await a call at a node; end it if the node gives no sign of life and another one does.

    Raises:
        UnavailableError: It gave none.
    """
    calling = asyncio.ensure_future(counted(node, call))
    left = asyncio.ensure_future(node.left.wait())
    try:
        await asyncio.wait((calling, left), return_when=asyncio.FIRST_COMPLETED)
        if calling.done():
            return calling.result()
        raise UnavailableError(node.connection.target, "it gives no sign of life")
    finally:
        left.cancel()
        if not calling.done():
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)


def merged(headers: Sequence[pb.Header]) -> pb.Header:
    """Return the header of a reply that several servers have a part in; it names none of them."""
    if len(headers) == 1:
        return headers[0]
    token = b""
    whole = None
    for header in headers:
        if header.token:
            shown = token_of_reply(header.token)
            whole = shown if whole is None else whole.merged(shown)
    if whole is not None:
        token = bytes(whole)
    ages = [header.age_ms if header.HasField("age_ms") else None for header in headers]
    return pb.Header(token=token, age_ms=None if not ages or None in ages else max(ages))  # type: ignore[type-var]
