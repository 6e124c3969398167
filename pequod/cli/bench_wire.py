"""bench wire: what a call takes of the server by each transport."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pequod.cli.bench import Json
from pequod.cli.teaching import examples

app: Final = typer.Typer()


@app.command(
    "wire",
    short_help="The transports: what a call takes of the server.",
    epilog=examples(
        "pequod bench wire                                (half a minute)",
        "pequod bench wire --calls 10000 --json",
    ),
)
def wire(
    calls: Annotated[int, typer.Option("--calls", metavar="N", min=32, help="Calls in a round.")] = 2000,
    json: Json = False,
) -> None:
    """Measure the server's CPU for each Get, Put and scan of 10 rows, by each transport: the least of three rounds.

    One call after the other, and 32 in flight on one connection.
    """
    from pequod_bench.wire import run, shown

    costs = run(calls)
    if json:
        import orjson

        print(orjson.dumps([cost._asdict() for cost in costs]).decode())
    else:
        print(shown(costs))
