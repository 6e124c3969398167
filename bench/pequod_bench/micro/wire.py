"""Micro benchmarks of both halves of the wire, the client's and the server's, without gRPC between them.

Every scan is an incremental check of Twip: three rows of 100 bytes at the end of a timeline that is up to date.
`pequod bench clients` has both with gRPC.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import count
from secrets import token_bytes
from types import SimpleNamespace
from typing import Final, Literal, cast

from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteRequest
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick
from pequod_workloads import twip as keys

import pequod
from pequod.client.columns import Columns, decode_whole, encode_request
from pequod.client.levels import level
from pequod.client.retry import BATCH_ID_BYTES
from pequod.engine import Engine
from pequod.freshness import After, Token
from pequod.native import NativeBatch
from pequod_bench.micro.frame import RUN, MicroRows, MicroScale, Samples, clock

HALVES: Final = MicroRows()
#: What is to cost how much more than what, at most.
RATIOS: Final = (
    ("server: conditional puts", "server: puts", 1.3),
    ("server: conditional puts, unmet", "server: puts", 1.3),
    ("server: adds", "server: puts", 1.3),
    ("server: adds with ids", "server: puts", 1.3),
)
#: The number of timelines, all of one poster, and of the posts in each.
_USERS: Final = 1_000
_POSTS: Final = 20
_TWEET: Final = b"v" * 66
#: Commands of a message.
_RUN: Final = 256
#: Different messages that are sent in turn; they are made once, so that this is not what is timed.
_TURNS: Final = 16


#: Commands of a message: incremental checks, gets, puts, puts under a condition that holds, or does not, and adds.
_Kind = Literal["scan", "get", "put", "put, met", "put, unmet", "add"]


def _written(turn: int) -> bytes:
    """Return what the puts of a turn write; other values than before, or nothing would change."""
    return b"%d" % (turn % _TURNS) + _TWEET


@cache
def _columns(kind: _Kind, turn: int) -> Columns:
    columns = Columns()
    expected = {"put": None, "put, met": pequod.if_value(_written(turn - 1)), "put, unmet": pequod.if_value(_TWEET)}
    for i in range(_RUN):
        user = (turn + i * 7919) % _USERS
        if kind == "scan":
            columns.scan(*keys.timeline(user, _POSTS - 3))
        elif kind == "get":
            columns.get(keys.subscription_key(user, 1))
        elif kind == "add":
            columns.add(b"n|%08d" % i, i + 1)
        else:
            columns.put(b"x|%08d" % i, _written(turn), condition=expected[kind])
    return columns


def _executor() -> Executor:
    """Return a server's loop over batches, with all timelines up to date, and what the last turn of puts wrote."""
    engine = Engine()
    engine.add_joins(parse(keys.PUSH_JOIN))
    for user in range(_USERS):
        engine.put(keys.subscription_key(user, 1), keys.FOLLOWS)
    for tick in range(_POSTS):
        engine.put(keys.post_key(1, tick), _TWEET)
    for user in range(_USERS):
        engine.scan(*keys.timeline(user))
    for i in range(_RUN):
        engine.put(b"x|%08d" % i, _written(-1))
    return Executor(engine, 1, commands_max=1 << 20, reply_bytes_max=1 << 26, rows_max=1 << 20)


@HALVES.row("client: encode", "a check in a message of 256")
def encode(_: MicroScale) -> Samples:
    """Make a message of 256 checks and serialise it."""
    for number in count():
        columns = _columns("scan", number % _TURNS)
        begun = clock()
        encode_request(number, columns.kinds, columns.arguments, columns.numbers)
        yield _RUN, clock() - begun


@HALVES.row("client: decode", "a check in a reply to 256")
def decode(_: MicroScale) -> Samples:
    """Parse a reply of 256 checks and take it apart."""
    columns = _columns("scan", 0)
    (reply,) = _executor().execute(columns.message(0))
    data = reply.SerializeToString()
    while True:
        begun = clock()
        decode_whole(columns.kinds, data)
        yield _RUN, clock() - begun


def _serve(kind: _Kind, _: MicroScale, *, has_ids: bool = False) -> Samples:
    """Take messages of 256 commands, run them and make the replies, natively where the core is."""
    executor = _executor()
    for number in count():
        columns = _columns(kind, number % _TURNS)
        columns.batch_id = token_bytes(BATCH_ID_BYTES) if has_ids else b""
        data = columns.message(number).SerializeToString()
        begun = clock()
        quick = run_quick(executor, data)
        if quick is None:
            (reply,) = executor.execute(ExecuteRequest.FromString(data))
            reply.SerializeToString()
        else:
            assert quick.reply is not None, "nothing is behind the engine"
        yield _RUN, clock() - begun


HALVES.add("server: checks", "a check in a message of 256", _serve, "scan")
HALVES.add("server: gets", "a get in a message of 256", _serve, "get")
HALVES.add("server: puts", "a put in a message of 256", _serve, "put")
HALVES.add("server: conditional puts", "a put in a message of 256", _serve, "put, met")
HALVES.add("server: conditional puts, unmet", "a put in a message of 256", _serve, "put, unmet")
HALVES.add("server: adds", "an add in a message of 256", _serve, "add")
HALVES.add("server: adds with ids", "an add in a message of 256", partial(_serve, has_ids=True), "add")


def _levels(*, is_after: bool) -> Samples:
    """Take what the levels of freshness cost a message: one that asks for none, or for a token that is reached."""
    levels, asked = _executor().levels, b""
    if is_after and (found := level(After(Token.parse(levels.token)))) is not None:
        asked = found.SerializeToString()
    message = cast("NativeBatch", SimpleNamespace(freshness=asked))
    while True:
        begun = clock()
        for _time in range(RUN):
            assert levels.passes(message)
            levels.count(message)
            levels.tail()
        yield RUN, clock() - begun


HALVES.add("server: levels, none", "a message", lambda _: _levels(is_after=False))
HALVES.add("server: levels, after", "a message", lambda _: _levels(is_after=True))
