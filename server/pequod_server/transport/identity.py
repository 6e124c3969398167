"""Who is at the other end of a connection, in gRPC's words."""

from __future__ import annotations

import ipaddress
import socket
import struct
from asyncio import BaseTransport
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

#: Process, user and group of the other end of a unix socket.
_CREDENTIALS: Final = struct.Struct("3i")


def address_of(name: object, number: int) -> str:
    """Return the address of an end of a connection, as gRPC writes it; of a unix socket, which has none, the number.

    >>> address_of(("::ffff:10.0.0.1", 4000, 0, 0), 1)
    'ipv4:10.0.0.1:4000'
    >>> address_of(("::1", 4000, 0, 0), 1)
    'ipv6:%5B::1%5D:4000'
    >>> address_of("", 1)
    'unix:1'
    """
    if not isinstance(name, tuple):
        return f"unix:{number}"
    host, port = name[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return f"ipv6:{quote(f'[{host}]', safe=':')}:{port}"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else address
    return f"ipv4:{mapped}:{port}"


def auth_context_of(transport: BaseTransport) -> Mapping[str, list[bytes]]:
    """Return what is known of the other end: the names in its certificate, or the user of a unix socket."""
    if transport.get_extra_info("ssl_object") is None:
        return {"transport_security_type": [b"insecure"], **_user_of(transport.get_extra_info("socket"))}
    found: dict[str, list[bytes]] = {"transport_security_type": [b"ssl"]}
    certificate = transport.get_extra_info("ssl_object").getpeercert()
    if not certificate:
        return found
    names = [value for field in certificate.get("subject", ()) for name, value in field if name == "commonName"]
    if names:
        found["x509_common_name"] = [names[-1].encode()]
    if others := [value.encode() for _, value in certificate.get("subjectAltName", ())]:
        found["x509_subject_alternative_name"] = others
    return found


def _user_of(end: socket.socket | None) -> Mapping[str, list[bytes]]:
    if end is None or end.family is not socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return {}
    process, user, group = _CREDENTIALS.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return {"peer_pid": [b"%d" % process], "peer_uid": [b"%d" % user], "peer_gid": [b"%d" % group]}
