"""What a server says while it starts: lines for people, and the states that systemd asks for (sd_notify).

starting   every few seconds a line, and STATUS=, with what is waited for and for how long
ready      READY=1
stopping   STOPPING=1
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

log = logging.getLogger("pequod.server")

#: A start that takes longer says what it waits for, again and again.
_SAY_S: Final = 3.0


def tell_systemd(state: str) -> None:
    """Send a state to the service manager that started this process, if one asks for it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    # The process that gave the address may be gone; the server goes on without it.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(address)
        channel.sendall(state.encode())


@asynccontextmanager
async def told_while_waiting(waits_for: Callable[[], str]) -> AsyncIterator[None]:
    """Say every few seconds what is waited for, for the length of a block."""
    task = asyncio.create_task(_tell(waits_for), name="pequod start")
    try:
        yield
    finally:
        task.cancel()


async def _tell(waits_for: Callable[[], str]) -> None:
    started_s = time.monotonic()
    while True:
        await asyncio.sleep(_SAY_S)
        seconds = round(time.monotonic() - started_s)
        log.warning("the start waits", extra={"for": waits_for(), "seconds": seconds})
        tell_systemd(f"STATUS=waits for {seconds} s for {waits_for()}")
