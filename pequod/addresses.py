"""Addresses: which are local to this machine, and which are malformed.

>>> is_local("127.0.0.1:7744"), is_local("[::1]:7744"), is_local("localhost:0"), is_local("0.0.0.0:7744")
(True, True, True, False)
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

#: The names of other kinds of addresses in gRPC.
_SCHEMES: Final = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:", "xds:")
_ORIGIN: Final = re.compile(r"(https?)://[a-z0-9.-]+(?::(\d{1,5}))?|[a-z-]+-extension://[a-z0-9-]+")
_USUAL_PORTS: Final = {("http", "80"), ("https", "443")}
_HOST_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[^\s:\[\]/]+):(\d{1,5})")


def fault_of(target: str) -> str:
    """Return the fault of a client's target, an empty text if it has none.

    >>> fault_of("cache:7744"), fault_of("[::1]:7744"), fault_of("unix:/run/pequod/pequod.sock")
    ('', '', '')
    >>> fault_of("cache:99999")
    "'cache:99999' has no port from 1 to 65535; give HOST:PORT, such as 127.0.0.1:7744, or unix:PATH"
    """
    hint = "give HOST:PORT, such as 127.0.0.1:7744, or unix:PATH"
    if not target:
        return f"it is empty; {hint}"
    if target.startswith(_SCHEMES):
        return "" if target.partition(":")[2].strip("/") else f"'{target}' names nothing; {hint}"
    match = _HOST_PORT.fullmatch(target)
    if match is None:
        return f"'{target}' is no address; {hint}"
    return "" if 1 <= int(match[2]) <= 65535 else f"'{target}' has no port from 1 to 65535; {hint}"


def is_local(target: str) -> bool:
    """Return whether HOST:PORT is on the loopback, or a Unix socket; names other than localhost are not looked up."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = target.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_unspecified(target: str) -> bool:
    """Return whether HOST:PORT is every address of a machine, which names none to others.

    >>> is_unspecified("0.0.0.0:7744"), is_unspecified("[::]:7744"), is_unspecified("10.0.0.4:7744")
    (True, True, False)
    """
    try:
        return ip_address(target.rpartition(":")[0].strip("[]")).is_unspecified
    except ValueError:
        return False


def is_origin(text: str) -> bool:
    """Return whether a text is the origin of pages as browsers write it: no path, and no port that is the usual one.

    >>> [is_origin(text) for text in ("https://x.org", "http://localhost:3000", "x.org", "https://x.org/", "https://X.org")]
    [True, True, False, False, False]
    """
    match = _ORIGIN.fullmatch(text)
    return match is not None and (match[1], match[2]) not in _USUAL_PORTS
