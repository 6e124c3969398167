"""Batches that the native core answers while the handler of their stream waits; the others are left to it."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import QuickBatch, run_quick

from pequod.commands.kinds import COUNT, GET, NAMES, PUT, REMOVE, SCAN
from pequod.engine import Engine
from pequod.native import NativeBatch, core
from pequod.native.http2 import (
    EventKind,
    HotLimits,
    NativeSession,
    new_hot_calls,
    new_session,
    why_absent,
)
from tests.native.runs import Ran, Turn
from tests.server.frames import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RESET, SETTINGS, frame, heads, message

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
TURN = Turn()
FIRST = b"the first message, which is Python's"


def batch(*commands: tuple[Any, ...], number: int = 1, **more: Any) -> pb.ExecuteRequest:
    arguments = [argument for _, *its in commands for argument in its]
    return pb.ExecuteRequest(batch=number, kinds=bytes(kind for kind, *_ in commands), arguments=arguments, **more)


READS = ((GET, b"x|1"), (GET, b"x|9"), (COUNT, b"x|", b"x}"), (SCAN, b"x|", b"x}"))
READ = batch(*READS)


class Streams:
    """A connection whose streams of batches have handlers that wait, on an engine of its own."""

    def __init__(self, *, has_guard: bool = False, slow_s: float = 1e9, streams: int = 1) -> None:
        assert why_absent() is None
        self.engine = Engine()
        for number, value in enumerate((b"one", b"two", b"three"), 1):
            self.engine.put(b"x|%d" % number, value)
        self.executor = Executor(self.engine, 7, commands_max=100, reply_bytes_max=1 << 20, rows_max=100)
        self.calls = new_hot_calls(self.engine, 7, HotLimits(100, 100, 1 << 20, 1 << 20), slow_s, self.executor.ids)
        self.session: NativeSession = new_session(1 << 20, 4000, 1000)
        self.session.use_hot(self.calls, has_guard)
        self.session.receive(PREFACE + frame(SETTINGS, 0, 0))
        self.ids = list(range(1, 2 * streams, 2))
        for stream in self.ids:
            self.open(stream)

    def open(self, stream: int) -> None:
        """Open a stream, answer its first message, and wait for the next one."""
        begun = frame(HEADERS, END_HEADERS, stream, heads("Execute", ("authorization", "t")))
        opened = self.session.receive(begun + frame(DATA, 0, stream, message(FIRST)))
        assert [event[:2] for event in opened if event] == [(EventKind.OPENED, stream)]
        assert self.session.take(stream) == FIRST
        self.session.send(stream, b"the first reply")
        assert self.session.take(stream) is None
        assert bodies(self.session.output(1 << 20)) == {stream: [b"the first reply"]}
        assert self.session.events() == []

    def sent(self, *requests: Any, flag: int = 0, ends: bool = False, stream: int = 1) -> list[Any]:
        """Send messages in one read; return the events."""
        data = b"".join(message(plain(request), flag=flag) for request in requests)
        parts = [data[at : at + 16_000] for at in range(0, len(data), 16_000)]
        frames = [frame(DATA, 0, stream, part) for part in parts[:-1]]
        return self.session.receive(b"".join(frames) + frame(DATA, END_STREAM if ends else 0, stream, parts[-1]))

    def run(self, most: int = 100, turn: Turn = TURN) -> Ran:
        """Run what waits."""
        return Ran._make(self.session.run_hot(most, 1 << 20, turn))

    def reads(self, most: int = 100, turn: Turn = TURN) -> int:
        """Run what waits; return how many batches ran."""
        before = self.calls.reads
        self.run(most, turn)
        return self.calls.reads - before

    def replies(self) -> dict[int, list[pb.ExecuteReply]]:
        """Return what goes to each stream."""
        found = bodies(self.session.output(1 << 20))
        return {stream: list(map(pb.ExecuteReply.FromString, its)) for stream, its in found.items()}

    def quick(self, request: pb.ExecuteRequest) -> pb.ExecuteReply:
        """Return the reply of the handler's way."""
        done = run_quick(self.executor, request.SerializeToString())
        assert done is not None
        assert done.reply is not None
        reply = pb.ExecuteReply.FromString(done.reply)
        reply.token, reply.age_ms = b"T" + bytes([self.engine.revision]), 0
        return reply

    def close(self) -> None:
        self.session.close()
        assert (self.session.unread_bytes, self.session.unsent_bytes, self.session.held_bytes) == (0, 0, 0)
        assert (self.session.stream_count, self.session.header_bytes) == (0, 0)
        self.engine._check()


def plain(request: Any) -> bytes:
    data: bytes = request if isinstance(request, bytes) else request.SerializeToString()
    return data


def bodies(out: bytes) -> dict[int, list[bytes]]:
    """Return the messages that each stream got."""
    whole: dict[int, bytes] = {}
    while out:
        size, kind, stream = int.from_bytes(out[:3], "big"), out[3], int.from_bytes(out[5:9], "big")
        if kind == DATA:
            whole[stream] = whole.get(stream, b"") + out[9 : 9 + size]
        out = out[9 + size :]
    found: dict[int, list[bytes]] = {}
    for stream, data in whole.items():
        found[stream] = []
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 1 : at + 5], "big")
            found[stream].append(data[at + 5 : at + 5 + size])
            at += 5 + size
    return found


@pytest.fixture
def hot() -> Iterator[Streams]:
    made = Streams()
    yield made
    made.close()


def test_a_batch_is_answered_as_its_handler_would_and_the_next_one_is_waited_for(hot: Streams) -> None:
    twin = Streams()
    for number in range(3):
        request = batch((PUT, b"x|%d" % (number + 3), b"new"), (REMOVE, b"x|2"), *READS, number=number)
        assert hot.sent(request) == []
        assert hot.session.hot_count == 1
        done = hot.run()
        assert (done.answered, done.streams, done.begun) == (0, [1], None)
        assert hot.replies() == {1: [twin.quick(request)]}
    tally, sizes, commands, kinds = hot.calls.batch_tallies()
    assert (tally[0], sum(tally[2]), sizes, commands) == (3, 3, [0, 0, 3, 0, 0, 0, 0, 0, 0], 18)
    assert {kind: count for kind, count in enumerate(kinds) if count} == dict.fromkeys(
        (PUT, REMOVE, COUNT, SCAN), 3
    ) | {GET: 6}
    assert len(kinds) > max(NAMES)


def test_many_messages_of_one_read_run_in_their_order_and_no_more_than_are_asked_for(hot: Streams) -> None:
    hot.sent(*(batch((GET, b"x|1"), number=number) for number in range(10)))
    assert hot.reads(4) == 4
    assert [reply.batch for reply in hot.replies()[1]] == [0, 1, 2, 3]
    assert hot.session.hot_count == 1
    assert hot.reads() == 6
    assert [reply.batch for reply in hot.replies()[1]] == [4, 5, 6, 7, 8, 9]
    assert hot.session.hot_count == 0


def test_messages_that_came_while_the_handler_was_busy_are_run_when_it_waits(hot: Streams) -> None:
    assert hot.sent(b"not for the core", batch((GET, b"x|1"), number=5)) == []
    assert hot.reads() == 0
    assert hot.session.events() == [(EventKind.READABLE, 1, None)]
    assert hot.session.take(1) == b"not for the core"
    hot.sent(batch((GET, b"x|1"), number=6))
    assert hot.session.take(1) is None
    assert hot.reads() == 2
    assert [reply.batch for reply in hot.replies()[1]] == [5, 6]


def test_the_end_of_the_requests_is_the_handlers_to_hear(hot: Streams) -> None:
    assert hot.sent(READ, ends=True) == []
    assert hot.reads() == 1
    assert hot.session.events() == [(EventKind.READABLE, 1, None)]
    assert hot.session.take(1) is False


LEFT: dict[str, tuple[Any, dict[str, Any], Turn]] = {
    "a damaged message": (b"\x1a\x7fx", {}, TURN),
    "a field that is not known": (READ.SerializeToString() + b"\x78\x01", {}, TURN),
    "columns that do not fit": (pb.ExecuteRequest(kinds=bytes([GET])), {}, TURN),
    "more commands than a batch may have": (batch(*[(GET, b"x|1")] * 101), {}, TURN),
    "a compressed message": (READ, {"flag": 1}, TURN),
    "a long message": (batch((PUT, b"x|1", bytes(17_000))), {}, TURN),
    "a level": (batch((GET, b"x|1"), freshness=pb.Freshness(latest=True)), {}, TURN),
    "levels of commands": (
        batch((GET, b"x|1"), fresh_commands=[0], fresh_levels=[pb.Freshness(latest=True)]),
        {},
        TURN,
    ),
    "stale data": (READ, {}, TURN._replace(may_read=False)),
    "a long token": (READ, {}, TURN._replace(token=bytes(300))),
    "no room": (READ, {}, TURN._replace(room=0)),
    "a write of another server's key": (
        batch((GET, b"x|1"), (PUT, b"x|2", b"n")),
        {},
        TURN._replace(homes=([b"x|1"], [b"x|2"])),
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_plain_is_left_to_the_handler_and_nothing_has_happened(hot: Streams, name: str) -> None:
    request, options, turn = LEFT[name]
    revision, data = hot.engine.revision, plain(request)
    hot.sent(request, **options)
    assert hot.reads(turn=turn) == 0
    assert hot.session.events() == [(EventKind.READABLE, 1, None)]
    assert hot.session.take(1) == ((data,) if options.get("flag") else data)
    assert hot.engine.revision == revision
    assert hot.replies() == {}
    assert hot.session.take(1) is None
    hot.sent(READ)
    assert hot.reads() == 1


def test_reads_of_keys_that_others_write_are_hot(hot: Streams) -> None:
    hot.sent(READ)
    assert hot.reads(turn=TURN._replace(homes=([], []))) == 1


def test_what_the_caller_may_do_is_asked_for_each_batch() -> None:
    hot = Streams(has_guard=True)
    may: tuple[list[bytes], list[bytes | None]] = ([b"x|1"], [b"x|2"])
    wanted = [batch((GET, b"x|1")), batch((GET, b"x|2")), batch((PUT, b"x|1", b"n")), batch((COUNT, b"x|1", b"x|3"))]
    hot.sent(wanted[0])
    assert hot.session.stranger() == b"t"
    hot.session.admit(b"t", may, ([], []))
    assert hot.session.stranger() is None
    assert hot.reads() == 1
    for request in wanted[1:]:
        hot.sent(request)
        assert hot.reads() == 0
        assert hot.session.take(1) == request.SerializeToString()
        assert hot.session.take(1) is None
    hot.session.forget_rights()
    hot.sent(wanted[0])
    assert hot.reads() == 0
    hot.close()


def test_a_batch_that_stops_at_a_command_is_handed_over_with_what_has_run(hot: Streams) -> None:
    request = batch((PUT, b"x|1", b"new"), (PUT, b"loose", b"1"), (GET, b"x|1"), (GET, b"loose"))
    other = batch((GET, b"x|2"), number=2)
    hot.sent(request, other)
    done = hot.run()
    assert done.begun is not None
    stream, begun = done.begun
    assert (stream, done.streams, hot.session.hot_count, hot.session.events()) == (1, None, 0, [])
    assert isinstance(begun, NativeBatch)
    assert (begun.index, begun.message, begun.kinds) == (1, request.SerializeToString(), request.kinds)
    assert hot.engine.get(b"x|1", now=0.0) == b"new"
    assert hot.engine.get(b"loose", now=0.0) is None
    # What comes meanwhile takes the place of the message; others run in a batch of their own.
    hot.sent(*[other] * 300)
    hot.open(3)
    hot.sent(READ, stream=3)
    assert hot.reads() == 1
    quick = QuickBatch(hot.executor, begun, ())
    assert quick.reply is not None
    assert list(pb.ExecuteReply.FromString(quick.reply).values) == [b"new", b"1"]
    # Its handler waits for the next messages, which are there.
    assert hot.session.take(1) is None
    assert hot.reads(1000) == 301


def test_a_long_reply_is_handed_over_when_all_has_run(hot: Streams) -> None:
    hot.engine.put(b"z|1", bytes(10_000))
    hot.sent(batch((GET, b"z|1"), (GET, b"z|1")))
    done = hot.run()
    assert done.begun is not None
    quick = QuickBatch(hot.executor, done.begun[1], ())
    assert quick.reply is not None
    assert len(quick.reply) > quick.reply_bytes > 20_000
    assert hot.replies() == {}
    assert hot.session.take(1) is None
    hot.sent(batch((GET, b"z|1")))
    assert hot.run().begun is None


def test_nothing_is_written_behind_what_the_client_does_not_let_in(hot: Streams) -> None:
    hot.engine.put(b"z|1", bytes(15_000))
    request = batch((GET, b"z|1"))
    count = 0
    while hot.sent(request) == [] and hot.reads():
        count += 1
        # The window of the client's stream takes 64 KiB.
        hot.session.output(1 << 20)
    assert 65_535 + 64 * 1024 < count * 15_000 < 65_535 + 64 * 1024 + 2 * 15_100
    assert hot.session.take(1) == request.SerializeToString()


def test_a_reply_of_the_handler_that_has_not_gone_goes_first(hot: Streams) -> None:
    hot.session.send(1, b"of the handler")
    hot.sent(READ)
    assert hot.reads() == 0
    assert hot.session.take(1) == READ.SerializeToString()
    hot.session.send(1, b"the next")
    assert bodies(hot.session.output(1 << 20)) == {1: [b"of the handler", b"the next"]}


def test_a_slow_batch_is_told() -> None:
    hot = Streams(slow_s=0.0)
    hot.sent(READ)
    hot.sent(pb.ExecuteRequest())
    done = hot.run()
    assert done.slow_batches is not None
    assert [told[1:] for told in done.slow_batches] == [(READ.kinds, b"x|1", 3), (b"", None, 0)]
    hot.close()


def test_a_stream_that_ends_before_its_batch_runs_does_nothing(hot: Streams) -> None:
    hot.sent(batch((PUT, b"x|1", b"new")))
    hot.session.finish(1, [(b"grpc-status", b"14")], None)
    assert hot.reads() == 0
    hot.session.output(1 << 20)
    hot.session.events()
    hot.open(3)
    hot.sent(batch((PUT, b"x|1", b"new")), stream=3)
    hot.session.receive(frame(RESET, 0, 3, bytes(4)))
    assert hot.reads() == 0
    assert hot.engine.get(b"x|1", now=0.0) == b"one"


def _answered_by_handlers(hot: Streams, events: list[Any]) -> None:
    """Answer what is left to handlers, and wait for the next messages."""
    for event in events:
        if event is None or event[0] != EventKind.READABLE:
            continue
        while isinstance(data := hot.session.take(event[1]), bytes):
            number = pb.ExecuteRequest.FromString(data).batch
            hot.session.send(event[1], pb.ExecuteReply(batch=number).SerializeToString())


@pytest.mark.parametrize("seed", range(20))
def test_batches_in_any_cut_are_answered_once_and_in_order(seed: int) -> None:
    rnd, hot = random.Random(seed), Streams(streams=3, has_guard=seed % 2 == 1)
    hot.session.admit(b"t", None, None)
    numbers, sent = dict.fromkeys(hot.ids, 0), b""
    choices = [READ, batch((PUT, b"x|5", b"5")), batch((GET, b"x|1"), freshness=pb.Freshness(latest=True))]
    for _ in range(100):
        stream = rnd.choice(hot.ids)
        numbers[stream] += 1
        request = pb.ExecuteRequest()
        request.CopyFrom(rnd.choice(choices))
        request.batch = numbers[stream]
        sent += frame(DATA, 0, stream, message(request.SerializeToString()))
    found = dict[int, list[int]]()
    while sent or hot.session.hot_count:
        cut = rnd.randrange(1, 2000)
        events, sent = list(hot.session.receive(sent[:cut])), sent[cut:]
        hot.run(rnd.randrange(10))
        if rnd.random() < 0.1:
            hot.session.hand_over()
        _answered_by_handlers(hot, [*events, *hot.session.events()])
        for stream, replies in hot.replies().items():
            found[stream] = found.get(stream, []) + [reply.batch for reply in replies]
    assert found == {stream: list(range(1, count + 1)) for stream, count in numbers.items()}
    hot.close()
