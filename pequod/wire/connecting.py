"""How a connection is made: to the first address of a place at which a server greets.

address 1 -> 250 ms, or a failure -> address 2 as well -> ...
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import deque
from typing import Any, Final

from pequod.native.http2.client import new_client_session
from pequod.wire.connection import ClientConnection, ConnectionOwner
from pequod.wire.places import Place

#: How long a connection may take, all addresses together, up to the server's greeting.
CONNECT_S: Final = 20.0
#: How long an address is tried alone before the next one is tried beside it, as RFC 8305 recommends.
_HEAD_START_S: Final = 0.25
_AGENT: Final = b"grpc-pequod-native/1"


async def make_connection(
    owner: ConnectionOwner, place: Place, tls: ssl.SSLContext | None, message_bytes_max: int
) -> ClientConnection:
    """Return a connection whose server has greeted, and takes calls: the first of the addresses that has one.

    Raises:
        socket.gaierror: The name of the place has no address.
        OSError, ValueError: There is no server; or the name cannot be one.
    """
    racing: set[asyncio.Task[ClientConnection]] = set()
    failure: BaseException | None = None
    try:
        async with asyncio.timeout(CONNECT_S):
            hosts = deque([place.path] if place.path else await _addresses(owner.loop, place))
            while hosts or racing:
                if hosts:
                    attempt = _connect(owner, hosts.popleft(), place, tls, message_bytes_max)
                    racing.add(owner.loop.create_task(attempt))
                head_start_s = _HEAD_START_S if hosts else None
                ended, _ = await asyncio.wait(racing, timeout=head_start_s, return_when=asyncio.FIRST_COMPLETED)
                for one in ended:
                    racing.discard(one)
                    if (error := one.exception()) is None:
                        return one.result()
                    failure = error
    except TimeoutError:
        failure = OSError(f"no server has answered within {CONNECT_S:g} s")
    finally:
        await _give_up(racing)
    assert failure is not None, "a name has an address, or it is an error"
    raise failure


async def _give_up(attempts: set[asyncio.Task[ClientConnection]]) -> None:
    """End the attempts that were slower than another, and close what they have made."""
    for attempt in attempts:
        attempt.cancel()
    for made in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(made, ClientConnection):
            made.transport.abort()


async def _addresses(loop: asyncio.AbstractEventLoop, place: Place) -> list[str]:
    """Return the addresses of a place, in the system's order."""
    try:
        ipaddress.ip_address(place.host.partition("%")[0])
    except ValueError:
        found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))
    return [place.host]


async def _connect(
    owner: ConnectionOwner, host: str, place: Place, tls: ssl.SSLContext | None, message_bytes_max: int
) -> ClientConnection:
    is_secure = tls is not None
    session = new_client_session(place.authority.encode(), _AGENT, message_bytes_max, is_secure=is_secure)
    connection = ClientConnection(owner, session)
    options: dict[str, Any] = {"ssl": tls, "server_hostname": place.certified_name} if is_secure else {}
    try:
        if place.path:
            await owner.loop.create_unix_connection(lambda: connection, host, **options)
        else:
            await owner.loop.create_connection(lambda: connection, host, place.port, **options)
    except ssl.SSLError as error:
        # These words, and those below, are gRPC's own: `UnavailableError` has hints for them.
        raise OSError(f"TLS handshake failed: {error}") from error
    try:
        await connection.greeted.wait()
    except asyncio.CancelledError:
        connection.transport.abort()
        raise
    if connection.over.is_set():
        raise ConnectionError(f"Socket closed: {connection.why}")
    if connection.is_leaving:
        connection.transport.abort()
        raise ConnectionError("the server takes no calls")
    return connection
