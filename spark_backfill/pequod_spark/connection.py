"""How a server is reached, in a form that goes to where tasks run: channels neither pickle nor survive a fork."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pequod.client import AsyncClient, Client
from pequod.errors import PequodError


class ServerChangedError(PequodError):
    """The server is another one than before: it was started anew, and what it held then need not be there."""

    def __init__(self, target: str, doing: str, hint: str = "run the same command again") -> None:
        super().__init__(
            f"the server at {target} was started anew during {doing}, and may lack what it held before; see what it "
            f"holds now, and {hint}"
        )
        self.target = target


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

    def server_id(self) -> int:
        """Return the number of the server that answers now; it has another one after each start."""
        with self.client() as client:
            client.joins()
            return client.server_id

    def client(self) -> Client:
        """Open a client."""
        return Client(**asdict(self))

    def async_client(self) -> AsyncClient:
        """Open an asyncio client."""
        return AsyncClient(**asdict(self))
