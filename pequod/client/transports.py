"""Which transport a client's calls take: gRPC's own, or the one of the native core.

"native"   that of the native core, or an error that says why it is not there
"grpcio"   gRPC's own
"auto"     the first one where it is there and knows the way, else the other
"""

from __future__ import annotations

import os
from typing import Final

from pequod.addresses import is_local
from pequod.errors import SettingError
from pequod.native.http2 import why_absent
from pequod.wire.places import Place, place_of

#: The variable that says it for clients that are not told.
VARIABLE: Final = "PEQUOD_CLIENT_TRANSPORT"
_DEFAULT: Final = "grpcio"
_NAMES: Final = ("auto", "native", "grpcio")
#: Variables that name a proxy, which gRPC's own transport goes through.
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")


def native_place(transport: str, target: str) -> Place | None:
    """Return where the native transport finds a target; None: gRPC's own is taken.

    Args:
        transport: Empty: what the environment says.

    Raises:
        SettingError: There is no such transport, or the native one is asked for and is not there.
    """
    name = transport or os.environ.get(VARIABLE) or _DEFAULT
    if name not in _NAMES:
        raise SettingError("transport", f"there is no transport {name!r}; there are {', '.join(_NAMES)}")
    if name == "grpcio":
        return None
    reason, place = why_absent(), place_of(target)
    if name == "native":
        if reason is not None:
            raise SettingError("transport", f"there is no native transport {reason}")
        if place is None:
            raise SettingError("transport", f"the native transport does not know the way to {target}; take grpcio")
        return place
    has_proxy = not is_local(target) and any(os.environ.get(variable) for variable in _PROXIES)
    return None if reason is not None or has_proxy else place
