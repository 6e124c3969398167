"""How a call ends, as handlers say it to gRPC's interface; and what of that interface has no meaning here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from grpc import aio


class EndingContext(aio.ServicerContext[Any, Any]):
    """A call with the status that it will end with, or has ended with."""

    __slots__ = ("_code", "_details", "_is_ended", "_trailing")

    def __init__(self) -> None:
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: Sequence[tuple[str, str | bytes]] = ()
        self._is_ended = False

    async def abort_with_status(self, status: grpc.Status) -> Any:
        """End the call with a status, and raise."""
        await self.abort(status.code, status.details, status.trailing_metadata)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Set what goes with the status."""
        self._trailing = trailing_metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the code that the call will end with."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text beside the code."""
        self._details = details

    def trailing_metadata(self) -> Any:
        """Return what goes with the status."""
        return self._trailing

    def code(self) -> Any:
        """Return the code that was set."""
        return self._code

    def details(self) -> str:
        """Return the text beside it."""
        return self._details

    def done(self) -> bool:
        """Return whether the call has ended."""
        return self._is_ended

    def set_compression(self, compression: Any) -> None:
        """Leave replies as they are."""

    def disable_next_message_compression(self) -> None:
        """Leave replies as they are."""

    def peer_identities(self) -> Any:
        """Return nothing: the names in a certificate are in `auth_context`."""
        return None

    def peer_identity_key(self) -> str | None:
        """Return nothing, as above."""
        return None
