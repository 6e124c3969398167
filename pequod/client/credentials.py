"""How a client reaches a server and proves who it is: its transport, TLS, a client certificate, a bearer token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from grpc import aio

from pequod.addresses import is_local
from pequod.client.transports import choice_of
from pequod.errors import SettingError
from pequod.wire.choice import Choice

if TYPE_CHECKING:
    from pequod.wire.channel import NativeChannel
    from pequod.wire.places import Place

#: A channel of either transport: both have what clients use.
Channel: TypeAlias = "aio.Channel | NativeChannel"

_FilePath = str | Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The client's settings for security."""

    #: Use TLS; implied by ``ca`` and ``certificate``.
    tls: bool = False
    #: PEM file of the authorities that may have signed the server's certificate; None: those that gRPC comes with.
    ca: _FilePath | None = None
    #: PEM files of the client's own certificate chain and its key.
    certificate: _FilePath | None = None
    key: _FilePath | None = None
    token: str | None = field(default=None, repr=False)
    #: Send the token in plain text to other machines.
    insecure: bool = False
    #: See `pequod.client.transports`; empty: what the environment says.
    transport: str = ""

    @property
    def has_tls(self) -> bool:
        """Whether connections have TLS."""
        return self.tls or self.ca is not None or self.certificate is not None

    def choice(self, target: str) -> Choice:
        """Return the transport of calls to ``target``.

        Raises:
            SettingError: There is no such transport.
        """
        return choice_of(self.transport, target, has_tls=self.has_tls)

    def connector(self, target: str, options: Sequence[tuple[str, Any]]) -> Callable[[], Channel]:
        """Return a function that opens a channel to ``target``.

        Args:
            options: Those of gRPC's own channel.

        Raises:
            SettingError: A file cannot be read, or the token would go over the network in plain text.
        """
        if (self.certificate is None) != (self.key is None):
            raise SettingError("key" if self.key is None else "certificate", "a client certificate needs its key too")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SettingError("token", "it holds characters that no token has; is there a line break at its end?")
        if not self.has_tls and self.token is not None and not self.insecure and not is_local(target):
            raise SettingError(
                "token",
                f"it would go to {target} in plain text; use TLS (`tls`, or `ca` for an authority of your own), or say "
                "`insecure` if nobody else can listen there",
            )
        place = self.choice(target).place
        return self._connector_of_grpc(target, options) if place is None else self._native_connector(place)

    def _connector_of_grpc(self, target: str, options: Sequence[tuple[str, Any]]) -> Callable[[], Channel]:
        if is_local(target):
            # A proxy from the environment must not be used for this machine; it would see the token.
            options = [*options, ("grpc.enable_http_proxy", 0)]
        if self.has_tls:
            from pequod.wire.tls import client_context, file_bytes  # noqa: PLC0415

            # gRPC takes any file, and fails each connection. So both transports refuse the same ones.
            client_context(self.ca, self.certificate, self.key)
            secure = grpc.ssl_channel_credentials(
                file_bytes("ca", self.ca), file_bytes("key", self.key), file_bytes("certificate", self.certificate)
            )
            return lambda: aio.secure_channel(target, secure, options=options)
        return lambda: aio.insecure_channel(target, options=options)

    def _native_connector(self, place: Place) -> Callable[[], Channel]:
        # Clients that do without the native transport, or without TLS, save its modules.
        from pequod.wire.channel import NativeChannel  # noqa: PLC0415

        if not self.has_tls:
            return lambda: NativeChannel(place)
        from pequod.wire.tls import client_context  # noqa: PLC0415

        tls = client_context(self.ca, self.certificate, self.key)
        return lambda: NativeChannel(place, tls)

    def bearing(self, channel: Channel) -> Any:
        """Return a channel for stubs whose calls carry the token."""
        if self.token is None:
            return channel
        return _BearingChannel(channel, (("authorization", f"Bearer {self.token}"),))


class _BearingChannel:
    """A channel for generated stubs that adds metadata to each call.

    An interceptor would do the same, with a queue and a task between each message of a stream and the wire. gRPC's own
    call credentials are refused on plain text, also on the loopback.
    """

    def __init__(self, channel: Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel = channel
        self._metadata = metadata

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        # unary_unary and so on: the methods that a stub calls when it is made.
        make = getattr(self._channel, kind)

        def made(*arguments: Any, **options: Any) -> Callable[..., Any]:
            call = make(*arguments, **options)

            def bearing(*arguments: Any, metadata: Sequence[tuple[str, str]] = (), **options: Any) -> Any:
                return call(*arguments, metadata=(*metadata, *self._metadata), **options)

            return bearing

        return made
