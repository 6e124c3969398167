"""`python -m tests.views.verify_cost`: what `pequod views verify` takes over PostgreSQL, in CPU and bytes.

Rows of a view with a text and a number, all equal, then with one wrong row, then with checksums left out.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

from pequod_bench.systems.server import tree_usage
from pequod_server import ServerConfig
from pequod_views import DurableView, open_target
from pequod_views.install import install
from pequod_views.verifying import Verifier

from pequod import AsyncClient
from tests.backing.conftest import Postgres, started
from tests.server.serving import serving
from tests.views.sites import PostgresSite, managing, until

VIEW = DurableView.parse(
    {"name": "live", "keys": "k|<who>", "fields": {"n": {"column": "n", "type": "integer"}, "note": "note"}}
)


class Counter:
    """Passes bytes on between a client and the socket of a database, and counts those that come back."""

    def __init__(self, socket: Path) -> None:
        self.byte_count = 0
        self._socket = socket

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        from_database, to_database = await asyncio.open_unix_connection(str(self._socket))

        async def passed(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counts: bool) -> None:
            with suppress(OSError), closing(sink):
                while data := await source.read(1 << 16):
                    self.byte_count += len(data) * counts
                    sink.write(data)
                    await sink.drain()

        await asyncio.gather(passed(reader, to_database, counts=False), passed(from_database, writer, counts=True))


@asynccontextmanager
async def counted(dsn: str, folder: Path) -> AsyncIterator[tuple[str, Counter]]:
    """Yield the name of a database through a counter."""
    parts = urlsplit(dsn)
    directory = parse_qs(parts.query)["host"][0]
    port = parse_qs(parts.query).get("port", ["5432"])[0]
    counter = Counter(Path(directory) / f".s.PGSQL.{port}")
    server = await asyncio.start_unix_server(counter.serve, str(folder / f".s.PGSQL.{port}"))
    async with server:
        yield dsn.replace(directory, str(folder)), counter


async def main(row_count: int) -> None:
    """Measure, and print a line for each state."""
    with started(Postgres) as cluster, TemporaryDirectory(prefix="pequod-") as folder:
        site = PostgresSite(cluster)
        # The CPU of this process is also that of the server and of the manager.
        async with (
            serving(ServerConfig(listen="127.0.0.1:0", drain_s=0.5)) as port,
            AsyncClient(f"127.0.0.1:{port}") as client,
        ):
            for start in range(0, row_count, 5000):
                keys = range(start, min(start + 5000, row_count))
                await client.multi_put(
                    {f"k|{one:08}": b'{"n":%d,"note":"note of row %d"}' % (one, one) for one in keys}
                )
            target = open_target(site.database)
            await install(target, client, [VIEW])
            await target.close()
            async with managing(site, client, [VIEW]) as manager:
                await until(lambda: manager.counts.replacements == 1, 600)
                async with counted(site.database, Path(folder)) as (database, counter):
                    await measured("equal", database, counter, client, site)
                    await site.fetch("UPDATE live SET n = -1 WHERE pequod_key = convert_to('k|00050000', 'UTF8')")
                    await measured("one row wrong", database, counter, client, site)
                    await measured("one row wrong, without checksums", database, counter, client, site, has_sums=False)


async def measured(
    what: str, database: str, counter: Counter, client: AsyncClient, site: PostgresSite, *, has_sums: bool = True
) -> None:
    """Verify once."""
    target = open_target(database)
    if not has_sums:
        target.dialect = replace(target.dialect, digest=lambda _view: None)
    ((postmaster,),) = await site.fetch("SELECT pg_catalog.pg_read_file('postmaster.pid')")
    pid = int(postmaster.split()[0])
    before, database_s = counter.byte_count, tree_usage(pid).cpu_s
    own_s, since_s = time.process_time(), time.monotonic()
    (verdict,) = await Verifier(target, client, wait_s=600).verify(VIEW)
    await target.close()
    database_s = tree_usage(pid).cpu_s - database_s
    assert not verdict.trouble, verdict.trouble
    print(
        f"{what}: {verdict.row_count:,} rows, {verdict.drift_count} differ;"
        f" CPU s of PostgreSQL {database_s:.2f}, of this process {time.process_time() - own_s:.2f},"
        f" {time.monotonic() - since_s:.1f} s by the clock; {counter.byte_count - before:,} bytes from PostgreSQL",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.views.verify_cost", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="how many (100,000)")
    asyncio.run(main(parser.parse_args().rows))
