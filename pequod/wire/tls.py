"""TLS of clients: whom they trust, and how they prove who they are, as gRPC's own channel does it."""

from __future__ import annotations

import os
import ssl
from importlib.resources import files
from pathlib import Path
from typing import Final

from pequod.errors import SettingError

#: The variable by which gRPC is told which authorities to trust without a setting.
_ROOTS_VARIABLE: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


def client_context(ca: str | Path | None, certificate: str | Path | None, key: str | Path | None) -> ssl.SSLContext:
    """Return what TLS of a client needs.

    Args:
        ca: PEM file of the authorities; None: those that gRPC trusts.
        certificate: PEM files of the client's own certificate chain and its key, or None.

    Raises:
        SettingError: A file cannot be read, or holds something else.
    """
    roots = ca or os.environ.get(_ROOTS_VARIABLE) or _roots_of_grpc()
    file_bytes("ca", roots)
    try:
        context = ssl.create_default_context(cafile=roots)
    except ssl.SSLError as error:
        raise SettingError("ca", f"{roots} holds no certificate: {error}") from error
    # As gRPC's own: certificates of small authorities leave out what RFC 5280 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    if certificate is not None and key is not None:
        file_bytes("certificate", certificate)
        file_bytes("key", key)
        try:
            # Without a password, OpenSSL would ask for that of a key at the terminal.
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            raise SettingError("certificate", f"{certificate} and its key do not fit: {error}") from error
    return context


def file_bytes(setting: str, path: str | Path | None) -> bytes | None:
    """Return what a file of a setting holds; None if there is none.

    Raises:
        SettingError: The file cannot be read.
    """
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(setting, str(error)) from error


def _roots_of_grpc() -> str | None:
    """Return the file of authorities that gRPC brings along; None if it has none: those of the system are taken."""
    path = files("grpc._cython") / "_credentials" / "roots.pem"
    return str(path) if path.is_file() else None
