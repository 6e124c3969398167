"""Calls whose deadline comes while their replies are under way end as late, on each transport."""

from typing import Any

import pytest
from grpc import StatusCode, aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import ServerConfig

from tests.server.serving import connect, serving


@pytest.mark.parametrize("transport", ["auto", "grpcio"])
async def test_a_call_that_is_late_is_not_one_that_was_cancelled(transport: Any) -> None:
    config = ServerConfig(listen="127.0.0.1:0", transport=transport)
    async with serving(config) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        keys = [b"k|%06d" % number for number in range(5000)]
        await stub.MultiPut(pb.MultiPutRequest(keys=keys, values=[b"v" * 50] * len(keys)))
        ended = set()
        for timeout_s in (0.0005, 0.001, 0.002):
            for _ in range(20):
                try:
                    async for _chunk in stub.Watch(
                        pb.WatchRequest(first=b"k|", last=b"k}", rows=True), timeout=timeout_s
                    ):
                        pass
                except aio.AioRpcError as error:
                    ended.add(error.code())
        assert ended == {StatusCode.DEADLINE_EXCEEDED}
