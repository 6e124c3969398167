"""The metrics and the health of all workers at the supervisor's one address."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families

from pequod import Client
from tests.workers.conftest import Workers, timeline

IDS = {"w0", "w1", "w2"}


class Watched:
    """A server of three workers, and what its supervisor tells."""

    def __init__(self, server: Workers) -> None:
        self.server = server
        found = re.search(r"http://[\w.:]+", server.hear("serving metrics"))
        assert found is not None
        self._url = found[0]

    def get(self, path: str, accept: str = "text/plain") -> tuple[int, str]:
        try:
            with urlopen(Request(f"{self._url}/{path}", headers={"Accept": accept}), timeout=30) as reply:
                return reply.status, reply.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def samples(self, name: str) -> dict[str, float]:
        """Return the sums of the samples of a name, by worker."""
        status, text = self.get("metrics")
        assert status == 200
        found: dict[str, float] = defaultdict(float)
        for family in families(text):
            for sample in family.samples:
                if sample.name == name:
                    found[sample.labels["worker"]] += sample.value
        return dict(found)

    def until(self, is_so: Callable[[], bool]) -> None:
        end_s = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < end_s
            time.sleep(0.02)


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    with Workers(3, "--metrics", "127.0.0.1:0") as server:
        with Client(server.target) as client:
            client.put("s|ann|bob", "1")
            client.put("p|bob|0000000001", "Hi")
            for _ in range(20):
                assert timeline(client)
        yield Watched(server)


def test_each_sample_says_of_which_worker_it_is(watched: Watched) -> None:
    status, text = watched.get("metrics")
    assert status == 200
    found = list(families(text))
    assert len({family.name for family in found}) == len(found), "each family is there once"
    seen: dict[str, set[str]] = defaultdict(set)
    for family in found:
        for sample in family.samples:
            seen[family.name].add(sample.labels["worker"])
    assert all(workers <= IDS for workers in seen.values())
    assert seen["pequod_revision"] == IDS
    assert watched.samples("pequod_worker_up") == dict.fromkeys(IDS, 1.0)
    assert watched.samples("pequod_worker_starts") == dict.fromkeys(IDS, 1.0)
    assert watched.samples("pequod_revision")["w0"] >= 2


def test_a_scraper_may_ask_for_open_metrics(watched: Watched) -> None:
    status, text = watched.get("metrics", "application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert text.endswith("# EOF\n")
    up = next(family for family in open_families(text) if family.name == "pequod_worker_up")  # type: ignore[no-untyped-call]
    assert {sample.labels["worker"] for sample in up.samples} == IDS


def test_calls_are_counted_where_they_are_made_and_where_they_are_passed_on(watched: Watched) -> None:
    before = watched.samples("pequod_call_seconds_count")
    with grpc.insecure_channel(watched.server.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        for number in range(60):
            # The second one of each is answered natively, here or where it is passed on.
            request = pb.ScanRequest(first=b"t|user%d|" % (number // 2), last=b"t|user%d}" % (number // 2))
            assert [key for chunk in stub.Scan(request) for key in chunk.keys] == []
    after = watched.samples("pequod_call_seconds_count")
    counts = sorted(after[name] - before.get(name, 0) for name in after)
    # All at the worker that is met; a part of them again at each of the others, and no other calls.
    assert counts[-1] == 60
    assert 0 < sum(counts[:-1]) < 60


def test_a_worker_that_is_away_makes_the_server_not_ready_and_is_named(watched: Watched) -> None:
    assert watched.get("readyz") == (200, "ready\n")
    starts = watched.samples("pequod_worker_starts")["w2"]
    pid = watched.server.pids["w2"]
    os.kill(pid, signal.SIGKILL)
    watched.until(lambda: watched.get("readyz")[0] == 503)
    status, text = watched.get("readyz")
    if status == 503:
        assert text.startswith("w2: ")
    assert watched.get("healthz")[0] == 200
    watched.until(lambda: watched.get("readyz") == (200, "ready\n"))
    assert watched.samples("pequod_worker_starts") == dict.fromkeys(IDS, 1.0) | {"w2": starts + 1}
    watched.until(lambda: watched.samples("pequod_worker_up") == dict.fromkeys(IDS, 1.0))


def test_a_worker_that_does_not_answer_is_left_out_of_a_scrape(watched: Watched) -> None:
    pid = watched.server.pids["w1"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert set(watched.samples("pequod_revision")) == IDS - {"w1"}
        status, text = watched.get("readyz")
        assert (status, text) == (503, "w1: it does not answer\n")
    finally:
        os.kill(pid, signal.SIGCONT)
    watched.until(lambda: watched.get("readyz")[0] == 200)
