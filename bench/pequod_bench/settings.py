"""The sizes of runs whose options `pequod bench` makes of them: a field with an option is one, with its default.

It imports nothing large, so that `--help` stays quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

#: What is scanned: a plain table, a table whose rows a join reads by their first slot, or computed timelines.
Shape = Literal["table", "groups", "timelines"]
Seed = Annotated[int, typer.Option("--seed", min=0, help="One seed, one run: graph and operations follow from it.")]
Only = Annotated[str, typer.Option("--only", help="Only those whose names hold this.")]


@dataclass(frozen=True, slots=True)
class ClientsSettings:
    """What run of the clients to make."""

    #: Forms that wait for each operation get a twentieth.
    operations: Annotated[int, typer.Option(min=1, help="Operations of a sample.")] = 10_000
    samples: Annotated[int, typer.Option(min=1, help="Samples of each form; their medians count.")] = 5
    only: Only = ""
    #: Of both clients.
    loop: Literal["uvloop", "asyncio"] = "uvloop"


@dataclass(frozen=True, slots=True)
class StallSettings:
    """What run of checks beside scans to make."""

    shape: Annotated[Shape, typer.Option(help="Scan a plain table, a table in groups, or computed timelines.")] = (
        "table"
    )
    rows: Annotated[int, typer.Option(min=100, help="Rows of a scan.")] = 1_000_000
    value_bytes: Annotated[int, typer.Option(min=0, help="Size of a scanned value.")] = 100
    rate: Annotated[float, typer.Option(min=1, help="Checks a second.")] = 200.0
    round_s: Annotated[float, typer.Option(min=0.1, help="Seconds of checks in a round.")] = 5.0
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each kind; they alternate.")] = 3


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How large a run of sessions over two servers is."""

    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of writing.")] = 20.0
    rate: Annotated[float, typer.Option(min=1, help="Writes a second of all writers.")] = 200.0
    writers: Annotated[int, typer.Option(min=1, help="Sessions that write at the first server.")] = 16
    seed: Seed = 1


@dataclass(frozen=True, slots=True)
class ClusterLatencySettings:
    """How large a run on a small cluster is."""

    #: No two of them have a poster in common; each is read for the first time once.
    timelines: Annotated[int, typer.Option(min=1, help="Timelines, each of 20 posters.")] = 200
    later_reads: Annotated[int, typer.Option("--reads", min=1, help="Later reads.")] = 2_000
    puts: Annotated[int, typer.Option(min=1, help="Puts whose way to a watch is timed.")] = 500
    burst: Annotated[int, typer.Option(min=1, help="Posts that are put as fast as possible.")] = 50_000


@dataclass(frozen=True, slots=True)
class VersionedSettings:
    """How large a run over a store without a master is."""

    rows: Annotated[int, typer.Option(min=1, help="Base records.")] = 300
    calls: Annotated[int, typer.Option(min=10, help="Calls of each kind.")] = 500
    nodes: Annotated[int, typer.Option(min=3, help="Nodes; each record is at three of them.")] = 4
    replicas: int = 3
    seed: Seed = 1
