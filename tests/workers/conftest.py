"""A server of several workers, and what its tests know of it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import grpc
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod import Client
from tests.forked import ForkedServer
from tests.workers import forking

TIMELINES = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


class Workers(ForkedServer):
    """`pequod serve --workers`.

    Args:
        serve: With `tests.forked.run_serve` workers are started as a shell's server starts them.
    """

    def __init__(self, count: int, *flags: str, serve: Callable[..., None] = forking.run_serve) -> None:
        super().__init__(
            "--listen",
            "127.0.0.1:0",
            "--workers",
            str(count),
            *(() if "--joins" in flags else ("--joins", TIMELINES)),
            *flags,
            serve=serve,
        )

    @property
    def pids(self) -> dict[str, int]:
        """The processes of the workers that there are now, by id."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        names = {pid: _worker_name(Path("/proc", pid)) for pid in children}
        return {name: int(pid) for pid, name in names.items() if name}

    def kill_worker(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)

    def hear(self, words: str) -> str:
        """Read what it says up to a line with such words, and return that line."""
        for line in self.said:
            if words in line:
                return line
        raise AssertionError(f"the server has ended, and did not say {words!r}")


def _worker_name(process: Path) -> str:
    """Return the name of the worker that a process is, empty: it is none."""
    command = (process / "cmdline").read_text().split("\0")
    if "pequod_server.workers.entry" in command:
        return Path(command[-2]).stem
    name = (process / "comm").read_text().strip()
    return name if re.fullmatch(r"w\d+", name) else ""


def met_by(target: str, call: Callable[[PequodStub], object]) -> int:
    """Make a call on a connection of its own; return the id of the worker that the connection has met."""
    with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = PequodStub(channel)  # type: ignore[no-untyped-call]
        call(stub)
        # That call is not passed on.
        reply: pb.ExplainReply = stub.Explain(pb.ExplainRequest(range=pb.Range(first=b"s|", last=b"s}")))
        return reply.header.server_id


def timeline(client: Client, user: str = "ann") -> list[tuple[bytes, bytes]]:
    return list(client.scan(f"t|{user}|", f"t|{user}}}"))
