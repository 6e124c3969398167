"""OpenTelemetry spans of calls; needs the extra `otel`.

The contributed instrumentation of grpc.aio servers breaks methods that read and write through their context, as
Execute does, so the spans are made by a sink of our own interceptor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace import TracerProvider as AnyTracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pequod_installed.names import version
from structlog.contextvars import bind_contextvars

from pequod_server.homes.compute.onward import set_trace, under_trace
from pequod_server.ops.observe import BatchRequest, Call, Closer

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_OUR_SERVICE: Final = "pequod.v1.Pequod"
#: Codes that are the server's fault, by OpenTelemetry's conventions for servers.
_FAULTS: Final = frozenset(
    (
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    )
)


class CallTraces:
    """Makes one span for each call, under the client's if its metadata has a W3C `traceparent`.

    A stream of batches is one call, of nobody's trace. A batch that names a span of its caller has a span under that.
    """

    def __init__(self, provider: AnyTracerProvider) -> None:
        self._tracer = provider.get_tracer("pequod.server", version())

    def opened(self, call: Call) -> Closer:
        """Begin the span of a call; lines of the log that belong to it have its trace id, as have calls of homes."""
        service, _, method = call.method.rpartition("/")
        service = service or _OUR_SERVICE
        headers = {key: value for key, value in call.metadata if isinstance(value, str)}
        span = self._tracer.start_span(
            f"{service}/{method}",
            context=_PROPAGATOR.extract(headers, Context()),
            kind=SpanKind.SERVER,
            attributes={
                "rpc.system": "grpc",
                "rpc.service": service,
                "rpc.method": method,
                "pequod.request_id": call.request_id,
            },
        )
        set_trace(_headers(span))
        bind_contextvars(trace_id=f"{span.get_span_context().trace_id:032x}")
        return lambda code, _duration_s: _close(span, call, code)

    def ran(self, request: BatchRequest, duration_s: float) -> None:
        """Make the span of a batch that has just ended."""
        self._begun(request, duration_s).end()

    @contextmanager
    def running(self, request: BatchRequest, age_s: float) -> Iterator[None]:
        """Make the span of a batch that runs meanwhile; what homes are asked for its sake is under it.

        Args:
            age_s: How long it has run already.
        """
        span = self._begun(request, age_s)
        try:
            with under_trace(_headers(span)):
                yield
        except Exception as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            span.end()

    def _begun(self, request: BatchRequest, age_s: float) -> Span:
        headers = {"traceparent": request.trace_parent.decode("latin-1")}
        if request.trace_state:
            headers["tracestate"] = request.trace_state.decode("latin-1")
        return self._tracer.start_span(
            f"{_OUR_SERVICE}/Batch",
            context=_PROPAGATOR.extract(headers, Context()),
            kind=SpanKind.SERVER,
            start_time=time.time_ns() - int(age_s * 1e9),
            attributes={
                "rpc.system": "grpc",
                "rpc.service": _OUR_SERVICE,
                "rpc.method": "Execute",
                "pequod.commands": len(request.kinds),
            },
        )


def _headers(span: Span) -> dict[str, str]:
    """Return the headers of calls that are made under a span."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, set_span_in_context(span, Context()))
    return headers


def _close(span: Span, call: Call, code: grpc.StatusCode) -> None:
    number, _ = code.value
    span.set_attribute("rpc.grpc.status_code", number)
    if call.rows:
        span.set_attribute("pequod.rows", call.rows)
    if code in _FAULTS:
        span.set_status(Status(StatusCode.ERROR, code.name))
    span.end()


def provider_from_environment() -> TracerProvider:
    """Return a provider that sends spans by OTLP over gRPC.

    Everything about it is set by OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4317),
    OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME (pequod), OTEL_RESOURCE_ATTRIBUTES.
    """
    own = Resource.create({"service.name": "pequod", "service.version": version()})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
