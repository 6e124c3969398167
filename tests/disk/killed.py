"""A server with a folder of data under writers, killed without a word, and what has to be there after the next start.

Each writer has keys of its own and one call under way: what its calls were answered is there, and the call that was
under way is there as a whole, or not at all. Writers are plain clients of gRPC, which try nothing again but adds: these
with the same request id, in batches with the id of the batch, as a whole or a part of it first. None is added twice.

python -m tests.disk.killed --seconds 600    kill it for 600 seconds, on each transport and with each setting in turn
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import grpc
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.commands.kinds import ADD, PUT, REMOVE
from pequod.engine.testing import NaiveModel
from pequod.language.conditions import IF_ABSENT, coded
from pequod.native.http2 import why_absent
from tests.forked import ForkedServer

TIMELINE: Final = "t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
_CALL_S_MAX: Final = 30.0
#: How many keys batches of adds have.
_SUMS: Final = 300

Changes = dict[bytes, bytes | None]


@dataclass
class Writer:
    """One client, with what it knows of its keys."""

    number: int
    random: Random
    known: dict[bytes, bytes] = field(default_factory=dict)
    #: What the call under way changes, all of it or nothing.
    under_way: Changes = field(default_factory=dict)
    #: The token of the last answer.
    token: bytes = b""
    answered_count: int = 0
    #: The sum of the adds that were done, and the request id of the one under way.
    total: int = 0
    adding: bytes = b""
    #: The same of adds in batches, by key; the keys of the batch under way, each once, and its id.
    totals: dict[bytes, int] = field(default_factory=dict)
    adding_all: list[bytes] = field(default_factory=list)
    batch_id: bytes = b""

    def run(self, target: str) -> None:
        """Write until the server is gone."""
        with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = PequodStub(channel)  # type: ignore[no-untyped-call]
            try:
                if self.adding:
                    self._add(stub)
                if self.adding_all:
                    self._add_all(stub)
                while True:
                    self._write(stub)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error

    def _write(self, stub: PequodStub) -> None:
        random = self.random
        keys = [b"p|w%d|%03d" % (self.number, random.randrange(200)) for _ in range(random.randrange(1, 9))]
        value = random.randbytes(random.randrange(1, 200))
        match random.randrange(7):
            case 0:
                self.under_way = {keys[0]: value}
                reply = stub.Put(pb.PutRequest(key=keys[0], value=value), timeout=_CALL_S_MAX)
            case 1:
                self.under_way = {keys[0]: None}
                reply = stub.Remove(pb.RemoveRequest(key=keys[0]), timeout=_CALL_S_MAX)
            case 2:
                self.under_way = dict.fromkeys(keys, value)
                reply = stub.MultiPut(pb.MultiPutRequest(keys=keys, values=[value] * len(keys)), timeout=_CALL_S_MAX)
            case 3:
                self.under_way = {} if keys[0] in self.known else {keys[0]: value}
                number, _ = coded(IF_ABSENT)
                request = pb.WriteIfRequest(key=keys[0], value=value, condition=number)
                reply = stub.WriteIf(request, timeout=_CALL_S_MAX)
                assert reply.met == bool(self.under_way)
            case 4:
                self.under_way = {}
                reply = self._add(stub)
            case 5:
                self.under_way = {}
                reply = self._add_all(stub)
            case _:
                self.under_way = {**dict.fromkeys(keys, value), keys[-1]: None}
                kinds = bytes([*[PUT] * len(keys), REMOVE])
                arguments = [part for key in keys for part in (key, value)] + [keys[-1]]
                (reply,) = stub.Execute(
                    iter([pb.ExecuteRequest(kinds=kinds, arguments=arguments)]), timeout=_CALL_S_MAX
                )
        self._take()
        self.answered_count += 1
        self.token = reply.token if isinstance(reply, pb.ExecuteReply) else reply.header.token

    def _add(self, stub: PequodStub) -> pb.AddReply:
        """Add one; the add that was under way when the server was killed is sent again, as clients do."""
        self.adding = self.adding or self.random.randbytes(16)
        request = pb.AddRequest(key=b"n|w%d" % self.number, delta=b"1", request_id=self.adding)
        reply: pb.AddReply = stub.Add(request, timeout=_CALL_S_MAX)
        self.total += 1
        assert int(reply.value) == self.total, f"writer {self.number}: an add was lost or done twice"
        self.adding = b""
        return reply

    def _add_all(self, stub: PequodStub) -> pb.ExecuteReply:
        """Add one to each of some keys; if a batch was under way it is sent again, sometimes a part of it before."""
        if self.adding_all:
            part = [at for at in range(len(self.adding_all)) if self.random.random() < 0.5]
            if part:
                self._execute(stub, part)
        else:
            names = self.random.sample(range(_SUMS), self.random.randrange(1, _SUMS))
            self.adding_all = [b"n|w%d|%03d" % (self.number, name) for name in names]
            self.batch_id = self.random.randbytes(12)
        reply = self._execute(stub, range(len(self.adding_all)))
        for key in self.adding_all:
            self.totals[key] = self.totals.get(key, 0) + 1
        self.adding_all = []
        return reply

    def _execute(self, stub: PequodStub, positions: Sequence[int]) -> pb.ExecuteReply:
        """Send commands of the batch under way."""
        keys = [self.adding_all[at] for at in positions]
        request = pb.ExecuteRequest(
            kinds=bytes([ADD] * len(keys)),
            arguments=[argument for key in keys for argument in (key, b"1")],
            batch_id=self.batch_id,
            batch_positions=positions if len(keys) < len(self.adding_all) else [],
        )
        # The first message of a stream is Python's to run, the next one the native core's.
        before = [pb.ExecuteRequest()] * self.random.randrange(2)
        *_, reply = stub.Execute(iter([*before, request]), timeout=_CALL_S_MAX)
        expected = [self.totals.get(key, 0) + 1 for key in keys]
        assert list(map(int, reply.values)) == expected, f"writer {self.number}: adds were lost or done twice"
        whole: pb.ExecuteReply = reply
        return whole

    def refuse_lost(self, found: dict[bytes, bytes]) -> None:
        """Compare the sums with what the server has now: those of the call under way may have one more."""
        sums = {b"n|w%d" % self.number: self.total, **self.totals}
        under_way = {*self.adding_all, *([b"n|w%d" % self.number] if self.adding else [])}
        for key in sums.keys() | under_way:
            before, now = sums.get(key, 0), int(found.get(key, b"0"))
            assert now == before or (key in under_way and now == before + 1), f"{key!r} is {now} behind {before}"

    def _take(self) -> None:
        for key, value in self.under_way.items():
            if value is None:
                self.known.pop(key, None)
            else:
                self.known[key] = value
        self.under_way = {}

    def compare(self, found: dict[bytes, bytes]) -> None:
        """Compare with what the server has now of this writer's keys, and know that from now on."""
        before = dict(self.known)
        if found != before:
            self._take()
            assert found == self.known, f"writer {self.number}: acknowledged rows differ after the start"
        self.known, self.under_way = found, {}


class Killed:
    """A folder whose server is killed again and again.

    Args:
        flags: Of `pequod serve`, beside the folder.
    """

    def __init__(self, folder: Path, seed: int, *flags: str, writer_count: int = 4) -> None:
        self._flags = ("--listen", "127.0.0.1:0", "--slow-ms", "0", "--data", str(folder), "--joins", TIMELINE, *flags)
        self._random = Random(seed)
        self.writers = [Writer(number, Random(seed * 100 + number)) for number in range(writer_count)]
        self._follows = {b"s|ann|w%d" % one.number: b"1" for one in self.writers}

    def run(self, seconds_max: float) -> None:
        """Start the server, compare, write for a while, and kill it."""
        with ForkedServer(*self._flags) as server:
            self.compare(server.target)
            threads = [threading.Thread(target=one.run, args=(server.target,)) for one in self.writers]
            for thread in threads:
                thread.start()
            time.sleep(self._random.uniform(0.05, seconds_max))
            server.kill()
            for thread in threads:
                thread.join()

    def compare(self, target: str) -> None:
        """Compare what a server has with what its writers know, and its timeline with a model's."""
        with grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = PequodStub(channel)  # type: ignore[no-untyped-call]
            for one in self.writers:
                first = b"p|w%d|" % one.number
                freshness = pb.Freshness(after=one.token) if one.token else None
                one.compare(_rows(stub, pb.ScanRequest(first=first, last=first[:-1] + b"}", freshness=freshness)))
                sums = b"n|w%d" % one.number
                one.refuse_lost(_rows(stub, pb.ScanRequest(first=sums, last=sums + b"}")))
            stub.MultiPut(pb.MultiPutRequest(keys=list(self._follows), values=list(self._follows.values())))
            model = NaiveModel()
            model.add(parse(TIMELINE)[0])
            model.base = {**self._follows, **{key: value for one in self.writers for key, value in one.known.items()}}
            assert _rows(stub, pb.ScanRequest(first=b"t|ann|", last=b"t|ann}")) == dict(
                model.scan(b"t|ann|", b"t|ann}")
            )

    @property
    def answered_count(self) -> int:
        """How many writes were acknowledged."""
        return sum(one.answered_count for one in self.writers)


def _rows(stub: PequodStub, request: pb.ScanRequest) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for chunk in stub.Scan(request, timeout=_CALL_S_MAX):
        found.update(zip(chunk.keys, chunk.values, strict=True))
    return found


def main() -> None:
    """Kill servers until the time is over."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    transports = ["grpcio", *(["native"] if why_absent() is None else [])]
    ways = [(fsync, transport) for fsync in ("always", "everysec") for transport in transports]
    end_s, kills, answered = time.monotonic() + chosen.seconds, 0, 0
    with TemporaryDirectory() as scratch:
        killed = [
            Killed(Path(scratch) / str(number), chosen.seed + number, "--fsync", fsync, "--transport", transport)
            for number, (fsync, transport) in enumerate(ways)
        ]
        while time.monotonic() < end_s:
            killed[kills % len(killed)].run(0.5)
            kills += 1
        answered = sum(one.answered_count for one in killed)
    adds = sum(writer.total + sum(writer.totals.values()) for one in killed for writer in one.writers)
    print(f"{kills} kills, {answered} writes acknowledged, {adds} adds, none lost, none doubled (seed {chosen.seed})")


if __name__ == "__main__":
    main()
