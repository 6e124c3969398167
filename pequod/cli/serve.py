"""serve: run a server in the foreground."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET
from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

app: Final = typer.Typer()

#: The defaults stand in `ServerConfig`, which is not imported for the help's sake.
_SIZE: Final = "in bytes"


@app.command(
    "serve",
    epilog=examples(
        "pequod serve",
        "pequod serve --listen 0.0.0.0:7744      (reachable from other machines; there is no authentication)",
        "pequod serve --listen 127.0.0.1:0       (any free port; the first line tells which)",
    ),
)
def serve(
    listen: Annotated[
        str, typer.Option("--listen", "-l", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = DEFAULT_TARGET,
    key_bytes_max: Annotated[int, typer.Option(min=1, help=f"Longest key that is taken, {_SIZE}.")] = 4096,
    value_bytes_max: Annotated[int, typer.Option(min=1, help=f"Longest value that is taken, {_SIZE}.")] = 1 << 20,
    message_bytes_max: Annotated[
        int, typer.Option(min=1, help=f"Longest message that is taken, {_SIZE}; a batch of commands is one message.")
    ] = 64 << 20,
    reply_bytes_max: Annotated[
        int, typer.Option(min=1, help=f"Rows in the reply to a batch, {_SIZE}; longer scans come in pieces.")
    ] = 3 << 20,
    chunk_bytes: Annotated[int, typer.Option(min=1, help="Bytes in one chunk of a scan.")] = 256 << 10,
    rows_max: Annotated[int, typer.Option(min=1, help="Rows read at a time, so that others have their turn.")] = 8192,
    drain_s: Annotated[float, typer.Option(min=0, help="Seconds that calls have to finish at the end.")] = 5.0,
    uvloop: Annotated[bool, typer.Option(help="Run on uvloop if it is installed.")] = True,
) -> None:
    """Run a server until Ctrl-C or SIGTERM; calls that are under way may finish.

    Everything is kept in memory: a server starts empty and without joins.
    """
    try:
        from pequod_server import ServerConfig, run
    except ImportError as error:
        fail(ExitCode.REFUSED, f"the server needs {error.name}: pip install 'pequod[server]'")
    config = ServerConfig(
        listen=listen,
        key_bytes_max=key_bytes_max,
        value_bytes_max=value_bytes_max,
        message_bytes_max=message_bytes_max,
        reply_bytes_max=reply_bytes_max,
        chunk_bytes=chunk_bytes,
        rows_max=rows_max,
        drain_s=drain_s,
        uvloop=uvloop,
    )
    raise typer.Exit(ExitCode.DONE if run(config) == 0 else ExitCode.REFUSED)
