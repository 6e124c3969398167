"""views install, uninstall, check, run, status, wait and others: tables of a database that are kept equal to ranges."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, connection_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples
from pequod.cli.text import json_line
from pequod.cli.views_file import Database, Server, ViewsFile, run_with, until_told, views_of
from pequod.cli.views_moving import BALANCE_EPILOG, SPLIT_EPILOG, balance, split
from pequod.cli.views_verify import VERIFY_EPILOG, verify

if TYPE_CHECKING:
    from pequod_views import Manager, Target
    from pequod_views.reading import PartStatus

_HELP: Final = """Keep tables of a database equal to ranges of a server, for readers that speak SQL.

\b
The views are a file in TOML:
    server = "127.0.0.1:7744"
    database = "postgresql://views@db/live"          or "sqlite:live.db", or "mariadb://views:secret@db/live"
    [[view]]
    name = "karma"
    keys = "karma|<author>"                          each slot is a column
    table = "karma"
    value = { column = "votes", type = "integer" }   or fields.body = "body", of a JSON object

\b
First `install` makes the tables, then `run` keeps them. Run as many as you like: they share the parts of the views by
the database alone, and take over those of one that dies. Rows and position are written in one transaction, so nothing
is lost or taken in twice. docs/views.md tells the rest. Needs the extra views, or mariadb.
"""
#: Between two attempts to reach a database before there is a manager.
_AWAY_S: Final = 1.0
T = TypeVar("T")

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)

app.command("verify", epilog=VERIFY_EPILOG)(verify)
app.command("split", epilog=SPLIT_EPILOG)(split)
app.command("balance", epilog=BALANCE_EPILOG)(balance)


@app.command(
    "install",
    epilog=examples(
        "pequod views install views.toml",
        "pequod views install views.toml --recut       (parts of equal size again)",
        "pequod views install views.toml --adopt       (show another server from now on)",
    ),
)
def install(
    file: ViewsFile,
    database: Database = None,
    target: Server = None,
    recut: Annotated[bool, typer.Option("--recut", help="Cut the ranges again into parts of equal size.")] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Show this server, though the views were installed with another one.")
    ] = False,
) -> None:
    """Make the tables of the views and those beside them, and print what was done.

    It is one transaction, but in MariaDB: there do it again if it was killed, and it does the rest.

    Do it again after a change of the file: a view that is the same stays as it is; one that has changed keeps its table
    and begins anew, with what differs. The server is noted: its databases, or the data in its memory. Exit code 3 if a
    table is there and has other columns, or a view was installed with another server.
    """
    views = views_of(file)

    async def work(place: Target) -> list[str]:
        from pequod_views.install import install as install_views

        from pequod.client import AsyncClient

        async with AsyncClient(target or views.server or DEFAULT_TARGET, **connection_settings()) as client:
            if views.joins and any(view.part_count > 1 for view in views.views):
                await client.add_join(views.joins)
            return await install_views(place, client, views.views, recut=recut, adopt=adopt)

    for line in run_with(views, database, work, missing="made"):
        print(line)


@app.command(
    "uninstall",
    epilog=examples(
        "pequod views uninstall views.toml",
        "pequod views uninstall views.toml karma --drop-tables",
    ),
)
def uninstall(
    file: ViewsFile,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[VIEW]...", help="Views; without any, all that are installed.")
    ] = None,
    database: Database = None,
    drop_tables: Annotated[bool, typer.Option("--drop-tables", help="Drop their tables as well.")] = False,
) -> None:
    """Take views out of the database, and print what was done.

    It is one transaction, but in MariaDB: there do it again if it was killed, and it does the rest.

    Managers lose their parts at once. Tables stay with the rows that they have, unless you drop them. With the last
    view everything beside the views goes. Exit code 3 if a view is not installed, or something depends on a table.
    """
    views = views_of(file)

    async def work(place: Target) -> list[str]:
        from pequod_views.install import uninstall as uninstall_views

        return await uninstall_views(place, names or (), drops_tables=drop_tables)

    for line in run_with(views, database, work) or ["nothing is installed"]:
        print(line)


@app.command("check", epilog=examples("pequod views check views.toml"))
def check(file: ViewsFile, database: Database = None) -> None:
    """Compare the views with their tables. Exit code 3 if anything does not fit, with all of it."""
    views = views_of(file)

    async def work(place: Target) -> list[str]:
        from pequod_views.install import check as check_views

        return await check_views(place, views.views)

    problems = run_with(views, database, work)
    if problems:
        fail(ExitCode.REFUSED, "\n        ".join(problems))
    for view in views.views:
        print(f"ok: {view.name} -> {view.table}")


@app.command(
    "run",
    epilog=examples(
        "pequod views run views.toml",
        "pequod views run views.toml --metrics 127.0.0.1:9200 --json",
    ),
)
def run(
    file: ViewsFile,
    database: Database = None,
    target: Server = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Of this manager; else the host's.")] = "",
    lease: Annotated[
        float,
        typer.Option(
            "--lease",
            min=0.2,
            max=3600,
            metavar="SECONDS",
            help="After this silence others take a manager's parts.",
        ),
    ] = 4.0,
    balance_above: Annotated[
        float,
        typer.Option(
            "--balance-above",
            min=0,
            metavar="ROWS",
            help="With more rows a second, hand parts to other managers and split hot ones; 0: never.",
        ),
    ] = 0.0,
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="HOST:PORT", help="Answer Prometheus here, under /metrics.")
    ] = None,
    json: Json = False,
) -> None:
    """Keep the tables until Ctrl-C or SIGTERM; then hand the parts over.

    A server or a database that is away is waited for, and told on standard error, by `status` and in the metrics. With
    --json each change of what this manager holds and has done is a line on standard output. Exit code 0 after an
    orderly end, 3 if the tables do not fit or the server is not the one that the views were installed with. A server
    that is replaced by another one later fills no table: the rows stay, and `status` tells.
    """
    import asyncio
    import logging

    logging.basicConfig(level=logging.INFO, format="pequod: %(message)s", stream=sys.stderr)
    views = views_of(file)
    told: list[str] = []

    def tell(manager: Manager) -> None:
        line = json_line({"manager": manager.name, "parts": len(manager.parts), **asdict(manager.counts)})
        if json and told != [line]:
            told[:] = [line]
            print(line, flush=True)

    async def work(place: Target) -> None:
        from pequod_views import Manager, OtherServerError, TargetAwayError, TargetMissingError
        from pequod_views.followed import FollowerSettings
        from pequod_views.install import check as check_views
        from pequod_views.origins import check_server
        from pequod_views.patience import Patience

        from pequod.client import AsyncClient
        from pequod.errors import UnavailableError

        async def problems_with(client: AsyncClient) -> list[str]:
            problems = await check_views(place, views.views)
            if not problems:
                try:
                    await check_server(place, client, views.views)
                except UnavailableError as error:
                    logging.getLogger("pequod.views").warning("%s; it is waited for", error)
                except OtherServerError as error:
                    return [str(error)]
            return problems

        settings = FollowerSettings(lease_s=lease, joins=views.joins, balance_above=balance_above)
        async with AsyncClient(target or views.server or DEFAULT_TARGET, **connection_settings()) as client:
            patience = Patience(place.name)
            while True:
                try:
                    problems = await problems_with(client)
                    patience.answers()
                    break
                except TargetMissingError:
                    raise
                except TargetAwayError as error:
                    patience.is_away(error)
                    await asyncio.sleep(_AWAY_S)
            if problems:
                fail(ExitCode.REFUSED, "\n        ".join(problems))
            manager = Manager(client, place, views.views, settings, name=name, on_beat=tell)
            if metrics is not None:
                from pequod_views.metrics import serve_metrics

                serve_metrics(manager, metrics)
            await manager.run()

    run_with(views, database, lambda place: until_told(work(place)))


@app.command("status", epilog=examples("pequod views status views.toml", "pequod views status views.toml --json"))
def status(file: ViewsFile, database: Database = None, json: Json = False) -> None:
    """Print each part: who holds it, how old its rows may be, how far it is, and what is wrong.

    It asks the database alone. The state is `follows`, `begins`, `waits` (with the reason) or `free` (no manager has
    it). Exit code 1 if nothing is installed, 3 if there is no such database, 4 if it does not answer.
    """
    from dataclasses import asdict

    views = views_of(file)

    async def work(place: Target) -> list[PartStatus]:
        from pequod_views.reading import status as read_status

        return await read_status(place)

    parts = run_with(views, database, work)
    if not parts:
        fail(ExitCode.ABSENT, "nothing is installed there; run `pequod views install`")
    if json:
        for part in parts:
            print(json_line({"state": part.state, **asdict(part)}))
        return
    print_table(
        ("view", "from", "state", "age", "revision", "changes", "unfit", "manager"),
        [
            (
                part.view,
                part.first,
                part.state,
                "-" if part.age_s is None else f"{part.age_s:.1f} s",
                str(part.revision),
                str(part.changes),
                str(part.unfit),
                part.owner or "-",
            )
            for part in parts
        ],
    )
    for part in parts:
        for what, why in (("waits", part.trouble), ("does not fit", part.unfit_example)):
            if why:
                print(f"{part.view} from {part.first} {what}: {why}")


@app.command("wait", epilog=examples("pequod views wait views.toml karma pq1.AZ86YcIBpbTYAw --wait 5"))
def wait(
    file: ViewsFile,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The name of the view.")],
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="Of a write, or of a session.")],
    database: Database = None,
    seconds: Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="The longest time.")] = 1.0,
) -> None:
    """Wait until a table shows at least the state that a token names. Exit code 1 if it does not in time.

    In PostgreSQL a reader does the same by SELECT pequod_views.wait_for('karma', 'pq1...', 5).
    """
    from pequod.errors import InvalidTokenError
    from pequod.freshness import Token

    views = views_of(file)
    if view not in {one.name for one in views.views}:
        fail(ExitCode.USAGE, f"the file has no view {view!r}")
    try:
        wanted = Token.parse(token)
    except InvalidTokenError as error:
        fail(ExitCode.USAGE, str(error))

    async def work(place: Target) -> bool:
        from pequod_views.reading import wait_for

        return await wait_for(place, view, wanted, seconds)

    if not run_with(views, database, work):
        fail(ExitCode.ABSENT, f"{view} has not reached this token after {seconds:g} s")
