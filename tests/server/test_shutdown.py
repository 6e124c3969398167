"""The end of a server: not ready, then drained, then closed; at once if told twice."""

import signal
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod import Client
from tests.forked import ForkedServer
from tests.server.ending import heard

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
#: More than a connection holds on its way, so that a scan that nobody reads stays under way.
ROWS, ROW_BYTES = 64, 1 << 20


@pytest.fixture
def drain_s() -> int:
    return 100


@pytest.fixture
def process(drain_s: int) -> Iterator[ForkedServer]:
    # Scans that wait for their reader are slow calls: the log is to have nothing but the end.
    with ForkedServer("--listen", "127.0.0.1:0", "--drain-s", str(drain_s), "--slow-ms", "0") as process:
        yield process


@pytest.fixture
def channel(process: ForkedServer) -> Iterator[grpc.Channel]:
    with Client(process.target) as client:
        for number in range(ROWS):
            client.put(f"k{number:02}", b"v" * ROW_BYTES)
    with grpc.insecure_channel(process.target) as channel:
        yield channel


def test_health_says_not_serving_while_a_call_drains_to_its_end(process: ForkedServer, channel: grpc.Channel) -> None:
    stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
    health: Any = health_pb2_grpc.HealthStub(channel)
    watches = [
        health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60) for name in ("", "pequod.v1.Pequod")
    ]
    assert [next(watch).status for watch in watches] == [SERVING, SERVING]
    scan = stub.Scan(pb.ScanRequest(), timeout=60)
    keys = list(next(scan).keys)

    process.send_signal(signal.SIGTERM)
    assert [next(watch).status for watch in watches] == [NOT_SERVING, NOT_SERVING]
    assert health.Check(health_pb2.HealthCheckRequest()).status == NOT_SERVING
    with pytest.raises(grpc.RpcError) as caught:
        stub.Put(pb.PutRequest(key=b"late"), timeout=20)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "the server is stopping")

    keys += [key for chunk in scan for key in chunk.keys]
    assert keys == [b"k%02d" % number for number in range(ROWS)]
    assert process.wait(30) == 0
    assert heard(process.said.read()) == "pequod stopping\n"


@pytest.mark.parametrize("drain_s", [0])
def test_a_call_that_outlasts_the_drain_time_is_cut_off(process: ForkedServer, channel: grpc.Channel) -> None:
    stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
    scan = stub.Scan(pb.ScanRequest(), timeout=60)
    next(scan)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    with pytest.raises(grpc.RpcError) as caught:
        list(scan)
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert heard(process.said.read()) == "pequod stopping\n"


def test_a_second_ctrl_c_closes_at_once(process: ForkedServer, channel: grpc.Channel) -> None:
    stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
    health: Any = health_pb2_grpc.HealthStub(channel)
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
    assert next(watch).status == SERVING
    scan = stub.Scan(pb.ScanRequest(), timeout=60)
    next(scan)

    process.send_signal(signal.SIGINT)
    assert next(watch).status == NOT_SERVING
    process.send_signal(signal.SIGINT)
    with pytest.raises(grpc.RpcError) as caught:
        list(scan)
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert process.wait(30) == 0
    assert heard(process.said.read()) == "pequod stopping\npequod closing at once\n"
