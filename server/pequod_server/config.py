"""What an operator can set."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The settings of one server."""

    #: HOST:PORT to listen on; port 0 takes a free one.
    listen: str = "127.0.0.1:7744"
    #: Longest key and value that are taken.
    key_bytes_max: int = 4096
    value_bytes_max: int = MIB
    #: Longest message that is taken; a batch of commands is one message.
    message_bytes_max: int = 64 * MIB
    #: Rows in one reply to a batch; reads beyond that are cut, and the client goes on with the rest. Clients of gRPC
    #: take messages of 4 MiB unless told otherwise, and a single row may go beyond this.
    reply_bytes_max: int = 3 * MIB
    #: Keys and values in one chunk of a scan, if the request does not say.
    chunk_bytes: int = 256 * 1024
    #: Rows that are read at a time, so that nobody waits for somebody else's large scan.
    rows_max: int = 8192
    #: How long calls that are under way may take when the server is told to stop.
    drain_s: float = 5.0
    #: Run on uvloop if it is installed.
    uvloop: bool = True
