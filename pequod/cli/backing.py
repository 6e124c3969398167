"""backing check, sql, install, uninstall and drop-slot: the database behind the cache."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, cast

import typer
from pequod_installed.names import how_to_install

from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes

if TYPE_CHECKING:
    from pequod_server.backing import Mapping, SqliteStore
    from pequod_server.backing.lake.store import LakeStore
    from pequod_server.backing.postgres.store import PostgresStore
    from pequod_server.backing.sql import Dialect, Query

_HELP: Final = """Check, show, install and take out what ties key patterns to the tables of a database.

\b
The mapping is a file in TOML:
    [[mapping]]
    keys = "p|<poster>|<time:10>"
    table = "posts"
    slots.time = { column = "created", type = "integer" }
    value = "body"
    where = "NOT hidden"

DATABASE is sqlite:PATH or postgresql://USER:PASSWORD@HOST/NAME, for `check` also lake:DIR: a lake needs no installing.
"""
_POSTGRES: Final = ("postgresql://", "postgres://")
_LAKE: Final = "lake:"
T = TypeVar("T")

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)

FileAndDatabase = Annotated[
    list[str],
    typer.Argument(
        metavar="[FILE] DATABASE",
        help="The mapping, in TOML, unless --generic; and sqlite:PATH, postgresql://... or, for `check`, lake:DIR.",
    ),
]
Generic = Annotated[
    bool, typer.Option("--generic", help="No mapping: the table `pequod_base` of keys and values, both bytes.")
]
MappingFile = Annotated[Path, typer.Argument(metavar="FILE", help="The mapping, in TOML.")]
Database = Annotated[str, typer.Argument(metavar="DATABASE", help="sqlite:PATH or postgresql://...")]
Feed = Annotated[str, typer.Option("--feed", metavar="slot|notify", help="How changes come from PostgreSQL.")]
FeedName = Annotated[
    str, typer.Option("--feed-name", metavar="NAME", help="The publication and its replication slot, or the channel.")
]


@app.command(
    "check",
    epilog=examples(
        "pequod backing check twip.toml sqlite:twip.db",
        "pequod backing check twip.toml postgresql://twip@localhost/twip --feed notify",
        "pequod backing check twip.toml lake:/data/lake",
        "pequod backing check --generic sqlite:twip.db",
    ),
)
def check(
    places: FileAndDatabase, generic: Generic = False, feed: Feed = "slot", feed_name: FeedName = "pequod"
) -> None:
    """Compare a mapping with the real schema and with the installed triggers, and print advice.

    Of what fits, print for each column what is made of it.

    Exit code 3 if anything does not fit, with all of it; 4 if the database does not answer.
    """
    mappings, database = _mapped(places, generic=generic)
    store = _lake(mappings, database) if database.startswith(_LAKE) else _open(database, mappings, feed, feed_name)

    async def look() -> tuple[list[str], list[list[str]]]:
        return await store.check(), await store.described()

    advice, columns = _run(store, look())
    for line in advice:
        print(f"advice: {line}")
    for mapping, lines in zip(store.mappings, columns, strict=True):
        print(f"ok: {mapping.pattern} <- {mapping.table}")
        for line in lines:
            print(f"    {line}")


@app.command(
    "sql",
    epilog=examples(
        "pequod backing sql twip.toml 'p|bob|' 'p|bob}'",
        "pequod backing sql twip.toml 'p|bob|0000000100' 'p|bob|0000000200' --dialect sqlite",
        "pequod backing sql twip.toml 'by_title|Hi|' 'by_title|Hi}' --join '"
        "by_title|<title>|<id> = copy article|<id> with title = <title>'",
    ),
)
def sql(
    file: MappingFile,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Where the range starts.")],
    last: Annotated[str, typer.Argument(metavar="LAST", help="Where it ends; this key is not in it.")],
    dialect: Annotated[
        str, typer.Option(metavar="postgresql|sqlite", help="The database that the statements are for.")
    ] = "postgresql",
    join: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A join: show what a read of its range loads first.")
    ] = None,
) -> None:
    """Print the statement that loads a range, and its parameters, for each mapping that has keys there."""
    from pequod_server.backing.sqlite.dialect import SqliteDialect

    chosen: Dialect
    if dialect == "sqlite":
        chosen = SqliteDialect()
    elif dialect == "postgresql":
        _need_asyncpg()
        from pequod_server.backing.postgres.schema import PostgresDialect

        chosen = PostgresDialect()
    else:
        fail(ExitCode.USAGE, f"{dialect!r} is no dialect; there are postgresql and sqlite")
    found = _queries(chosen, read_mappings(file), argument_bytes(first), argument_bytes(last), join or [])
    if not found:
        fail(ExitCode.ABSENT, "no mapping has keys in this range")
    for query in found:
        print(f"{query.text};")
        for number, parameter in enumerate(query.parameters, 1):
            print(f"-- ${number} = {parameter!r}")


def _queries(
    dialect: Dialect, mappings: Sequence[Mapping], first: bytes, last: bytes, joins: Sequence[str]
) -> list[Query]:
    """Return the statements that a read of a range needs first, if the joins are installed."""
    from pequod_grammar import parse
    from pequod_server.backing import KeyRange
    from pequod_server.backing.searches import by_columns, columns_of
    from pequod_server.backing.sql import boxes_of, select

    from pequod.engine import Engine, MissingError

    tables = {mapping.pattern.literal_prefix.partition(b"|")[0] for mapping in mappings}
    engine = Engine(backed=tables, can_search=lambda search: columns_of(mappings, search) is not None)
    engine.add_joins(parse(";\n".join(joins)) if joins else [])
    try:
        engine.scan(first, last)
    except MissingError as error:
        ranges = [KeyRange(*one) for one in error.ranges]
        queries = [select(dialect, mapping, boxes_of(mapping, ranges)) for mapping in mappings]
        queries += [
            select(dialect, columns.mapping, columns.boxes(some), columns.slots)
            for columns, some in by_columns(mappings, error.searches)
        ]
        return [query for query in queries if query is not None]
    return []


@app.command(
    "install",
    epilog=examples(
        "pequod backing install twip.toml sqlite:twip.db",
        "pequod backing install twip.toml postgresql://postgres@localhost/twip --feed notify",
        "pequod backing install --generic sqlite:twip.db",
    ),
)
def install(
    places: FileAndDatabase, generic: Generic = False, feed: Feed = "slot", feed_name: FeedName = "pequod"
) -> None:
    """Make what the feed of changes needs in the database, in one transaction, and print the statements.

    SQLite: a table of changes and triggers. PostgreSQL: a publication (slot), or triggers (notify). With --generic also
    the table of keys and values, and the file of SQLite; servers then need no mapping, but `backing_tables`.
    """
    mappings, database = _mapped(places, generic=generic)
    store = _open(database, mappings, feed, feed_name)
    for statement in _run(store, store.install()):
        print(f"{statement};")


@app.command(
    "uninstall",
    epilog=examples(
        "pequod backing uninstall sqlite:twip.db",
        "pequod backing uninstall postgresql://postgres@localhost/twip",
        "pequod backing uninstall postgresql://postgres@localhost/twip --feed-name pequod2 --yes",
    ),
)
def uninstall(
    database: Database,
    feed_name: FeedName = "pequod",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove what `install` and servers with this feed name made in the database; print the statements, and ask.

    SQLite: the triggers and the table of changes. PostgreSQL: publication and replication slot, triggers and functions;
    REPLICA IDENTITY is set back. Tables, their rows and other feeds stay as they are. Stop the servers first: a
    replication slot in use is refused (exit code 3). Exit code 1 if there is nothing to remove.
    """
    store = _open(database, feed_name=feed_name)
    statements = _run(store, store.removal())
    if not statements:
        fail(ExitCode.ABSENT, f"nothing of the feed {feed_name} is installed there")
    for statement in statements:
        print(f"{statement};")
    if not yes:
        if not sys.stdin.isatty():
            fail(ExitCode.USAGE, "nothing was done: say --yes, or run it at a terminal, where it asks")
        if not typer.confirm("Run these statements?", err=True):
            fail(ExitCode.ABSENT, "nothing was done")
    store = _open(database, feed_name=feed_name)
    _run(store, store.carry_out(statements))


@app.command(
    "drop-slot",
    epilog=examples(
        "pequod backing drop-slot postgresql://postgres@localhost/twip",
        "pequod backing drop-slot postgresql://postgres@localhost/twip --feed-name pequod2",
    ),
)
def drop_slot(database: Database, feed_name: FeedName = "pequod") -> None:
    """Drop the replication slot of a server that is gone; it keeps the database's log until the disk is full.

    A replication slot in use is refused, with the name of its user (exit code 3). A server that comes back
    makes its own again and reads everything again. Exit code 1 if there is no such replication slot.
    """
    if not database.startswith(_POSTGRES):
        fail(ExitCode.USAGE, "only PostgreSQL has replication slots; give its URL, postgresql://...")
    store = cast("PostgresStore", _open(database, feed_name=feed_name))

    async def drop() -> list[str]:
        statements = await store.slot_removal()
        await store.carry_out(statements)
        return statements

    statements = _run(store, drop())
    if not statements:
        fail(ExitCode.ABSENT, f"there is no replication slot {feed_name}")
    for statement in statements:
        print(f"{statement};")


def read_mappings(file: Path) -> tuple[Mapping, ...]:
    """Return the mappings of a file, or end the command."""
    from pequod_server.backing import parse_mappings

    from pequod.errors import PequodError

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, f"cannot read the mapping: {error}")
    try:
        return parse_mappings(text)
    except PequodError as error:
        fail(ExitCode.USAGE, str(error))


def _mapped(places: Sequence[str], *, generic: bool) -> tuple[tuple[Mapping, ...], str]:
    """Return the mappings and the database of arguments."""
    if generic:
        from pequod_server.backing import Mapping

        if len(places) != 1:
            fail(ExitCode.USAGE, "with --generic there is no mapping: give the database alone")
        if places[0].startswith(_LAKE):
            fail(ExitCode.USAGE, "a lake has tables of its own: give a mapping")
        return (Mapping.generic([]),), places[0]
    if len(places) != 2:
        fail(ExitCode.USAGE, "give the file of the mapping and the database; or --generic and the database")
    return read_mappings(Path(places[0])), places[1]


def _lake(mappings: tuple[Mapping, ...], database: str) -> LakeStore:
    try:
        from pequod_server.backing.lake.store import LakeStore
    except ImportError as error:
        fail(ExitCode.USAGE, f"lakes need {error.name}: {how_to_install('lake')}")
    return LakeStore(database.removeprefix(_LAKE), mappings)


def _open(
    database: str, mappings: tuple[Mapping, ...] = (), feed: str = "slot", feed_name: str = "pequod"
) -> SqliteStore | PostgresStore:
    if feed not in {"slot", "notify"}:
        fail(ExitCode.USAGE, f"{feed!r} is no feed; there are slot and notify")
    if database.startswith("sqlite:"):
        from pequod_server.backing import SqliteStore

        return SqliteStore(database.removeprefix("sqlite:"), mappings)
    if not database.startswith(_POSTGRES):
        fail(ExitCode.USAGE, f"{database!r} is no database; write sqlite:PATH or postgresql://...")
    from pequod.errors import PequodError

    try:
        return _postgres_store()(database, mappings, mode=cast("Literal['slot', 'notify']", feed), feed_name=feed_name)
    except PequodError as error:
        fail(ExitCode.USAGE, str(error))


def _postgres_store() -> type[PostgresStore]:
    _need_asyncpg()
    from pequod_server.backing.postgres.store import PostgresStore

    return PostgresStore


def _need_asyncpg() -> None:
    try:
        import asyncpg  # noqa: F401 - only to see whether it is there
        import psycopg2  # noqa: F401
    except ImportError as error:
        fail(ExitCode.REFUSED, f"PostgreSQL needs {error.name}: {how_to_install('backing')}")


def _run(store: SqliteStore | PostgresStore | LakeStore, work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    from pequod_server.backing import BackingUnavailableError

    from pequod.errors import PequodError

    async def run() -> T:
        try:
            return await work
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except BackingUnavailableError as error:
        fail(ExitCode.UNREACHABLE, str(error))
    except PequodError as error:
        fail(ExitCode.REFUSED, str(error))
