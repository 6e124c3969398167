"""The sockets that a server listens on, and what comes in by them.

address -> add: bound, so that its port is known, and in use for others
start   -> accept, some at a time -> TLS, with the certificates of this moment -> WireConnection
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

log = logging.getLogger("pequod.server")

#: Connections that the system keeps for a server that is busy.
_BACKLOG: Final = 4096
#: How many are accepted in one turn of the event loop.
_ACCEPTED_A_TURN: Final = 64
#: How long a client may take for its part of TLS.
_HANDSHAKE_S: Final = 20.0
#: Where no more files can be opened, the next try is after this time.
_NO_FILES_S: Final = 1.0
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: A connection beyond the limit is kept for so long, so that what its client has sent resets nothing; at most as many.
_TURNED_AWAY_S: Final = 1.0
_TURNED_AWAY_MAX: Final = 100
_UNIX: Final = "unix:"
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - what an operator asks for

#: Returns the certificates for the next handshake.
Certificates = Callable[[], ssl.SSLContext]


class _Port(NamedTuple):
    socket: socket.socket
    #: None: plain text.
    certificates: Certificates | None


class WireListener:
    """The listening sockets of one server.

    Args:
        make: Makes the protocol of a connection; None: there are too many of them.
    """

    def __init__(self, make: Callable[[], asyncio.BaseProtocol | None]) -> None:
        self._make = make
        self._ports: list[_Port] = []
        self._accepting: set[asyncio.Task[None]] = set()
        #: Connections beyond the limit that are at their end.
        self._turned_away: set[socket.socket] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def shaking_count(self) -> int:
        """How many connections are between their beginning and their first byte of HTTP/2."""
        return len(self._accepting)

    def add(self, address: str, certificates: Certificates | None, *, is_shared: bool = False) -> int:
        """Listen on an address, and return the port; of a unix socket, 1.

        Args:
            is_shared: Other processes of this user may listen there as well: each connection goes to one of them.

        Raises:
            OSError: That cannot be done.
        """
        if address.startswith(_UNIX):
            self._bind(socket.AF_UNIX, address.removeprefix(_UNIX).removeprefix("//"), certificates)
            return 1
        host, _, port_text = address.rpartition(":")
        host, port = host.strip("[]"), int(port_text)
        if host in _WILDCARDS and socket.has_dualstack_ipv6():
            return self._bind(socket.AF_INET6, ("::", port), certificates, is_shared=is_shared)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name may stand for several addresses, which then have the same port.
        for family, _, _, _, place in dict.fromkeys(found):
            port = self._bind(family, (place[0], port, *place[2:]), certificates, is_shared=is_shared)
        return port

    def _bind(
        self,
        family: int,
        place: str | tuple[object, ...],
        certificates: Certificates | None,
        *,
        is_shared: bool = False,
    ) -> int:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family != socket.AF_UNIX:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, place[0] not in _WILDCARDS)
            listening.bind(place)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
        listening.settimeout(0)
        self._ports.append(_Port(listening, certificates))
        return 0 if family == socket.AF_UNIX else int(listening.getsockname()[1])

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Accept connections."""
        self._loop = loop
        for port in self._ports:
            loop.add_reader(port.socket, self._accept, port)

    def close(self) -> None:
        """Accept no more, and let go of the addresses."""
        for port in self._ports:
            if self._loop is not None:
                self._loop.remove_reader(port.socket)
            port.socket.close()
        self._ports.clear()
        for task in self._accepting:
            task.cancel()
        for accepted in tuple(self._turned_away):
            self._close_away(accepted)

    def _accept(self, port: _Port) -> None:
        assert self._loop is not None
        for _ in range(_ACCEPTED_A_TURN):
            try:
                accepted, _ = port.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._wait_for_files(port, error)
                return
            accepted.settimeout(0)
            if (protocol := self._make()) is None:
                self._turn_away(accepted)
                continue
            task = self._loop.create_task(self._serve(port, accepted, protocol))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def _turn_away(self, accepted: socket.socket) -> None:
        """Close a connection so that its client sees an end and not a reset, as that of a server that has died."""
        assert self._loop is not None
        if len(self._turned_away) >= _TURNED_AWAY_MAX:
            accepted.close()
            return
        try:
            accepted.shutdown(socket.SHUT_WR)
        except OSError:
            accepted.close()
            return
        self._turned_away.add(accepted)
        self._loop.call_later(_TURNED_AWAY_S, self._close_away, accepted)

    def _close_away(self, accepted: socket.socket) -> None:
        self._turned_away.discard(accepted)
        accepted.close()

    def _wait_for_files(self, port: _Port, error: OSError) -> None:
        assert self._loop is not None
        if error.errno not in _NO_FILES:
            raise error
        log.error("no connection can be accepted", extra={"reason": str(error)})
        self._loop.remove_reader(port.socket)
        self._loop.call_later(_NO_FILES_S, self._go_on, port)

    def _go_on(self, port: _Port) -> None:
        if port in self._ports and self._loop is not None:
            self._loop.add_reader(port.socket, self._accept, port)

    async def _serve(self, port: _Port, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        assert self._loop is not None
        tls: dict[str, object] = {}
        if port.certificates is not None:
            tls = {"ssl": port.certificates(), "ssl_handshake_timeout": _HANDSHAKE_S}
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted, **tls)  # type: ignore[arg-type]
        except (OSError, TimeoutError) as error:
            # A client that goes, or whose part of TLS is not right; its own side says so.
            log.debug("a connection does not begin", extra={"reason": str(error)})
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
