"""Tells the heat meter of calls and batches that are not hot."""

from __future__ import annotations

from random import choice, randrange
from typing import Any, Final

import grpc

from pequod.commands.kinds import ARGUMENT_COUNTS, WRITES
from pequod_server.heat.meter import HeatMeter
from pequod_server.ops.observe import BatchReply, BatchRequest, BatchWork, Call, Closer

_PEER: Final = "pequod.v1.PequodPeer/"
#: Methods by the field that has their key or keys, and whether they write.
_METHODS: Final[dict[str, tuple[str, bool]]] = {
    **dict.fromkeys(("Get", "Ttl"), ("key", False)),
    **dict.fromkeys(("Put", "Remove", "WriteIf", "Add", "Expire"), ("key", True)),
    **dict.fromkeys(("Count", "Scan"), ("first", False)),
    "MultiGet": ("keys", False),
    "MultiPut": ("keys", True),
    f"{_PEER}Write": ("keys", True),
}


class HeatedCalls:
    """A sink of calls and of batches."""

    def __init__(self, meter: HeatMeter) -> None:
        self._meter = meter

    def opened(self, call: Call) -> Closer:
        """Take note of a call at its end."""
        found = _METHODS.get(call.method)
        return _nothing if found is None else lambda _, duration_s: self._closed(call, *found, duration_s)

    def executed(self, request: BatchRequest, _reply: BatchReply, _work: BatchWork, duration_s: float) -> None:
        """Take note of a batch: if it is a sample, one of its commands, each as likely as the others."""
        kinds = request.kinds
        if not kinds or not self._meter.is_due(duration_s):
            return
        chosen = randrange(len(kinds))  # noqa: S311 - a sample
        arguments, at = request.arguments, sum(kinds[:chosen].translate(ARGUMENT_COUNTS))
        if at < len(arguments):
            self._meter.sample(arguments[at], kinds[chosen] in WRITES, duration_s, len(kinds))

    def _closed(self, call: Call, field: str, is_write: bool, duration_s: float) -> None:  # noqa: FBT001 - each call
        # What is no message, or too large, comes as its error.
        if call.request is None or isinstance(call.request, Exception):
            return
        found: Any = getattr(call.request, field)
        if isinstance(found, bytes):
            # A scan by a prefix has no other start.
            self._meter.note(found or getattr(call.request, "prefix", b""), is_write, duration_s)
        elif found:
            # Any of the keys: over many calls each has its share.
            self._meter.note(choice(found), is_write, duration_s, len(found))  # noqa: S311 - a sample


def _nothing(_code: grpc.StatusCode, _duration_s: float) -> None:
    return None
