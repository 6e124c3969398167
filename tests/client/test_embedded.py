"""A store in the process: what is its own, beside the calls that test_clients.py makes of everybody."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pequod
from pequod.embedded.aio import ROWS_MAX
from pequod.engine import Rows
from pequod.errors import ClosedError, ComputedKeyError, LimitExceededError, WatchCompactedError

KARMA = "karma|<author> = count vote|<author>|<id>"


def test_it_does_without_grpc() -> None:
    code = f"""
import sys
import pequod
with pequod.open() as client:
    client.add_join({KARMA!r})
    client.put("vote|ann|1", "")
    print(client.get("karma|ann"))
print(sorted({{"grpc", "google.protobuf", "pequod_server", "pequod.client"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "b'1'\n[]\n", done.stderr


def test_what_is_no_condition_is_refused() -> None:
    """All clients have their commands made in the same way, before anything is sent."""
    with pequod.open() as client:
        call: Any = client.put
        with pytest.raises(TypeError, match="'absent' is no condition; these are IF_ABSENT"):
            call("k|1", "1", condition="absent")
        call = client.remove
        with pytest.raises(TypeError, match="'present' is no condition; these are IF_ABSENT"):
            call("k|1", condition="present")
        assert client.get("k|1") is None


def test_limits_are_those_of_a_server() -> None:
    with pequod.open(key_bytes_max=4, value_bytes_max=2) as client:
        with pytest.raises(LimitExceededError, match="key_bytes_max is 4"):
            client.put("12345", "")
        with pytest.raises(LimitExceededError, match="value_bytes_max is 2"):
            client.multi_put({"1": "", "2": "123"})
        assert client.keys() == []


def test_snapshots_go_by_the_clock() -> None:
    with pequod.open() as client:
        client.add_join("k|<a> = snapshot 0.05 count v|<a>|<b>; old|<a> = snapshot 1000 count v|<a>|<b>")
        client.put("v|1|1", "")
        assert client.multi_get(["k|1", "old|1"]) == [b"1", b"1"]
        client.put("v|1|2", "")
        expired = threading.Event()
        expired.wait(0.06)
        assert client.multi_get(["k|1", "old|1"]) == [b"2", b"1"]


def test_many_threads_share_a_store() -> None:
    with pequod.open() as client, ThreadPoolExecutor(8) as pool:
        client.add_join(KARMA)

        def work(name: int) -> int:
            for number in range(200):
                client.put(f"vote|{number % 7}|{name}-{number}", "")
                client.scan(prefix="karma|")
                batch = client.batch()
                batch.get(f"karma|{name}")
                batch.put(f"own|{name}", str(number))
                batch.get(f"own|{name}")
                assert batch.send()[2] == str(number).encode()
            return client.count(prefix="own|")

        assert max(pool.map(work, range(8))) == 8
        assert sum(int(value) for _, value in client.scan(prefix="karma|")) == 1600
        client._shared._engine._check()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 1, ROWS_MAX, ROWS_MAX + 1, 10 * ROWS_MAX])
def test_iterators_and_pages_lead_through_a_range(limit: int | None, reverse: bool) -> None:
    with pequod.open() as client:
        keys = [b"x|%05d" % number for number in range(3 * ROWS_MAX)]
        client.multi_put((key, key[-1:]) for key in keys)
        expected = (keys[::-1] if reverse else keys)[:limit]
        assert list(client.keys_iter(prefix="x|", limit=limit, reverse=reverse)) == expected
        assert client.keys(prefix="x|", limit=limit, reverse=reverse) == expected
        rows = [(key, key[-1:]) for key in expected]
        assert list(client.scan_iter(prefix="x|", limit=limit, reverse=reverse)) == rows
        assert client.scan(prefix="x|", limit=limit, reverse=reverse) == rows
        page = client.scan_page(prefix="x|", reverse=reverse)
        sizes = [len(page.rows)]
        while page.resume_key is not None:
            page = client.scan_page(prefix="x|", reverse=reverse, resume_key=page.resume_key)
            sizes.append(len(page.rows))
        assert sizes == [ROWS_MAX] * 3


def test_an_iterator_outlives_the_loop_that_it_was_begun_in() -> None:
    with pequod.open() as client:
        client.multi_put((b"x|%05d" % number, b"") for number in range(2 * ROWS_MAX))

        async def begin() -> Iterator[tuple[bytes, bytes]]:
            rows = client.scan_iter()
            next(rows)
            return rows

        assert len(list(asyncio.run(begin()))) == 2 * ROWS_MAX - 1


def test_a_batch_gives_a_result_for_each_command() -> None:
    with pequod.open() as client:
        client.add_join(KARMA)
        batch = client.batch()
        batch.put("vote|ann|1", "")
        batch.put("karma|ann", "")
        batch.get("karma|ann")
        batch.scan(prefix="karma|", limit=1)
        batch.count(prefix="vote|")
        batch.remove("vote|ann|1")
        with pytest.raises(TypeError):
            batch.get(5)  # type: ignore[arg-type]
        assert len(batch) == 6
        put, refused, got, rows, count, removed = batch.send()
        assert (put, got, rows, count, removed) == (None, b"1", Rows([b"karma|ann"], [b"1"]), 1, True)
        assert isinstance(refused, ComputedKeyError)
        assert batch.send_nowait().result() == []


def test_a_watch_tells_what_happens() -> None:
    with pequod.open() as client:
        client.add_join(KARMA)
        client.put("vote|ann|1", "")
        events = client.watch("karma|", "karma}", rows=True)
        first = next(events)
        assert (first.revision, first.rows) == (client.revision, Rows([b"karma|ann"], [b"1"]))
        client.multi_put({"vote|ann|2": "", "vote|bob|1": "", "elsewhere": ""})
        event = next(events)
        assert event.changes == [(b"karma|ann", b"1", b"2"), (b"karma|bob", None, b"1")]
        assert event.revision == client.revision
        client.add_join("karma|<a>|<b>|x = copy other|<a>|<b>")
        with pytest.raises(WatchCompactedError):
            next(events)
        assert not client._shared._wakes


def test_watches_hear_of_other_threads_and_of_the_end() -> None:
    client = pequod.open()
    heard: list[list[bytes | None]] = []
    began = threading.Event()

    def listen() -> None:
        try:
            for event in client.watch("a"):
                heard.append([change.new for change in event.changes])
                began.set()
        except ClosedError:
            heard.append([b"closed"])

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert began.wait(10)
    for number in range(100):
        client.put("a|1", str(number))
    client.get("a|1")
    client.close()
    thread.join(10)
    assert not thread.is_alive()
    assert heard[-1] == [b"closed"]
    told = [value for values in heard[:-1] for value in values]
    assert told == [b"%d" % number for number in range(len(told))], "in order, as far as it was taken before the end"
    assert not client._shared._wakes


async def test_an_asynchronous_watch() -> None:
    async with pequod.open_async() as client:
        events = client.watch("a", rows=True)
        assert (await anext(events)).rows == Rows([], [])
        pending = asyncio.ensure_future(anext(events))
        await client.put("a", "1")
        assert (await pending).changes == [(b"a", None, b"1")]
        pending = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
    with pytest.raises(ClosedError):
        await pending


async def test_an_asynchronous_store() -> None:
    async with pequod.open_async() as client:
        await client.add_join(KARMA)
        await asyncio.gather(*(client.put(f"vote|ann|{number}", "") for number in range(100)))
        batch = client.batch()
        batch.get("karma|ann")
        assert await batch.send() == [b"100"]
        assert client.server_id > 0
        assert client.revision == 101
    with pytest.raises(ClosedError):
        await client.get("karma|ann")
    with pytest.raises(ClosedError):
        await client.batch().send()
    await client.close()


def test_a_closed_store_refuses_calls_and_holds_nothing() -> None:
    client = pequod.open()
    client.put("a", "1")
    client.close()
    client.close()
    calls = (lambda: client.get("a"), client.joins, client.batch().send, lambda: list(client.scan_iter()))
    for call in calls:
        with pytest.raises(ClosedError):
            call()
    assert client._shared._engine.count(b"", None) == 0


def test_the_open_that_opens_files_is_left_alone() -> None:
    names: dict[str, object] = {}
    exec("from pequod import *", names)
    assert "open" not in names
