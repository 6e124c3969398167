"""The TypeScript client when connections break and servers stop; TLS; calls that share messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pequod_server import PequodServer, ServerConfig

from tests.client.conftest import ServerProcess
from tests.client.relay import Relay
from tests.cluster.waiting import eventually
from tests.server.certificates import Authority
from tests.typescript.node import TypeScriptClient, TypeScriptError


@pytest.fixture
async def server() -> AsyncIterator[PequodServer]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    server.port = await server.start()  # type: ignore[attr-defined]
    yield server
    await server.stop()


@pytest.fixture
async def relay(server: PequodServer) -> AsyncIterator[Relay]:
    async with Relay(f"127.0.0.1:{server.port}") as relay:  # type: ignore[attr-defined]
        yield relay


@pytest.mark.parametrize(
    ("method", "args", "result"),
    [
        ("add", ("n", 1), "1"),
        ("putIf", ("n", "1", {"is": "absent"}), {"met": True}),
        ("batch", (("add", "n", 1), ("get", "n")), ["1", "1"]),
    ],
)
async def test_a_write_with_an_id_whose_reply_is_lost_is_sent_again_and_done_once(
    server: PequodServer, relay: Relay, method: str, args: tuple[object, ...], result: object
) -> None:
    async with TypeScriptClient(relay.target, timeoutMs=60_000) as client:
        assert await client.call("count") == 0
        relay.passing.clear()
        call = client.begin(method, *args)
        await eventually(lambda: server.engine.get(b"n"))
        relay.cut()
        relay.passing.set()
        assert await client.end(call) == result
    assert server.engine.get(b"n") == b"1"
    assert server.service.served.executor.ids.figures.repeated == 1


async def test_a_put_whose_reply_is_lost_is_not_sent_again(server: PequodServer, relay: Relay) -> None:
    async with TypeScriptClient(relay.target, timeoutMs=60_000) as client:
        assert await client.call("count") == 0
        relay.passing.clear()
        call = client.begin("put", "n", "1")
        await eventually(lambda: server.engine.get(b"n"))
        relay.cut()
        relay.passing.set()
        with pytest.raises(TypeScriptError) as caught:
            await client.end(call)
        assert caught.value.reason == "UnavailableError"
        assert await client.call("get", "n") == "1"


async def test_a_watch_goes_on_over_a_broken_connection_and_misses_nothing(relay: Relay) -> None:
    async with TypeScriptClient(relay.target, timeoutMs=60_000) as client:
        await client.call("put", "a|1", "x")
        watch = client.begin("watch", "a|", "a}", {"rows": True})
        assert await client.end(watch) == {"rows": [["a|1", "x"]], "changes": []}
        for number in range(3):
            relay.cut()
            await client.call("add", "a|n", 1)
            (change,) = (await client.end(watch))["changes"]
            assert (change["key"], change["new"], change["reason"]) == ("a|n", str(number + 1), "written")


async def test_a_watch_of_a_server_that_has_lost_its_data_ends() -> None:
    server = ServerProcess()
    try:
        async with TypeScriptClient(server.target, timeoutMs=60_000, retries=20) as client:
            watch = client.begin("watch", "a")
            await client.end(watch)
            server.kill()
            server.start()
            with pytest.raises(TypeScriptError) as caught:
                await client.end(watch)
            assert caught.value.reason == "WatchCompactedError"
            await client.call("put", "a", "1")
    finally:
        server.kill()


async def test_no_server_is_an_error_that_says_that_nothing_was_applied() -> None:
    server = ServerProcess()
    server.kill()
    async with TypeScriptClient(server.target, retries=1) as client:
        with pytest.raises(TypeScriptError) as caught:
            await client.call("put", "a", "1")
        assert caught.value.reason == "UnavailableError"


async def test_a_put_that_reached_no_server_is_sent_again() -> None:
    server = ServerProcess()
    try:
        server.kill()
        async with TypeScriptClient(server.target, timeoutMs=60_000, retries=20) as client:
            call = client.begin("put", "a", "1")
            while not await client.call("hasFailed"):
                pass
            await asyncio.to_thread(server.start)
            assert await client.end(call) is None
            assert await client.call("get", "a") == "1"
    finally:
        server.kill()


async def test_a_server_that_is_silent_is_an_error_in_time(server: PequodServer, relay: Relay) -> None:
    async with TypeScriptClient(relay.target, timeoutMs=300) as client:
        relay.passing.clear()
        for method, args in (("get", ("a",)), ("multiGet", (["a"],)), ("keys", ())):
            with pytest.raises(TypeScriptError) as caught:
                await client.call(method, *args)
            assert caught.value.reason == "DeadlineExceededError", method


async def test_a_batch_waits_for_no_other_and_one_that_is_late_takes_none_with_it(relay: Relay) -> None:
    async with TypeScriptClient(relay.target, timeoutMs=2000, retries=0) as client:
        await client.call("put", "a", "0")
        relay.passing.clear()
        batches = [client.begin("batch", ("put", "a", text)) for text in "12"]
        reasons = []
        for batch in batches:
            with pytest.raises(TypeScriptError) as caught:
                await client.end(batch)
            reasons.append(caught.value.reason)
        assert reasons == ["DeadlineExceededError"] * 2
        relay.passing.set()
        assert await client.call("batch", ("get", "b")) == [None]


async def test_a_client_that_is_closed_ends_what_is_under_way(relay: Relay) -> None:
    async with TypeScriptClient(relay.target) as client:
        watch = client.begin("watch", "a")
        await client.end(watch)
        relay.passing.clear()
        calls = [client.begin("get", "a"), client.begin("multiGet", ["a"]), client.begin("keys")]
        await client.call("close")
        for call in (watch, *calls, client.begin("get", "a")):
            with pytest.raises(TypeScriptError) as caught:
                await client.end(call)
            assert caught.value.reason == "ClosedError"


async def test_calls_of_one_turn_go_out_together(server: PequodServer) -> None:
    async with TypeScriptClient(f"127.0.0.1:{server.port}") as client:  # type: ignore[attr-defined]
        adds = [client.begin("add", "n", 1) for _ in range(50)]
        sums = [int(await client.end(one)) for one in adds]
        assert sorted(sums) == list(range(1, 51))
        gets = [client.begin("get", "n", session=session) for session in (False, True) for _ in range(20)]
        assert {await client.end(one) for one in gets} == {"50"}


async def test_a_client_over_tls_trusts_its_authority_alone(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    pair = authority.sign("server")
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", tls_certificate=pair.certificate, tls_key=pair.key))
    target = f"127.0.0.1:{await server.start()}"
    try:
        async with TypeScriptClient(target, ca=str(authority.path)) as client:
            await client.call("put", "a", "1")
            assert await client.call("get", "a") == "1"
        for options in ({"ca": str(stranger.path)}, {}):
            async with TypeScriptClient(target, retries=0, **options) as client:
                with pytest.raises(TypeScriptError) as caught:
                    await client.call("get", "a")
                assert caught.value.reason == "UnavailableError"
    finally:
        await server.stop()


async def test_a_token_does_not_go_to_other_machines_in_plain_text() -> None:
    async with asyncio.timeout(60):
        client = TypeScriptClient("192.0.2.1:7744", token="secret")
        async with client:
            with pytest.raises(TypeScriptError, match="plain text"):
                await client.call("get", "a")
