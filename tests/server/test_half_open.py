"""A client that is gone without a word: its connection and its watch are given back."""

import asyncio

from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig

from tests.client.relay import Relay
from tests.soak import heavy


async def test_a_connection_that_gives_no_sign_of_life_is_closed() -> None:
    config = ServerConfig(listen="127.0.0.1:0", drain_s=0.5, keepalive_s=0.5, keepalive_timeout_s=0.5, watch_linger_s=0)
    server = PequodServer(config)
    port = await server.start()
    async with Relay(f"127.0.0.1:{port}") as relay:
        with heavy.connected(relay.target) as channel:
            watch = heavy.call(channel, "Watch", pb.WatchRequest(first=b"k").SerializeToString())
            await asyncio.to_thread(next, watch)
            await asyncio.sleep(2)
            assert server.service.watch_count == 1, "one that answers stays"
            # From now on the client hears of nothing, and so answers nothing.
            relay.passing.clear()
            async with asyncio.timeout(20):
                while server.service.watch_count:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.05)
            watch.cancel()
    await server.stop()
