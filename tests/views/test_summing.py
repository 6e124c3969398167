"""Checksums of tables: a database and this process compute the same, so rows are fetched only where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pequod_views import DurableView, open_target
from pequod_views import verifying as verifying_module
from pequod_views.targets.sql import SqlTransaction
from pequod_views.verifying import PartVerdict, Verifier

from pequod import AsyncClient
from tests.views.sites import MariadbSite, PostgresSite, Site, SqliteSite, equal, installed, managing

#: Values that databases are likely to write in another way than they were given.
CELLS = {
    "text": ['"a"', '"J\\u00fcrg \\ud83d\\ude00 |\'\\\\"', '""', "null"],
    "bytes": ['"\\u0001a"', '"\\u00ff"', '""', "null"],
    "integer": ["1", "-9223372036854775808", "9223372036854775807", "0"],
    "numeric": ["0.10", "-0.0", "1E+3", "123456789012345678901234567890.5"],
    "float": ["0.1", "-0.5", "1e300", "3"],
    "boolean": ["true", "false", "null", "true"],
    "json": ['{"a":[1.50,null]}', "[]", "null", '"x"'],
    "timestamp_s": ["1700000000", "-1", "0", "253402300799"],
    "timestamp_us": ["1", "-1", "1700000000123456", "2"],
    "uuid": ['"12345678-1234-5678-1234-567812345678"', "null", '"00000000-0000-0000-0000-000000000000"', "null"],
}
#: What a database writes in its own way.
WITHOUT: dict[type[Site], set[str]] = {SqliteSite: set(), PostgresSite: {"json"}, MariadbSite: {"float"}}
ROW_COUNT = 40


def view_of(*kinds: str) -> DurableView:
    fields = {kind: {"column": f"c_{kind}", "type": kind} for kind in kinds}
    return DurableView.parse({"name": "sums", "keys": "s|<who>", "fields": fields, "parts": 2})


def rows() -> dict[str, str]:
    return {
        f"s|{number:03}": "{" + ",".join(f'"{kind}":{texts[number % 4]}' for kind, texts in CELLS.items()) + "}"
        for number in range(ROW_COUNT)
    }


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the rows that are fetched."""
    fetched, chunk = list[int](), SqlTransaction.chunk

    async def chunk_counted(self: SqlTransaction, *arguments: object) -> object:
        found = await chunk(self, *arguments)  # type: ignore[arg-type]
        fetched.append(0 if found is None else len(found.rows))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SqlTransaction, "chunk", chunk_counted)
        patch.setattr(verifying_module, "_CHUNK_ROWS", 5)
        yield fetched


async def verified(site: Site, client: AsyncClient, view: DurableView, *, repairs: bool = False) -> list[PartVerdict]:
    target = open_target(site.database)
    try:
        return await Verifier(target, client, repairs=repairs).verify(view)
    finally:
        await target.close()


async def test_rows_are_fetched_only_where_checksums_differ(
    site: Site, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.multi_put(rows())
    kinds = CELLS.keys() - WITHOUT[type(site)]
    view = view_of(*sorted(kinds))
    await installed(site, client, view)
    async with managing(site, client, [view]):
        await equal(site, client, view)
        with counted(monkeypatch) as fetched:
            verdicts = await verified(site, client, view)
            assert [one.row_count for one in verdicts] == [ROW_COUNT // 2] * 2
            assert fetched == [], "equal parts"
            for kind in sorted(kinds):
                # Its cells change in one row alone, so the sum of the others stays.
                await site.fetch(f"UPDATE sums SET c_{kind} = NULL WHERE who = '012'")
                assert [str(one) for one in (await verified(site, client, view))[0].drifts] == [
                    f"s|012 has another c_{kind}"
                ], kind
                assert 0 < sum(fetched) <= 10, "a range of five, and its end"
                await verified(site, client, view, repairs=True)
                fetched.clear()
            await site.fetch("DELETE FROM sums WHERE who = '033'")
            verdicts = await verified(site, client, view)
            assert [one.row_count for one in verdicts] == [ROW_COUNT // 2, ROW_COUNT // 2 - 1]
            assert [str(one) for one in verdicts[1].drifts] == ["s|033 is missing"]
            assert sum(fetched) <= 10


async def test_rows_of_kinds_without_a_text_are_compared_one_by_one(
    site: Site, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (kinds := WITHOUT[type(site)]):
        return
    await client.multi_put(rows())
    view = view_of(*kinds, "text")
    await installed(site, client, view)
    async with managing(site, client, [view]):
        await equal(site, client, view)
        with counted(monkeypatch) as fetched:
            assert [one.drifts for one in await verified(site, client, view)] == [[], []]
        assert sum(fetched) == ROW_COUNT
