"""The ports of a server of several workers: the supervisor takes each of them, and the workers listen there.

bind            nobody else has the address, listening or not: of two servers that begin at once, one gets it
SO_REUSEPORT    from then on, sockets of this user that ask for it as well may bind beside: those of the workers
..              the supervisor listens on none, so each connection goes to a worker; it keeps them until it ends
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack, suppress
from typing import Any, Final

from pequod.addresses import is_local
from pequod.errors import SettingError
from pequod_server.config import ServerConfig

#: Two servers that take a port at once, where connections of one before are left, may both fail: each tries again.
_TRIES_MAX: Final = 10
#: The longest pause before the next try.
_PAUSE_S_MAX: Final = 0.01


def kept_ports(stack: ExitStack, config: ServerConfig, count: int) -> tuple[str, list[str]]:
    """Take the ports of the server for its workers; return its address, and those of the workers by themselves.

    Args:
        stack: Lets go of them at its end.
        count: How many workers there are.

    Raises:
        OSError: One cannot be listened on.
        SettingError: There are too few ports above worker_port.
    """
    address = _kept(stack, config.listen)
    host = address.rpartition(":")[0]
    if config.worker_port:
        own = [f"{host}:{config.worker_port + number}" for number in range(count)]
        if config.worker_port + count - 1 > 65535:
            raise SettingError("worker_port", f"{config.worker_port} leaves no room for the ports of {count} workers")
    elif is_local(config.listen):
        own = [f"{host}:0"] * count
    else:
        return address, [""] * count
    return address, [_kept(stack, one) for one in own]


def _kept(stack: ExitStack, address: str) -> str:
    """Take a port at all addresses that a host stands for; return the address with its number."""
    host, _, port_text = address.rpartition(":")
    port = int(port_text)
    bare = host.strip("[]")
    if bare in ("0.0.0.0", "::") and socket.has_dualstack_ipv6():  # noqa: S104 - what an operator asks for
        bare = "::"
    found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, place in dict.fromkeys(found):
        try:
            kept = stack.enter_context(_taken(family, (place[0], port, *place[2:])))
        except OSError as error:
            raise OSError(f"cannot listen on {address}; is another server there?") from error
        port = int(kept.getsockname()[1])
    return f"{host}:{port}"


def _taken(family: int, place: tuple[Any, ...]) -> socket.socket:
    """Return a socket that has an address, which only this user's processes may share from then on.

    Raises:
        OSError: Another socket has it, or nobody can.
    """
    for _ in range(_TRIES_MAX - 1):
        with suppress(OSError):
            return _take(family, place)
        time.sleep(random.uniform(0, _PAUSE_S_MAX))  # noqa: S311 - no secret
    return _take(family, place)


def _take(family: int, place: tuple[Any, ...]) -> socket.socket:
    taken = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, place[0] != "::")
        try:
            taken.bind(place)
        except OSError:
            _bind_beside_ended(taken, place)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        taken.close()
        raise
    return taken


def _bind_beside_ended(taken: socket.socket, place: tuple[Any, ...]) -> None:
    """Bind a socket where there is none but those of connections whose server has ended (TIME_WAIT, for a minute).

    With SO_REUSEADDR it may be bound beside these, but also beside the one of another server that is just here. Only
    one of them can listen. This one does so for a moment, and without SO_REUSEADDR nobody binds beside it any more.
    """
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(place)
    taken.listen(0)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    # It stays bound, since its port was asked for by number.
    taken.shutdown(socket.SHUT_RD)
