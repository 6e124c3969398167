"""backfill: Spark computes a join for a server and loads it, while the server keeps serving."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target, connected
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.spark import DEFAULT_MASTER, Conf, Master, session, spark_connection
from pequod.cli.spark_checks import check_options, first_file, reach
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes, escaped, json_bytes, json_line

if TYPE_CHECKING:
    from pequod_spark.backfill import Begun, Request
    from pequod_spark.connection import Connection
    from pequod_spark.plan import Read
    from pyspark.sql import SparkSession

    from pequod.calls import BackfillStatus

    #: Opens what reads the sources of a backfill; None: they are read from the server.
    Sources = Callable[[SparkSession, Begun], AbstractContextManager[Read | None]]

_HELP: Final = """Have Spark compute a join and load it into a server, while reads and writes go on.

The server notes its revision and records what changes; Spark reads the sources as they were then, computes, sorts, and
loads; the server applies what changed meanwhile. Then the first reads find everything there. Reads are exact all the
time. It is for large joins that nobody has read yet, such as after a start.

\b
--source server         read the sources from the server, as they were at its revision
--source lake:DIR       read the lake behind the server (--backing lake:DIR), as of the batch at which the backfill
                        begins; --mapping names the server's mapping, and rows are compared by number and checksum
--source parquet:PATH   read a copy with the columns key and value; its rows must be what the server has when the
                        backfill begins, which is compared by their number and a checksum, so nothing may be written
                        between the copy and the begin

If anything dies, run the same command again: what is loaded stays right and is left out. After a restart of the server,
with the join and all source rows there again within 30 s, it begins anew by itself, twice at most. Ctrl-C or
`pequod backfill cancel` ends it; what is loaded stays.

The join must be push, its value source the last one, and no join may compute its sources. Rows of sources that a
database owns are loaded into the server first, and all of them must stay there. Needs the rights
`admin` on the join's keys, `read` on its sources and `write` on what is loaded, the extra spark, and Java 17 or newer.
"""

#: How often a restarted server is filled again.
_RESTARTS_MAX: Final = 2
#: How long to wait for a server that does not answer.
_RETURN_S: Final = 30.0

#: The expected number of output rows for each source row, before it is counted: posts are in many timelines.
_ROWS_OF_SOURCE: Final = 10
#: The message for a copy of the sources whose columns are wrong.
_NO_ROWS: Final = "has no columns key and value, binary or text; `pequod dump '' -o base.parquet` makes such files"

app: Final = typer.Typer(help=_HELP, invoke_without_command=True, rich_markup_mode=None)


@app.callback(
    epilog=examples(
        "pequod backfill --join t",
        "pequod backfill --join t --range 't|a' 't|n' --master spark://host:7077",
        "pequod backfill --join t --source lake:/data/lake --mapping twip.toml",
        "pequod backfill --join t --source parquet:base.parquet --conf spark.driver.memory=8g",
        "pequod backfill status",
    )
)
def backfill(
    context: typer.Context,
    join: Annotated[str | None, typer.Option("--join", metavar="NAME", help="The join to compute.")] = None,
    bounds: Annotated[
        tuple[str, str] | None,
        typer.Option("--range", metavar="FIRST LAST", help="Only its keys from FIRST up to LAST; without it, all."),
    ] = None,
    source: Annotated[
        str, typer.Option("--source", metavar="SOURCE", help="Where Spark reads: server, lake:DIR, or parquet:PATH.")
    ] = "server",
    mapping: Annotated[
        Path | None, typer.Option("--mapping", metavar="FILE", help="The server's mapping, for --source lake:DIR.")
    ] = None,
    level: Annotated[
        int | None,
        typer.Option("--level", min=0, help="How many slots of the output the reads will fix; one, as of a timeline."),
    ] = None,
    part_rows: Annotated[
        int,
        typer.Option("--part-rows", min=1, help="Rows for one task, which are lost if it dies."),
    ] = 1_000_000,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Compute a join with Spark."""
    if context.invoked_subcommand is not None:
        return
    if join is None:
        fail(ExitCode.USAGE, "name the join with --join; `pequod join list` shows the names")
    kind, _, path = source.partition(":")
    if (kind, bool(path)) not in (("server", False), ("parquet", True), ("lake", True)):
        fail(ExitCode.USAGE, f"--source is server, lake:DIR or parquet:PATH, not {source!r}")
    if (kind == "lake") != (mapping is not None):
        fail(ExitCode.USAGE, "--source lake:DIR and --mapping FILE, the server's --backing-mapping, go together")
    first, last = (b"", None) if bounds is None else (argument_bytes(bounds[0]), argument_bytes(bounds[1]))
    check_options(master, conf, target)
    sources = _sources(kind, path, mapping)
    if kind == "parquet" and (file := first_file(path, master)) is not None:
        _refuse_columns(file)
    reach(target)
    started = time.monotonic()
    from pequod_spark.backfill import Begun, Request

    request, connection = Request(join, first, last, level, part_rows), spark_connection(target)
    # Before Spark starts, so that the command fails at once if the server refuses.
    begun = Begun(connection.client, request)
    try:
        rows = _ROWS_OF_SOURCE * begun.source_count
        with session(_patient(master), conf, "starting Spark", row_count=rows) as spark:
            outcome = _run(spark, connection, begun, request, sources)
    finally:
        begun.close()
    took_s = time.monotonic() - started
    if json:
        print(json_line({**outcome, "seconds": round(took_s, 3)}))
        return
    left = f", {outcome['contexts_before']:,} contexts were there before" if outcome["contexts_before"] else ""
    skipped = f", {outcome['skipped']:,} pieces others had read meanwhile" if outcome["skipped"] else ""
    say(f"{outcome['rows']:,} rows in {outcome['ranges']:,} ranges loaded in {took_s:.1f} s{left}{skipped}")


def _run(
    spark: SparkSession, connection: Connection, begun: Begun, request: Request, sources: Sources
) -> dict[str, int]:
    """Run a backfill, and run it again if the server was restarted meanwhile."""
    from pequod_spark.backfill import BackfillFailedError
    from pequod_spark.backfill import Begun as BegunAnew

    from pequod.errors import UnavailableError, UnknownBackfillError

    source_count = begun.source_count
    for attempt in range(_RESTARTS_MAX + 1):
        try:
            with _progress(request.join) as show, sources(spark, begun) as read:
                return begun.run(spark, read=read, on_progress=show)._asdict()
        except (BackfillFailedError, UnavailableError, UnknownBackfillError):
            if attempt == _RESTARTS_MAX or not _is_another(connection, begun, source_count):
                raise
            say("the server was started anew and holds nothing of it; beginning again")
        begun = BegunAnew(connection.client, request)
    raise AssertionError("the last attempt raises or returns")


def _sources(kind: str, path: str, mapping: Path | None) -> Sources:
    """Return what opens the sources of a backfill."""
    if mapping is None:
        return lambda spark, _begun: nullcontext(_read_parquet(spark, path) if kind == "parquet" else None)
    from pequod.cli.backing import read_mappings
    from pequod.cli.lake_serve import lake_errors, opened_lake

    mappings = read_mappings(mapping)
    # So that the command fails before the server begins, if there is no lake.
    with opened_lake(path):
        pass

    @contextmanager
    def opened(spark: SparkSession, begun: Begun) -> Iterator[Read]:
        with lake_errors():
            from pequod_spark.lake_source import LakeSource

        with LakeSource(path, mappings, begun) as source:
            yield source.read(spark)

    return opened


def _is_another(connection: Connection, begun: Begun, source_count: int) -> bool:
    """Return whether a restarted server answers; wait until it has the join and its sources again."""
    from pequod_spark.backfill import count_sources

    from pequod.errors import UnavailableError

    give_up_at = time.monotonic() + _RETURN_S
    while True:
        is_late = time.monotonic() > give_up_at
        try:
            with connection.client() as client:
                has_join = begun.status.join in {one.name for one in client.joins()}
                count = count_sources(client, begun.status)
                if client.server_id == begun.server_id:
                    return False
                if has_join and count >= source_count:
                    return True
        except UnavailableError:
            if is_late:
                raise
        else:
            if is_late:
                has = f"{count:,} of the {source_count:,} source rows" if has_join else f"no join {begun.status.join!r}"
                fail(
                    ExitCode.REFUSED,
                    f"the server was started anew in the midst of it, and {_RETURN_S:.0f} s later it has {has}; what "
                    "was loaded is gone: bring them back, and run the same command again",
                )
        time.sleep(0.1)


@app.command("status", epilog=examples("pequod backfill status", "pequod backfill status --json"))
def status(target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Print the backfills under way, and the latest that ended."""
    with connected(target) as client:
        found = client.backfills.list()
    for one in found:
        print(_json(one) if json else _text(one))
    if not found and not json:
        say("no backfill is under way, and none ended lately")


@app.command("cancel", epilog=examples("pequod backfill cancel --join t", "pequod backfill cancel"))
def cancel(
    join: Annotated[
        str | None, typer.Option("--join", metavar="NAME", help="Only backfills of this join; without it, all.")
    ] = None,
    target: Target = DEFAULT_TARGET,
) -> None:
    """End backfills under way; the loaded rows stay. Exit code 1 if there is none."""
    with connected(target) as client:
        live = [one for one in client.backfills.list() if not one.ended and join in (None, one.join)]
        for one in live:
            print(_text(client.backfills.end(one, "cancelled")))
    if not live:
        fail(ExitCode.ABSENT, "no such backfill is under way")


def _text(one: BackfillStatus) -> str:
    known = f" of about {one.rows_expected:,}" if one.rows_expected else ""
    if one.ended:
        age, state = "", f"ended after {one.age_s:.0f} s: {one.ended}"
    else:
        age, state = f"  {one.age_s:.0f} s", f"{one.stage or 'begun'}, {one.lease_s:.0f} s without news end it"
    return (
        f"{one.join}  {escaped(one.first)} .. {escaped(one.last)}  revision {one.revision}{age}\n"
        f"    {one.rows_loaded:,}{known} rows loaded in {one.ranges_loaded:,} ranges, {one.pieces_skipped:,} pieces "
        f"were there; {one.record_keys:,} keys changed meanwhile ({one.record_bytes:,} bytes)\n"
        f"    {state}"
    )


def _json(one: BackfillStatus) -> str:
    from dataclasses import asdict

    shown = asdict(one)
    # Of interest to what began it alone.
    del shown["token"]
    shown |= {name: json_bytes(shown[name]) for name in ("first", "last")}
    shown["sources"] = [[json_bytes(first), json_bytes(last)] for first, last in one.sources]
    return json_line(shown)


def _patient(master: str) -> str:
    """Have a local master retry failed tasks, as a cluster does: local[2] -> local[2,4]."""
    if master.startswith("local[") and "," not in master:
        return master[:-1] + ",4]"
    return "local[1,4]" if master == "local" else master


def _refuse_columns(file: Path) -> None:
    """End the command if a Parquet file does not have the columns of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowInvalid) as error:
        fail(ExitCode.USAGE, f"{file}: it cannot be read as parquet: {error}")
    is_text = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    for name in ("key", "value"):
        if name not in schema.names or not any(is_kind(schema.field(name).type) for is_kind in is_text):
            fail(ExitCode.USAGE, f"{file} {_NO_ROWS}")


def _read_parquet(spark: SparkSession, path: str) -> Read:
    from pequod_spark.plan import read_from
    from pyspark.sql import functions as f

    rows = spark.read.parquet(path)
    kinds = {name: kind for name, kind in rows.dtypes if name in ("key", "value")}
    if len(kinds) < 2 or not set(kinds.values()) <= {"binary", "string"}:
        fail(ExitCode.USAGE, f"{path} {_NO_ROWS}")
    return read_from(rows.select(f.col("key").cast("binary"), f.col("value").cast("binary")))


@contextmanager
def _progress(join: str) -> Iterator[Callable[[BackfillStatus], None]]:
    """Show a progress bar if a person watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _status: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(f"{join}: reading the sources", total=None)

        def show(status: BackfillStatus) -> None:
            progress.update(
                task,
                description=f"{join}: {status.stage}",
                completed=status.rows_loaded,
                total=status.rows_expected or None,
            )

        yield show
