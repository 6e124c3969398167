"""A call of a client is one trace over its compute and its home, from the span that its caller is in."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from grpc import aio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Tracer
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod import Client
from tests.peer.homes import LATEST, computing, running, until

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


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    """The one of the program that calls."""
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider.get_tracer("caller")
    provider.shutdown()


def children(exporter: InMemorySpanExporter, parent: SpanContext) -> list[ReadableSpan]:
    """Return the spans under a span, by the order of their ends."""
    found = [one for one in exporter.get_finished_spans() if one.parent and one.parent.span_id == parent.span_id]
    assert all(one.parent is not None and one.parent.trace_id == parent.trace_id for one in found)
    return found


def calls_under(exporter: InMemorySpanExporter, parent: SpanContext) -> list[str]:
    return [one.name.rpartition("/")[2] for one in children(exporter, parent)]


async def test_the_span_of_a_caller_is_over_those_of_its_calls_at_compute_and_home(
    exporter: InMemorySpanExporter, tracer: Tracer
) -> None:
    async with running(traces=True) as home, computing([home.address], traces=True) as compute:
        await home.client.multi_put({"s|ann|bob": "1", "p|bob|0001": "hi"})
        client = compute.client
        with tracer.start_as_current_span("reads") as span:
            reads = span.get_span_context()
            # The first one is loaded from the home, and the second one is there.
            assert len(await client.scan(prefix="t|ann|")) == 1
            assert len(await client.scan(prefix="t|ann|")) == 1
            assert await client.multi_get(["p|bob|0001"]) == [b"hi"]
            assert [key async for key, _ in client.scan_iter(prefix="t|ann|")] == [b"t|ann|0001|bob"]
        with tracer.start_as_current_span("writes") as span:
            writes = span.get_span_context()
            batch = client.batch()
            batch.put("p|bob|0002", "ho")
            await batch.send()
            await client.session().put("p|bob|0003", "hu")
        # Of nobody's trace again.
        assert await client.get("p|bob|0003", freshness=LATEST) == b"hu"
        await until(lambda: len(calls_under(exporter, writes)) == 2)
        assert calls_under(exporter, reads) == ["Batch", "Batch", "MultiGet", "Scan"]
        assert calls_under(exporter, writes) == ["Batch", "Batch"]
        first, second, *_ = children(exporter, reads)
        assert first.context is not None
        assert second.context is not None
        assert calls_under(exporter, first.context) == ["Load"]
        assert calls_under(exporter, second.context) == []
        for one in children(exporter, writes):
            assert one.context is not None
            assert calls_under(exporter, one.context) == ["Write"]
            assert dict(one.attributes or {})["pequod.commands"] == 1


@pytest.mark.parametrize("make_loop", [None, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
async def test_a_caller_in_another_thread_than_the_loop_of_its_client_has_its_calls_under_its_span(
    exporter: InMemorySpanExporter, tracer: Tracer, make_loop: Callable[[], asyncio.AbstractEventLoop] | None
) -> None:
    def call(target: str) -> list[SpanContext]:
        found = []
        with Client(target, loop_factory=make_loop) as client:
            for number in range(2):
                with tracer.start_as_current_span("caller") as span:
                    found.append(span.get_span_context())
                    client.put(f"a|{number}", "v")
                    client.multi_put({f"b|{number}": "v"})
                    batch = client.batch()
                    batch.get(f"a|{number}")
                    assert batch.send() == [b"v"]
                    assert len(list(client.scan_iter(prefix="a|"))) == number + 1
            client.put("c|1", "v")
        return found

    async with running(traces=True) as server:
        one, two = await asyncio.to_thread(call, server.address)
        await until(lambda: len(calls_under(exporter, two)) == 4)
        for parent in (one, two):
            assert calls_under(exporter, parent) == ["Batch", "MultiPut", "Batch", "Scan"]


async def test_commands_that_share_a_batch_are_under_the_span_of_the_first_caller_that_has_one(
    exporter: InMemorySpanExporter, tracer: Tracer
) -> None:
    async def get(name: str) -> SpanContext:
        with tracer.start_as_current_span(name) as span:
            await server.client.get("a|1")
            return span.get_span_context()

    async with running(traces=True) as server:
        _, one, two = await asyncio.gather(server.client.put("a|1", "v"), get("one"), get("two"))
        await until(lambda: calls_under(exporter, one))
        assert calls_under(exporter, one) == ["Batch"]
        assert dict(children(exporter, one)[0].attributes or {})["pequod.commands"] == 3
        assert calls_under(exporter, two) == []


def test_a_client_needs_no_opentelemetry() -> None:
    script = """
import sys
sys.modules["opentelemetry"] = None
import pequod
from pequod.client.columns import Columns
batch = Columns()
batch.put("a", "b")
assert batch.take().other_fields() == b""
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
