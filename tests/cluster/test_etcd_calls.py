"""A node of etcd that cannot answer in its own time is passed by, as one that is away is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio
from pequod_server.cluster.etcd_calls import EtcdCalls

from tests.cluster.conftest import Etcd


@asynccontextmanager
async def leaderless() -> AsyncIterator[str]:
    """A node as etcd's own are while there is no leader: it ends each call with the code UNKNOWN."""

    async def answer(_request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.UNKNOWN, "context deadline exceeded")
        return b""

    server = aio.server()
    handlers: dict[str, Any] = {"Range": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("etcdserverpb.KV", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_node_without_a_leader_is_passed_by(etcd: Etcd) -> None:
    async with leaderless() as node:
        calls = EtcdCalls([node, *etcd.endpoints])
        reply = await calls.read(b"/nothing")
        assert reply.header.revision > 0
        await calls.close()
