"""What calls take that have begun: how many of one connection fit, and how much of a request is taken unread.

    client: calls wait -> connection_calls_max -> gRPC's queue -> task of the call -> place -> request is read -> ...
                                                | unread_bytes_max of the request stays in gRPC's buffers |

A call takes memory from its first byte on, and nobody is asked before: gRPC takes calls as they come. So a server tells
its clients by HTTP/2's own settings how many calls a connection may have under way, and how much of a request it takes
before it asks for more. The client keeps back what is beyond these; none of it fails.

A call that lasts, as a watch does, would keep others back for ever. So fewer of them are admitted, and those beyond are
refused by name.

Rejected: to refuse all calls that do not fit. A client that begins 3,000 puts at once would lose most of them, and
those that are refused take memory, too, until their clients know.
"""

from __future__ import annotations

from typing import Final

from pequod_server.config import ServerConfig
from pequod_server.memory.keeper import limit_bytes

#: The memory of a call before its request is read: 10 to 17 KiB in gRPC, and its task.
CALL_BYTES: Final = 25 << 10
#: The share of the limit of memory that the calls of one connection may take.
_CALLS_SHARE: Final = 1 / 16
_CALLS_MIN, _CALLS_MAX = 64, 1_000_000
#: gRPC takes this share of the limit of a request before it is asked for, and no less than most requests need.
#: The greatest is HTTP/2's own, with which 3,000 puts of 100 KB that begin at once take 190 MB.
_UNREAD_SHARE: Final = 1 / 65536
_UNREAD_MIN, _UNREAD_MAX = 4 << 10, (64 << 10) - 1


def calls_fitting(config: ServerConfig) -> int:
    """Return how many calls that have begun the limit of memory has room for."""
    fitting = limit_bytes(config.memory_limit) * _CALLS_SHARE // CALL_BYTES
    return int(min(max(fitting, _CALLS_MIN), _CALLS_MAX))


def connection_streams_max(config: ServerConfig) -> int:
    """Return how many calls that last may be under way on one connection: three quarters of those that fit."""
    return config.connection_streams_max or calls_fitting(config) * 3 // 4


def connection_calls_max(config: ServerConfig) -> int:
    """Return how many calls may be under way on one connection: a quarter of those that fit, beside all that last."""
    return connection_streams_max(config) + max(calls_fitting(config) // 4, 1)


def unread_bytes_max(config: ServerConfig) -> int:
    """Return how much of a request gRPC takes before it is asked for; the rest takes a round trip more."""
    return int(min(max(limit_bytes(config.memory_limit) * _UNREAD_SHARE, _UNREAD_MIN), _UNREAD_MAX))
