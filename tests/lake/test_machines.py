"""Several machines, one lake: processes that are killed or stopped, a catalog that is restarted, a store that fails."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep
from urllib.parse import urlsplit

import psycopg
import pytest
from pequod_lake import IngestLimits, Lake, objects
from pequod_lake.clock import Stamp
from pequod_lake.errors import LakeBusyError, LakeError, LakeExistsError, LakeUnreachableError
from pequod_lake.postgres import PostgresDatabase

from tests.backing.conftest import Postgres
from tests.lake.conftest import Shared
from tests.lake.test_laws import SCHEMA, put

NOW = IngestLimits(scu_age_s=0)
#: Ends or stops itself once, when its file is written and not committed; sends the upload until it is taken.
_CHILD = """
import os, signal, sys
from pequod_lake import IngestLimits, Lake, postgres
from pequod_lake.errors import LakeBusyError, WriterLostError
postgres.ALIVE_S = 1.0
how, left = getattr(signal, sys.argv[2]), [1]
def at_point(name):
    if name == "ingest.written" and left:
        left.pop()
        os.kill(os.getpid(), how)
with Lake(sys.argv[1], at_point=at_point) as lake, lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
    upload = ingestor.upload("child")
    upload.put("plain", {"id": [1], "body": ["child"]})
    taken = None
    while taken is None:
        try:
            taken = ingestor.take(upload)
        except WriterLostError:
            print("refused")
        except LakeBusyError:
            pass
    print(taken)
"""


def child(location: str, how: signal.Signals) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _CHILD, location, how.name], stdout=subprocess.PIPE, text=True)


def wait_for_no_writer(lake: Lake) -> None:
    while lake.catalog.locks.writers():
        sleep(0.01)


@pytest.mark.usefixtures("object_store")
def test_a_machine_that_stopped_for_too_long_commits_nothing(shared: Shared) -> None:
    location = shared.location("s3", SCHEMA)
    stopped = child(location, signal.SIGSTOP)
    _, status = os.waitpid(stopped.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    with Lake(location) as lake:
        wait_for_no_writer(lake)
        assert [len(paths) for paths in lake.expire(0.0)] == [0, 1]
        stopped.send_signal(signal.SIGCONT)
        assert stopped.communicate()[0].splitlines() == ["refused", "Acknowledged(scu=1, is_repeated=False)"]
        with lake.snapshot() as snapshot:
            assert snapshot.get("plain", 1) == {"id": 1, "body": "child"}
        assert lake.verify() == []


@pytest.mark.usefixtures("object_store")
def test_a_killed_writer_leaves_an_orphan_that_a_sweep_deletes(shared: Shared) -> None:
    location = shared.location("s3", SCHEMA)
    killed = child(location, signal.SIGKILL)
    assert killed.communicate()[0] == ""
    assert killed.returncode == -signal.SIGKILL
    with Lake(location) as lake:
        wait_for_no_writer(lake)
        assert lake.snapshot().scu == 0
        assert len(lake.expire(0.0)[1]) == 1
        assert lake.place.files.paths() == []
        assert put(lake, "child", {"id": [1], "body": ["again"]}) == 1


def test_a_session_that_broke_is_made_again_and_locks_with_it(shared: Shared, postgres: Postgres) -> None:
    location = shared.location("postgres", SCHEMA)
    with Lake(location) as lake:
        assert put(lake, "a", {"id": [1], "body": ["x"]}) == 1
        with lake.snapshot() as snapshot:
            with psycopg.connect(postgres.dsn("postgres"), autocommit=True) as admin:
                name = location.rpartition("/")[2]
                admin.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", (name,)
                )
            with pytest.raises(LakeUnreachableError):
                lake.catalog.snapshot()
            assert lake.catalog.snapshot().scu == 1
            # A lock more: the session is made again, with those that were held.
            with pytest.raises(LakeUnreachableError):
                lake.catalog.locks.read(snapshot.number)
            lake.catalog.locks.read(snapshot.number).release()
            assert lake.catalog.locks.numbers() == [snapshot.number]
        assert put(lake, "b", {"id": [2], "body": ["y"]}) == 2


def test_a_clock_of_another_machine_that_is_wrong_makes_no_answer_too_old(shared: Shared) -> None:
    """There is one clock, the database's: what a machine believes is not asked."""
    location = shared.location("postgres", SCHEMA)
    with Lake(location, clock=lambda: Stamp("elsewhere", 0.0, 0)) as behind, Lake(location) as lake:
        put(lake, "a", {"id": [1], "body": ["x"]})
        with behind.snapshot("0s") as snapshot:
            assert snapshot.scu == 1
        now = lake.catalog.now()
        assert 0 <= lake.catalog.snapshot().runs[1].first_stamp.age_s(now) < now.wall_us


def test_a_place_or_a_database_that_holds_something_is_refused(shared: Shared, object_store: str) -> None:
    location = shared.location("s3", SCHEMA)
    with Lake(location) as lake, pytest.raises(LakeExistsError):
        assert isinstance(lake.place.database, PostgresDatabase)
        Lake.create(f"{location}-other", SCHEMA, catalog=lake.place.database.dsn)
    with pytest.raises(LakeExistsError):
        Lake.create(location, SCHEMA, catalog=shared.postgres.dsn("postgres"))
    with pytest.raises(LakeError, match="--catalog"):
        Lake.create(f"{location}-other", SCHEMA)
    with pytest.raises(LakeError, match="make the bucket first"):
        Lake.create("s3://nowhere/lake", SCHEMA, catalog=shared.postgres.dsn("postgres"))
    assert object_store.startswith("http://")


class _Faulty(ThreadingHTTPServer):
    """A proxy before an object store: some requests fail, in one of the ways in which stores do."""

    daemon_threads = True

    def __init__(self, target: str, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = urlsplit(target).netloc
        self.dice = random.Random(seed)
        self.share = 0.0
        self.count = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def fault(self) -> str:
        self.count += 1
        return self.dice.choice(["503", "cut before", "cut after", "half"]) if self.dice.random() < self.share else ""


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Faulty

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _pass(self) -> None:
        body = self._body()
        fault = self.server.fault()
        self.close_connection = bool(fault)
        if fault == "503":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
        if fault in {"503", "cut before"}:
            return
        upstream = HTTPConnection(self.server.target)
        dropped = {"transfer-encoding", "content-length", "expect", "connection"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        upstream.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if fault == "cut after":
            # Done, and nobody is told.
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "content-length", "transfer-encoding", "server", "date"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if fault == "half" else data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815 - the names of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
        """Say nothing."""


@pytest.fixture
def faulty(object_store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Faulty]:
    proxy = _Faulty(object_store, 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_address[1]}")
    monkeypatch.setattr(objects, "_TRIES", 2)
    yield proxy
    proxy.shutdown()
    proxy.server_close()


def test_whatever_the_store_does_what_is_acknowledged_is_there_and_the_rest_is_taken_later(
    shared: Shared, faulty: _Faulty
) -> None:
    location = shared.location("s3", SCHEMA)
    failed = list[int]()
    with Lake(location) as lake, lake.ingestor(NOW) as ingestor:
        worker = lake.worker()

        def send(number: int) -> None:
            upload = ingestor.upload(str(number))
            upload.put("plain", {"id": [number], "body": [f"b{number}"]})
            ingestor.take(upload)

        faulty.share = 0.3
        for number in range(8):
            try:
                send(number)
            except LakeBusyError:
                failed.append(number)
            try:
                worker.step()
                if number % 4 == 0:
                    lake.expire(0.0)
                with lake.snapshot() as snapshot:
                    found = snapshot.scan("plain").rows["id"].to_pylist()
                    assert set(range(number + 1)) - set(failed) <= set(found)
            except LakeBusyError:
                continue
        faulty.share = 0.0
        assert failed, "some were refused"
        for number in failed:
            send(number)
        worker.compact()
        worker.close()
    with Lake(location) as lake:
        lake.expire(0.0)
        assert lake.verify() == []
        with lake.snapshot("authority") as snapshot:
            assert snapshot.scan("plain").rows.to_pylist() == [{"id": one, "body": f"b{one}"} for one in range(8)]
        assert set(lake.place.files.paths()) == {file.path for file in lake.catalog.files("plain")}
