"""Which addresses stay inside this machine.

>>> is_local("127.0.0.1:7744"), is_local("[::1]:7744"), is_local("localhost:0"), is_local("0.0.0.0:7744")
(True, True, True, False)
"""

from __future__ import annotations

from ipaddress import ip_address


def is_local(target: str) -> bool:
    """Tell whether HOST:PORT is of the loopback, or a Unix socket; names other than localhost are not looked up."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = target.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
