"""Copies of rows of a range that moves, as `pequod cluster move` writes them."""

from collections.abc import Mapping

from pequod_server import PequodServer

from pequod.cli import cluster_move


async def copied(server: PequodServer, rows: Mapping[str, str | None]) -> None:
    """Write rows to the home that they move to; None: the row is removed."""
    assert server.member is not None
    async with cluster_move._writing(server.member.entry) as write:
        await write([(key.encode(), None if value is None else value.encode()) for key, value in rows.items()])
