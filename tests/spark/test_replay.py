"""Workloads are generated, replayed against real servers, and what these hold is what the joins make of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pequod_spark.connection import Connection
from pequod_spark.pacing import ReplayOutcome, ReplayRequest, closed_loop, open_loop
from pequod_spark.replay import ReplayError, replay
from pequod_spark.workloads import NoWorkloadError, read
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pequod import Client
from pequod.cli.app import app
from pequod.errors import UnavailableError
from tests.spark.faulty import faulty_server


@pytest.fixture
def targets() -> Iterator[list[str]]:
    """Two empty servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(faulty_server("", {})) for _ in range(2)]


@pytest.fixture
def workloads(twip_path: Path, newp_path: Path) -> dict[str, str]:
    return {"twip": str(twip_path), "newp": str(newp_path)}


@pytest.mark.parametrize(
    ("name", "options", "kinds"),
    [("twip", [], {"check", "subscribe", "post"}), ("newp", ["--rate", "4000"], {"page", "vote", "comment"})],
)
def test_what_servers_hold_after_a_replay_is_what_the_joins_make_of_it(
    spark: SparkSession, workloads: dict[str, str], targets: list[str], name: str, options: list[str], kinds: set[str]
) -> None:
    command = ["spark", "replay", workloads[name], "--json", *options, *(f"--target={target}" for target in targets)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["latencies"].keys() == kinds
    assert found["requests"] == read(spark, workloads[name]).requests.count()
    assert found["requests"] == sum(latency["requests"] for latency in found["latencies"].values())
    for latency in found["latencies"].values():
        assert 0 < latency["p50_ms"] <= latency["p99_ms"] <= latency["p999_ms"] <= latency["max_ms"]
    assert found["errors"] == {}
    assert found["keys_compared"] > 1_000
    assert found["keys_different"] == 0
    with Client(targets[0]) as one, Client(targets[1]) as other:
        shared, parted = ("p|", "t|") if name == "twip" else ("vote|", "comment|")
        assert one.keys(prefix=shared) == other.keys(prefix=shared)
        assert one.count(prefix=parted) > 100
        assert not set(one.keys(prefix=parted)) & set(other.keys(prefix=parted))


def test_a_server_that_is_not_empty_is_refused(spark: SparkSession, workloads: dict[str, str]) -> None:
    with (
        faulty_server("b|<x> = copy a|<x>", {"a|1": "x"}) as target,
        pytest.raises(ReplayError, match=r"is not empty \(it has 2 keys and the joins b\); start one for the replay"),
    ):
        replay(spark, workloads["twip"], [Connection(target)])


def test_a_place_without_a_workload_is_said(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NoWorkloadError, match=r"holds no workload: .*; `pequod spark generate` makes one"):
        replay(spark, str(tmp_path), [])


def test_what_cannot_be_generated_is_said(workloads: dict[str, str]) -> None:
    result = CliRunner().invoke(app, ["spark", "generate", "newp", workloads["twip"], "--articles", "1"])
    assert result.exit_code == 3
    assert "already exists" in result.stderr
    assert "Traceback" not in result.stderr
    result = CliRunner().invoke(app, ["spark", "generate", "twip", "/nowhere", "--graph", "star"])
    assert result.exit_code == 3
    assert "there is no graph at 'star'" in result.stderr


def requests(count: int) -> list[ReplayRequest]:
    return [ReplayRequest(number, "check", 0, b"t|", b"t}", None) for number in range(count)]


async def test_a_closed_loop_keeps_so_many_under_way() -> None:
    under_way = most = 0
    order: list[int] = []

    async def send(request: ReplayRequest) -> None:
        nonlocal under_way, most
        order.append(request.at)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        if request.at == 3:
            raise UnavailableError("x", "gone")

    outcome = await closed_loop(requests(20), send, 4)
    assert most == 4
    assert order == list(range(20))
    assert outcome.errors == {"UnavailableError": 1}
    assert outcome.latencies["check"].get_total_count() == 19


async def test_an_open_loop_counts_from_when_requests_are_due() -> None:
    """The first one holds up the loop for 0.2 s, in which all others are due."""
    gate = asyncio.Event()

    async def send(request: ReplayRequest) -> None:
        if request.at == 0:
            await asyncio.sleep(0.2)
            gate.set()
        await gate.wait()

    outcome = await open_loop(requests(10), send, rate=1_000)
    found = outcome.latencies["check"]
    assert found.get_total_count() == 10
    assert found.get_min_value() >= 150_000
    assert outcome.seconds >= 0.2


def test_outcomes_of_tasks_add_up() -> None:
    one, other = ReplayOutcome(seconds=1.0), ReplayOutcome(seconds=2.0)
    one.record("check", 0.001)
    one.errors["DeadlineExceededError"] += 1
    other.record("check", 0.003)
    other.record("post", 7200.0)
    total = ReplayOutcome()
    for part in (one, other):
        total.add(part.encoded())
    assert total.latencies["check"].get_total_count() == 2
    assert total.latencies["check"].get_value_at_percentile(100) == pytest.approx(3_000, rel=0.001)
    assert total.latencies["post"].get_value_at_percentile(50) == pytest.approx(3.6e9, rel=0.001)
    assert (total.errors, total.seconds) == ({"DeadlineExceededError": 1}, 2.0)
