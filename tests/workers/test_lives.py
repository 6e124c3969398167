"""Workers live and die under one address: reads go on, dead ones come back, what was acknowledged is not lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import grpc
import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod import Client
from pequod.commands.kinds import PUT, SCAN
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


#: Who answers is the worker that the connection has met.
HERE = pb.ExplainRequest(range=pb.Range(first=b"s|", last=b"s}"))
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


class _Batches:
    """A stream of batches of one command, one after another."""

    def __init__(self, stub: PequodStub) -> None:
        self._requests: SimpleQueue[pb.ExecuteRequest] = SimpleQueue()
        self._replies = stub.Execute(iter(self._requests.get, None))

    def begin(self, kind: int, *arguments: bytes) -> None:
        self._requests.put(pb.ExecuteRequest(kinds=bytes([kind]), arguments=arguments))

    def reply(self) -> pb.ExecuteReply:
        reply: pb.ExecuteReply = next(self._replies)
        return reply

    def run(self, kind: int, *arguments: bytes) -> pb.ExecuteReply:
        self.begin(kind, *arguments)
        return self.reply()


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


def test_writes_and_reads_of_what_the_home_alone_has_wait_while_it_is_away(running: Workers) -> None:
    with ExitStack() as stack:
        stubs, streams = list[PequodStub](), list[_Batches]()
        while len(stubs) < 6:
            channel = stack.enter_context(grpc.insecure_channel(running.target, options=OWN_CONNECTION))
            stub = PequodStub(channel)  # type: ignore[no-untyped-call]
            home = stub.Get(pb.GetRequest(key=b"x|0")).header.server_id
            if stub.Explain(HERE).header.server_id != home:
                stubs.append(stub)
                streams.append(_Batches(stub))
                streams[-1].run(PUT, b"x|before", b"1")
        running.kill_worker("w0")
        running.hear("a worker has died")
        for stub in stubs:
            # Its worker knows afterwards that the connection is lost: what had gone there would not be sent again.
            stub.Explain(HERE)
        puts = [stub.Put.future(pb.PutRequest(key=b"x|%d" % number, value=b"1")) for number, stub in enumerate(stubs)]
        gets = [stub.Get.future(pb.GetRequest(key=b"x|before")) for stub in stubs]
        for number, stream in enumerate(streams):
            stream.begin(PUT, b"x|b%d" % number, b"1")
        running.hear("a worker serves again")
        assert [get.result().value for get in gets] == [b"1"] * len(stubs)
        for put in puts:
            put.result()
        for stream in streams:
            assert not stream.reply().errors
        assert stubs[0].Count(pb.CountRequest(first=b"x|", last=b"x}")).count == 1 + 2 * len(stubs)


def test_adds_with_ids_are_done_once_though_the_home_is_killed_between_them(running: Workers) -> None:
    is_over, done = Event(), list[bytes]()

    def add_on(number: int) -> None:
        with Client(running.target, timeout_s=60, retries=100) as client:
            while not is_over.is_set():
                done.append(client.add(f"y|{number % 2}", 1))

    with ThreadPoolExecutor(4) as pool:
        adding = [pool.submit(add_on, number) for number in range(4)]
        try:
            for _ in range(2):
                before = len(done)
                while len(done) < before + 20 and not any(one.done() for one in adding):
                    time.sleep(0.01)
                running.kill_worker("w0")
                running.hear("a worker serves again")
        finally:
            is_over.set()
        for one in adding:
            one.result()
    with Client(running.target) as client:
        assert sum(int(value) for _, value in client.scan(prefix="y|")) == len(done)


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
