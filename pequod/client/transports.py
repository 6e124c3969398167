"""Which transport a client's calls take, if the client is not told; see `pequod.wire.choice`."""

from __future__ import annotations

import os
from typing import Final

from pequod.addresses import is_local
from pequod.wire.choice import Choice, choose

#: The variable that says it for clients that are not told.
VARIABLE: Final = "PEQUOD_CLIENT_TRANSPORT"
_DEFAULT: Final = "auto"
#: Variables that name a proxy, which gRPC's own transport goes through to other machines.
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy", "GRPC_ADDRESS_HTTP_PROXY")


def choice_of(transport: str, target: str, *, has_tls: bool = False) -> Choice:
    """Return the transport of a client's calls to a target.

    Args:
        transport: Empty: what the environment says, else the default.

    Raises:
        SettingError: There is no such transport, or the native one is asked for and is not there.
    """
    name = transport or os.environ.get(VARIABLE) or _DEFAULT
    return choose(name, target, has_tls=has_tls, heeded=() if is_local(target) else _PROXIES)
