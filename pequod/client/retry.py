"""Which calls may be tried again, and after which pause.

A call may be repeated if the server was not reached, or says that it did nothing. If that is unknown, only a read or
another call that does no harm twice may be repeated. A put does harm twice: another client may have written the key in
between. So does an add; but with a request id a server does it once, and answers a repetition as the first time.
"""

from __future__ import annotations

from random import uniform
from typing import Final

from pequod_proto.pequod_pb2 import ScanReply, ScanRequest

#: The first pause; each further one is three times as long, up to the longest one.
_FIRST_S: Final = 0.1
_FACTOR: Final = 3
_LONGEST_S: Final = 2.0

#: The default number of retries: they take 0.65 to 1.3 s, enough for a restart of the server.
RETRIES: Final = 3

#: Calls that may be repeated whether or not they were applied. Installing a join again changes nothing, nor does
#: putting it in the place where it is.
HARMLESS_TWICE: Final = frozenset(
    {
        *("MultiGet", "Splits", "AddJoin", "ListJoins", "Explain", "Stats", "Invalidate", "SaveSnapshot"),
        *("ReplaceJoin", "ListReplacements", "EndReplacement"),
        *("ReadBackfill", "LoadBackfill", "RenewBackfill", "EndBackfill", "ListBackfills"),
    }
)


#: A request id names a write that a server does once, though it is sent twice. They are random, and never the same.
ID_BYTES: Final = 16
#: The id of a batch, which the ids of its commands begin with.
BATCH_ID_BYTES: Final = 12


def is_harmless_twice(name: str, request: object) -> bool:
    """Return whether a call changes nothing once more when it is repeated: it only reads, or it has a request id."""
    return name in HARMLESS_TWICE or bool(getattr(request, "request_id", b""))


def pause_s(tries: int) -> float:
    """Return the pause after ``tries`` failed attempts, half of it random, so that clients do not return at once."""
    longest = min(_FIRST_S * _FACTOR ** (tries - 1), _LONGEST_S)
    return uniform(longest / 2, longest)  # noqa: S311 - no secret


def advance(request: ScanRequest, chunk: ScanReply) -> bool:
    """Make a request ask for the rows after a chunk; return whether there are any."""
    if request.one_chunk or not chunk.HasField("resume_key"):
        return False
    if request.reverse:
        request.last = chunk.resume_key
    else:
        request.first = chunk.resume_key
    if request.HasField("limit"):
        request.limit -= len(chunk.keys)
        return request.limit > 0
    return True
