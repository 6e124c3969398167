"""A server that replies to a batch with what fits another one: the caller hears of it."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto.pequod_pb2 import ExecuteReply

from pequod import AsyncClient
from pequod.errors import UnavailableError


async def _reply_to_two(_requests: object, context: "aio.ServicerContext[bytes, bytes]") -> None:
    await context.read()
    await context.write(ExecuteReply(batch=1, statuses=b"\0\0", values=[b"1", b"2"]).SerializeToString())
    await context.read()


async def _reply_to_another(_requests: object, context: "aio.ServicerContext[bytes, bytes]") -> None:
    await context.read()
    await context.write(ExecuteReply(batch=2, statuses=b"\0", values=[b"1"]).SerializeToString())
    await context.read()


@pytest.mark.parametrize(
    ("reply", "reason"), [(_reply_to_two, "lost track"), (_reply_to_another, "it replied to batch 2")]
)
async def test_a_reply_that_does_not_fit_its_batch_is_an_error(
    reply: Callable[[Any, Any], Awaitable[None]], reason: str
) -> None:
    server = aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"Execute": grpc.stream_stream_rpc_method_handler(reply)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pequod.v1.Pequod", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}", timeout_s=5, retries=0) as client:
            with pytest.raises(UnavailableError, match=reason):
                await client.get("a")
    finally:
        await server.stop(None)
