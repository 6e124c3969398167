"""spark load: the rows of a source into a server, by Spark's tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Target
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.spark import DEFAULT_MASTER, Conf, Master, session, spark_connection
from pequod.cli.spark_checks import check_options, first_file, first_key, reach_to_write, row_count
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pequod.language.spec import Pattern

_FORMATS: Final = ("parquet", "csv", "jsonl")
_HELP: Final = """Write the rows of large files, a task for each range of keys.

For a file of the columns key and value `pequod load` is simpler, and quicker up to two million rows or so: Spark takes
10 s to start. It pays with several cores or a cluster, for many files, and where keys are made of columns.

\b
parquet:PATH  columns of binary, text or whole numbers
csv:PATH      with a header
jsonl:PATH    a JSON object on each line
PATH is a file, a folder or a pattern of such, at any place that Spark can read.

The columns are key and value, as `pequod dump` writes them. With --pattern they are value and one for each slot:
whole numbers are filled up with zeros to the slot's width, and cells of CSV are plain text.

All rows are looked at before the first is written; one that cannot be written ends the command. Rows that the server
refuses end it too, with others written by then: the same command may simply be run again.
"""

app: Final = typer.Typer()


@app.command(
    "load",
    help=_HELP,
    epilog=examples(
        "pequod spark load --source parquet:/data/posts",
        "pequod spark load --source csv:posts.csv --pattern 'p|<poster>|<time:10>'",
        "pequod spark load --source 'jsonl:/data/*.jsonl' --master 'local[4]' --conf spark.driver.memory=4g",
    ),
)
def load(
    source: Annotated[str, typer.Option("--source", "-s", metavar="FORMAT:PATH", help="What to read.")],
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="PATTERN", help="How keys are made of columns: p|<poster>|<time:10>."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look at all rows, and write nothing.")] = False,
    target: Target = DEFAULT_TARGET,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Write the rows of large files."""
    kind, _, path = source.partition(":")
    if kind not in _FORMATS or not path:
        fail(ExitCode.USAGE, f"--source is {' or '.join(f'{name}:PATH' for name in _FORMATS)}, not {source!r}")
    check_options(master, conf, *([] if dry_run else [target]))
    parsed = _parsed(pattern)
    file = first_file(path, master)
    key = None if file is None else first_key(kind, file, parsed)
    if not dry_run:
        reach_to_write(target, key)
    begun = time.monotonic()
    with session(master, conf, f"loading {path}", row_count=row_count(kind, path, file)) as spark:
        from pyspark_pequod.loading import load as write
        from pyspark_pequod.loading import packed

        rows = _read(spark, kind, path, parsed)
        started = time.monotonic()
        if dry_run:
            say(f"{packed(rows, parsed).count():,} rows can be written")
            return
        count = write(rows, spark_connection(target), parsed)
    seconds = time.monotonic() - started
    say(
        f"{count:,} rows loaded in {seconds:.1f} s, {count / seconds:,.0f} a second "
        f"(Spark's start took {started - begun:.1f} s)"
    )


def _parsed(pattern: str | None) -> Pattern | None:
    from pyspark_pequod.options import OptionError, key_pattern

    try:
        return key_pattern({} if pattern is None else {"pattern": pattern})
    except OptionError as error:
        fail(ExitCode.USAGE, f"--pattern: {error.reason}")


def _read(spark: SparkSession, kind: str, path: str, pattern: Pattern | None) -> DataFrame:
    from pequod_spark.ranges import ROW_SCHEMA

    match kind:
        case "parquet":
            return spark.read.parquet(path)
        case "csv":
            return _csv(spark, path, pattern)
        case _ if pattern is not None:
            return spark.read.json(path, mode="FAILFAST")
    # Spark's own reader cannot distinguish {"base64": ...} from a text that looks like it.
    return spark.read.text(path).selectExpr("cast(value as binary) as line").mapInArrow(_json_rows, ROW_SCHEMA)


def _csv(spark: SparkSession, path: str, pattern: Pattern | None) -> DataFrame:
    from pequod_spark.ranges import ROW_SCHEMA
    from pyspark.sql import functions as f

    # One character for each byte and back, so that bytes that are not UTF-8 are found and not replaced.
    reading = spark.read.option("header", True).option("mode", "FAILFAST").option("escape", '"')
    cells = reading.option("encoding", "ISO-8859-1").csv(path)
    rows = cells.select(
        # Spark reads empty cells as null.
        *(f.encode(f.coalesce(f.col(f"`{name}`"), f.lit("")), "ISO-8859-1").alias(name) for name in cells.columns)
    )
    if pattern is None:
        return rows.mapInArrow(_unescaped_rows, ROW_SCHEMA) if sorted(rows.columns) == ["key", "value"] else rows
    widths = {slot.name: slot.width for slot in pattern.slots() if slot.width is not None}
    for name in widths.keys() & set(rows.columns):
        text = f.col(f"`{name}`").cast("string")
        is_short = text.rlike("^[0-9]+$") & (f.length(text) < widths[name])
        rows = rows.withColumn(name, f.when(is_short, f.lpad(text, widths[name], "0")).otherwise(text))
    return rows


def _json_rows(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark_pequod.loading import SourceError

    from pequod.cli.rowfiles import BadRow, read_json_lines

    for batch in batches:
        lines = [line + b"\n" for line in batch.column("line").to_pylist()]
        keys, values = [], []
        for row in read_json_lines(lines):
            if isinstance(row, BadRow):
                raise SourceError(lines[row.place - 1].decode("utf-8", "backslashreplace").rstrip(), row.reason)
            keys.append(row.key)
            values.append(row.value)
        yield pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["key", "value"])


def _unescaped_rows(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        columns = [pa.array(map(_unescaped, batch.column(name).to_pylist()), pa.binary()) for name in ("key", "value")]
        yield pa.record_batch(columns, names=["key", "value"])


def _unescaped(cell: bytes) -> bytes:
    from pyspark_pequod.loading import SourceError

    from pequod.cli.text import unescaped

    try:
        return unescaped(cell.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise SourceError(cell.decode("utf-8", "backslashreplace"), str(error)) from None
