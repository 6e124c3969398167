"""When a call may be tried again, and after which pause.

A try may be repeated if the server was not reached, or says that it did nothing; a read or anything else that does no
harm twice also if nobody knows. A put does harm twice: between the two, somebody else may have written.
"""

from __future__ import annotations

from random import uniform
from typing import Final

from pequod_proto.pequod_pb2 import ScanReply, ScanRequest

#: The first pause; each further one is three times as long, up to the longest.
_FIRST_S: Final = 0.1
_FACTOR: Final = 3
_LONGEST_S: Final = 2.0

#: How often a call is tried again by default: for 0.65 to 1.3 s, enough for a server to be started anew.
RETRIES: Final = 3

#: Calls that may be tried again whether or not they were applied. Installing a join again changes nothing.
HARMLESS_TWICE: Final = frozenset(
    {
        *("MultiGet", "Splits", "AddJoin", "ListJoins", "Explain", "Stats", "Invalidate", "SaveSnapshot"),
        *("ReadBackfill", "LoadBackfill", "RenewBackfill", "EndBackfill", "ListBackfills"),
    }
)


def pause_s(tries: int) -> float:
    """Return how long to wait after so many failed tries, at random by half: clients are not to come all at once."""
    longest = min(_FIRST_S * _FACTOR ** (tries - 1), _LONGEST_S)
    return uniform(longest / 2, longest)  # noqa: S311 - no secret


def advance(request: ScanRequest, chunk: ScanReply) -> bool:
    """Make a request ask for what follows a chunk; tell whether there is anything."""
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
