"""An engine in the process with the calls of the clients: no server, no gRPC.

    with pequod.open() as client:                   the calls of `pequod.Client`
    async with pequod.open_async() as client:       those of `pequod.AsyncClient`

docs/architecture/clients.md has the files.

For tests and small programs. The data of a store are gone with the process, or with `close`.
"""

from pequod.embedded.aio import AsyncEmbedded
from pequod.embedded.shared import SharedEngine
from pequod.embedded.sync import Embedded

__all__ = ["AsyncEmbedded", "Embedded", "open", "open_async"]


def open(*, key_bytes_max: int = 4096, value_bytes_max: int = 1 << 20) -> Embedded:  # noqa: A001 - as pequod.open
    """Return an empty store in this process, with the calls of `Client`.

    Args:
        key_bytes_max, value_bytes_max: The longest key and value, as in the settings of a server.
    """
    return Embedded(key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max)


def open_async(*, key_bytes_max: int = 4096, value_bytes_max: int = 1 << 20) -> AsyncEmbedded:
    """Return an empty store in this process, with the calls of `AsyncClient`; see `open`."""
    return AsyncEmbedded(SharedEngine(key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max))
