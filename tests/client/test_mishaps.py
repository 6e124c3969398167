"""What goes wrong between a client and a server: late replies, bad arguments, reuse, closing in the middle of calls."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psutil
import pytest

from pequod import AsyncClient, Client
from pequod.client import background
from pequod.client.background import BackgroundLoop
from pequod.engine import Rows
from pequod.errors import ClosedError, DeadlineExceededError, InvalidKeyError, PequodError, UnavailableError
from tests.client.conftest import ServerProcess


def tasks_named(name: str) -> int:
    """Count the tasks of this loop that run a coroutine of this name."""
    return sum(name in getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())


async def wait_until_up(client: AsyncClient) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            await client.get("a")
            return
        except UnavailableError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


async def test_a_batch_is_empty_once_it_is_sent(server: ServerProcess) -> None:
    async with AsyncClient(server.target, timeout_s=5) as client:
        batch = client.batch()
        batch.put("a", "1")
        first = batch.send()
        batch.get("a")
        batch.scan("a", "b")
        assert await first == [None]
        assert await batch.send() == [b"1", Rows([b"a"], [b"1"])]
        assert await batch.send() == []


def test_a_synchronous_batch_is_empty_once_it_is_sent(server: ServerProcess) -> None:
    with Client(server.target, timeout_s=5) as client:
        batch = client.batch()
        batch.put("a", "1")
        assert batch.send() == [None]
        batch.get("a")
        assert batch.send() == [b"1"]
        assert batch.send() == []


def test_a_late_reply_to_a_batch_harms_nobody(server: ServerProcess) -> None:
    with Client(server.target) as other:
        other.put("a", "1")
    with Client(server.target, timeout_s=0.3) as client:
        assert _answered(client) == b"1"
        server.process.send_signal(signal.SIGSTOP)
        batch = client.batch()
        batch.get("b")
        with pytest.raises(DeadlineExceededError):
            batch.send()
        server.process.send_signal(signal.SIGCONT)
        assert _answered(client) == b"1"


def _answered(client: Client) -> bytes | None:
    """Return the value of a key, once the machine has the time for an answer in time."""
    while True:
        with suppress(DeadlineExceededError):
            return client.get("a")


def test_a_cancelled_future_harms_nobody(server: ServerProcess) -> None:
    with Client(server.target) as client:
        client.put("a", "1")
        batch = client.batch()
        batch.get("a")
        assert batch.send_nowait().cancel()
        assert client.get("a") == b"1"


async def test_an_argument_that_cannot_be_said_harms_nobody_else(server: ServerProcess) -> None:
    number: Any = 5
    async with AsyncClient(server.target) as client:
        calls = (client.put("a", "1"), client.put("b", number), client.scan("a", limit=-1), client.get("a"))
        put, bad, negative, got = await asyncio.gather(*calls, return_exceptions=True)
        assert (put, got) == (None, b"1")
        assert isinstance(bad, TypeError)
        assert isinstance(negative, ValueError)
        assert await client.scan("a", limit=1 << 70) == [(b"a", b"1")]
        with pytest.raises(TypeError, match="bytes or str, not int"):
            await client.get(number)
        nothing: Any = None
        with pytest.raises(TypeError, match="bytes or str, not None; `remove` takes a key away"):
            await client.put("a", nothing)


@pytest.mark.parametrize("ttl_s", ["5", timedelta(seconds=5), [5]])
async def test_a_time_to_live_that_is_no_number_is_refused(server: ServerProcess, ttl_s: Any) -> None:
    async with AsyncClient(server.target) as client:
        for call in (client.put("a", "1", ttl_s=ttl_s), client.expire("a", ttl_s), client.multi_put({}, ttl_s=ttl_s)):
            with pytest.raises(TypeError, match="a time to live is a number of seconds, not ") as told:
                await call
            assert repr(ttl_s) in str(told.value)


async def test_many_large_puts_at_once_go_in_several_messages(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await asyncio.gather(*(client.put(f"k{number}", b"x" * 1_000_000) for number in range(80)))
        assert await client.count("k") == 80
        values = await asyncio.gather(*(client.get(f"k{number}") for number in range(10)))
        assert [len(value or b"") for value in values] == [1_000_000] * 10


async def test_an_iterator_meets_the_deadline_of_a_server_that_hangs(server: ServerProcess) -> None:
    async with AsyncClient(server.target, timeout_s=0.3) as client:
        with suppress(DeadlineExceededError):
            await client.get("a")
        server.process.send_signal(signal.SIGSTOP)
        with pytest.raises(DeadlineExceededError):
            _ = [row async for row in client.scan_iter("a")]
        server.process.send_signal(signal.SIGCONT)


async def test_servers_that_die_while_nobody_calls_leave_no_tasks(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await wait_until_up(client)
        # One that writes and one that reads; the native transport does without them.
        usual = tasks_named("AwaitedStream")
        assert usual in (0, 2)
        for _ in range(3):
            server.kill()
            for _ in range(100):
                await asyncio.sleep(0.05)
                if not tasks_named("AwaitedStream"):
                    break
            assert tasks_named("AwaitedStream") == 0
            server.start()
            await wait_until_up(client)
            assert tasks_named("AwaitedStream") == usual
    assert tasks_named("BatchStream") == 0


async def test_closing_fails_calls_of_every_kind(server: ServerProcess) -> None:
    client = AsyncClient(server.target)
    await client.put("a", "1")
    server.process.send_signal(signal.SIGSTOP)

    async def rows() -> list[tuple[bytes, bytes]]:
        return [row async for row in client.scan_iter("a")]

    calls = [asyncio.create_task(call) for call in (client.joins(), client.get("a"), rows())]
    await asyncio.sleep(0.1)
    await client.close()
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
    assert [type(result) for result in results] == [ClosedError] * 3
    server.process.send_signal(signal.SIGCONT)


def test_threads_that_call_while_the_client_closes_all_hear_of_it(server: ServerProcess) -> None:
    heard: list[BaseException] = []

    def call_until_refused(client: Client) -> None:
        try:
            while True:
                batch = client.batch()
                batch.get("a")
                batch.send_nowait().result(5)
                client.get("a")
        except BaseException as error:
            heard.append(error)

    for pause_s in (0.005, 0.01, 0.02):
        client = Client(server.target, timeout_s=5)
        client.put("a", "1")
        threads = [threading.Thread(target=call_until_refused, args=(client,), daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(pause_s)
        client.close()
        for thread in threads:
            thread.join(5)
            assert not thread.is_alive()
    assert [type(error) for error in heard] == [ClosedError] * 12


def test_a_refused_key_is_told_as_the_engine_tells_it(server: ServerProcess) -> None:
    with Client(server.target) as client, pytest.raises(InvalidKeyError, match="key '' is not valid: "):
        client.put("", "x")


def test_names_and_keys_without_end_are_refused_like_short_ones(server: ServerProcess) -> None:
    long = "x" * 30_000
    with Client(server.target) as client:
        for text in (f"t|<{long}> = copy p|<a>", f"{long} = copy p|<a>", f"t|<a> = {long} p|<a>"):
            with pytest.raises(PequodError, match="hint: ") as caught:
                client.add_join(text)
            assert type(caught.value).__name__ == "JoinError"
        with pytest.raises(PequodError, match="no join is named 'xxx"):
            client.drop_join(long)


async def test_a_closed_client_leaves_no_connection_for_the_collector(server: ServerProcess) -> None:
    process = psutil.Process(server.process.pid)
    gc.collect()
    gc.disable()
    try:
        async with AsyncClient(server.target) as client:
            await client.put("a", "1")
            assert any(connection.raddr for connection in process.net_connections("tcp"))
        async with asyncio.timeout(10):
            while any(connection.raddr for connection in process.net_connections("tcp")):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        gc.enable()


def test_closing_lets_what_ends_by_itself_end() -> None:
    ends = []

    async def ending() -> None:
        try:
            # A busy machine takes this long.
            await asyncio.sleep(1.2)
            ends.append("by itself")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def nothing() -> None:
        pass

    running = BackgroundLoop("test")
    tasks: list[asyncio.Task[None]] = []
    running.call(lambda: tasks.append(running.loop.create_task(ending())))
    running.close(nothing)
    assert ends == ["by itself"], "gRPC's tasks do, and what they wait for must not come to a closed loop"


def test_a_loop_is_closed_a_while_after_its_thread_has_ended() -> None:
    async def nothing() -> None:
        pass

    ended = BackgroundLoop("test")
    ended.close(nothing)
    ended.loop.call_soon_threadsafe(print)
    other = BackgroundLoop("test")
    other.close(nothing)
    assert not ended.loop.is_closed(), "gRPC may have something to tell it"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "monotonic", lambda: time.monotonic() + 3600)
        BackgroundLoop("test").close(nothing)
    assert ended.loop.is_closed()
    assert other.loop.is_closed()
    many = [BackgroundLoop("test") for _ in range(background._KEPT_MAX + 2)]
    for one in many:
        one.close(nothing)
    assert [one.loop.is_closed() for one in many] == [True] * 2 + [False] * background._KEPT_MAX, "they have open files"


_CLOSING = """
import sys, threading, time
from pequod import Client

def work(client):
    try:
        while True:
            batches = [client.batch() for _ in range(20)]
            for batch in batches:
                for number in range(50):
                    batch.put(f"k{number}", "x" * 100)
            for future in [batch.send_nowait() for batch in batches]:
                future.result()
            client.scan()
    except Exception:
        pass

for _ in range(20):
    clients = [Client(sys.argv[1]) for _ in range(5)]
    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for client in clients:
        time.sleep(0.02)
        client.close()
    for thread in threads:
        thread.join()
"""


def test_closing_one_of_several_clients_prints_nothing(server: ServerProcess) -> None:
    command = [sys.executable, "-c", _CLOSING, server.target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_ctrl_c_that_the_lock_of_a_wait_complains_of_is_a_ctrl_c() -> None:
    class Waiting(Future[int]):
        """As a future whose lock is free already when the interrupted wait gives it back."""

        def result(self, timeout: float | None = None) -> int:
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("cannot release un-acquired lock")

    with pytest.raises(KeyboardInterrupt):
        background._result(Waiting())
