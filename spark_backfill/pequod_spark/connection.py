"""How to reach a server, in a form that goes to Spark's tasks: channels can neither be pickled nor survive a fork."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pequod.client import AsyncClient, Client
from pequod.client.cluster.address import ClusterTarget
from pequod.errors import PequodError


class ServerChangedError(PequodError):
    """The server was restarted, and may lack what it held before."""

    def __init__(self, target: str, doing: str, hint: str = "run the same command again") -> None:
        super().__init__(
            f"the server at {target} was started anew during {doing}, and may lack what it held before; see what it "
            f"holds now, and {hint}"
        )
        self.target = target


@dataclass(frozen=True, slots=True)
class Connection:
    """What a client needs to reach a server; the files must exist on each machine that connects."""

    #: HOST:PORT. This and all fields below are arguments of the clients.
    target: str
    timeout_s: float = 60.0
    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    token: str | None = None
    insecure: bool = False

    def __repr__(self) -> str:
        """Leave out the token."""
        return f"Connection({self.target!r})"

    @property
    def is_of_cluster(self) -> bool:
        """Whether it is the address of a cluster: its servers answer for each other, and none lacks what was there."""
        return ClusterTarget.is_one(self.target)

    def server_id(self) -> int:
        """Return the id of the server that answers now; each start of a server has a new id."""
        with self.client() as client:
            client.joins()
            return client.server_id

    def client(self) -> Client:
        """Open a client."""
        return Client(**asdict(self))

    def async_client(self) -> AsyncClient:
        """Open an asyncio client."""
        return AsyncClient(**asdict(self))
