"""Joins that clients add, drop and replace while several workers serve: the same at each, all or none, and kept."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod import Client
from pequod.errors import JoinError
from tests.forked import run_command
from tests.workers.conftest import Workers

KARMA = "karma|<author> = count vote|<author>|<voter>"
#: Of tables that the settings name, so that every worker computes it.
POSTED = "posted|<poster> = count p|<poster>|<time>"
NAMES = ("w0", "w1", "w2")


@pytest.fixture(scope="module")
def running() -> Iterator[Workers]:
    with Workers(3) as server:
        yield server


@pytest.fixture
def server(running: Workers) -> Iterator[Workers]:
    """Three workers that have no rows, and the join of the settings only."""
    yield running
    with Client(running.target, timeout_s=60) as client:
        for join in client.joins():
            if join.name != "t":
                client.drop_join(join.name)
        for table in ("p|", "vote|"):
            client.remove_range(prefix=table)


def addresses(server: Workers) -> dict[str, str]:
    with grpc.insecure_channel(server.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        (reply,) = stub.FollowCluster(pb.FollowClusterRequest(once=True))
    return {one.id: one.address for one in reply.servers}


def joins_of(address: str) -> list[str]:
    with Client(address, timeout_s=60) as client:
        return [str(join.text) for join in client.joins()]


def end(server: Workers) -> None:
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_join_is_at_all_workers_once_it_is_added_and_at_none_once_it_is_dropped(server: Workers) -> None:
    places = addresses(server)
    with Client(places["w1"]) as client:
        for number in range(5):
            client.put(f"p|bob|{number:010}", "Hi")
            client.put(f"vote|ann|{number}", "1")
        added = client.add_join(f"{POSTED}; {KARMA}")
        assert [join.warnings for join in added] == [(), ()]
    for _ in range(3):
        for name in NAMES:
            assert joins_of(places[name]) == joins_of(places["w0"])
            with Client(places[name]) as client:
                assert client.get("posted|bob") == b"5"
                # No worker but the home has votes.
                assert client.get("karma|ann") == b"5"
    with Client(places["w2"]) as client:
        client.put("p|bob|0000000009", "Hi")
        assert client.get("posted|bob") == b"6"
        client.drop_join(added[0].name)
    for name in NAMES:
        with Client(places[name]) as client:
            assert client.get("posted|bob") is None
            assert client.get("karma|ann") == b"5"


def test_joins_that_are_not_right_change_nothing_anywhere(server: Workers) -> None:
    places = addresses(server)
    before = {name: joins_of(places[name]) for name in NAMES}
    with Client(places["w1"]) as client, pytest.raises(JoinError):
        client.add_join(f"{KARMA}; p|<poster>|<time> = copy t|<poster>|<time>|<poster>")
    assert {name: joins_of(places[name]) for name in NAMES} == before


def test_joins_added_at_once_at_several_workers_are_all_there(server: Workers) -> None:
    places = addresses(server)

    def add(number: int) -> None:
        with Client(places[NAMES[number % 3]], timeout_s=60) as client:
            client.add_join(f"sum{number}|<author> = count vote|<author>|<voter>")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(add, range(6)))
    for name in NAMES:
        assert {text.partition("|")[0] for text in joins_of(places[name])} == {"t", *(f"sum{one}" for one in range(6))}


def test_a_worker_that_was_away_has_the_joins_when_it_is_back(server: Workers) -> None:
    places = addresses(server)
    server.kill_worker("w2")
    with Client(places["w1"]) as client:
        assert client.add_join(POSTED)[0].warnings == ()
    server.hear("a worker serves again")
    assert joins_of(places["w2"]) == joins_of(places["w1"])
    server.kill_worker("w0")
    server.hear("a worker serves again")
    assert joins_of(places["w0"]) == joins_of(places["w1"])


def test_a_worker_that_does_not_answer_is_named_and_has_the_join_when_it_goes_on(server: Workers) -> None:
    places, pid = addresses(server), server.pids["w2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        with Client(places["w1"], timeout_s=60) as client:
            (warning,) = client.add_join(POSTED)[0].warnings
        assert "w2" in warning
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: joins_of(places["w2"]) == joins_of(places["w1"]))


def test_a_join_is_replaced_at_all_workers(server: Workers) -> None:
    places = addresses(server)
    with Client(places["w1"]) as client:
        client.put("p|bob|0000000001", "Hi")
        (added,) = client.add_join(POSTED)
        assert client.get("posted|bob") == b"1"
    done = run_command(
        "join", "replace", "--target", places["w2"], added.name, "posted|<poster> = max p|<poster>|<time>"
    )
    assert not done.code, done.err
    for name in NAMES:
        assert any("max" in text for text in joins_of(places[name]))
        with Client(places[name]) as client:
            assert client.get("posted|bob") == b"Hi"


def test_joins_are_kept_with_the_data(tmp_path: Path) -> None:
    flags = ("--data", str(tmp_path / "data"))
    with Workers(3, *flags) as server:
        places = addresses(server)
        with Client(places["w1"]) as client:
            client.put("p|bob|0000000001", "Hi")
            client.put("vote|ann|bob", "1")
            client.add_join(KARMA)
            (posted,) = client.add_join(POSTED)
        server.kill_worker("w0")
        server.hear("a worker serves again")
        assert len(joins_of(places["w0"])) == 3
        end(server)
    with Workers(2, *flags) as server:
        for address in addresses(server).values():
            assert len(joins_of(address)) == 3
            with Client(address) as client:
                assert (client.get("posted|bob"), client.get("karma|ann")) == (b"1", b"1")
        with Client(server.target) as client:
            client.drop_join(posted.name)
        end(server)
    with Workers(2, *flags) as server:
        for address in addresses(server).values():
            assert len(joins_of(address)) == 2
        end(server)
    # And with one process; those of the settings are not kept.
    with Workers(1, *flags, "--joins", "") as server, Client(server.target) as client:
        assert [join.text for join in client.joins()] == [KARMA]
        assert client.get("karma|ann") == b"1"
