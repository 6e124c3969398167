"""What the server writes to standard error: lines of JSON, or for people.

Code logs through the standard library, `logging.getLogger("pequod.server")`, with facts in `extra`; structlog only
gives the lines their form. So a program that embeds the server keeps its own logging, and gRPC's and asyncio's lines
come out in the same form as ours, with the request id of the call that they are about.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TextIO

import grpc
import structlog

from pequod.commands.kinds import NAMES
from pequod_server.ops.observe import BatchReply, BatchRequest, BatchWork, Call, Closer, Metadata
from pequod_server.ops.shown import shortened
from pequod_server.setting_kinds import LogFormat, LogLevel

log = logging.getLogger("pequod.server")

#: Fields of requests that say where a call reads or writes. Nothing else of a request is ever logged.
_PLACES: Final = ("key", "prefix", "first", "last")
#: Slow calls that are kept to be shown.
_SLOW_MAX: Final = 100
#: Codes that say that the server is at fault.
_FAULTS: Final = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS)


def configure(log_format: LogFormat, log_level: LogLevel, stream: TextIO | None = None) -> None:
    """Send what this process logs to standard error; libraries only from warnings on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter(log_format, is_coloured=handler.stream.isatty()))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("pequod").setLevel(log_level.upper())


def formatter(log_format: LogFormat, *, is_coloured: bool = False) -> logging.Formatter:
    """Return a formatter of whole records: time, level, logger, message, `extra`, request id, traceback."""
    # Without the local variables of each frame, which both forms would show: they hold values.
    processors: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if log_format == "json":
        frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        processors += [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        processors += [structlog.dev.ConsoleRenderer(colors=is_coloured, exception_formatter=plain)]
    return structlog.stdlib.ProcessorFormatter(
        processors=processors,
        foreign_pre_chain=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
    )


class SlowLog(Protocol):
    """Takes what took long and no interceptor has seen."""

    def slow_call(self, method: str, metadata: Metadata, request: object, duration_s: float) -> None:
        """Take note of a call that took long."""

    def slow_batch(self, duration_s: float, kinds: bytes, first: bytes | None, row_count: int) -> None:
        """Take note of a batch that took long; ``first`` is its first argument, None if it has none."""


class CallLog:
    """Logs slow calls and batches as warnings, failures of the server as errors, and all calls at level debug.

    Args:
        slow_s: What takes as long is slow; None logs nothing as slow.
        rows_computed: Returns how many rows reads have computed so far.
    """

    def __init__(self, slow_s: float | None, rows_computed: Callable[[], int]) -> None:
        #: The facts of the latest that were slow, the latest last.
        self.slow: deque[dict[str, Any]] = deque(maxlen=_SLOW_MAX)
        self._slow_s = float("inf") if slow_s is None else slow_s
        self._rows_computed = rows_computed

    def opened(self, call: Call) -> Closer:
        """Wait for the end of a call."""
        computed_before = self._rows_computed()

        def closed(code: grpc.StatusCode, duration_s: float) -> None:
            if code in _FAULTS:
                log.error("failed call", extra=_call_facts(call, code, duration_s))
            elif duration_s >= self._slow_s and not call.is_open_ended:
                facts = _call_facts(call, code, duration_s)
                facts["rows_computed"] = self._rows_computed() - computed_before
                self._note("slow call", facts)
            elif log.isEnabledFor(logging.DEBUG):
                log.debug("call", extra=_call_facts(call, code, duration_s))

        return closed

    def executed(self, request: BatchRequest, reply: BatchReply, work: BatchWork, duration_s: float) -> None:
        """Take note of a batch."""
        if duration_s >= self._slow_s:
            self._note("slow batch", _batch_facts(request, reply, work, duration_s))

    def _note(self, event: str, facts: dict[str, object]) -> None:
        log.warning(event, extra=facts)
        self.slow.append({"at_s": time.time(), **facts})


def _call_facts(call: Call, code: grpc.StatusCode, duration_s: float) -> dict[str, object]:
    facts: dict[str, object] = {
        "request_id": call.request_id,
        "method": call.method,
        "code": code.name,
        "ms": round(duration_s * 1000, 3),
    }
    places = getattr(call.request, "range", call.request)
    for name in _PLACES:
        place = getattr(places, name, b"")
        if isinstance(place, bytes) and place:
            facts[name] = shortened(place)
    if call.rows:
        facts["rows"] = call.rows
    return facts


def _batch_facts(request: BatchRequest, reply: BatchReply, work: BatchWork, duration_s: float) -> dict[str, object]:
    """Return the facts of a batch, with the key that its first command names; any of them may be the slow one."""
    facts: dict[str, object] = {
        "method": "Execute",
        "ms": round(duration_s * 1000, 3),
        "commands": len(request.kinds),
        "kinds": {NAMES.get(kind, str(kind)): count for kind, count in Counter(request.kinds).items()},
        "rows": work.row_count + len(reply.keys),
        "rows_computed": work.rows_computed,
        "failed": len(work.errors) + len(reply.errors),
    }
    if request.arguments:
        facts["first"] = shortened(request.arguments[0])
    return facts
