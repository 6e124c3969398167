"""Replies that are lost at each byte of their way: clients send adds again by themselves, and each is added once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pequod_server import PequodServer, ServerConfig

import pequod
from pequod import AsyncClient, Client
from pequod.answers.transacted import Transacted
from pequod.errors import UnavailableError
from pequod.language.conditions import MET
from tests.client.relay import Relay

#: Writes, each of which counts one at `n` when it is done once.
WRITES: dict[str, Callable[[AsyncClient], Awaitable[object]]] = {
    "add": lambda client: client.add("n", 1),
    "transaction": lambda client: client.transaction([], [pequod.Add("n", 1)]),
    "put_if": lambda client: client.put("n", "1", condition=pequod.IF_ABSENT),
    "session": lambda client: client.session().add("n", 1),
}


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_whose_reply_is_lost_is_sent_again_and_done_once(name: str) -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        async with Relay(f"127.0.0.1:{port}") as relay, AsyncClient(relay.target, timeout_s=60) as client:
            await client.joins()
            await client.count()
            relay.passing.clear()
            answer = asyncio.ensure_future(WRITES[name](client))
            while server.engine.get(b"n") is None:  # noqa: ASYNC110 - the server's insides tell nobody
                await asyncio.sleep(0.01)
            relay.cut()
            relay.passing.set()
            found = await answer
            assert server.engine.get(b"n") == b"1"
            assert found in (b"1", Transacted(True, [b"1"]), MET)
            assert server.service.served.executor.ids.figures.repeated == 1
    finally:
        await server.stop()


@pytest.mark.parametrize("halt_after", range(0, 260, 20))
async def test_adds_at_once_are_added_once_wherever_replies_are_cut_off(halt_after: int) -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        async with Relay(f"127.0.0.1:{port}") as relay, AsyncClient(relay.target, timeout_s=60) as client:
            relay.halt_after = halt_after
            answers = [asyncio.ensure_future(client.add("n", 1)) for _ in range(20)]
            answers += [asyncio.ensure_future(client.add("m", 1)) for _ in range(5)]
            while relay.passing.is_set() and not all(answer.done() for answer in answers):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            relay.cut()
            relay.passing.set()
            found = await asyncio.gather(*answers)
            assert sorted(map(int, found[:20])) == list(range(1, 21)), "each has a sum of its own"
            assert (server.engine.get(b"n"), server.engine.get(b"m")) == (b"20", b"5")
    finally:
        await server.stop()


@pytest.mark.parametrize("halt_after", range(0, 2600, 200))
async def test_batches_of_adds_are_added_once_wherever_their_replies_are_cut_off(halt_after: int) -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        async with Relay(f"127.0.0.1:{port}") as relay, AsyncClient(relay.target, timeout_s=60) as client:
            relay.halt_after = halt_after
            answers = []
            for _ in range(5):
                batch = client.batch()
                for at in range(100):
                    batch.add(f"n|{at % 50:02}", 1)
                answers.append(asyncio.ensure_future(batch.send()))
            while relay.passing.is_set() and not all(answer.done() for answer in answers):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            relay.cut()
            relay.passing.set()
            found = await asyncio.gather(*answers)
            sums = [total for results in found for total in results]
            assert sums == [b"%d" % (2 * turn + 1 + at // 50) for turn in range(5) for at in range(100)]
            assert {server.engine.get(b"n|%02d" % at) for at in range(50)} == {b"10"}
    finally:
        await server.stop()


async def test_adds_that_share_a_message_with_a_put_are_sent_again_alone() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        async with Relay(f"127.0.0.1:{port}") as relay, AsyncClient(relay.target, timeout_s=60) as client:
            await client.count()
            relay.passing.clear()
            calls = (client.add("n", 1), client.put("p", "1"), client.add("n", 1), client.get("p"))
            answers = [asyncio.ensure_future(call) for call in calls]
            while server.engine.get(b"n") is None:  # noqa: ASYNC110 - the server's insides tell nobody
                await asyncio.sleep(0.01)
            relay.cut()
            relay.passing.set()
            one, put, two, got = await asyncio.gather(*answers, return_exceptions=True)
            assert (one, two, got, server.engine.get(b"n")) == (b"1", b"2", b"1", b"2")
            assert isinstance(put, UnavailableError), "a put may have been followed by another client's"
    finally:
        await server.stop()


async def test_a_client_that_never_tries_again_makes_no_ids() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}", retries=0) as client:
            assert await client.add("n", 1) == b"1"
            assert await client.transaction([], [pequod.Add("n", 1)])
        assert server.service.served.executor.ids.figures.id_count == 0
    finally:
        await server.stop()


async def test_the_waiting_client_makes_ids_too() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()

    def add() -> None:
        with Client(f"127.0.0.1:{port}") as client:
            batch = client.batch()
            batch.add("n", 1)
            batch.put("k", "v", condition=pequod.IF_ABSENT)
            assert list(batch.send()) == [b"1", MET]
            assert client.add("n", 1) == b"2"
            assert client.transaction([], [pequod.Add("n", 1)])

    try:
        await asyncio.to_thread(add)
        assert server.service.served.executor.ids.figures.id_count == 4
    finally:
        await server.stop()
