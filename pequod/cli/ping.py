"""ping: whether a server answers, and how fast."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target, connected
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

if TYPE_CHECKING:
    from pequod.client import Client

app: Final = typer.Typer()
#: The least of these times tells what the way and the server take, and the others what else the machine had to do.
_ROUND_TRIPS: Final = 5


@app.command(
    "ping",
    epilog=examples(
        "pequod ping",
        "pequod ping -t 10.0.0.7:7744 --json",
        "until pequod ping 2>/dev/null; do sleep 1; done     (wait for a server)",
    ),
)
def ping(target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Ask a server whether it is there: print the round trip of a small request, the server's id and its version.

    The time is the least of five, after the connection is made. If the id has changed, the server was started anew.
    Exit code 4 if no server answers, 3 if it does not know the caller. With --json:
    {"target": ..., "round_trip_ms": ..., "server_id": ..., "version": ...}.

    A server that answers may still have no database, or load it: `pequod stats` tells.
    """
    with connected(target) as client:
        version = client.statistics().version
        server_id = client.server_id
        round_trip_ms = min(_round_trip_s(client) for _ in range(_ROUND_TRIPS)) * 1000
    if json:
        fields = {"target": target, "round_trip_ms": round(round_trip_ms, 3), "server_id": server_id}
        print(json_line(fields | {"version": version}))
    else:
        print(f"{target} answers in {round_trip_ms:.2f} ms: server {server_id}, version {version}")


def _round_trip_s(client: Client) -> float:
    """Return how long a batch takes that reads nothing. Whether the caller may do so is part of its answer."""
    batch = client.batch()
    batch.count(b"\0", b"\0")
    begun_s = time.perf_counter()
    batch.send()
    return time.perf_counter() - begun_s
