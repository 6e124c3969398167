"""Spans of calls: kept in memory, and sent to a collector that speaks OTLP."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from grpc import aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pequod_installed.names import how_to_install
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodServicer, PequodStub, add_PequodServicer_to_server
from pequod_server import ServerConfig
from pequod_server.calls.service import PequodService, add_service
from pequod_server.database.databases import Databases
from pequod_server.ops.observe import CallObserver
from pequod_server.ops.traces import CallTraces
from pequod_server.snapshots.saving import Snapshots
from pequod_server.wire.endings import Endings

from pequod import Client
from pequod.engine import Engine
from tests.forked import ForkedServer

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def stub(exporter: InMemorySpanExporter) -> AsyncIterator[Any]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = aio.server(interceptors=[CallObserver([CallTraces(provider)]), Endings()])
    engine = Engine()
    snapshots = Snapshots(None, engine, Databases(engine))
    add_service(PequodService(engine, ServerConfig(), lambda *_facts: None, snapshots), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield PequodStub(channel)  # type: ignore[no-untyped-call]
    await server.stop(None)
    provider.shutdown()


async def _finished(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    """Return the spans once there is one: a refusal is on its way to the client before its span ends."""
    for _ in range(1000):
        if exporter.get_finished_spans():
            break
        await asyncio.sleep(0.01)
    return exporter.get_finished_spans()


def _facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_call_is_a_span_under_the_clients(stub: Any, exporter: InMemorySpanExporter) -> None:
    metadata = (("traceparent", TRACEPARENT), ("x-request-id", "mine"))
    await stub.Put(pb.PutRequest(key=b"a|1", value=b"secret"), metadata=metadata)
    (span,) = exporter.get_finished_spans()
    assert span.name == "pequod.v1.Pequod/Put" and span.kind is SpanKind.SERVER
    assert span.context is not None and f"{span.context.trace_id:032x}" == TRACE_ID
    assert span.parent is not None and f"{span.parent.span_id:016x}" == SPAN_ID
    assert _facts(span) == {
        "rpc.system": "grpc",
        "rpc.service": "pequod.v1.Pequod",
        "rpc.method": "Put",
        "rpc.grpc.status_code": 0,
        "pequod.request_id": "mine",
    }
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("metadata", [(), (("traceparent", "00-nonsense"),)])
async def test_without_a_trace_of_the_client_one_begins(
    stub: Any, exporter: InMemorySpanExporter, metadata: tuple[tuple[str, str], ...]
) -> None:
    for _ in range(2):
        await stub.Count(pb.CountRequest(), metadata=metadata)
    one, other = exporter.get_finished_spans()
    assert one.parent is None and other.parent is None
    assert one.context is not None and other.context is not None and one.context.trace_id != other.context.trace_id


async def test_scans_and_streams_are_one_span_each(stub: Any, exporter: InMemorySpanExporter) -> None:
    stream = stub.Execute()
    for number in range(3):
        await stream.write(pb.ExecuteRequest(kinds=b"\x02", arguments=[b"a|%d" % number, b"v"]))
        await stream.read()
    assert exporter.get_finished_spans() == ()
    await stream.done_writing()
    assert await stream.code() is grpc.StatusCode.OK
    assert [len(chunk.keys) async for chunk in stub.Scan(pb.ScanRequest(first=b"a|", chunk_bytes=1))] == [1, 1, 1]
    await stub.Count(pb.CountRequest())
    execute, scan, _ = exporter.get_finished_spans()
    assert (execute.name, scan.name) == ("pequod.v1.Pequod/Execute", "pequod.v1.Pequod/Scan")
    assert _facts(scan)["pequod.rows"] == 3


async def test_only_faults_of_the_server_are_errors(stub: Any, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(aio.AioRpcError):
        await stub.DropJoin(pb.DropJoinRequest(name="nobody"))
    (refused,) = await _finished(exporter)
    assert _facts(refused)["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]
    assert refused.status.status_code is StatusCode.UNSET


async def test_a_method_that_is_not_there_is_an_error(exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = aio.server(interceptors=[CallObserver([CallTraces(provider)])])
    add_PequodServicer_to_server(PequodServicer(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/pequod.v1.Pequod/Guess")
        with pytest.raises(aio.AioRpcError):
            await call(b"")
    await server.stop(None)
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR and span.status.description == "UNIMPLEMENTED"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that it is sent, and the names of the services that send them."""

    def __init__(self) -> None:
        self.spans: list[str] = []
        self.services: set[str] = set()
        self.has_some = threading.Event()

    def Export(self, request: Any, _context: Any) -> Any:  # noqa: N802
        for resource in request.resource_spans:
            self.services |= {
                fact.value.string_value for fact in resource.resource.attributes if fact.key == "service.name"
            }
            self.spans += [span.name for scope in resource.scope_spans for span in scope.spans]
        self.has_some.set()
        return trace_service_pb2.ExportTraceServiceResponse()


def test_the_process_sends_its_spans_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    receiver = grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, receiver)  # type: ignore[no-untyped-call]
    port = receiver.add_insecure_port("127.0.0.1:0")
    receiver.start()
    # Only the end of the server sends them: nothing is sent by itself within an hour.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    with ForkedServer("--listen", "127.0.0.1:0", "--traces") as process:
        with Client(process.target) as client:
            client.put("a|1", "v")
            client.add_join("karma|<a> = count vote|<a>|<v>")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert collector.has_some.wait(10)
    receiver.stop(None)
    assert sorted(collector.spans) == ["pequod.v1.Pequod/AddJoin", "pequod.v1.Pequod/Execute"]
    assert collector.services == {"pequod"}


def test_traces_without_opentelemetry_say_what_to_install() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None
from pequod_server import ServerConfig, run
sys.exit(run(ServerConfig(listen="127.0.0.1:0", traces=True)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr == f"pequod: traces need OpenTelemetry: {how_to_install('otel')}\n"
