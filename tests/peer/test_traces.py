"""A call of a client is one trace over its compute and its home."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from grpc import aio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from tests.peer.homes import computing, running

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
METADATA = (("traceparent", f"00-{TRACE_ID}-00f067aa0ba902b7-01"),)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of all servers of the test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("pequod_server.ops.traces.provider_from_environment", lambda: provider)
    yield exporter
    provider.shutdown()


def spans_of(exporter: InMemorySpanExporter, trace_id: str) -> dict[str, ReadableSpan]:
    spans = exporter.get_finished_spans()
    return {one.name: one for one in spans if one.context is not None and f"{one.context.trace_id:032x}" == trace_id}


async def test_a_read_and_a_write_at_a_compute_are_traced_to_its_home(exporter: InMemorySpanExporter) -> None:
    async with running(traces=True) as home, computing([home.address], traces=True) as compute:
        await home.client.multi_put({"s|ann|bob": "1", "p|bob|0001": "hi"})
        async with aio.insecure_channel(compute.address) as channel:
            stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            scan = pb.ScanRequest(first=b"t|ann|", last=b"t|ann}")
            rows = [key async for reply in stub.Scan(scan, metadata=METADATA) for key in reply.keys]
            await stub.Put(pb.PutRequest(key=b"p|bob|0002", value=b"ho"), metadata=METADATA)
            # This one has no trace of a client, so it is of another one.
            await stub.Put(pb.PutRequest(key=b"p|bob|0003", value=b"ho"))
        assert rows == [b"t|ann|0001|bob"]
        found = spans_of(exporter, TRACE_ID)
        for call, onward in (("Scan", "Load"), ("Put", "Write")):
            span, under = found[f"pequod.v1.Pequod/{call}"], found[f"pequod.v1.PequodPeer/{onward}"]
            assert span.context is not None
            assert under.parent is not None
            assert under.parent.span_id == span.context.span_id
        names = [one.name for one in exporter.get_finished_spans()]
        assert names.count("pequod.v1.PequodPeer/Write") == 2
