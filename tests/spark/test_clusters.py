"""The data source at the address of a cluster, two servers of which answer for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pequod.source import DefaultSource

from pequod import AsyncClient
from tests.cluster_client.site import Site

ROWS = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(tmp_path, 2) as site:
        async with AsyncClient(site.target) as client:
            await client.multi_put({f"p|{poster}|{n:03d}": f"{poster}{n}" for poster in "abcdefgh" for n in range(20)})
            await client.multi_put({f"s|u{user}|{poster}": "1" for user in range(9) for poster in "abc"})
        yield site


def read(target: str, prefix: str, partitions: int) -> dict[bytes, bytes]:
    reader = DefaultSource({"target": target, "prefix": prefix, "partitions": str(partitions)}).reader(ROWS)
    found: dict[bytes, bytes] = {}
    for part in reader.partitions():
        for batch in reader.read(part):
            for row in batch.to_pylist():
                assert row["key"] not in found
                found[row["key"]] = row["value"]
    return found


async def test_a_read_is_answered_by_any_server_of_a_cluster(site: Site) -> None:
    for partitions in (1, 4):
        posts = await asyncio.to_thread(read, site.target, "p|", partitions)
        assert posts == {b"p|%c|%03d" % (c, n): b"%c%d" % (c, n) for c in b"abcdefgh" for n in range(20)}
        timelines = await asyncio.to_thread(read, site.target, "t|", partitions)
        assert len(timelines) == 9 * 3 * 20
    site.kill("s1")
    assert await asyncio.to_thread(read, site.target, "p|", 4) == posts


async def test_a_write_is_taken_by_any_server_of_a_cluster(site: Site) -> None:
    def write() -> None:
        writer = DefaultSource({"target": site.target}).writer(ROWS, overwrite=False)
        rows = [{"key": b"p|%c|%03d" % (c, n), "value": b"new"} for c in b"xyz" for n in range(9)]
        messages: list[WriterCommitMessage | None] = [
            writer.write(iter([pa.RecordBatch.from_pylist(rows[at::3])])) for at in range(3)
        ]
        writer.commit(messages)

    await asyncio.to_thread(write)
    for prefix in ("p|x|", "p|y|", "p|z|"):
        assert len(await asyncio.to_thread(read, site.target, prefix, 1)) == 9
