"""Where a target is, by the kinds of addresses that gRPC has.

>>> place_of("cache:7744"), place_of("[::1]:7744").host, place_of("unix:/run/pequod.sock").path
(Place(host='cache', port=7744, path='', authority='cache:7744'), '::1', '/run/pequod.sock')
>>> place_of("xds:///cache") is None
True
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: The port of a name without one.
_PORT: Final = 443
_OTHERS: Final = ("vsock:", "xds:")


class Place(NamedTuple):
    """Where connections go."""

    host: str
    port: int
    #: Of a Unix socket; empty: it is none.
    path: str
    #: The name of the server there.
    authority: str

    @property
    def target(self) -> str:
        """The place in words, as gRPC writes it."""
        if self.path.startswith("\0"):
            return f"unix-abstract:{self.path[1:]}"
        return f"unix:{self.path}" if self.path else self.authority

    @property
    def certified_name(self) -> str:
        """The name that a certificate of the server has to have."""
        return "localhost" if self.path else self.host


def place_of(target: str) -> Place | None:
    """Return where a target is; None: it is of a kind that only gRPC knows."""
    kind, _, rest = target.partition(":")
    if kind == "unix":
        return Place("", 0, rest.removeprefix("//"), "localhost")
    if kind == "unix-abstract":
        return Place("", 0, f"\0{rest}", "localhost")
    if target.startswith(_OTHERS):
        return None
    if kind in ("dns", "ipv4", "ipv6"):
        if rest.startswith("//"):
            resolver, _, rest = rest[2:].partition("/")
            if resolver:
                return None
        if "," in rest or "%" in rest:
            # Several addresses, or characters that are escaped.
            return None
        target = rest.removeprefix("/")
    host, colon, port = target.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = target, str(_PORT)
    if not port.isdecimal():
        return None
    return Place(host.strip("[]"), int(port), "", target)
