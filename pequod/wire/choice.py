"""Which transport calls to a target take: gRPC's own, or the one of the native core.

"native"   that of the native core, or an error that says why it is not there
"grpcio"   gRPC's own
"auto"     the first one where it is there and does what the target and the environment ask for, else the other
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from pequod.errors import SettingError
from pequod.native.http2 import why_absent
from pequod.wire.places import Place, place_of

NAMES: Final = ("auto", "native", "grpcio")
#: The variable of ciphers, which only gRPC's own transport heeds.
_CIPHERS: Final = "GRPC_SSL_CIPHER_SUITES"


class Choice(NamedTuple):
    """The transport of calls to a target."""

    #: Where the native one finds the target; None: gRPC's own is taken.
    place: Place | None
    #: Why gRPC's own is taken where the native one would be if it could; empty otherwise.
    reason: str = ""

    @property
    def name(self) -> str:
        """The transport as the setting has it."""
        return "grpcio" if self.place is None else "native"


def choose(transport: str, target: str, *, has_tls: bool, heeded: tuple[str, ...] = ()) -> Choice:
    """Return the transport for a target.

    Args:
        transport: One of `NAMES`.
        heeded: Variables that gRPC's own transport would heed here, and the native one does not.

    Raises:
        SettingError: There is no such transport, or the native one is asked for and is not there.
    """
    if transport not in NAMES:
        raise SettingError("transport", f"there is no transport {transport!r}; there are {', '.join(NAMES)}")
    if transport == "grpcio":
        return Choice(None)
    absence, place = why_absent(), place_of(target)
    fault = ""
    if absence is not None:
        fault = f"there is no native transport {absence}"
    elif place is None:
        fault = f"the native transport does not know the way to {target}"
    if transport == "native":
        if fault:
            raise SettingError("transport", f"{fault}; take grpcio")
        return Choice(place)
    if has_tls:
        heeded = (*heeded, _CIPHERS)
    if not fault and (asked := [variable for variable in heeded if os.environ.get(variable)]):
        fault = f"the native transport does not do what {asked[0]} asks for"
    return Choice(None, fault) if fault else Choice(place)
