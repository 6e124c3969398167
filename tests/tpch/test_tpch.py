"""TPC-H's queries, those that the language can say: as SQL has them, after each refresh, at one server."""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import islice
from random import Random

import pytest
from pequod_bench.systems.server import started_server

from pequod.client import Client
from tests.tpch.queries import QUERIES, Query
from tests.tpch.tables import REFRESHES, Change, Tables

SCALE = 0.001
#: Of a mean.
DIGITS = Context(prec=34)


def write(client: Client, change: Change) -> None:
    """Put and remove rows."""
    rows = iter(change.rows.items())
    while some := dict(islice(rows, 1_000)):
        client.multi_put(some)
    batch = client.batch()
    for key in change.removed:
        batch.remove(key)
    batch.send()


def answer(client: Client, query: Query) -> dict[str, Decimal]:
    """Return what the joins say."""
    rows = client.scan(f"{query.table}|", f"{query.table}}}")
    places = 2 if query.is_ranked else 1
    return {key.decode().split("|", places)[places]: Decimal(value.decode()) for key, value in rows}


def expected(tables: Tables, query: Query) -> dict[str, Decimal]:
    """Return what SQL says; a sum of no rows is none."""
    rows = tables.database.execute(query.sql).fetchall()
    return {
        str(key): Decimal(number) if not count else DIGITS.divide(number, Decimal(*count))
        for key, number, *count in rows
        if number is not None
    }


@pytest.mark.parametrize("seed", [1])
def test_the_joins_are_as_sql_after_each_refresh(seed: int) -> None:
    tables, random = Tables(SCALE, seed), Random(seed)
    with started_server() as (target, _), Client(target, timeout_s=120.0) as client:
        write(client, Change(tables.everything(), []))
        for query in QUERIES:
            client.add_join(query.joins)
        read = shown = 0
        for number in range(REFRESHES + 1):
            # What is not read meanwhile has the changes of several refreshes in its logs.
            for query in random.sample(QUERIES, len(QUERIES) if number in (0, REFRESHES) else len(QUERIES) // 2):
                found = answer(client, query)
                assert found == expected(tables, query), (number, query.name)
                read, shown = read + 1, shown + bool(found)
            if number < REFRESHES:
                write(client, tables.refresh(number))
    # Nearly all of them have rows.
    assert shown > 0.85 * read
