"""versioned serve, sweep, check and read: views that are kept in a store of records without a master."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, assert_never

import typer
from pequod_installed.names import how_to_install

from pequod.cli.connection import Json
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples
from pequod.cli.text import json_line
from pequod.cli.views_file import text_of, until_told

if TYPE_CHECKING:
    from pequod_views.versioned import RecordStore, ShareLeases, ViewCoordinator, ViewSweeper
    from pequod_views.versioned.definition import VersionedFile

_HELP: Final = """Keep views inside a store of records that has no master.

\b
The views are a file in TOML:
    replicas = ["redis://a:6379", "redis://b:6379", "redis://c:6379"]      or each sqlite:PATH
               or ["cassandra://host,host/keyspace"], which has as many replicas as the keyspace says
    lease_s = 2.0           the same for all processes over the store, and so share_count = 64
    [[view]]
    name = "assigned_to"
    base = "ticket"
    key = "assigned"                       the column whose values are the keys of the view
    columns = ["status", "title"]
    where = ['status = "open"', 'votes >= 2']      may be left out: records that do not meet all have no row

\b
Groups instead of columns, computed where they are read:
    aggregates = { tickets = "count", hours = "sum hours" }      or min, max, count and a column
    by = ["status"]                        the groups within one key; may be left out

\b
Programs write through `pequod_views.versioned.ViewCoordinator`, which propagates their writes. `serve` completes what
programs that died have left, and collects stale rows. docs/views.md tells the rest. Redis needs the extra
redis, Cassandra the extra cassandra.
"""
T = TypeVar("T")

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)

VersionedPath = Annotated[Path, typer.Argument(metavar="FILE", help="The views, in TOML.")]


@app.command(
    "serve",
    epilog=examples("pequod versioned serve versioned.toml", "pequod versioned serve versioned.toml --every 10"),
)
def serve(
    file: VersionedPath,
    every: Annotated[
        float, typer.Option("--every", min=0.01, max=86400, metavar="SECONDS", help="Between two sweeps.")
    ] = 60.0,
    output_json: Json = False,
) -> None:
    """Sweep again and again until Ctrl-C or SIGTERM, and print what each sweep did.

    Run as many as you like, on any host: they share the records out by leases in the store. Replicas that are away are
    told of, and the next sweep goes on.
    """
    import asyncio

    views = _parsed(file)

    async def work(store: RecordStore) -> None:
        from pequod_views.versioned import QuorumError

        leases = views.leases(store)
        sweeper = _sweeper(views, store, leases)
        try:
            while True:
                try:
                    await _sweep(sweeper, output_json=output_json)
                except QuorumError as error:
                    say(f"{error}; the next sweep is in {every:g} s")
                await asyncio.sleep(every)
        finally:
            await leases.close()

    # A sweep that waits for replicas is left in its middle, as if the process died: the next one completes it.
    _run(views, lambda store: until_told(work(store)))


@app.command("sweep", epilog=examples("pequod versioned sweep versioned.toml"))
def sweep(file: VersionedPath, output_json: Json = False) -> None:
    """Go over all records once: propagate, finish and collect what was left; print how many rows.

    A sweep may leave work for the next. Tombstones are removed by `serve` alone, which knows how long they are there.
    """
    views = _parsed(file)

    async def work(store: RecordStore) -> None:
        leases = views.leases(store)
        try:
            await _sweep(_sweeper(views, store, leases), output_json=output_json)
        finally:
            await leases.close()

    _run(views, work)


@app.command("check", epilog=examples("pequod versioned check versioned.toml"))
def check(file: VersionedPath, output_json: Json = False) -> None:
    """Compare the views with their bases, and print where one is not what its base says; exit code 1 if there is one.

    The exit code is 1 as well if there was nothing to compare: neither a record of a base nor a row of a view.
    Nothing is said of records with writes that are not propagated yet; a sweep propagates those that nobody works on.
    """
    views = _parsed(file)

    async def work(store: RecordStore) -> bool:
        from pequod_views.versioned.checking import check_rows

        checked = await check_rows(store, views.views)
        if output_json:
            print(json_line(asdict(checked)))
        else:
            for text in checked.wrong:
                print(text)
            bases = {view.name: view.base for view in views.views}
            for name in checked.empty:
                print(
                    f"{name}: nothing to compare, since the table {bases[name]!r} has no records and the view no rows"
                )
            without = _without(checked.replicas_away)
            print(
                f"{checked.records} records, {checked.pending} not propagated yet, {len(checked.wrong)} wrong{without}"
            )
        return not checked.wrong and len(checked.empty) < len(views.views)

    if not _run(views, work):
        raise typer.Exit(ExitCode.WRONG)


@app.command(
    "read",
    epilog=examples("pequod versioned read versioned.toml assigned_to kim"),
)
def read(
    file: VersionedPath,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The name of a view of the file.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A value of the view's key column.")],
    output_json: Json = False,
) -> None:
    """Print the rows of a view that have a key, with the keys of their base records; or its groups.

    It is what a majority of the replicas has, with all writes that have been propagated. A row that was left half made
    is mended first. Exit code 1 if there is none.
    """
    views = _parsed(file)
    if view not in {one.name for one in views.views}:
        fail(ExitCode.USAGE, f"the file has no view {view!r}; it has {', '.join(one.name for one in views.views)}")

    async def work(store: RecordStore) -> None:
        from pequod_views.versioned import ViewCoordinator

        leases = views.leases(store)
        try:
            rows = await _found(views, ViewCoordinator(store, views.views, leases), view, key)
            if not rows:
                fail(ExitCode.ABSENT, f"{view} has nothing under the key {key!r}")
            for name, found in rows:
                part = {"by" if isinstance(name, dict) else "key": name}
                print(json_line({**part, "values": found}) if output_json else f"{_shown(name)} {_shown(found)}")
        finally:
            await leases.close()

    _run(views, work)


async def _found(
    views: VersionedFile, coordinator: ViewCoordinator, name: str, key: str
) -> list[tuple[str | dict[str, str | None], dict[str, str | None]]]:
    """Return base keys, or the columns that say which group it is, with the values there."""
    for groups in views.groups:
        if groups.name == name:
            found = await coordinator.get_groups(groups, key)
            ordered = sorted(found.items(), key=lambda item: [(value is not None, value or "") for value in item[0]])
            return [(dict(zip(groups.by, values, strict=True)), own) for values, own in ordered]
    (view,) = (one for one in views.views if one.name == name)
    rows = await coordinator.get_view(view, key)
    return [(base_key, {column: cell.value for column, cell in row.items()}) for base_key, row in sorted(rows.items())]


def _shown(found: str | dict[str, str | None]) -> str:
    import json

    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _parsed(file: Path) -> VersionedFile:
    from pequod_views.versioned.definition import parse_versioned

    from pequod.errors import PequodError

    text = text_of(file, "pequod versioned --help")
    try:
        return parse_versioned(text)
    except PequodError as error:
        fail(ExitCode.USAGE, str(error))


def _sweeper(views: VersionedFile, store: RecordStore, leases: ShareLeases) -> ViewSweeper:
    from pequod_views.versioned import ViewSweeper

    return ViewSweeper(store, views.views, leases)


async def _sweep(sweeper: ViewSweeper, *, output_json: bool) -> None:
    swept = asdict(await sweeper.sweep())
    if output_json:
        print(json_line(swept), flush=True)
        return
    away = swept.pop("replicas_away")
    print(", ".join(f"{name} {count}" for name, count in swept.items()) + _without(away), flush=True)


def _without(away: int) -> str:
    """Return what to say of replicas that did not answer."""
    return f", without what {away} that did not answer alone have" if away else ""


async def _opened(views: VersionedFile) -> tuple[RecordStore, Callable[[], Coroutine[Any, Any, None]]]:
    """Return the store, and what closes it; files that are not there are not made."""
    import asyncio

    from pequod_views.versioned import ReplicaRefusedError

    match views.kind:
        case "sqlite":
            from pequod_views.versioned import SqliteReplicas

            paths = [Path(replica.removeprefix("sqlite:")) for replica in views.replicas]
            files = SqliteReplicas(paths, missing="refused")
            return files, lambda: asyncio.to_thread(files.close)
        case "redis":
            from pequod_views.versioned.redis_store import RedisReplicas

            servers = RedisReplicas(views.replicas)
            try:
                await servers.refuse_same()
            except ReplicaRefusedError:
                await servers.close()
                raise
            return servers, servers.close
        case "cassandra":
            from pequod_views.versioned.cassandra_store import CassandraReplicas

            nodes = await CassandraReplicas.open(views.replicas[0], missing="refused")
            return nodes, nodes.close
        case _:
            assert_never(views.kind)


def _run(views: VersionedFile, work: Callable[[RecordStore], Coroutine[Any, Any, T]]) -> T:
    """Run work with the store; an error of it is a message and an exit code."""
    import asyncio

    from pequod_views.versioned import (
        EarlierFormatError,
        NameRefusedError,
        QuorumError,
        ReplicaRefusedError,
        StatementRefusedError,
        ViewLateError,
    )

    async def run_with() -> T:
        store, close = await _opened(views)
        try:
            return await work(store)
        finally:
            await close()

    try:
        return asyncio.run(run_with())
    except ModuleNotFoundError as error:
        if views.kind == "cassandra":
            fail(ExitCode.REFUSED, f"Cassandra needs {error.name}: {how_to_install('cassandra')}")
        fail(ExitCode.REFUSED, f"Redis needs {error.name}: {how_to_install('redis')}")
    except (QuorumError, ViewLateError) as error:
        fail(ExitCode.UNREACHABLE, str(error))
    except (EarlierFormatError, NameRefusedError, ReplicaRefusedError, StatementRefusedError) as error:
        fail(ExitCode.REFUSED, str(error))
