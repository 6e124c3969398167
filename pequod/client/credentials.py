"""How a client reaches a server and proves who it is: its transport, TLS, a client certificate, a bearer token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from grpc import aio

from pequod.addresses import is_local
from pequod.client.transports import native_place
from pequod.errors import SettingError

if TYPE_CHECKING:
    import ssl

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
        has_tls = self.tls or self.ca is not None or self.certificate is not None
        if not has_tls and self.token is not None and not self.insecure and not is_local(target):
            raise SettingError(
                "token",
                f"it would go to {target} in plain text; use TLS (`tls`, or `ca` for an authority of your own), or say "
                "`insecure` if nobody else can listen there",
            )
        place = native_place(self.transport, target)
        if place is not None:
            return self._native_connector(place, has_tls=has_tls)
        if is_local(target):
            # A proxy from the environment must not be used for this machine; it would see the token.
            options = [*options, ("grpc.enable_http_proxy", 0)]
        if has_tls:
            secure = grpc.ssl_channel_credentials(
                _read("ca", self.ca), _read("key", self.key), _read("certificate", self.certificate)
            )
            return lambda: aio.secure_channel(target, secure, options=options)
        return lambda: aio.insecure_channel(target, options=options)

    def _native_connector(self, place: Place, *, has_tls: bool) -> Callable[[], Channel]:
        # Clients that do without the native transport save its modules.
        from pequod.wire.channel import NativeChannel  # noqa: PLC0415

        tls = self._tls_context() if has_tls else None
        return lambda: NativeChannel(place, tls)

    def _tls_context(self) -> ssl.SSLContext:
        import ssl  # noqa: PLC0415

        _read("ca", self.ca)
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError as error:
            raise SettingError("ca", f"{self.ca} holds no certificate: {error}") from error
        # As gRPC's own: certificates of small authorities leave out what RFC 5280 asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["h2"])
        if self.certificate is not None and self.key is not None:
            _read("certificate", self.certificate)
            _read("key", self.key)
            try:
                context.load_cert_chain(self.certificate, self.key)
            except ssl.SSLError as error:
                raise SettingError("certificate", f"{self.certificate} and its key do not fit: {error}") from error
        return context

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


def _read(setting: str, path: _FilePath | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(setting, str(error)) from error
