"""The trace that a call belongs to, for the calls that a server makes on its behalf.

    client --traceparent--> compute: a span, and `set_trace` --traceparent--> home: a span under the compute's

What is set in a call's task is seen by the tasks that it starts, such as a load. Calls that share a load are under the
span of the one that began it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_TRACE: Final[ContextVar[tuple[tuple[str, str], ...]]] = ContextVar("trace", default=())


def set_trace(headers: Mapping[str, str]) -> None:
    """Name the trace of this task's call, as W3C's headers do."""
    _TRACE.set(tuple(headers.items()))


@contextmanager
def under_trace(headers: Mapping[str, str]) -> Iterator[None]:
    """Name the trace of a part of this task's call."""
    before = _TRACE.set(tuple(headers.items()))
    try:
        yield
    finally:
        _TRACE.reset(before)


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call on behalf of the present one; empty without traces."""
    return _TRACE.get()
