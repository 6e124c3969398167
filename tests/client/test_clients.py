"""Both clients against a real server: every call, failures, and many callers at once."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop

import pequod
from pequod import AsyncClient, Client
from pequod.calls import Page
from pequod.engine import Rows
from pequod.errors import (
    ClosedError,
    ComputedKeyError,
    DeadlineExceededError,
    InvalidKeyError,
    JoinError,
    LimitExceededError,
    PequodError,
    UnavailableError,
    UnknownJoinError,
)
from tests.client.conftest import ServerProcess

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


class Waiting:
    """Calls that are to be awaited, each waited for, so that one test can speak to both kinds of clients."""

    def __init__(self, client: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = client

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._client, name)
        if name in ("scan_iter", "keys_iter"):
            return lambda *arguments, **options: self._runner.run(_collect(member(*arguments, **options)))
        return (lambda *a, **o: self._runner.run(member(*a, **o))) if callable(member) else member


async def _collect(rows: Any) -> list[Any]:
    return [row async for row in rows]


CLIENTS: dict[str, Callable[[str], Any]] = {"sync": Client, "async": lambda target: Waiting(AsyncClient(target))}
#: Also those that need no server, and leave the one that is there alone.
EVERYBODY: dict[str, Callable[[str], Any]] = {
    **CLIENTS,
    "embedded": lambda _: pequod.open(),
    "embedded async": lambda _: Waiting(pequod.open_async()),
}


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
def test_every_call_of_a_client_is_answered(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    with connect(server.target) as client:
        (join,) = client.add_join(TIMELINE)
        assert (join.name, join.warnings) == ("t", ())
        assert client.joins() == [join]
        client.put("s|ann|bob", b"1")
        client.put(b"p|bob|0001", "Hi ✓")
        row = (b"t|ann|0001|bob", "Hi ✓".encode())
        assert client.scan("t|ann|", "t|ann}") == [row]
        assert list(client.scan_iter("t|ann|", "t|ann}")) == [row]
        assert client.get("t|ann|0001|bob") == row[1]
        assert client.get("nothing") is None
        assert client.count("t|") == 1
        assert client.count("", "q") == 1
        assert client.scan("", None, limit=1, reverse=True) == [row]
        assert client.scan("a", "") == client.scan("b", "a") == client.scan("a", limit=0) == []
        assert [client.remove("s|ann|bob") for _ in range(2)] == [True, False]
        assert (client.add("n|1", 2), client.add("n|1", "-0.5"), client.remove("n|1")) == (b"2", b"1.5", True)
        assert client.scan("t|", "t}") == []
        assert client.explain_join("t").sources[1].narrowed_by == "time"
        assert client.explain_range("t|ann|", "t|ann}").joins[0].join == "t"
        assert client.invalidate_join("t") >= 1
        dropped = client.explain_range(first="t|ann|", last="t|ann}").dropped[0]
        assert (dropped.name, dropped.reason, dropped.ago_s < 100) == ("t", "invalidated by a call", True)
        assert client.statistics().tables[b"p"].keys == 1
        client.multi_put({"s|ann|liz": "", "p|liz|0002": "Ho"})
        client.multi_put([(b"s|ann|bob", ""), ("p|liz|0003", b"Hu")])
        assert client.multi_get(["t|ann|0002|liz", b"none", "p|bob|0001"]) == [b"Ho", None, row[1]]
        assert client.multi_get([]) == []
        assert client.scan(prefix="t|ann|", first="t|ann|0002") == client.scan(prefix="t|ann|")[1:]
        assert client.keys(prefix="t|ann|") == [b"t|ann|0001|bob", b"t|ann|0002|liz", b"t|ann|0003|liz"]
        assert list(client.keys_iter("t|", reverse=True, limit=1)) == [b"t|ann|0003|liz"]
        assert list(client.scan_iter(prefix="t|ann|", limit=1)) == [row]
        assert (client.count(prefix="t|ann|"), client.count()) == (3, 8)
        page = client.scan_page(prefix="t|", limit=2, reverse=True)
        assert [key for key, _ in page.rows] == [b"t|ann|0003|liz", b"t|ann|0002|liz"]
        assert client.scan_page(prefix="t|", reverse=True, resume_key=page.resume_key) == Page([row], None)
        assert client.remove_range("p|bob|", "p|bob}") == 1
        assert client.remove_range(prefix="t|") == 0
        assert client.remove_range("p|liz|0003", prefix="p|") == 1
        assert client.keys() == [b"p|liz|0002", b"s|ann|bob", b"s|ann|liz", b"t|ann|0002|liz"]
        assert client.revision > 0
        assert client.server_id > 0
        client.drop_join("t")
        assert client.joins() == []


@pytest.mark.parametrize("connect", EVERYBODY.values(), ids=EVERYBODY)
def test_what_the_server_refuses_is_the_engines_exception(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    with connect(server.target) as client:
        client.add_join(TIMELINE)
        with pytest.raises(ComputedKeyError) as computed:
            client.put("t|ann|0001|bob", "")
        assert (computed.value.key, computed.value.join) == (b"t|ann|0001|bob", "t")
        with pytest.raises(LimitExceededError, match="key_bytes_max"):
            client.put("k" * 5000, "")
        with pytest.raises(InvalidKeyError):
            client.put("", "")
        with pytest.raises(UnknownJoinError):
            client.drop_join("no")
        with pytest.raises(JoinError) as bad:
            client.add_join("a|<x> =\n  copi b|<x>")
        assert str(bad.value).splitlines()[:3] == [
            "line 2, column 3: 'copi' is no operator",
            "      copi b|<x>",
            "      ^^^^",
        ]
        assert bad.value.span is not None
        with pytest.raises(ComputedKeyError):
            client.multi_put({"a": "1", "t|ann|0001|bob": ""})
        with pytest.raises(ValueError, match="negative"):
            client.scan("a", limit=-1)
        with pytest.raises(ValueError, match="one row at least"):
            client.scan_page("a", limit=0)
        with pytest.raises(TypeError, match="first or prefix"):
            client.remove_range()
        assert client.get("a") is None, "and goes on"


def test_a_batch_gives_a_result_for_each_command(server: ServerProcess) -> None:
    with Client(server.target) as client:
        client.add_join(TIMELINE)
        batch = client.batch()
        batch.put("p|bob|0001", "Hi")
        batch.put("t|ann|0001|bob", "no")
        batch.get("p|bob|0001")
        batch.get("none")
        batch.remove("none")
        batch.scan("p|", "p}")
        batch.scan("p|", "p}", limit=1, reverse=True)
        batch.count("p|", "p}")
        put, refused, got, none, removed, rows, last, count = batch.send()
        assert (put, got, none, removed, count) == (None, b"Hi", None, False, 1)
        assert isinstance(refused, ComputedKeyError)
        assert rows == last == Rows([b"p|bob|0001"], [b"Hi"])
        futures = []
        for number in range(20):
            batch = client.batch()
            batch.put("n", str(number))
            batch.get("n")
            futures.append(batch.send_nowait())
        assert [future.result()[1] for future in futures] == [str(number).encode() for number in range(20)]


async def test_calls_of_one_turn_share_a_message(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await asyncio.gather(*(client.put(f"k|{number}", str(number)) for number in range(1000)))
        assert client.batches_sent <= 4
        values = await asyncio.gather(*(client.get(f"k|{number}") for number in range(1000)))
        assert values == [str(number).encode() for number in range(1000)]
        assert client.batches_sent <= 8


async def test_reads_of_a_batch_that_come_in_pieces_are_one_batch(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await client.multi_put({f"k|{number:02}|{row}": bytes(100_000) for number in range(40) for row in "abc"})
        before = client.batches_sent
        batch = client.batch()
        for number in range(40):
            batch.get(f"k|{number:02}|a")
            batch.scan(f"k|{number:02}|", f"k|{number:02}}}")
            batch.scan(f"k|{number:02}|", f"k|{number:02}}}", limit=2, reverse=True)
        results = await batch.send()
        for number in range(40):
            keys = [f"k|{number:02}|{row}".encode() for row in "abc"]
            got, scanned, latest = results[3 * number : 3 * number + 3]
            assert got == bytes(100_000)
            assert scanned == Rows(keys, [bytes(100_000)] * 3)
            assert latest == Rows([keys[2], keys[1]], [bytes(100_000)] * 2)
        assert client.batches_sent - before == 1


@pytest.mark.parametrize("connect", CLIENTS.values(), ids=CLIENTS)
def test_scans_that_are_cut_come_whole(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    rows = [(b"x|%06d" % number, b"*" * 200) for number in range(30_000)]
    with Client(server.target) as client:
        for start in range(0, len(rows), 1000):
            batch = client.batch()
            for key, value in rows[start : start + 1000]:
                batch.put(key, value)
            assert batch.send() == [None] * 1000
        batch = client.batch()
        batch.get("x|000000")
        for limit, reverse in [(None, False), (None, True), (20_000, False), (20_000, True)]:
            batch.scan("x|", "x}", limit=limit, reverse=reverse)
        batch.count("x|", "x}")
        first, up, down, some, some_down, count = batch.send()
        assert (first, count) == (b"*" * 200, 30_000)
        for found, expected in [(up, rows), (down, rows[::-1]), (some, rows[:20_000]), (some_down, rows[:9999:-1])]:
            assert isinstance(found, Rows)
            assert list(zip(*found, strict=True)) == expected
    with connect(server.target) as client:
        assert client.scan("x|", "x}") == rows
        assert list(client.scan_iter("x|", "x}", reverse=True)) == rows[::-1]


def test_many_values_that_do_not_fit_into_one_reply_come_in_pieces(server: ServerProcess) -> None:
    with Client(server.target) as client:
        keys = [f"k{number}" for number in range(20)]
        client.multi_put((key, key[-1] * 500_000) for key in keys)
        values = client.multi_get([*keys, "none"])
        assert values == [key[-1].encode() * 500_000 for key in keys] + [None]


def test_pages_hold_no_more_than_a_chunk_and_lead_through_the_range(server: ServerProcess) -> None:
    with Client(server.target) as client:
        keys = [b"x|%03d" % number for number in range(10)]
        client.multi_put((key, b"v" * 100_000) for key in keys)
        page, found = client.scan_page(prefix="x|"), []
        while page.resume_key is not None:
            found += [key for key, _ in page.rows]
            page = client.scan_page(prefix="x|", resume_key=page.resume_key)
        assert found + [key for key, _ in page.rows] == keys
        assert len(page.rows) == 2


def test_many_threads_share_a_client(server: ServerProcess) -> None:
    with Client(server.target) as client, ThreadPoolExecutor(8) as pool:

        def work(name: int) -> int:
            for number in range(100):
                client.put(f"{name}|{number:03}", str(number))
                assert client.get(f"{name}|{number:03}") == str(number).encode()
            return client.count(f"{name}|", f"{name}}}")

        assert list(pool.map(work, range(8))) == [100] * 8


@pytest.mark.parametrize("connect", CLIENTS.values(), ids=CLIENTS)
def test_without_a_server_calls_fail_at_once(server: ServerProcess, connect: Callable[[str], Any]) -> None:
    server.kill()
    with connect(server.target) as client:
        for call in (lambda: client.get("a"), client.joins, lambda: list(client.scan_iter("a"))):
            with pytest.raises(UnavailableError, match="pequod serve"):
                call()
    server.start()


def test_a_client_outlives_its_server(server: ServerProcess) -> None:
    with Client(server.target) as client:
        client.put("a", "1")
        first = client.server_id
        server.kill()
        with pytest.raises(UnavailableError):
            client.get("a")
        server.start()
        deadline = time.monotonic() + 20
        while True:
            try:
                assert client.get("a") is None
                break
            except UnavailableError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert client.server_id != first


async def test_calls_under_way_fail_when_the_server_dies(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await client.put("a", "1")
        server.process.send_signal(signal.SIGSTOP)
        calls = [asyncio.create_task(client.get("a")) for _ in range(10)]
        batch = client.batch()
        batch.get("a")
        calls.append(asyncio.ensure_future(batch.send()))  # type: ignore[arg-type]
        await asyncio.sleep(0.1)
        server.kill()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, UnavailableError) for result in results)
    server.start()


async def test_a_server_that_hangs_meets_the_deadline(server: ServerProcess) -> None:
    async with AsyncClient(server.target, timeout_s=0.3) as client:
        await client.put("a", "1")
        server.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(DeadlineExceededError, match=r"within 0\.3 s"):
                await client.get("a")
            with pytest.raises(DeadlineExceededError):
                await client.joins()
        finally:
            server.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.2)
        assert await client.get("a") == b"1"


async def test_a_caller_that_gives_up_harms_nobody(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await client.put("a", "1")
        tasks = [asyncio.create_task(client.get("a")) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[1::2] == [b"1"] * 5
        assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])


async def test_closing_fails_what_is_under_way_and_leaves_nothing(server: ServerProcess) -> None:
    client = AsyncClient(server.target)
    await client.put("a", "1")
    server.process.send_signal(signal.SIGSTOP)
    call = asyncio.create_task(client.get("a"))
    await asyncio.sleep(0.05)
    await client.close()
    server.process.send_signal(signal.SIGCONT)
    with pytest.raises(PequodError):
        await call
    await client.close()
    for use in (client.get("a"), client.joins()):
        with pytest.raises(ClosedError):
            await use
    for _ in range(100):
        # gRPC's own tasks end a moment after their channel.
        if asyncio.all_tasks() == {asyncio.current_task()}:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"tasks are left: {asyncio.all_tasks()}")


def test_closing_the_synchronous_client_ends_its_thread(server: ServerProcess) -> None:
    client = Client(server.target)
    client.put("a", "1")
    assert f"pequod {server.target}" in {thread.name for thread in threading.enumerate()}
    client.close()
    client.close()
    assert f"pequod {server.target}" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ClosedError):
        client.get("a")
    with pytest.raises(ClosedError):
        client.batch().send()


async def test_an_iterator_left_early_is_closed(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await asyncio.gather(*(client.put(f"x|{number:05}", "v" * 100) for number in range(10_000)))
        rows = client.scan_iter("x|", "x}")
        async for key, _ in rows:
            assert key == b"x|00000"
            break
        await rows.aclose()
        assert await client.get("x|00001") == b"v" * 100


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_synchronous_client_runs_on_any_loop(
    server: ServerProcess, make: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    loops = []

    def made() -> asyncio.AbstractEventLoop:
        loops.append(make())
        return loops[0]

    with Client(server.target, loop_factory=made) as client:
        client.put("a", "1")
        assert client.get("a") == b"1"
        assert list(client.scan_iter("a")) == [(b"a", b"1")]
        assert loops[0].is_running()
    assert not loops[0].is_running()


def test_the_synchronous_client_takes_the_loop_that_is_installed(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(server.target) as client:
        assert type(client._background.loop).__module__ == "uvloop"
    monkeypatch.setattr("pequod.client.background.find_spec", lambda _: None)
    with Client(server.target) as client:
        client.put("a", "1")
        assert isinstance(client._background.loop, asyncio.SelectorEventLoop)
