"""A server of several workers, and what its tests know of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import grpc
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod import Client
from tests.forked import ForkedServer

TIMELINES = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


class Workers(ForkedServer):
    """`pequod serve --workers`."""

    def __init__(self, count: int, *flags: str) -> None:
        super().__init__(
            "--listen",
            "127.0.0.1:0",
            "--workers",
            str(count),
            *(() if "--joins" in flags else ("--joins", TIMELINES)),
            *flags,
        )

    @property
    def pids(self) -> dict[str, int]:
        """The processes of the workers that there are now, by id."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in children}
        return {Path(command[-2]).stem: int(pid) for pid, command in commands.items() if len(command) > 2}

    def kill_worker(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)

    def hear(self, words: str) -> str:
        """Read what it says up to a line with such words, and return that line."""
        for line in self.said:
            if words in line:
                return line
        raise AssertionError(f"the server has ended, and did not say {words!r}")


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
