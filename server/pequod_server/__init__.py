"""The asyncio gRPC server: a thin shell around one engine.

docs/architecture/server.md has its files, and traces of calls, loads and changes through them.
"""

from typing import TYPE_CHECKING

from pequod_server.config import ServerConfig

if TYPE_CHECKING:
    from pequod_server.app import PequodServer
    from pequod_server.running import run

__all__ = ["PequodServer", "ServerConfig", "run"]


def __getattr__(name: str) -> object:
    """Import the server, and gRPC with it, when it is first asked for: the flags need the configuration alone."""
    if name == "PequodServer":
        from pequod_server.app import PequodServer  # noqa: PLC0415 - as said

        return PequodServer
    if name == "run":
        from pequod_server.running import run  # noqa: PLC0415 - as said

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
