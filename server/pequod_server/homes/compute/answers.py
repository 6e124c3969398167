"""What homes are asked beside the feed: what they have, and for a sign of life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.errors import PequodError, SchemaError
from pequod_server.homes.compute.channel import Connect
from pequod_server.homes.messages import VERSION_MAX, VERSION_MIN

#: How often the homes that the feed does not follow are asked for a sign of life.
_STANDBY_S: Final = 5.0


def lacking_of(
    name: str, address: str, found: pb.PeerPositionReply, tables: Sequence[bytes], *, may_lack: bool
) -> list[str]:
    """Return advice about the tables that a home does not have, if it may lack some.

    Args:
        name: The homes, for people.
        found: What the home at ``address`` has answered.

    Raises:
        SchemaError: It speaks another version, or does not own the tables.
    """
    problems = []
    if found.version_min > VERSION_MAX or found.version_max < VERSION_MIN:
        problems.append(
            f"{address} speaks versions {found.version_min} to {found.version_max} of the protocol between "
            f"servers, this one versions {VERSION_MIN} to {VERSION_MAX}; bring the older one up to date"
        )
    lacking = sorted(set(tables) - set(found.tables)) if found.tables else []
    advice = [f"{address} does not own the table {table.decode('utf-8', 'replace')}" for table in lacking]
    if problems or (advice and not may_lack):
        raise SchemaError(name, problems + advice)
    return advice


async def keep_awake(others: Callable[[], list[str] | None], connect: Connect, silence_s: float) -> None:
    """Ask the homes that the feed does not follow for their position, so that they keep changes to resume from.

    Args:
        others: Returns their addresses; None while the feed follows none.
    """
    while True:
        addresses = others()
        for address in addresses or ():
            channel = connect(address)
            try:
                async with asyncio.timeout(silence_s):
                    await channel.position(pb.PeerPositionRequest())
            except (PequodError, TimeoutError):
                continue  # it is tried when it is needed
            finally:
                await channel.close()
        await asyncio.sleep(0.1 if addresses is None else _STANDBY_S)
