"""Backfills with readers and writers on their server; the server is killed, or a worker, or a driver."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest
from typer.testing import CliRunner

from pequod.cli import backfill as command
from pequod.cli.app import app
from pequod.client import Client
from tests.client.conftest import ServerProcess

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>"
USERS = [f"u{number:03}" for number in range(80)]
#: Whom each user may follow, and all posts there may be; at any moment about half of them are there.
OTHERS = {user: random.Random(user).sample(USERS, 16) for user in USERS}
POSTS = [f"p|{USERS[number % 80]}|{number:04}" for number in range(3000)]
#: Whose timelines are read meanwhile; the others are left for the backfill to load.
READ = USERS[:10]
#: About thirty parts of all timelines, so that what dies dies in the midst of them.
OPTIONS = ["--join", "t", "--part-rows", "400"]


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    server = ServerProcess()
    yield server
    server.kill()


class Traffic:
    """Writers, whose model is what the server must hold, and readers that remember how reads went."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._stopped = threading.Event()
        self.model: dict[bytes, bytes] = {}
        self.reads = 0
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=work) for work in (self._write, self._read)]

    def fill(self, client: Client) -> None:
        draw = random.Random(1)
        rows = {f"s|{user}|{other}".encode(): b"1" for user in USERS for other in draw.sample(OTHERS[user], 8)}
        rows |= {key.encode(): b"old" for key in draw.sample(POSTS, 1500)}
        client.add_join(TIMELINE)
        client.multi_put(rows)
        self.model = dict(rows)

    @contextmanager
    def going(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in self._threads:
                thread.join()

    def _write(self) -> None:
        draw = random.Random(2)
        with Client(self._target) as client:
            while not self._stopped.wait(0.01):
                batch = client.batch()
                for key in (draw.choice(POSTS), _follow(draw)):
                    value = b"new%d" % draw.randrange(9)
                    batch.put(key, value)
                    self.model[key.encode()] = value
                for key in (draw.choice(POSTS), _follow(draw)):
                    batch.remove(key)
                    self.model.pop(key.encode(), None)
                batch.send()

    def _read(self) -> None:
        """Read timelines with their sources, in one batch: they must be of one another at every moment."""
        draw = random.Random(3)
        with Client(self._target) as client:
            while not self._stopped.wait(0.1):
                user = draw.choice(READ)
                batch = client.batch()
                for first in (f"s|{user}|", f"t|{user}|", "p|"):
                    batch.scan(first, first[:-1] + "}")
                followed, timeline, posts = (
                    dict(zip(rows.keys, rows.values, strict=True))  # type: ignore[union-attr]
                    for rows in batch.send()
                )
                posters = {key.split(b"|")[2] for key in followed}
                expected = {
                    b"t|%b|%b|%b" % (user.encode(), moment, poster): value
                    for (_, poster, moment), value in ((key.split(b"|"), value) for key, value in posts.items())
                    if poster in posters
                }
                self.reads += 1
                if timeline != expected:
                    self.failures.append(user)


def _follow(draw: random.Random) -> str:
    user = draw.choice(USERS)
    return f"s|{user}|{draw.choice(OTHERS[user])}"


class Driver:
    """A process that runs backfills one after another, with a Spark of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.spark.driver"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, target: str) -> None:
        """Have it begin a backfill of a server."""
        assert self.process.stdin is not None
        print("backfill", *OPTIONS, "--target", target, "--json", file=self.process.stdin, flush=True)

    def end(self) -> dict[str, object]:
        """Wait for the backfill's end, and return how it went."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the driver ended"
        return dict(json.loads(line))

    def is_over(self) -> bool:
        """Tell whether the process has ended."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill the process; its Spark ends with it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.kill()


def wait_until_loading(client: Client, is_over: Callable[[], bool]) -> None:
    """Wait until a driver has loaded something; the test's time limit ends it if that never comes."""
    while True:
        found = client.backfills.list()
        if found and not found[0].ended and found[0].rows_loaded:
            return
        assert not is_over(), "the driver ended before it could be disturbed"
        time.sleep(0.02)


# The driver is not needed here, but may start up meanwhile.
@pytest.mark.usefixtures("spark", "driver")
def test_a_server_that_is_started_anew_is_filled_anew(server: ServerProcess) -> None:
    """The driver lives on, so it is this process, whose session is warm already."""
    over = threading.Event()

    def start_anew() -> Traffic:
        # Other calls meet the dead server too, and gRPC then takes a second before it connects again for any of them.
        with Client(server.target, retries=1000) as client:
            wait_until_loading(client, over.is_set)
            server.kill()
            server.start()
            traffic = Traffic(server.target)
            traffic.fill(client)
            return traffic

    with Client(server.target) as client, ThreadPoolExecutor() as pool:
        Traffic(server.target).fill(client)
        killing = pool.submit(start_anew)
        result = CliRunner().invoke(app, ["backfill", *OPTIONS, "--target", server.target])
        over.set()
        traffic = killing.result()
        assert result.exit_code == 0, result.stderr
        assert "started anew" in result.stderr
        found = {row for user in USERS for row in client.scan(prefix=f"t|{user}|")}
        assert dict(found) == _recomputed(traffic.model)


@pytest.mark.usefixtures("spark")
def test_a_server_that_is_started_anew_without_its_rows_is_not_filled(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the join again, as from its settings, and one row."""
    monkeypatch.setattr(command, "_RETURN_S", 2.0)
    over = threading.Event()

    def start_anew() -> None:
        with Client(server.target, retries=1000) as client:
            wait_until_loading(client, over.is_set)
            server.kill()
            server.start()
            client.add_join(TIMELINE)
            client.put("p|u001|0001", "one of many")

    with Client(server.target) as client, ThreadPoolExecutor() as pool:
        traffic = Traffic(server.target)
        traffic.fill(client)
        killing = pool.submit(start_anew)
        result = CliRunner().invoke(app, ["backfill", *OPTIONS, "--target", server.target])
        over.set()
        killing.result()
    assert result.exit_code == 3, result.stderr
    assert f"it has 1 of the {len(traffic.model):,} source rows" in result.stderr


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(600)
def test_whatever_dies_all_reads_are_exact(server: ServerProcess, driver: Driver) -> None:
    traffic = Traffic(server.target)
    with Client(server.target) as client:
        traffic.fill(client)
        with traffic.going():
            driver.begin(server.target)
            wait_until_loading(client, driver.is_over)
            _workers(driver.process)[0].kill()
            ended = driver.end()
            assert ended["code"] == 0, ended
            assert client.backfills.list()[0].ended == "finished"
            client.invalidate_join("t")
            driver.begin(server.target)
            wait_until_loading(client, driver.is_over)
            driver.kill()
            left, _finished = client.backfills.list()
            client.backfills.end(left, "its driver was killed")
            result = CliRunner().invoke(app, ["backfill", *OPTIONS, "--target", server.target, "--json"])
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["contexts_before"] > 0, "what the killed driver loaded is left out"
        computed = client.statistics().joins["t"].computed_ranges
        found = {row for user in USERS for row in client.scan(prefix=f"t|{user}|")}
        assert client.statistics().joins["t"].computed_ranges == computed, "nothing is left to compute"
        assert traffic.reads > 10
        assert traffic.failures == []
        assert dict(found) == _recomputed(traffic.model)
        assert client.backfills.list()[0].ended == "finished"


def _workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the Python processes in which a driver's tasks run, the daemon that forks them left out."""
    pythons = [
        child for child in psutil.Process(process.pid).children(recursive=True) if "spark.daemon" in _command(child)
    ]
    return [child for child in pythons if child.ppid() in {other.pid for other in pythons}]


def _command(process: psutil.Process) -> str:
    """Return the command line of a process, nothing of one that is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _recomputed(base: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Join subscriptions and posts, by hand."""
    followed = {tuple(key.split(b"|")[1:]) for key in base if key.startswith(b"s|")}
    posts: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for key, value in base.items():
        if key.startswith(b"p|"):
            _, poster, moment = key.split(b"|")
            posts.setdefault(poster, []).append((moment, value))
    return {
        b"t|%b|%b|%b" % (user, moment, poster): value
        for user, poster in followed
        for moment, value in posts.get(poster, [])
    }
