"""Copies of rows of a range that moves, as `pequod cluster move` writes them."""

from collections.abc import Mapping

from pequod_server import PequodServer
from pequod_server.homes.messages import copies_request

from pequod.cli import cluster_move


async def copied(server: PequodServer, rows: Mapping[str, str | None]) -> None:
    """Write rows to the home that they move to; None: the row is removed."""
    assert server.member is not None
    member = server.member
    changes = [(key.encode(), None if value is None else value.encode()) for key, value in rows.items()]
    (move,) = {home.move for home in member.map.home_ranges if home.coming_to}
    home = cluster_move.OpenHome(member.entry)
    if changes:
        await home.channel.write(copies_request(changes, move))
    await home.close()
