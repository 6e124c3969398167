"""Random batches over real sockets return what their commands return one by one, whatever the pieces of the reply."""

import asyncio
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from hypothesis import example, given
from hypothesis import strategies as st
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod import AsyncClient
from pequod.client import Result
from pequod.commands.kinds import COUNT, FAILED, GET, PART, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod.engine import PequodError, Rows
from pequod.engine.testing import NaiveModel
from pequod.language.conditions import Met, Unmet
from tests.server.plain import Outcome, outcomes_of, pieces_of

JOINS = """
t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
n|<poster> = count p|<poster>|<time>;
q|<time:2>|<poster> = pull copy p|<poster>|<time>
"""
ACCESS = """
[roles.root]
read = [""]
write = [""]
join = [""]

[roles.web]
read = ["t|", "n|", "p|", "a"]
write = ["p|", "s|a", "b"]
"""
#: What a batch meets: bytes and rows of a piece. None, one row a piece, some, and all.
LIMITS = [(1, 1), (70, 3), (150, 2), (100_000, 4), (100_000, 1000)]

TIMES = [b"%02d" % number for number in range(6)]
BASE = [b"a", b"b", b"c", *(b"s|%b|%b" % (u, p) for u in (b"a", b"b") for p in (b"x", b"y"))]
BASE += [b"p|%b|%b" % (p, time) for p in (b"x", b"y") for time in TIMES]
COMPUTED = [b"t|a|03|x", b"t|b|01|y", b"n|x", b"q|02|y"]
VALUES = st.sampled_from([b"", b"1", b"v" * 20, b"w" * 60])
BOUNDS = st.sampled_from(
    [b"", b"b", b"n|", b"p|", b"p|x|", b"p|x|03", b"q|", b"s|a|", b"t|", b"t|a|", b"t|a|02", b"t|b|", b"z"]
)
RANGES = st.one_of(
    st.sampled_from([(b"", b""), (b"p|", b"p}"), (b"t|a|", b"t|a}"), (b"q|", b"q}"), (b"t|", b"t}")]),
    st.tuples(BOUNDS, BOUNDS),
)
KEYS = st.sampled_from([*BASE, *COMPUTED, b""])
#: A kind, its arguments and its number.
Command = tuple[int, tuple[bytes, ...], int]
COMMANDS = st.one_of(
    st.tuples(st.just(GET), st.tuples(KEYS), st.just(0)),
    st.tuples(st.just(PUT), st.tuples(KEYS, VALUES), st.just(0)),
    st.tuples(st.just(REMOVE), st.tuples(KEYS), st.just(0)),
    st.tuples(st.sampled_from([SCAN, COUNT]), RANGES, st.just(0)),
    st.tuples(st.sampled_from([SCAN_LIMIT, SCAN_DOWN]), RANGES, st.integers(0, 9)),
)
ROWS = st.dictionaries(st.sampled_from(BASE), VALUES, max_size=len(BASE))


class Servers:
    """A server for each of `LIMITS`, with a plain stream and a client of ours for each role."""

    def __init__(self, access_file: Path) -> None:
        text = (
            f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
            for name in ("root", "web")
        )
        access_file.write_text(ACCESS + "".join(text))
        self.runner = asyncio.Runner()
        self.runner.run(self._start(access_file))

    async def _start(self, access_file: Path) -> None:
        self.servers: list[PequodServer] = []
        self.streams: dict[tuple[int, str], Any] = {}
        self.clients: dict[tuple[int, str], AsyncClient] = {}
        self.channels: list[aio.Channel] = []
        for number, (reply_bytes_max, rows_max) in enumerate(LIMITS):
            config = ServerConfig(
                listen="127.0.0.1:0", access_file=access_file, reply_bytes_max=reply_bytes_max, rows_max=rows_max
            )
            server = PequodServer(config)
            port = await server.start()
            server.engine.add_joins(parse(JOINS))
            self.servers.append(server)
            channel = aio.insecure_channel(f"127.0.0.1:{port}")
            self.channels.append(channel)
            for role in ("root", "web"):
                metadata = (("authorization", f"Bearer {role}"),)
                self.streams[number, role] = PequodStub(channel).Execute(metadata=metadata)  # type: ignore[no-untyped-call]
                self.clients[number, role] = AsyncClient(f"127.0.0.1:{port}", token=role)

    async def _stop(self) -> None:
        for stream in self.streams.values():
            await stream.done_writing()
        for client in self.clients.values():
            await client.close()
        for channel in self.channels:
            await channel.close()
        for server in self.servers:
            await server.stop()
            server.engine._check()

    def close(self) -> None:
        self.runner.run(self._stop())
        self.runner.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("access") / "access.toml")
    yield servers
    servers.close()


def _may(role: str, right: tuple[str, ...], first: bytes, last: bytes | None) -> bool:
    """Tell whether a role with these prefixes may touch all of a range."""
    if role == "root" or (last is not None and last <= first):
        return True
    return last is not None and any(
        first.startswith(prefix.encode()) and last <= prefix.encode()[:-1] + bytes([ord(prefix[-1]) + 1])
        for prefix in right
    )


def expected(model: NaiveModel, role: str, command: Command) -> Outcome:
    """Run one command on the model."""
    kind, (first, *others), number = command
    is_write = kind in (PUT, REMOVE)
    last = (others[0] or None) if kind not in (GET, PUT, REMOVE) else first + b"\0"
    if not _may(role, ("p|", "s|a", "b") if is_write else ("t|", "n|", "p|", "a"), first, last):
        return "PermissionDeniedError"
    if is_write and not first:
        return "InvalidKeyError"
    if is_write and model.computes(first):
        return "ComputedKeyError"
    if kind == PUT:
        model.put(first, others[0])
        return None
    if kind == REMOVE:
        return model.remove(first)
    if kind == GET:
        return model.get(first)
    rows = model.scan(first, last, limit=number or None, reverse=kind == SCAN_DOWN)
    return len(rows) if kind == COUNT else rows


def check_pieces(pieces: list[pb.ExecuteReply], bytes_max: int) -> None:
    """Check what the .proto promises of the pieces."""
    assert [piece.more for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    for piece in pieces:
        assert PART not in piece.statuses[:-1], "only the end of a piece cuts a scan"
        assert piece.statuses[-1:] != bytes([PART]) or piece.more
        assert piece.statuses.count(FAILED) == len(piece.errors)
        sizes = [len(one) for one in piece.values] + [len(one) for one in piece.keys]
        assert sum(sizes) + 8 * len(piece.values) <= bytes_max or len(piece.values) == 1


def plain(result: Result) -> Outcome:
    assert not isinstance(result, Met | Unmet | float), "no command has a condition, or asks how long a key lives"
    if isinstance(result, PequodError):
        return type(result).__name__
    return list(zip(result.keys, result.values, strict=True)) if isinstance(result, Rows) else result


def add(batch: Any, command: Command) -> None:
    """Add a command to a batch of our client."""
    kind, arguments, number = command
    if kind in (GET, PUT, REMOVE):
        {GET: batch.get, PUT: batch.put, REMOVE: batch.remove}[kind](*arguments)
        return
    first, last = arguments[0], arguments[1] or None
    if kind == COUNT:
        batch.count(first, last)
    else:
        batch.scan(first, last, limit=number or None, reverse=kind == SCAN_DOWN)


async def _run(
    servers: Servers, place: tuple[int, str], rows: dict[bytes, bytes], batches: list[list[Command]]
) -> None:
    number, role = place
    server, model = servers.servers[number], NaiveModel()
    for spec in parse(JOINS):
        model.add(spec)
    server.engine.remove_range(b"", None)
    for key, value in rows.items():
        server.engine.put(key, value)
        model.put(key, value)
    client = servers.clients[place]
    for commands in batches:
        kinds = bytes(command[0] for command in commands)
        arguments = [argument for command in commands for argument in command[1]]
        numbers = [command[2] for command in commands if command[0] in (SCAN_LIMIT, SCAN_DOWN)]
        request = pb.ExecuteRequest(batch=1, kinds=kinds, arguments=arguments, numbers=numbers)
        pieces = await asyncio.wait_for(pieces_of(servers.streams[place], request), 60)
        assert outcomes_of(kinds, pieces) == [expected(model, role, command) for command in commands]
        check_pieces(pieces, LIMITS[number][0])
        batch = client.batch()
        for command in commands:
            add(batch, command)
        results = await batch.send()
        assert [plain(result) for result in results] == [expected(model, role, command) for command in commands]


@given(
    place=st.tuples(st.integers(0, len(LIMITS) - 1), st.sampled_from(["root", "web"])),
    rows=ROWS,
    batches=st.lists(st.lists(COMMANDS, max_size=20), min_size=1, max_size=3),
)
@example(
    place=(1, "web"),
    rows={b"p|x|%b" % time: b"v" * 20 for time in TIMES} | {b"s|a|x": b"1"},
    batches=[
        [
            (SCAN, (b"t|a|", b"t|a}"), 0),
            (PUT, (b"c", b"1"), 0),
            (PUT, (b"p|x|03", b"new"), 0),
            (SCAN_DOWN, (b"p|", b"p}"), 5),
            (GET, (b"c",), 0),
            (REMOVE, (b"s|a|x",), 0),
            (SCAN_LIMIT, (b"t|a|", b"t|a}"), 4),
        ]
    ],
)
def test_batches_return_what_their_commands_return_one_by_one(
    servers: Servers, place: tuple[int, str], rows: dict[bytes, bytes], batches: list[list[Command]]
) -> None:
    servers.runner.run(_run(servers, place, rows, batches))
