"""What is other in MariaDB: statements that commit by themselves, deadlocks, connections that break, addresses."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pymysql
import pytest
from pequod_views import (
    DurableView,
    TargetAwayError,
    TargetMissingError,
    TargetRefusedError,
    ViewFileError,
    open_target,
)
from pequod_views.definition import KEY_BYTES_MAX
from pequod_views.install import check, install, uninstall
from pequod_views.kinds import KINDS
from pequod_views.ledger import PartLedger
from pequod_views.targets.mariadb_connection import MariadbConnection, grouped, literal, parse_address
from pequod_views.verifying import Verifier
from typer.testing import CliRunner

from pequod import AsyncClient
from pequod.cli.app import app
from tests.views.mariadb import Mariadb
from tests.views.sites import MariadbSite, check_log, equal, installed, managing, reached, until

_PAGE: Final = Path(__file__).parents[2] / "docs" / "views.md"
VIEWS = [
    DurableView.parse({"name": "v", "keys": "p|<who>", "value": "body", "log": True}),
    DurableView.parse({"name": "w", "keys": "q|<who>", "value": "body", "log": True}),
]


@contextmanager
def broken_off(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[list[str]]:
    """Break connections off behind so many messages, as the death of the process does; yield those that were sent."""
    sent = list[str]()
    run_all = MariadbConnection.run_all

    def run_some(self: MariadbConnection, statements: Iterable[str]) -> object:
        if len(sent) == after:
            self.cut()
        else:
            statements = list(statements)
            sent.append(";".join(statements))
        return run_all(self, statements)

    with monkeypatch.context() as patch:
        patch.setattr(MariadbConnection, "run_all", run_some)
        yield sent


async def died(work: object) -> bool:
    """Return whether work on the database broke off."""
    assert asyncio.iscoroutine(work)
    try:
        await work
    except TargetAwayError:
        return True
    return False


async def test_an_install_that_dies_between_two_statements_is_finished_by_the_next(
    mariadb_site: MariadbSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.multi_put({"p|ann": "1", "q|bob": "2"})
    site, target = mariadb_site, open_target(mariadb_site.database)
    after, is_broken = 0, True
    while is_broken:
        with broken_off(monkeypatch, after) as sent:
            is_broken = await died(install(target, client, VIEWS))
        if is_broken:
            await install(target, client, VIEWS)
        assert await check(target, VIEWS) == []
        if is_broken:
            await uninstall(target, drops_tables=True)
        after += 1
    assert await install(target, client, VIEWS) == []
    # A death before each of its statements, and one run to the end.
    assert len(sent) == after - 1 > 20
    async with managing(site, client, VIEWS):
        await equal(site, client, *VIEWS)
    await target.close()


async def test_a_table_that_was_lost_is_never_taken_for_one_that_is_full(
    mariadb_site: MariadbSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part has a position. An install that makes the table first, and dies, would leave it empty for ever."""
    await client.multi_put({"p|ann": "1", "q|bob": "2"})
    site, target = mariadb_site, open_target(mariadb_site.database)
    await install(target, client, VIEWS)
    positions = f"SELECT view, server_id <> '' FROM {site.prefix}parts ORDER BY view"
    after, is_broken = 0, True
    while is_broken:
        # As managers leave it, and then a person.
        await site.fetch(f"UPDATE {site.prefix}parts SET server_id = 'f', revision = 9")
        await site.fetch("DROP TABLE IF EXISTS v")
        with broken_off(monkeypatch, after):
            is_broken = await died(install(target, client, VIEWS))
        is_there = bool(await site.fetch("SHOW TABLES LIKE 'v'"))
        assert is_there or is_broken
        (_, has_position), (_, has_other) = await site.fetch(positions)
        assert not (is_there and has_position)
        assert has_other, "the other view goes on from where it is"
        after += 1
    assert after > 5
    await target.close()


async def test_an_uninstall_that_dies_between_two_statements_is_finished_by_the_next(
    mariadb_site: MariadbSite, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, target = mariadb_site, open_target(mariadb_site.database)
    after, is_broken = 0, True
    while is_broken:
        await install(target, client, VIEWS)
        # What is left is installed again, or taken out.
        assert await check(target, VIEWS) == []
        with broken_off(monkeypatch, after):
            is_broken = await died(uninstall(target, drops_tables=True))
        if after % 2:
            await uninstall(target, drops_tables=True)
            assert await site.fetch("SHOW TABLES") == []
        after += 1
    assert await uninstall(target) == []
    assert after > 10
    await target.close()


async def test_two_installs_take_turns(mariadb_site: MariadbSite, client: AsyncClient) -> None:
    targets = [open_target(mariadb_site.database) for _ in range(4)]
    lines = await asyncio.gather(*(install(target, client, VIEWS) for target in targets))
    assert sorted(map(len, lines)) == [0, 0, 0, 4], "one of them has done all of it"
    for target in targets:
        await target.close()


async def test_a_deadlock_is_rolled_back_and_can_be_tried_again(mariadb_site: MariadbSite) -> None:
    await mariadb_site.fetch("CREATE TABLE k (n int PRIMARY KEY, v int); INSERT INTO k VALUES (1, 0), (2, 0)")
    target = open_target(mariadb_site.database)
    victims = 0
    ready = asyncio.Barrier(2)

    async def add(first: int, second: int) -> None:
        nonlocal victims
        is_first = True
        while True:
            try:
                async with target.transaction() as transaction:
                    await transaction.fetch("UPDATE k SET v = v + 1 WHERE n = $1", first)
                    if is_first:
                        is_first = False
                        await ready.wait()
                    await transaction.fetch("UPDATE k SET v = v + 1 WHERE n = $1", second)
                return
            except TargetAwayError as error:
                assert "Deadlock" in error.reason
                victims += 1

    await asyncio.wait_for(asyncio.gather(add(1, 2), add(2, 1)), 60)
    assert victims > 0
    assert await mariadb_site.fetch("SELECT v FROM k ORDER BY n") == [(2,), (2,)]
    await target.close()


async def test_a_cancelled_transaction_leaves_nothing_and_holds_nothing(mariadb_site: MariadbSite) -> None:
    await mariadb_site.fetch("CREATE TABLE k (n int PRIMARY KEY)")
    target = open_target(mariadb_site.database)
    for _ in range(6):
        begun = asyncio.Event()

        async def sleep(begun: asyncio.Event = begun) -> None:
            async with target.transaction() as transaction:
                await transaction.take_turn()
                await transaction.fetch("INSERT INTO k VALUES (1)")
                begun.set()
                await transaction.fetch("SELECT sleep(100)")

        task = asyncio.create_task(sleep())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # The server ends what the last one was doing when it looks at the connection again.
    holder = "SELECT is_used_lock(concat('pequod views ', left(sha1('live'), 16)))"
    async with asyncio.timeout(60):
        while await mariadb_site.fetch(holder) != [(None,)]:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.05)
    async with target.transaction() as transaction:
        await transaction.fetch("INSERT INTO k VALUES (1)")
    assert await mariadb_site.fetch("SELECT n FROM k") == [(1,)]
    await target.close()


async def test_an_idle_connection_that_was_killed_is_replaced(mariadb_site: MariadbSite) -> None:
    target = open_target(mariadb_site.database)
    async with target.transaction() as transaction:
        ((number,),) = await transaction.fetch("SELECT connection_id()")
    await mariadb_site.fetch(f"KILL {number}")
    async with target.transaction() as transaction:
        assert await transaction.fetch("SELECT connection_id() <> $1", number) == [(1,)]
    await target.close()


async def test_a_target_that_is_away_is_waited_for(mariadb_site: MariadbSite, client: AsyncClient) -> None:
    site, view = mariadb_site, VIEWS[0]
    await installed(site, client, view)
    async with managing(site, client, [view]) as manager:
        await client.put("p|ann", "Hi")
        await equal(site, client, view)
        await asyncio.to_thread(site.server.stop, kill=True)
        await client.put("p|bob", "Hi")
        await until(lambda: manager.target_trouble and manager.counts.target_failures)
        await asyncio.to_thread(site.server.start)
        await equal(site, client, view)
        await until(lambda: not manager.target_trouble)
        assert manager.counts.replacements == 1
    await check_log(site, view)


async def test_keys_and_texts_of_any_length_and_bytes_arrive(mariadb_site: MariadbSite, client: AsyncClient) -> None:
    """A replacement and changes go in many messages, and a key may have any bytes."""
    view = DurableView.parse({"name": "v", "first": "b", "last": "c", "value": {"column": "body", "type": "bytes"}})
    keys = [b"b" + bytes([byte, byte]) for byte in range(256)] + [b"b" * KEY_BYTES_MAX, b"b\\'\0\n%s;--"]
    await client.multi_put(dict.fromkeys(keys, b"\0'\\\xff"))
    await client.multi_put({b"b%05d" % number: b"x" * 1000 for number in range(1500)})
    await client.put(b"b" * (KEY_BYTES_MAX + 1), b"too long")
    await installed(mariadb_site, client, view)
    async with managing(mariadb_site, client, [view]):
        await equal(mariadb_site, client, view)
        await client.multi_put({b"b%05d" % number: b"y" * 1000 for number in range(0, 1600, 2)})
        await client.remove_range(b"b00100", b"b00900")
        await equal(mariadb_site, client, view)
    unfit = await mariadb_site.fetch(f"SELECT unfit, unfit_example FROM {mariadb_site.prefix}parts")
    assert unfit[0][0] == 1
    assert f"takes {KEY_BYTES_MAX} at most" in unfit[0][1]


async def test_a_row_beyond_the_packet_of_the_server_is_refused_and_told(
    mariadb_site: MariadbSite, client: AsyncClient
) -> None:
    view = VIEWS[0]
    ((before,),) = await mariadb_site.fetch("SELECT @@global.max_allowed_packet")
    await mariadb_site.fetch("SET GLOBAL max_allowed_packet = 1048576")
    try:
        await installed(mariadb_site, client, view)
        async with managing(mariadb_site, client, [view]) as manager:
            await client.put("p|ann", "'" * 600_000)
            await until(lambda: any("max_allowed_packet" in part.trouble for part in manager.parts))
            await client.put("p|ann", "short")
            await equal(mariadb_site, client, view)
    finally:
        await mariadb_site.fetch(f"SET GLOBAL max_allowed_packet = {before}")


async def test_a_unique_index_of_the_owner_changes_no_other_row(mariadb_site: MariadbSite, client: AsyncClient) -> None:
    """ON DUPLICATE KEY UPDATE would give ann's row to bob; the index is older than the key here."""
    await mariadb_site.fetch(
        "CREATE TABLE v (who longtext, body longtext, pequod_key varbinary(2048) NOT NULL,"
        " UNIQUE one_body (body), UNIQUE (pequod_key))"
    )
    view = VIEWS[0]
    await installed(mariadb_site, client, view)
    async with managing(mariadb_site, client, [view]) as manager:
        await client.put("p|ann", "Hi")
        await equal(mariadb_site, client, view)
        await client.put("p|bob", "Hi")
        await until(lambda: any("one_body" in part.trouble for part in manager.parts))
        assert await mariadb_site.rows(view) == [(b"p|ann", "ann", "Hi")]
        await client.put("p|ann", "Ho")
        await equal(mariadb_site, client, view)
        await reached(mariadb_site, view, client.revision)


def test_what_a_statement_has_is_what_the_database_reads(mariadb_site: MariadbSite) -> None:
    values = [None, True, -(1 << 63), 0.1, 1e300, -2.5e-300, b"", b"\0'\\\xff", 'it\'s \\ "x" \n\0%s $1 \U0001f600', ""]
    connection = MariadbConnection(parse_address(mariadb_site.database))
    (row,) = connection.run_all([f"SELECT {', '.join(map(literal, values))}"])[0]
    connection.close()
    assert list(row) == values


def test_groups_hold_all_texts_in_order() -> None:
    texts = ["x" * length for length in (1, 200_000, 200_000, 1_000_000, 1, 1)]
    groups = list(grouped(texts))
    assert [text for group in groups for text in group] == texts
    assert [len(group) for group in groups] == [2, 1, 1, 2]


async def test_addresses_are_checked(mariadb_site: MariadbSite, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "mysql://x/y",
        "mariadb://x",
        "mariadb://x:y/z",
        "mariadb://x/y?z=1",
        "mariadb://x/a/b",
        "mariadb://x/y?z",
        "mariadb://x/y?ca=/no/such.pem",
    ):
        with pytest.raises(ViewFileError):
            open_target(name)
    address = parse_address(f"mariadb://me:p%40ss@[::1]:3307/live?socket=/run/s&ca={__file__}")
    assert (address.host, address.port, address.user, address.password) == ("::1", 3307, "me", "p@ss")
    assert (address.socket, address.ca, address.shown) == ("/run/s", __file__, "mariadb://[::1]:3307/live")
    for name, error in [
        (mariadb_site.server.database("none"), TargetMissingError),
        (mariadb_site.database.replace("root@", "nobody:wrong@"), TargetRefusedError),
        ("mariadb://root@127.0.0.1:1/live", TargetAwayError),
        ("mariadb://root@localhost/live?socket=/nowhere", TargetAwayError),
    ]:
        target = open_target(name)
        with pytest.raises(error) as refused:
            await PartLedger(target).shown()
        assert "wrong" not in str(refused.value)
        await target.close()
    monkeypatch.setitem(sys.modules, "pequod_views.targets.mariadb", None)
    with pytest.raises(TargetRefusedError, match=r"\[mariadb\]"):
        open_target(mariadb_site.database)


async def test_an_older_server_is_refused(mariadb_site: MariadbSite, monkeypatch: pytest.MonkeyPatch) -> None:
    from pequod_views.targets import mariadb_connection

    monkeypatch.setattr(mariadb_connection, "_VERSION_MIN", (99, 1))
    target = open_target(mariadb_site.database)
    with pytest.raises(TargetRefusedError, match=r"MariaDB.* and views need MariaDB 99\.1 or a later one"):
        await PartLedger(target).shown()
    await target.close()


def test_every_kind_of_column_is_made_as_it_is_found(mariadb_site: MariadbSite) -> None:
    with pymysql.connect(unix_socket=str(mariadb_site.server.socket), user="root", database="live") as connection:
        columns = ", ".join(f"a_{name} {kind.mariadb}" for name, kind in KINDS.items())
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE k ({columns})")
    target = open_target(mariadb_site.database)

    async def found() -> dict[str, str]:
        async with target.transaction() as transaction:
            columns = await transaction.table_columns("live.k")
        await target.close()
        return columns

    assert asyncio.run(found()) == {f"a_{name}": kind.mariadb for name, kind in KINDS.items()}


def test_the_benchmark_measures_a_mariadb(mariadb: Mariadb) -> None:
    sizes = {"--only": "index", "--views": 1, "--managers": 1, "--puts": 10, "--rows": 20, "--database": "mariadb"}
    words = [str(word) for pair in sizes.items() for word in pair]
    result = CliRunner().invoke(app, ["bench", "views", *words, "--json"])
    assert result.exit_code == 0, result.output
    (point,) = json.loads(result.stdout)["points"]
    assert point["rows_per_s"] > 0


async def test_the_grants_of_the_page_are_enough(mariadb_site: MariadbSite, client: AsyncClient) -> None:
    """Those of the first line for managers, and those of the second line for what makes and drops tables."""
    first, second = re.findall(r"^    (GRANT .* ON live\.\* TO) views;$", _PAGE.read_text(), re.MULTILINE)
    site = mariadb_site
    await site.fetch("DROP USER IF EXISTS runs@localhost; DROP USER IF EXISTS makes@localhost")
    await site.fetch("CREATE USER runs@localhost IDENTIFIED BY 'it''s @/secret'; CREATE USER makes@localhost")
    await site.fetch(f"{first} runs@localhost; {first} makes@localhost; {second} makes@localhost")
    target = open_target(site.database.replace("root@", "makes@"))
    await install(target, client, VIEWS)
    site.database = site.database.replace("root@", "runs:it%27s%20%40%2Fsecret@")
    async with managing(site, client, VIEWS):
        await client.multi_put({"p|ann": "1", "q|bob": "2"})
        await equal(site, client, *VIEWS)
        for verdict in await Verifier(target, client, repairs=True).verify(VIEWS[0]):
            assert (verdict.drift_count, verdict.trouble) == (0, "")
    assert "no view is left" in (await uninstall(target, drops_tables=True))[-1]
    await target.close()
