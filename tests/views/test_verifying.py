"""Tables compared with the server: each kind of drift is found, named and mended; what is only late is none."""

from __future__ import annotations

import asyncio

import pytest
from pequod_views import DurableView, open_target
from pequod_views.drift import DriftNotes
from pequod_views.errors import UnverifiableError
from pequod_views.metrics import ManagerCollector
from pequod_views.verifying import PartVerdict, Verifier

from pequod import AsyncClient
from tests.views.sites import MariadbSite, Site, check_log, equal, installed, managing, until

VIEW = DurableView.parse(
    {
        "name": "karma",
        "keys": "k|<who>|<n:2>",
        "first": "k|b",
        "slots": {"n": {"type": "integer"}},
        "fields": {
            "votes": {"column": "votes", "type": "integer"},
            "share": {"column": "share", "type": "numeric"},
            "on": {"column": "on_day", "type": "timestamp_s"},
            "body": {"column": "body", "type": "json"},
            "note": "note",
        },
        "parts": 2,
        "log": True,
    }
)
ROWS = {
    f"k|{who}|{number:02}": b'{"votes":%d,"share":0.10,"on":1700000000,"body":{"a":null,"b":[1,2.5]},"note":"%d"}'
    % (number, number)
    for who in ("bob", "cat", "dan")
    for number in range(4)
}
#: By the kind of what a person or a program has done to the table: the statement, and what is told of it.
DRIFTS = {
    "a text": ("UPDATE karma SET note = 'mine' WHERE who = 'bob' AND n = 1", "k|bob|01 has another note"),
    "a number": ("UPDATE karma SET votes = votes + 1 WHERE who = 'bob' AND n = 2", "k|bob|02 has another votes"),
    "a fraction": ("UPDATE karma SET share = '0.11' WHERE who = 'cat' AND n = 1", "k|cat|01 has another share"),
    "a moment": (
        "UPDATE karma SET on_day = '2024-01-01 00:00:00.000000Z' WHERE who = 'cat' AND n = 2",
        "k|cat|02 has another on_day",
    ),
    "JSON": ("UPDATE karma SET body = '{}' WHERE who = 'cat' AND n = 3", "k|cat|03 has another body"),
    "null": ("UPDATE karma SET note = NULL WHERE who = 'dan' AND n = 0", "k|dan|00 has another note"),
    "a slot": ("UPDATE karma SET who = 'eve' WHERE who = 'dan' AND n = 1", "k|dan|01 has another who"),
    "two cells": (
        "UPDATE karma SET votes = NULL, note = '' WHERE who = 'dan' AND n = 2",
        "k|dan|02 has another votes, note",
    ),
    "a row less": ("DELETE FROM karma WHERE who = 'dan' AND n = 3", "k|dan|03 is missing"),
    "a row more": ("INSERT INTO karma (pequod_key, who) VALUES ({k|cat|50}, 'cat')", "k|cat|50 is no row of the view"),
    "another shape": ("INSERT INTO karma (pequod_key) VALUES ({k|cat})", "k|cat is no row of the view"),
    "beyond the range": ("INSERT INTO karma (pequod_key) VALUES ({k|ann|01})", "k|ann|01 is no row of the view"),
    "another key": (
        "UPDATE karma SET pequod_key = {k|bob|77} WHERE who = 'bob' AND n = 3",
        "k|bob|77 is no row of the view",
    ),
    "a table half empty": ("DELETE FROM karma WHERE who <> 'cat'", "k|bob|00 is missing"),
    "a column that was dropped": ("ALTER TABLE karma DROP COLUMN note", "k|bob|00 has another note"),
}


def written(site: Site, statement: str) -> str:
    """Return a statement with keys and moments as its database writes them."""
    if isinstance(site, MariadbSite):
        statement = statement.replace("00Z'", "00'")
    before, is_there, rest = statement.partition("{k|")
    if not is_there:
        return statement
    key, _, after = rest.partition("}")
    text = f"k|{key}".encode().hex()
    return before + (f"x'{text}'" if site.prefix.endswith("_") else f"'\\x{text}'::bytea") + after


async def verified(
    site: Site, client: AsyncClient, *, repairs: bool = False, wait_s: float = 20.0
) -> list[PartVerdict]:
    target = open_target(site.database)
    try:
        return await Verifier(target, client, wait_s=wait_s, repairs=repairs).verify(VIEW)
    finally:
        await target.close()


def told(verdicts: list[PartVerdict]) -> list[str]:
    assert [one.trouble for one in verdicts] == [""] * len(verdicts)
    return [str(drift) for one in verdicts for drift in one.drifts]


async def test_each_kind_of_drift_is_found_and_mended(site: Site, client: AsyncClient) -> None:
    await client.multi_put(ROWS)
    await installed(site, client, VIEW)
    async with managing(site, client, [VIEW]) as manager:
        await equal(site, client, VIEW)
        assert told(await verified(site, client)) == []
        for what, (statement, found) in DRIFTS.items():
            await site.fetch(written(site, statement))
            if "DROP COLUMN" in statement:
                with pytest.raises(UnverifiableError, match="has no column note"):
                    await verified(site, client)
            else:
                assert found in told(await verified(site, client)), what
            verdicts = await verified(site, client, repairs=True)
            assert found in told(verdicts), what
            assert sum(one.drift_count - one.repaired_count for one in verdicts) == 0, what
            assert told(await verified(site, client)) == [], what
            await equal(site, client, VIEW)
        # The manager was not disturbed: it goes on from where it was.
        await client.put("k|cat|09", ROWS["k|cat|01"])
        await equal(site, client, VIEW)
        assert manager.counts.replacements == 2
    await check_log(site, VIEW)


async def test_drift_that_stays_is_told_by_managers(site: Site, client: AsyncClient) -> None:
    await client.multi_put(ROWS)
    await installed(site, client, VIEW)
    async with managing(site, client, [VIEW]) as manager:
        await equal(site, client, VIEW)
        await site.fetch("UPDATE karma SET note = 'mine' WHERE n = 1")
        assert len(told(await verified(site, client))) == 3
        await until(lambda: manager.drifted_count == 3)
        metrics = {metric.name: metric.samples[0].value for metric in ManagerCollector(manager).collect()}
        assert metrics["pequod_views_drifted_rows"] == 3
        await verified(site, client, repairs=True)
        await until(lambda: manager.drifted_count == 0)
    target = open_target(site.database)
    assert await DriftNotes(target).total(["karma"]) == 0
    await target.close()


async def test_nothing_is_found_while_all_rows_change(site: Site, client: AsyncClient) -> None:
    """The table is behind the server, by another step at each moment."""
    await client.multi_put(ROWS)
    await installed(site, client, VIEW)
    is_over = False

    async def write() -> None:
        number = 0
        while not is_over:
            number += 1
            await client.multi_put(
                {key: value.replace(b'"note":"', b'"note":"%d' % number) for key, value in ROWS.items()}
            )

    async with managing(site, client, [VIEW]):
        await equal(site, client, VIEW)
        writing = asyncio.create_task(write())
        try:
            for _ in range(3):
                assert told(await verified(site, client, repairs=True, wait_s=60)) == []
        finally:
            is_over = True
            await writing
        await equal(site, client, VIEW)
    await check_log(site, VIEW)


async def test_a_part_that_nobody_keeps_is_told(sqlite_site: Site, client: AsyncClient) -> None:
    await client.multi_put(ROWS)
    with pytest.raises(UnverifiableError, match="no table karma"):
        await verified(sqlite_site, client)
    await installed(sqlite_site, client, VIEW)
    (one, other) = await verified(sqlite_site, client, wait_s=0.3)
    assert "does a manager run that was started with this definition?" in one.trouble
    assert "does a manager run that was started with this definition?" in other.trouble
