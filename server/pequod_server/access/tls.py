"""The listening port: TLS from files that may be renewed while the server runs, plain text only where that is safe."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import grpc
from grpc import aio

from pequod.addresses import is_local
from pequod.errors import SettingError
from pequod_server.config import ServerConfig
from pequod_server.transport.server import WireServer
from pequod_server.worker import Worker

log = logging.getLogger("pequod.server")

_Read = TypeVar("_Read", grpc.ServerCertificateConfiguration, ssl.SSLContext)
#: The times and sizes of the files when they were read.
_Stamps = tuple[tuple[int, int, int], ...]


def add_port(server: aio.Server, config: ServerConfig, worker: Worker | None = None) -> int:
    """Make ``server`` listen as the settings say; return the port.

    Args:
        worker: Which worker it is, if there are several: it listens at an address of its own and at its door as well.

    Raises:
        SettingError: The settings contradict each other, plain text would leave this machine, or a file is not right.
        OSError: The address cannot be listened on.
    """
    files = tls_files(config)
    port = _add(server, config.listen, files)
    if worker is not None:
        if worker.own_listen:
            _add(server, worker.own_listen, files)
        # Left behind by the process that was this worker before.
        Path(worker.door.removeprefix("unix:")).unlink(missing_ok=True)
        _add(server, worker.door, None)
    return port


def _add(server: aio.Server, address: str, files: TlsFiles | None) -> int:
    try:
        if files is None:
            return server.add_insecure_port(address)
        if isinstance(server, WireServer):
            return server.add_tls_port(address, files.certificates())
        return server.add_secure_port(address, files.credentials())
    except (OSError, RuntimeError) as error:
        raise OSError(f"cannot listen on {address}; is another server there?") from error


def tls_files(config: ServerConfig) -> TlsFiles | None:
    """Return the files of what a server shows and asks for; None for plain text.

    Raises:
        SettingError: As for `add_port`.
    """
    certificate, key, client_ca = config.tls_certificate, config.tls_key, config.tls_client_ca
    if certificate and key:
        if config.insecure:
            raise SettingError("insecure", "it asks for plain text, and tls_certificate for TLS; take one out")
        files = TlsFiles(certificate, key, client_ca)
        files.certificates()
        return files
    if certificate or key:
        given, missing = ("tls_certificate", "tls_key") if certificate else ("tls_key", "tls_certificate")
        raise SettingError(missing, f"it goes with {given}; TLS needs both")
    if client_ca:
        raise SettingError("tls_client_ca", "certificates of clients need TLS; give tls_certificate and tls_key too")
    if not config.insecure and not is_local(config.listen):
        raise SettingError(
            "listen",
            f"{config.listen} can be reached from other machines, and everything would go over the network in plain "
            "text; give --tls-certificate and --tls-key, or --insecure if nobody else can listen there",
        )
    return None


class TlsFiles:
    """A certificate, its key and the authority of clients; each handshake takes them as they are then."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        #: Of the files that were last tried, good or bad.
        self._stamps = self._look()

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials that follow the files.

        Raises:
            SettingError: A file cannot be read, or is not right.
        """
        return grpc.dynamic_ssl_server_credentials(
            self._read(),
            self._renewed,  # type: ignore[arg-type]  # None means nothing new
            require_client_authentication=self._client_ca is not None,
        )

    def certificates(self) -> Callable[[], ssl.SSLContext]:
        """Return what gives the native transport the certificates for a handshake; it follows the files.

        Raises:
            SettingError: A file cannot be read, or is not right.
        """
        present = self._context()

        def of_a_handshake() -> ssl.SSLContext:
            nonlocal present
            present = self._if_changed(self._context) or present
            return present

        return of_a_handshake

    def web_context(self) -> ssl.SSLContext:
        """Return what a listener of HTTP takes; it follows the files, and asks clients for no certificate.

        Raises:
            SettingError: A file cannot be read, or is not right.
        """

        def make() -> ssl.SSLContext:
            return self._context("http/1.1", asks=False)

        present = first = make()

        def renew(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            nonlocal present
            present = self._if_changed(make) or present
            connection.context = present

        first.sni_callback = renew
        return first

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what the files hold if they have changed, else None; called by gRPC in one of its threads."""
        return self._if_changed(self._read)

    def _if_changed(self, read: Callable[[], _Read]) -> _Read | None:
        stamps = self._look()
        if stamps == self._stamps:
            return None
        self._stamps = stamps
        try:
            renewed = read()
        except SettingError as error:
            log.error("%s; the files read before stay in use", error)  # noqa: TRY400 - no defect of ours
            return None
        log.info("tls_certificate %s: read", self._certificate)
        return renewed

    def _read(self) -> grpc.ServerCertificateConfiguration:
        # gRPC takes nearly anything and fails at the first handshake; OpenSSL says what is wrong now.
        self._context()
        chain, key = _read("tls_certificate", self._certificate), _read("tls_key", self._key)
        authority = None if self._client_ca is None else _read("tls_client_ca", self._client_ca)
        return grpc.ssl_server_certificate_configuration([(key, chain)], authority)

    def _context(self, protocol: str = "h2", *, asks: bool = True) -> ssl.SSLContext:
        # OpenSSL does not say which file cannot be read.
        for name, path in self._paths():
            _read(name, path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols([protocol])
        try:
            context.load_cert_chain(self._certificate, self._key, password=_NO_PASSWORD)
        except (OSError, ValueError) as error:
            raise SettingError("tls_certificate", f"{self._certificate} and the key {self._key}: {error}") from error
        if self._client_ca is not None and asks:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(cafile=self._client_ca)
            except (OSError, ValueError) as error:
                raise SettingError("tls_client_ca", f"{self._client_ca}: {error}") from error
        return context

    def _paths(self) -> list[tuple[str, Path]]:
        named = {"tls_certificate": self._certificate, "tls_key": self._key, "tls_client_ca": self._client_ca}
        return [(name, path) for name, path in named.items() if path is not None]

    def _look(self) -> _Stamps:
        try:
            return tuple(
                (found.st_mtime_ns, found.st_size, found.st_ino) for found in (path.stat() for _, path in self._paths())
            )
        except OSError:
            return ()


#: OpenSSL would ask for the password of an encrypted key on the terminal.
_NO_PASSWORD: Final = b"-"


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(setting, str(error)) from error
