"""How a server is reached, in a form that goes to where tasks run: channels neither pickle nor survive a fork."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pequod.client import AsyncClient, Client


@dataclass(frozen=True, slots=True)
class Connection:
    """What a client needs to reach a server; files must be there on each machine that connects."""

    #: HOST:PORT. This and all below are arguments of the clients.
    target: str
    timeout_s: float = 60.0
    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    token: str | None = None
    insecure: bool = False

    def __repr__(self) -> str:
        """Tell nobody the token."""
        return f"Connection({self.target!r})"

    def client(self) -> Client:
        """Open a client."""
        return Client(**asdict(self))

    def async_client(self) -> AsyncClient:
        """Open an asyncio client."""
        return AsyncClient(**asdict(self))
