"""Which transport a server runs on: the native one, or gRPC's own."""

from __future__ import annotations

from typing import NamedTuple

from pequod.errors import SettingError
from pequod.native.http2 import why_absent


class Choice(NamedTuple):
    """The transport of a server's calls."""

    is_native: bool
    #: Why not the native one, where it is asked for if it is there; empty otherwise.
    reason: str

    @property
    def name(self) -> str:
        """The transport as the setting has it."""
        return "native" if self.is_native else "grpcio"


def choose(transport: str) -> Choice:
    """Return the transport that a setting means on this machine.

    Raises:
        SettingError: It asks for the native one, which is not there.
    """
    if transport == "grpcio":
        return Choice(is_native=False, reason="")
    reason = why_absent()
    if reason is None:
        return Choice(is_native=True, reason="")
    if transport == "native":
        raise SettingError("transport", f"there is no native transport {reason}")
    return Choice(is_native=False, reason=reason)
