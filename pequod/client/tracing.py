"""The span in which a caller makes a call, for the servers: OpenTelemetry's, if the program has it.

caller's span -> caller_trace() -> metadata of a unary call, of a scan, of a watch
                                -> two fields of a batch, since the stream of batches is not one caller's
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

#: W3C's headers `traceparent` and `tracestate`; empty without a span.
Trace = tuple[tuple[str, str], ...]


def caller_trace() -> Trace:
    """Return the headers of the span that the caller is in; none if there is no span.

    Cost:
        0.03 µs while nothing has imported OpenTelemetry, since then nobody has begun a span; 0.4 µs without a span, and
        2 µs within one.
    """
    if "opentelemetry.trace" not in sys.modules:
        return ()
    headers: dict[str, str] = {}
    _inject()(headers)
    return tuple(headers.items())


@cache
def _inject() -> Callable[[dict[str, str]], None]:
    # Clients do without OpenTelemetry.
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    return TraceContextTextMapPropagator().inject
