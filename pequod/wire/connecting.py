"""How a connection is made: to one address of a place after the other, up to the greeting of a server."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import Any, Final

from pequod.native.http2.client import new_client_session
from pequod.wire.connection import ClientConnection, ConnectionOwner
from pequod.wire.places import Place

#: How long a connection may take, all addresses together, up to the server's greeting.
CONNECT_S: Final = 20.0
_AGENT: Final = b"grpc-pequod-native/1"


async def make_connection(
    owner: ConnectionOwner, place: Place, tls: ssl.SSLContext | None, message_bytes_max: int
) -> ClientConnection:
    """Return a connection whose server has greeted, and takes calls.

    Raises:
        socket.gaierror: The name of the place has no address.
        OSError, ValueError: There is no server; or the name cannot be one.
    """
    hosts = [place.path] if place.path else await _addresses(owner.loop, place)
    failure: OSError | None = None
    for host in hosts:
        try:
            async with asyncio.timeout(CONNECT_S / len(hosts)):
                return await _connect(owner, host, place, tls, message_bytes_max)
        except TimeoutError:
            failure = OSError(f"no server has answered within {CONNECT_S / len(hosts):g} s")
        except ssl.SSLError as error:
            # These words, and those below, are gRPC's own: `UnavailableError` has hints for them.
            failure = OSError(f"TLS handshake failed: {error}")
        except OSError as error:
            failure = error
    assert failure is not None, "a name has an address, or it is an error"
    raise failure


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
    if place.path:
        await owner.loop.create_unix_connection(lambda: connection, host, **options)
    else:
        await owner.loop.create_connection(lambda: connection, host, place.port, **options)
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
