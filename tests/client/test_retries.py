"""A server that dies, is cut off or started anew at every stage of a call: what is safe is tried again, none hangs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pequod_server import PequodServer, ServerConfig

import pequod
from pequod import AsyncClient, Client
from pequod.client import WatchEvent
from pequod.client.lanes import Lane, Lanes
from pequod.engine import Engine
from pequod.errors import ClosedError, ComputedKeyError, DeadlineExceededError, UnavailableError
from tests.client.conftest import ServerProcess
from tests.client.relay import Relay


@asynccontextmanager
async def running(engine: Engine, port: int = 0) -> AsyncIterator[tuple[PequodServer, int]]:
    """Run a server in this loop; a test may stop it before."""
    server = PequodServer(ServerConfig(listen=f"127.0.0.1:{port}", drain_s=1), engine)
    yield server, await server.start()
    await server.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110 - what is waited for are insides that tell nobody
            await asyncio.sleep(0.01)


def ordered_lane(client: AsyncClient) -> Lane:
    sender = client._gathering._sender
    assert isinstance(sender, Lanes)
    return sender.ordered


def _is_pausing(client: AsyncClient) -> bool:
    return ordered_lane(client)._pause is not None


async def _rows(client: AsyncClient, **options: Any) -> list[tuple[bytes, bytes]]:
    return [row async for row in client.scan_iter(**options)]


async def _watched(client: AsyncClient) -> WatchEvent:
    """Return the first event of a watch."""
    async with aclosing(client.watch("a", rows=True)) as events:
        return await anext(events)


#: Every call, and whether it is tried again when nobody knows what came of it.
CALLS: dict[str, tuple[Callable[[AsyncClient], Awaitable[object]], bool]] = {
    "get": (lambda client: client.get("a"), True),
    "scan": (lambda client: client.scan(prefix="a"), True),
    "count": (lambda client: client.count(), True),
    "scan_iter": (_rows, True),
    "keys": (lambda client: client.keys(), True),
    "scan_page": (lambda client: client.scan_page(), True),
    "multi_get": (lambda client: client.multi_get(["a"]), True),
    "joins": (lambda client: client.joins(), True),
    "explain_range": (lambda client: client.explain_range("a"), True),
    "invalidate_range": (lambda client: client.invalidate_range("a"), True),
    "statistics": (lambda client: client.statistics(), True),
    "add_join": (lambda client: client.add_join("b|<x> = copy a|<x>"), True),
    "watch": (_watched, True),
    "put": (lambda client: client.put("a", "1"), False),
    "remove": (lambda client: client.remove("a"), False),
    "add": (lambda client: client.add("n", 1), True),
    "put_if": (lambda client: client.put("c", "1", condition=pequod.IF_ABSENT), True),
    "transaction": (lambda client: client.transaction([], [pequod.Add("m", 1)]), True),
    "multi_put": (lambda client: client.multi_put({"a": "1"}), False),
    "remove_range": (lambda client: client.remove_range("a"), False),
}


async def test_what_is_asked_of_a_server_that_is_not_there_yet_is_done_when_it_comes(server: ServerProcess) -> None:
    server.kill()
    async with AsyncClient(server.target, timeout_s=60, retries=1000) as client:
        calls = {name: asyncio.ensure_future(call(client)) for name, (call, _) in CALLS.items()}
        await until(lambda: _is_pausing(client))
        assert not any(call.done() for call in calls.values())
        server.start()
        await asyncio.gather(*calls.values())


async def test_a_server_that_dies_after_calls_were_sent(server: ServerProcess) -> None:
    async with Relay(server.target) as relay, AsyncClient(relay.target, timeout_s=60, retries=1000) as client:
        await client.count()
        await client.joins()
        relay.passing.clear()
        answers = {name: asyncio.ensure_future(call(client)) for name, (call, _) in CALLS.items()}
        await asyncio.sleep(0.2)
        assert not any(answer.done() for answer in answers.values())
        server.kill()
        relay.cut()
        relay.passing.set()
        server.start()
        results = dict(zip(answers, await asyncio.gather(*answers.values(), return_exceptions=True), strict=True))
        for name, (_, is_tried_again) in CALLS.items():
            result = results[name]
            if is_tried_again:
                assert not isinstance(result, BaseException), name
            else:
                assert isinstance(result, UnavailableError), name
                assert not result.is_unapplied
                assert "not known" in str(result)
        assert await client.scan() == [(b"c", b"1"), (b"m", b"1"), (b"n", b"1")], "what may be sent again was"


async def test_reads_that_share_a_message_with_a_write_are_tried_again(server: ServerProcess) -> None:
    async with Relay(server.target) as relay, AsyncClient(relay.target, timeout_s=60) as client:
        await client.put("b", "2")
        relay.passing.clear()
        calls = (
            client.get("b"),
            client.put("a", "1"),
            client.scan("b", limit=1),
            client.remove("c"),
            client.count("b"),
        )
        answers = [asyncio.ensure_future(call) for call in calls]
        await until(lambda: client.batches_sent == 2)
        await asyncio.sleep(0.1)
        relay.cut()
        relay.passing.set()
        got, put, rows, removed, count = await asyncio.gather(*answers, return_exceptions=True)
        assert (got, rows, count) == (b"2", [(b"b", b"2")], 1)
        assert isinstance(put, UnavailableError)
        assert isinstance(removed, UnavailableError)


async def test_batches_keep_their_order_when_they_are_sent_again() -> None:
    engine = Engine()
    async with running(engine) as (server, port):
        await server.stop()
    async with AsyncClient(f"127.0.0.1:{port}", timeout_s=60, retries=1000) as client:
        answers = []
        for number in range(20):
            batch = client.batch()
            batch.put("a", str(number))
            batch.get("a")
            answers.append(batch.send())
            if number == 10:
                await until(lambda: _is_pausing(client))
        async with running(engine, port):
            results = await asyncio.gather(*answers)
            assert [result[1] for result in results] == [b"%d" % number for number in range(20)]
            assert engine.revision == 20, "each was applied once"


async def test_writes_outlive_a_server_that_is_stopped_and_started_anew() -> None:
    engine = Engine()
    engine_of_the_next = Engine()
    async with running(engine) as (server, port), AsyncClient(f"127.0.0.1:{port}", retries=1000) as client:
        done = []

        async def write(name: int) -> None:
            for number in range(200):
                await client.put(f"{name}|{number}", "v")
                done.append(name)

        writing = [asyncio.create_task(write(name)) for name in range(5)]
        await until(lambda: len(done) > 100)
        await server.stop()
        assert len(done) < 1000
        async with running(engine_of_the_next, port):
            await asyncio.gather(*writing)
            first, second = (e.scan(b"", None).keys for e in (engine, engine_of_the_next))
            assert len(first) + len(second) == 1000, "each write reached exactly one of them"
            assert not set(first) & set(second)


async def test_unary_writes_that_a_stopping_server_refuses_go_to_the_next() -> None:
    engine = Engine()
    async with running(engine) as (server, port), AsyncClient(f"127.0.0.1:{port}", retries=1000) as client:
        await client.multi_put({"a": "1"})
        server._calls.refuse()
        writing = asyncio.create_task(client.multi_put({"b": "2"}))
        await asyncio.sleep(0.2)
        await server.stop()
        assert not writing.done()
        async with running(engine, port):
            await writing
            assert engine.get(b"b") == b"2"


async def test_a_server_that_dies_while_nobody_calls_is_found_again(server: ServerProcess) -> None:
    async with AsyncClient(server.target, retries=1000) as client:
        await client.get("a")
        first = client.server_id
        server.kill()
        server.start()
        assert await client.get("a") is None
        assert client.server_id != first


async def _fill(client: AsyncClient, count: int = 2000) -> list[bytes]:
    keys = [b"x|%05d" % number for number in range(count)]
    await client.multi_put((key, b"v" * 5000) for key in keys)
    return keys


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"limit": 1500}])
async def test_an_iterator_goes_on_when_the_wire_is_cut(server: ServerProcess, options: dict[str, Any]) -> None:
    async with Relay(server.target) as relay, AsyncClient(relay.target) as client:
        keys = await _fill(client)
        found = []
        async for key, _ in client.scan_iter(prefix="x|", **options):
            found.append(key)
            if len(found) == 1:
                # Not all that is left, which a quick wire might have brought before the second cut.
                relay.halt_after = 4_500_000
                relay.cut()
            elif len(found) == 700:
                relay.cut()
                relay.halt_after = None
                relay.passing.set()
        assert found == (keys[::-1] if options.get("reverse") else keys)[: options.get("limit")]
        assert relay.connections == 3


async def test_an_iterator_does_not_go_on_with_another_server(server: ServerProcess) -> None:
    async with AsyncClient(server.target, timeout_s=60, retries=1000) as client:
        keys = await _fill(client)
        found = []
        with pytest.raises(UnavailableError, match="started anew"):
            async for key, _ in client.scan_iter(prefix="x|"):
                found.append(key)
                if len(found) == 1:
                    server.kill()
                    server.start()
        assert found == keys[: len(found)]


@pytest.mark.parametrize("retries", [0, 1])
async def test_an_iterator_whose_server_dies_for_good_ends(server: ServerProcess, retries: int) -> None:
    async with AsyncClient(server.target, retries=retries) as client:
        await _fill(client)
        async with aclosing(client.scan_iter(prefix="x|")) as rows:
            await anext(rows)
            server.kill()
            with pytest.raises(UnavailableError):
                async for _ in rows:
                    pass
    server.start()


def _has_begun(client: AsyncClient) -> bool:
    """Tell whether a piece has come of the reply to the oldest batch under way, but not the last one."""
    stream = ordered_lane(client)._stream
    return stream is not None and bool(stream._waiting) and stream._waiting[0].begun is not None


async def test_a_reply_in_pieces_is_not_made_of_two_servers(server: ServerProcess) -> None:
    async with Relay(server.target) as relay, AsyncClient(relay.target, timeout_s=100, retries=1000) as client:
        await _fill(client)
        relay.halt_after = 4_000_000
        scan, count = asyncio.create_task(client.scan(prefix="x|")), asyncio.create_task(client.count("x|"))
        await until(lambda: not relay.passing.is_set() and _has_begun(client))
        server.kill()
        relay.cut()
        relay.passing.set()
        server.start()
        assert (await scan, await count) == ([], 0), "both are asked of the new server, from the start"


async def test_a_batch_with_writes_whose_reply_breaks_off_is_not_sent_again(server: ServerProcess) -> None:
    async with Relay(server.target) as relay, AsyncClient(relay.target, timeout_s=60) as client:
        keys = await _fill(client)
        relay.halt_after = 4_000_000
        batch, behind = client.batch(), client.batch()
        batch.put("a", "1")
        batch.scan(prefix="x|")
        behind.count(prefix="x|")
        answer, answer_behind = batch.send(), behind.send()
        await until(lambda: not relay.passing.is_set() and _has_begun(client))
        relay.cut()
        relay.passing.set()
        with pytest.raises(UnavailableError, match="not known") as caught:
            await answer
        assert not caught.value.is_unapplied
        assert await answer_behind == [len(keys)]


async def test_a_reply_in_pieces_comes_whole_after_a_cut(server: ServerProcess) -> None:
    async with Relay(server.target) as relay, AsyncClient(relay.target, timeout_s=60) as client:
        keys = await _fill(client)
        relay.halt_after = 4_000_000
        scan = asyncio.create_task(client.scan(prefix="x|"))
        await until(lambda: not relay.passing.is_set() and _has_begun(client))
        relay.cut()
        relay.passing.set()
        assert [key for key, _ in await scan] == keys


async def test_each_piece_of_a_reply_has_the_time_of_a_call(server: ServerProcess) -> None:
    async with AsyncClient(server.target, timeout_s=60) as other:
        keys = await _fill(other)
    async with Relay(server.target) as relay, AsyncClient(relay.target, timeout_s=1.5, retries=0) as client:
        scan = asyncio.create_task(client.scan(prefix="x|"))
        for _ in range(2):
            relay.halt_after = 4_000_000
            await until(lambda: not relay.passing.is_set())
            await asyncio.sleep(1)
            relay.passing.set()
        assert len(await scan) == len(keys), "it took longer than `timeout_s`, and no piece did"
        relay.halt_after = 4_000_000
        late = asyncio.create_task(client.scan(prefix="x|"))
        with pytest.raises(DeadlineExceededError):
            await late
        behind = asyncio.create_task(client.count("x|"))
        relay.passing.set()
        assert await behind == len(keys), "what comes late is nobody's"


async def test_the_deadline_ends_the_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    # The deadline falls into a pause, whatever the tries before it take.
    for module in ("connection", "lanes"):
        monkeypatch.setattr(f"pequod.client.{module}.pause_s", lambda tries: 0.01 if tries < 3 else 60)
    async with AsyncClient("127.0.0.1:1", timeout_s=2, retries=1_000_000) as client:
        calls = [asyncio.ensure_future(call(client)) for call, _ in CALLS.values()]
        batch = client.batch()
        batch.put("a", "1")
        results = await asyncio.gather(*calls, batch.send(), return_exceptions=True)
        assert [type(result) for result in results] == [UnavailableError] * len(results)
        assert all(isinstance(result, UnavailableError) and result.is_unapplied for result in results)


async def test_closing_ends_the_tries() -> None:
    client = AsyncClient("127.0.0.1:1", timeout_s=60, retries=1_000_000)
    calls = [asyncio.ensure_future(call(client)) for call, _ in CALLS.values()]
    await until(lambda: _is_pausing(client))
    await client.close()
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
    assert [type(result) for result in results] == [ClosedError] * len(results)


def test_closing_the_synchronous_client_ends_the_tries() -> None:
    client = Client("127.0.0.1:1", timeout_s=60, retries=1_000_000)
    heard: list[BaseException] = []

    def call(method: Callable[[], object]) -> None:
        try:
            method()
        except BaseException as error:
            heard.append(error)

    methods = (lambda: client.get("a"), client.joins, lambda: list(client.scan_iter()))
    threads = [threading.Thread(target=call, args=(method,), daemon=True) for method in methods]
    for thread in threads:
        thread.start()
    waiting = client.batch().send_nowait()
    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    client.close()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert [type(error) for error in heard] == [ClosedError] * 3
    assert isinstance(waiting.exception(0), ClosedError)


async def test_what_the_server_refuses_is_not_tried_again() -> None:
    engine = Engine()
    async with running(engine) as (_, port), AsyncClient(f"127.0.0.1:{port}") as client:
        await client.add_join("b|<x> = copy a|<x>")
        sent = client.batches_sent
        with pytest.raises(ComputedKeyError):
            await client.put("b|1", "")
        assert client.batches_sent == sent + 1


async def test_a_late_write_that_was_not_sent_yet_is_not_sent() -> None:
    engine = Engine()
    async with running(engine) as (server, port):
        await server.stop()
    async with AsyncClient(f"127.0.0.1:{port}", timeout_s=0.3, retries=1000) as client:
        # The latter if even the first try took that long.
        with pytest.raises((UnavailableError, DeadlineExceededError)):
            await client.put("a", "late")
        async with running(engine, port):
            await until(lambda: not _is_pausing(client))
            async with AsyncClient(f"127.0.0.1:{port}") as another:
                assert await another.get("a") is None
            assert engine.revision == 0


async def test_the_revision_never_goes_back_on_one_server() -> None:
    client = AsyncClient()
    for server_id, revision in [(1, 5), (1, 4), (1, 6), (2, 1)]:
        client._link.note(server_id, revision)
        assert (client.server_id, client.revision) == (server_id, max(revision, 5) if server_id == 1 else 1)
