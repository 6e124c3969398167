"""lake init, ingest, run, query, sql, status, compact, expire, verify, repair: the batch pipeline."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pequod.cli.connection import Json
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.lake_serve import Location, lake_errors, opened_lake
from pequod.cli.lake_serve import app as serving
from pequod.cli.lake_work import age_s
from pequod.cli.lake_work import app as working
from pequod.cli.progress import progress_bar
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

if TYPE_CHECKING:
    from pequod_lake import Lake, LakeSnapshot

_HELP: Final = """Take in rows by the million, and read them as fresh as each query wants.

\b
A lake is a folder, or lives in an object store with its catalog in PostgreSQL. Rows come in batches of several tables;
a batch is visible as a whole or not at all:
    pequod lake init lake schema.toml
    pequod lake ingest lake posts=posts.csv users=users.parquet
Workers sort and merge what came in, as many as you like, while queries go on:
    pequod lake run lake
A query says how old its answer may be, and reads no more than that takes:
    pequod lake query lake posts author=ann --freshness 30s

\b
The schema is a file in TOML:
    [[table]]
    name = "posts"
    key = ["id"]
    columns = { id = "int64", author = "text", created = "timestamp", body = "text" }
    views.by_author = ["author", "created", "id"]

It needs the extra lake; docs/lake.md is the page about it.
"""
_ROWS: Final = 1_000_000

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)
app.add_typer(serving)
app.add_typer(working)

FreshnessOption = Annotated[
    str,
    typer.Option(
        "--freshness",
        "-f",
        metavar="LEVEL",
        help="authority (cheapest), an age such as 30s, scu:NUMBER (at least this batch), or newest.",
    ),
]
PastOption = Annotated[
    int | None, typer.Option("--at-scu", metavar="NUMBER", help="The state after this batch, as it was then.")
]


@app.command(
    "init",
    epilog=examples(
        "pequod lake init lake schema.toml",
        "pequod lake init s3://bucket/lake schema.toml --catalog postgresql://ann@db/lake",
    ),
)
def init(
    location: Location,
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="The schema, in TOML.")],
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog",
            metavar="postgresql://...",
            help="An empty database of PostgreSQL for the catalog, so that several machines use the lake. "
            "If left out, the catalog is in the lake's folder.",
        ),
    ] = None,
) -> None:
    """Make an empty lake in a new folder, or in an object store.

    The lake remembers the catalog, without its password: that comes from PGPASSWORD or ~/.pgpass. Credentials of S3
    come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from where AWS's own tools have them; AWS_ENDPOINT_URL
    names another store than Amazon's.
    """
    with lake_errors():
        from pequod_lake import Lake

        try:
            text = schema.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fail(ExitCode.USAGE, f"cannot read {schema}: {error}")
        with Lake.create(location, text, catalog=catalog) as lake:
            print(f"made {location}: {', '.join(table.name for table in lake.schema.tables)}")


@app.command(
    "ingest",
    epilog=examples(
        "pequod lake ingest lake posts=posts.csv",
        "pequod lake ingest lake posts=posts.jsonl users=users.parquet --whole",
        "pequod lake ingest lake posts=gone.csv --delete",
    ),
)
def ingest(
    location: Location,
    files: Annotated[list[str], typer.Argument(metavar="TABLE=FILE...", help="Files: .csv, .parquet, .jsonl.")],
    whole: Annotated[bool, typer.Option("--whole", help="All rows of all files become visible together.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="The files hold keys of rows to delete.")] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, metavar="NUMBER", help="Rows of one batch.")] = _ROWS,
    name: Annotated[
        str | None, typer.Option("--id", metavar="TEXT", help="The id of the upload, instead of the files' content.")
    ] = None,
    json: Json = False,
) -> None:
    """Take in files, durable and visible when the command ends.

    A file of more than --rows rows becomes several batches. Files that were taken in before are not taken twice, so a
    command that broke is simply repeated: what it had not finished is taken in then.
    """
    with opened_lake(location) as lake:
        for line in _ingested(lake, _named_files(files), whole=whole, delete=delete, rows=rows, name=name):
            print(json_line(line) if json else "{id}: {rows} rows, SCU {scu}{note}".format(**line, note=_note(line)))


@app.command(
    "query",
    epilog=examples(
        "pequod lake query lake posts id=7 --freshness newest",
        "pequod lake query lake posts author=ann 'created>=2026-11-01' --columns id,body --json",
        "pequod lake query lake posts --at-scu 12 --limit 10",
    ),
)
def query(
    location: Location,
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    conditions: Annotated[
        list[str] | None, typer.Argument(metavar="CONDITION...", help="COLUMN=VALUE, or with < <= > >=; quote them.")
    ] = None,
    freshness: FreshnessOption = "newest",
    at_scu: PastOption = None,
    view: Annotated[str | None, typer.Option("--view", metavar="NAME", help="The sort order to read.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="NAMES", help="With commas; all if left out.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="NUMBER", help="Print no more rows.")] = None,
    json: Json = False,
) -> None:
    """Print rows, and on standard error which SCU answered, how old the answer is and what was read.

    Exit code 1 if there is no row.
    """
    with opened_lake(location) as lake:
        from pequod_lake.conditions import parse_condition

        with _snapshot(lake, freshness, at_scu) as snapshot:
            where = [parse_condition(one) for one in conditions or ()]
            answer = snapshot.scan(table, where, view=view, columns=columns.split(",") if columns else None)
            counts = answer.counts
            say(
                f"SCU {answer.scu}, {answer.age_s:.3f} s old; "
                f"read {counts.file_count} files, {counts.group_count} row groups, {counts.row_count} rows"
            )
            _print_rows(answer.rows if limit is None else answer.rows.slice(0, limit), json=json)


@app.command("sql", epilog=examples("pequod lake sql lake 'SELECT author, count(*) FROM posts GROUP BY author'"))
def sql(
    location: Location,
    statement: Annotated[str, typer.Argument(metavar="QUERY", help="A query in the SQL of DuckDB.")],
    freshness: FreshnessOption = "newest",
    at_scu: PastOption = None,
    json: Json = False,
) -> None:
    """Print the result of a query in SQL over all tables of one state; exit code 1 if it has no row."""
    with opened_lake(location) as lake:
        from pequod_lake.sql import run_sql

        with _snapshot(lake, freshness, at_scu) as snapshot:
            say(f"SCU {snapshot.scu}, {snapshot.age_s:.3f} s old")
            _print_rows(run_sql(snapshot, statement), json=json)


@app.command("status", epilog=examples("pequod lake status lake", "pequod lake status lake --json"))
def status(location: Location, json: Json = False) -> None:
    """Print how many rows are in which stage, and how old the authority is."""
    with opened_lake(location) as lake:
        found = lake.status()
        if json:
            stages = {one.stage.value: asdict(one) | {"stage": one.stage.value} for one in found.stages}
            print(json_line(asdict(found) | {"stages": stages}))
            return
        print(f"SCU {found.scu}; the authority has SCU {found.authority_scu} and is {found.authority_age_s:.1f} s old")
        print(f"snapshot {found.snapshot}; kept since {found.oldest_snapshot}")
        print(f"{found.worker_count} workers, {found.reader_count} readers, {found.orphan_count} orphans")
        for one in found.stages:
            print(
                f"{one.stage.value:<10} {one.run_count:>6} runs {one.row_count:>14,} rows {one.size_bytes:>16,} bytes"
            )


@app.command("expire", epilog=examples("pequod lake expire lake --keep 1h"))
def expire(
    location: Location,
    keep: Annotated[str, typer.Option("--keep", metavar="AGE", help="States that are younger stay readable.")] = "1h",
    json: Json = False,
) -> None:
    """Delete the files of older states, and what broken uploads and workers left; open queries keep theirs."""
    with opened_lake(location) as lake:
        expired, orphans = lake.expire(age_s(keep))
        if json:
            print(json_line({"expired": len(expired), "orphans": len(orphans)}))
        else:
            print(f"deleted {len(expired)} files of older states and {len(orphans)} orphans")


@app.command("verify", epilog=examples("pequod lake verify lake"))
def verify(location: Location, json: Json = False) -> None:
    """Read every file of the present state, and print what is damaged or wrong; exit code 1 if anything is.

    Rows are compared with the sums that the catalog has of them, views with their tables, ids with their texts, and the
    catalog with itself. Files of older states, and those that the catalog does not name, are counted and not read.
    """
    with opened_lake(location) as lake:
        problems = lake.verify()
        count = sum(len(run.files) for run in lake.catalog.snapshot().runs)
        past = lake.catalog.past_count()
        orphans = lake.catalog.orphans()
    if orphans:
        say(f"{len(orphans)} files that the catalog does not name, such as {orphans[0]}, were not read; they have no")
        say("rows of the lake, and `pequod lake expire` deletes them")
    for problem in problems:
        print(json_line({"problem": problem}) if json else problem)
    if problems:
        raise typer.Exit(ExitCode.WRONG)
    say(f"the catalog, and the {count} files of the present state, are as they were written: each row, view and id")
    if past:
        say(f"{past} files of older states were not read")


@app.command(
    "alter",
    epilog=examples("pequod lake alter lake posts --add likes=int64", "pequod lake alter lake posts --drop body"),
)
def alter(
    location: Location,
    table: Annotated[str, typer.Argument(metavar="TABLE")],
    add: Annotated[list[str] | None, typer.Option("--add", metavar="COLUMN=TYPE", help="A new column.")] = None,
    drop: Annotated[list[str] | None, typer.Option("--drop", metavar="COLUMN", help="A column to leave out.")] = None,
) -> None:
    """Add and drop columns while others read, write and merge; rows that are there have null in a new column.

    Files stay as they are until a merge touches them. The name of a dropped column is not given again.
    """
    added = [one.partition("=") for one in add or ()]
    if not all(kind for _, _, kind in added) or not (added or drop):
        fail(ExitCode.USAGE, "give --add COLUMN=TYPE, or --drop COLUMN, once or several times")
    with opened_lake(location) as lake:
        for name, _, kind in added:
            lake.add_column(table, name, kind)
        for name in drop or ():
            lake.drop_column(table, name)
        print(f"{table}: {', '.join(lake.schema.table(table).names)}")


@app.command("repair", epilog=examples("pequod lake repair lake"))
def repair(location: Location, json: Json = False) -> None:
    """Make damaged files anew from what other views and batches have; exit code 1 if something is left.

    A view is made from its table, a table from a view with all of its columns, or from the batches as they came if
    these are kept. What comes out must have the sum that the catalog has of the rows, or nothing is changed.
    """
    with opened_lake(location) as lake:
        report = lake.repair()
    for kind, lines in (("done", report.done), ("left", report.left)):
        for line in lines:
            print(json_line({kind: line}) if json else f"{kind}: {line}")
    if report.left:
        raise typer.Exit(ExitCode.WRONG)
    if not report.done:
        say("nothing is damaged")


def _snapshot(lake: Lake, freshness: str, at_scu: int | None) -> LakeSnapshot:
    return lake.snapshot(freshness) if at_scu is None else lake.snapshot_at(scu=at_scu)


def _named_files(files: Sequence[str]) -> list[tuple[str, Path]]:
    named = [(name, Path(path)) for name, sign, path in (file.partition("=") for file in files) if sign]
    if len(named) < len(files):
        fail(ExitCode.USAGE, "name the table of each file: TABLE=FILE")
    for _, path in named:
        if not path.is_file():
            fail(ExitCode.USAGE, f"there is no file {path}")
    return named


def _ingested(
    lake: Lake, files: Sequence[tuple[str, Path]], *, whole: bool, delete: bool, rows: int, name: str | None
) -> Iterator[dict[str, Any]]:
    """Take in files; yield a line for each upload."""
    from pequod_lake import IngestLimits
    from pequod_lake.files import content_id, pieces

    ids = [name or content_id(path) for _, path in files]
    kind = "delete" if delete else "put"
    with lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        upload = ingestor.upload("+".join(dict.fromkeys(ids)) + f"/{kind}") if whole else None
        for (table, path), identity in zip(files, ids, strict=True):
            with progress_bar(f"ingest {path.name}", None) as advance:
                done = 0
                for number, piece in enumerate(pieces(lake.schema.table(table), path, rows)):
                    part = upload or ingestor.upload(f"{identity}/{table}/{kind}/{rows}/{number}")
                    (part.delete if delete else part.put)(table, piece)
                    done += piece.num_rows
                    advance(0, done)
                    if upload is None:
                        yield _line(ingestor.take(part), part)
        if upload is not None:
            yield _line(ingestor.take(upload), upload)


def _line(taken: Any, upload: Any) -> dict[str, Any]:
    return {"id": upload.id, "rows": upload.row_count, "scu": taken.scu, "repeated": taken.is_repeated}


def _note(line: dict[str, Any]) -> str:
    return ", taken before" if line["repeated"] else ""


def _print_rows(rows: Any, *, json: bool) -> None:
    import csv

    if rows.num_rows == 0:
        raise typer.Exit(ExitCode.ABSENT)
    if json:
        for row in rows.to_pylist():
            print(json_line({name: _plain(value) for name, value in row.items()}))
        return
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write(rows.schema.names)
    for row in rows.to_pylist():
        write(["" if value is None else _plain(value) for value in row.values()])


def _plain(value: Any) -> Any:
    from datetime import date
    from decimal import Decimal

    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value
