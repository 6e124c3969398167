"""Calls that the native core answers from the bytes of a read: which are hot; the others are opened untouched."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.once.memory import RequestIds

from pequod import native
from pequod.engine import UNLIMITED, Engine
from pequod.native import core
from pequod.native.http2 import (
    HOT_BYTES_MAX,
    HOT_METHODS,
    HotLimits,
    NativeSession,
    new_hot_calls,
    new_session,
    why_absent,
)
from tests.native.runs import Ran, Turn
from tests.server.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RESET,
    SETTINGS,
    bodies_in,
    call,
    frame,
    heads,
    message,
)

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
TURN = Turn()
HEADER = {"server_id": 7, "age_ms": 0}


class Hot:
    """A connection with hot calls on an engine of its own."""

    def __init__(self, *, has_guard: bool = False, slow_s: float = 1e9, rows_max: int = 100) -> None:
        assert why_absent() is None
        self.engine = Engine()
        self.engine.put(b"x|1", b"one")
        self.engine.put(b"x|2", b"two")
        self.engine.put(b"x|3", b"three")
        self.ids = RequestIds()
        self.calls = new_hot_calls(self.engine, 7, HotLimits(rows_max, 100, 1 << 20, 1 << 20), slow_s, self.ids)
        self.session: NativeSession = new_session(1 << 20, 4000, 1000)
        self.session.use_hot(self.calls, has_guard)
        self.session.receive(PREFACE + frame(SETTINGS, 0, 0))
        self.session.output(1 << 20)
        self.slow: Any = None
        self.stream = -1

    def ask(self, method: str, request: Any, *more: tuple[str, str], flag: int = 0, turn: Turn = TURN) -> bytes | None:
        """Make one call; return its reply, None if it was opened."""
        self.stream += 2
        data = request if isinstance(request, bytes) else request.SerializeToString()
        revision = self.engine.revision
        opened = self.session.receive(call(self.stream, heads(method, *more), message(data, flag=flag)))
        if self.session.hot_count:
            done = Ran._make(self.session.run_hot(100, 1 << 20, turn))
            self.slow = done.slow
            opened = self.session.events()
            assert done.answered + len(opened) == 1
        if opened:
            ((kind, stream, fields),) = [event for event in opened if event is not None]
            assert (kind, stream) == (0, self.stream)
            assert (b":path", b"/pequod.v1.Pequod/" + method.encode()) in fields  # type: ignore[operator]
            assert self.session.take(stream) == ((data,) if flag else data)
            assert self.engine.revision == revision, "nothing has happened"
            self.session.finish(stream, None, b"")
            self.session.output(1 << 20)
            self.session.events()
            return None
        out = self.session.output(1 << 20)
        assert self.session.events() == []
        return bodies_in(out)[self.stream][5:]

    def close(self) -> None:
        self.session.close()
        assert (self.session.unread_bytes, self.session.unsent_bytes, self.session.held_bytes) == (0, 0, 0)
        assert (self.session.stream_count, self.session.header_bytes) == (0, 0)
        self.engine._check()


@pytest.fixture
def hot() -> Any:
    made = Hot()
    yield made
    made.close()


def header(hot: Hot) -> pb.Header:
    revision = hot.engine.revision
    return pb.Header(revision=revision, token=b"T" + bytes([revision]), **HEADER)


def test_replies_are_those_of_handlers(hot: Hot) -> None:
    at = header(hot)
    scan = pb.ScanRequest(first=b"x|", last=b"x}", limit=2)
    asked: list[tuple[str, Any, Any]] = [
        ("Get", pb.GetRequest(key=b"x|1"), pb.GetReply(header=at, value=b"one")),
        ("Get", pb.GetRequest(key=b"x|9"), pb.GetReply(header=at)),
        ("Count", pb.CountRequest(first=b"x|", last=b"x}"), pb.CountReply(header=at, count=3)),
        ("Count", pb.CountRequest(first=b"x|7", last=b"x}"), pb.CountReply(header=at)),
        (
            "MultiGet",
            pb.MultiGetRequest(keys=[b"x|2", b"x|9"]),
            pb.MultiGetReply(header=at, values=[b"two", b""], present=[True, False]),
        ),
        ("Scan", scan, pb.ScanReply(header=at, keys=[b"x|1", b"x|2"], values=[b"one", b"two"], resume_key=b"x|2\0")),
        (
            "Scan",
            pb.ScanRequest(first=b"x|", last=b"x}", limit=2, reverse=True, keys_only=True),
            pb.ScanReply(header=at, keys=[b"x|3", b"x|2"], resume_key=b"x|2"),
        ),
        ("Scan", pb.ScanRequest(first=b"x|9", last=b"x}"), pb.ScanReply(header=at)),
    ]
    for method, request, reply in asked:
        found = hot.ask(method, request)
        assert found is not None, method
        assert type(reply).FromString(found) == reply
    counts = {name: tally[0] for name, tally in zip(HOT_METHODS, hot.calls.tallies(), strict=True)}
    assert counts == {
        "": 0,
        "Get": 2,
        "Put": 0,
        "Remove": 0,
        "Count": 2,
        "Scan": 3,
        "MultiGet": 1,
        "MultiPut": 0,
        "WriteIf": 0,
        "Add": 0,
        "Expire": 0,
        "Ttl": 0,
    }
    assert sum(hot.calls.tallies()[1][2]) == 2
    assert all((seconds > 0) is (count > 0) for count, seconds, _ in hot.calls.tallies())
    unknown = hot.ask("Get", pb.GetRequest(key=b"x|1"), turn=Turn(age_ms=None))
    assert unknown is not None
    assert not pb.GetReply.FromString(unknown).header.HasField("age_ms"), "nobody knows it"


def test_writes_are_done_and_named_by_their_revision(hot: Hot) -> None:
    found = hot.ask("Put", pb.PutRequest(key=b"x|4", value=b"new"))
    assert found is not None
    assert pb.PutReply.FromString(found) == pb.PutReply(header=header(hot))
    assert hot.engine.get(b"x|4", now=0.0) == b"new"
    for removed in (True, False):
        found = hot.ask("Remove", pb.RemoveRequest(key=b"x|4"))
        assert found is not None
        assert pb.RemoveReply.FromString(found) == pb.RemoveReply(header=header(hot), removed=removed)


def test_many_puts_are_done_at_one_moment_or_not_at_all(hot: Hot) -> None:
    keys, values = [b"x|4", b"x|5", b"x|4"], [b"4", b"", b"last"]
    found = hot.ask("MultiPut", pb.MultiPutRequest(keys=keys, values=values))
    assert found is not None
    assert pb.MultiPutReply.FromString(found) == pb.MultiPutReply(header=header(hot))
    assert [hot.engine.get(key, now=0.0) for key in keys[:2]] == [b"last", b""]
    assert hot.ask("MultiPut", pb.MultiPutRequest()) is not None
    # The last key has no table; `ask` sees that nothing was written before it.
    assert hot.ask("MultiPut", pb.MultiPutRequest(keys=[b"x|6", b"loose"], values=[b"6", b"7"])) is None
    assert hot.engine.get(b"x|6", now=0.0) is None


def test_many_puts_wait_for_the_ledger_to_be_weighed_before_the_first_of_them(hot: Hot) -> None:
    request = pb.MultiPutRequest(keys=[b"x|4", b"x|5"], values=[b"4", b"5"])
    hot.engine.ledger.weigh_at = hot.engine.revision + 1
    assert hot.ask("MultiPut", request) is None
    hot.engine.ledger.weigh_at += 1
    assert hot.ask("MultiPut", request) is not None
    assert hot.ask("Put", pb.PutRequest(key=b"x|6", value=b"6")) is None
    hot.engine.ledger.weigh_at = UNLIMITED


GET = pb.GetRequest(key=b"x|1")
CONDITION = pb.WriteIfRequest(key=b"x|1", value=b"n", condition=3, expected=b"other")
NOT_HOT: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "another method": ("Stats", b"", {}),
    "a compressed request": ("Get", GET, {"flag": 1}),
    "a level": ("Get", pb.GetRequest(key=b"x|1", freshness=pb.Freshness(latest=True)), {}),
    "stale data": ("Get", GET, {"turn": TURN._replace(may_read=False)}),
    "a field that is not known": ("Get", GET.SerializeToString() + b"\x78\x01", {}),
    "a damaged message": ("Get", b"\x0a\x7fx", {}),
    "a key that stands twice": ("Get", GET.SerializeToString() * 2, {}),
    "no key": ("Get", b"", {}),
    "a prefix": ("Count", pb.CountRequest(first=b"x|", last=b"x}", prefix=b"x|"), {}),
    "an open range": ("Scan", pb.ScanRequest(first=b"x|"), {}),
    "an empty range": ("Scan", pb.ScanRequest(first=b"x|", last=b""), {}),
    "several chunks": ("Scan", pb.ScanRequest(first=b"x|", last=b"x}", chunk_bytes=20), {}),
    "no row": ("Scan", pb.ScanRequest(first=b"x|", last=b"x}", limit=0), {}),
    "a key of another server": ("Put", pb.PutRequest(key=b"x|1", value=b"n"), {"turn": TURN._replace(homes=([], []))}),
    "no condition": ("WriteIf", pb.WriteIfRequest(key=b"x|1", value=b"n"), {}),
    "a condition that is none": ("WriteIf", pb.WriteIfRequest(key=b"x|1", value=b"n", condition=9), {}),
    "more than a condition takes": ("WriteIf", pb.WriteIfRequest(key=b"x|1", condition=2, expected=b"one"), {}),
    "a field of a condition that is not known": ("WriteIf", CONDITION.SerializeToString() + b"\x7a\x01x", {}),
    "an expected value that stands twice": ("WriteIf", CONDITION.SerializeToString() + b"\x22\x01x", {}),
    "a sum of what is no number": ("Add", pb.AddRequest(key=b"x|1", delta=b"1"), {}),
    "a number that is no integer": ("Add", pb.AddRequest(key=b"x|n", delta=b"0.5"), {}),
    "a sum of another server": ("Add", pb.AddRequest(key=b"x|n", delta=b"1"), {"turn": TURN._replace(homes=([], []))}),
    "fewer values than keys": ("MultiPut", pb.MultiPutRequest(keys=[b"x|1"]), {}),
    "more values than keys": ("MultiPut", pb.MultiPutRequest(keys=[b"x|1"], values=[b"n", b"m"]), {}),
    "more keys than a call may have": ("MultiPut", pb.MultiPutRequest(keys=[b"x|1"] * 101, values=[b"n"] * 101), {}),
    "one key of many that is another server's": (
        "MultiPut",
        pb.MultiPutRequest(keys=[b"x|1", b"x|2"], values=[b"n", b"m"]),
        {"turn": TURN._replace(homes=([b"x|1"], [b"x|2"]))},
    ),
    "a key of no table": ("Put", pb.PutRequest(key=b"loose", value=b"n"), {}),
}


@pytest.mark.parametrize("name", NOT_HOT)
def test_what_is_not_plain_is_opened_and_nothing_has_happened(hot: Hot, name: str) -> None:
    method, request, options = NOT_HOT[name]
    assert hot.ask(method, request, **options) is None


@pytest.mark.parametrize(
    "field", [("grpc-timeout", "0n"), ("x-some-bin", "AA"), ("authorization", ""), ("content-type", "application/json")]
)
def test_headers_that_python_looks_at_are_not_hot(hot: Hot, field: tuple[str, str]) -> None:
    assert hot.ask("Get", GET, field) is None


def test_metadata_and_deadlines_leave_a_call_hot(hot: Hot) -> None:
    assert hot.ask("Get", GET, ("grpc-timeout", "20S"), ("x-request-id", "r"), ("user-agent", "a")) is not None


def test_rights_are_asked_for_once_and_kept_until_the_rules_change() -> None:
    hot = Hot(has_guard=True)
    token = ("authorization", "Bearer t")
    may: tuple[list[bytes], list[bytes | None]] = ([b"x|1"], [b"x|2"])
    assert hot.ask("Get", GET, token) is None
    hot.session.admit(b"Bearer t", may, ([], []))
    assert hot.ask("Get", GET, token) is not None
    assert hot.ask("Get", GET, ("authorization", "Bearer u")) is None
    assert hot.ask("Get", GET) is None
    assert hot.ask("Get", pb.GetRequest(key=b"x|2"), token) is None
    assert hot.ask("MultiGet", pb.MultiGetRequest(keys=[b"x|1", b"x|2"]), token) is None
    assert hot.ask("Count", pb.CountRequest(first=b"x|1", last=b"x|3"), token) is None
    assert hot.ask("Count", pb.CountRequest(first=b"x|1", last=b"x|2"), token) is not None
    assert hot.ask("Put", pb.PutRequest(key=b"x|1", value=b"n"), token) is None
    assert hot.ask("MultiPut", pb.MultiPutRequest(keys=[b"x|1"], values=[b"n"]), token) is None
    hot.session.forget_rights()
    assert hot.ask("Get", GET, token) is None
    hot.close()


def test_a_stranger_is_named_by_its_header() -> None:
    hot = Hot(has_guard=True)
    hot.session.receive(call(1, heads("Get", ("authorization", "Bearer t")), message(GET.SerializeToString())))
    assert hot.session.stranger() == b"Bearer t"
    hot.session.admit(b"Bearer t", None, None)
    assert hot.session.stranger() is None
    assert hot.session.run_hot(1, 1 << 20, TURN)[0] == 1
    assert (hot.calls.answered, hot.calls.reads, hot.session.hot_answered) == (1, 1, 1)
    hot.close()


def test_a_call_that_has_not_come_by_the_end_of_the_read_is_opened(hot: Hot) -> None:
    data = message(GET.SerializeToString())
    begun = frame(HEADERS, END_HEADERS, 1, heads("Get")) + frame(DATA, 0, 1, data[:4])
    assert [event[:2] for event in hot.session.receive(begun) if event] == [(0, 1)]
    assert hot.session.hot_count == 0
    hot.session.receive(frame(DATA, END_STREAM, 1, data[4:]))
    assert hot.session.take(1) == GET.SerializeToString()


def test_a_long_request_is_opened(hot: Hot) -> None:
    request = pb.PutRequest(key=b"x|1", value=bytes(17_000)).SerializeToString()
    data = message(request)
    sent = frame(HEADERS, END_HEADERS, 1, heads("Put")) + frame(DATA, 0, 1, data[:16_000])
    opened = hot.session.receive(sent + frame(DATA, END_STREAM, 1, data[16_000:]))
    assert len(opened) == 1
    assert hot.session.hot_count == 0
    assert hot.session.take(1) == request


def _of_one_read(count: int, then: Callable[[int], bytes] = lambda _: b"") -> bytes:
    data = message(GET.SerializeToString())
    return b"".join(call(stream, heads("Get"), data) + then(stream) for stream in range(1, 2 * count, 2))


def test_a_run_is_bounded_by_calls_and_by_bytes_that_wait(hot: Hot) -> None:
    assert hot.session.receive(_of_one_read(10)) == []
    assert hot.session.run_hot(4, 1 << 20, TURN)[0] == 4
    assert hot.session.hot_count == 6
    assert hot.session.run_hot(4, 1, TURN)[0] == 0
    hot.session.hand_over()
    assert len(hot.session.events()) == 6
    assert len(bodies_in(hot.session.output(1 << 20))) == 4


def test_a_call_that_is_reset_before_it_runs_has_never_been(hot: Hot) -> None:
    assert hot.session.receive(_of_one_read(3, lambda stream: frame(RESET, 0, stream, bytes(4)))) == []
    assert hot.session.run_hot(10, 1 << 20, TURN)[0] == 0
    assert hot.session.stream_count == 0


def test_a_slow_call_is_told_with_its_headers_and_its_request() -> None:
    hot = Hot(slow_s=0.0)
    assert hot.ask("Get", GET, ("x-request-id", "r")) is not None
    ((method, seconds, fields, request),) = hot.slow
    assert (HOT_METHODS[method], request) == ("Get", GET.SerializeToString())
    assert seconds >= 0
    assert (b"x-request-id", b"r") in fields
    hot.close()


@pytest.mark.parametrize("seed", range(20))
def test_calls_in_any_cut_are_answered_once(seed: int) -> None:
    rnd, hot = random.Random(seed), Hot(has_guard=seed % 2 == 1)
    requests: list[tuple[str, Any]] = [("Get", GET), ("MultiGet", pb.MultiGetRequest(keys=[b"x|1"]))]
    requests.append(("Put", pb.PutRequest(key=b"x|5", value=b"5")))
    wanted, reset, sent = set(range(1, 200, 2)), set[int](), b""
    for stream in sorted(wanted):
        method, request = rnd.choice(requests)
        sent += call(stream, heads(method, ("authorization", rnd.choice("ab"))), message(request.SerializeToString()))
        if rnd.random() < 0.1:
            sent += frame(RESET, 0, stream, bytes(4))
            reset.add(stream)
    hot.session.admit(b"a", None, ([], []))
    answered: set[int] = set()
    while sent or hot.session.hot_count:
        cut = rnd.randrange(1, 3000)
        events, sent = list(hot.session.receive(sent[:cut])), sent[cut:]
        hot.session.run_hot(rnd.randrange(10), 1 << 20, TURN)
        if rnd.random() < 0.1:
            hot.session.hand_over()
        for event in (*events, *hot.session.events()):
            if event is not None and event[0] == 0:
                hot.session.take(event[1])
                hot.session.finish(event[1], None, b"python")
        bodies = bodies_in(hot.session.output(1 << 20))
        assert not answered & bodies.keys(), "a call is answered once"
        answered |= bodies.keys()
    assert wanted - reset <= answered <= wanted
    hot.close()


def test_the_longest_hot_message_has_one_length_here_and_in_the_core() -> None:
    header = Path(native.__file__).with_name("http2") / "hot_calls.hpp"
    found = re.search(r"HOT_BYTES_MAX = (\d+) << (\d+);", header.read_text("utf-8"))
    assert found is not None
    assert int(found[1]) << int(found[2]) == HOT_BYTES_MAX
