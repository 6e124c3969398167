"""Workers live and die under one address: reads go on, dead ones come back, what was acknowledged is not lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod import Client
from pequod.commands.kinds import SCAN
from pequod.freshness import LATEST
from tests.forked import run_serve
from tests.workers.conftest import Workers, met_by, timeline


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with Workers(3, "--data", str(tmp_path_factory.mktemp("workers") / "data")) as server:
        with Client(server.target) as client:
            client.put("s|ann|bob", "1")
            client.put("p|bob|0000000001", "Hi")
        yield server


#: Of the timeline, by a level: the worker that answers shows what there is from then on.
LATEST_TIMELINE = pb.ScanRequest(first=b"t|ann|", last=b"t|ann}", freshness=pb.Freshness(latest=True))


#: The same in a batch, which no worker passes on: one whose feed is away has old rows, and shows them if others go.
LATEST_BATCH = pb.ExecuteRequest(
    kinds=bytes([SCAN]), arguments=[b"t|ann|", b"t|ann}"], freshness=pb.Freshness(latest=True, wait_ms=30_000)
)


def _read_itself(stub: PequodStub) -> None:
    """Have the worker that is met show the latest timeline, computed by itself."""
    replies = list(stub.Execute(iter([LATEST_BATCH])))
    assert not any(reply.errors for reply in replies), replies


def _post(server: Workers, number: int) -> list[tuple[bytes, bytes]]:
    """Post once more; return the timeline that has to be seen from then on, whichever worker a client meets."""
    with Client(server.target) as client:
        client.put(f"p|bob|{number:010}", f"post {number}")
        posts = client.scan("p|bob|", "p|bob}", freshness=LATEST)
    met = set[int]()
    while len(met) < len(server.pids):
        met.add(met_by(server.target, _read_itself))
    return [(b"t|ann|" + key.split(b"|")[2] + b"|bob", value) for key, value in posts]


def test_every_worker_is_met_at_the_one_address_and_all_answer_alike(running: Workers) -> None:
    seen: set[int] = set()
    wanted = _post(running, 2)
    while len(seen) < 3:
        found: list[tuple[bytes, bytes]] = []

        def scan(stub: object, found: list[tuple[bytes, bytes]] = found) -> None:
            for chunk in stub.Scan(LATEST_TIMELINE):  # type: ignore[attr-defined]
                found += zip(chunk.keys, chunk.values, strict=True)

        seen.add(met_by(running.target, scan))
        assert found == wanted


def test_a_killed_worker_comes_back_while_reads_go_on(running: Workers) -> None:
    wanted = _post(running, 3)
    for name in ("w1", "w0"):
        before = running.pids[name]
        with _Reading(running, wanted):
            running.kill_worker(name)
            assert f"worker={name}" in running.hear("a worker has died")
            assert f"worker={name}" in running.hear("a worker serves again")
        assert running.pids[name] != before
    assert _post(running, 4)[:-1] == wanted, "the home had it on disk"


def test_all_workers_are_started_again_one_after_the_other_while_reads_go_on(running: Workers) -> None:
    wanted, before = _post(running, 5), running.pids
    with _Reading(running, wanted):
        running.send_signal(signal.SIGHUP)
        running.hear("all workers are started again")
    after = running.pids
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def test_what_was_acknowledged_is_there_after_the_end(tmp_path: Path) -> None:
    folder, puts = str(tmp_path / "data"), 0
    with Workers(2, "--data", folder) as server, Client(server.target) as client, ThreadPoolExecutor(1) as pool:

        def put_on() -> int:
            done = 0
            try:
                while True:
                    client.put(f"p|bob|{done:010}", str(done))
                    done += 1
                    under_way.set()
            except Exception:
                return done

        under_way = Event()
        counting = pool.submit(put_on)
        under_way.wait()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        client.close()
        puts = counting.result()
    with Workers(1, "--data", folder) as server, Client(server.target) as client:
        assert puts
        assert [key for key, _ in client.scan("p|bob|", f"p|bob|{puts:010}")] == [
            f"p|bob|{number:010}".encode() for number in range(puts)
        ]


def test_without_a_place_for_base_data_the_home_is_left_as_it_is() -> None:
    # Its workers are started as by a shell's server.
    with Workers(2, serve=run_serve) as server, Client(server.target) as client:
        client.put("s|ann|bob", "1")
        client.put("p|bob|0000000001", "Hi")
        home = server.pids["w0"]
        server.send_signal(signal.SIGHUP)
        server.hear("the home is left as it is")
        assert "kept='its process" in server.hear("all workers but the home are started again")
        assert server.pids["w0"] == home
        assert timeline(client) == [(b"t|ann|0000000001|bob", b"Hi")]
        server.kill_worker("w0")
        assert "base data were in its memory alone" in server.hear("a worker has died")


class _Reading:
    """Clients that read the timeline again and again meanwhile; each reply is the one that is wanted."""

    def __init__(self, server: Workers, wanted: list[tuple[bytes, bytes]]) -> None:
        self._server = server
        self._wanted = wanted
        self._is_over = Event()
        self._pool = ThreadPoolExecutor(2)

    def __enter__(self) -> None:
        self._reads = [self._pool.submit(self._read) for _ in range(2)]

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        assert all(read.result() for read in self._reads)
        self._pool.shutdown()

    def _read(self) -> int:
        count = 0
        with Client(self._server.target, timeout_s=60, retries=1000) as client:
            while not self._is_over.wait(0.01):
                assert timeline(client) == self._wanted
                count += 1
        return count
