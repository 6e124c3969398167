"""Calls about keys that expire, hot and in batches: what the engine's own calls make of them, or nothing."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod.commands import kinds
from pequod.commands.kinds import ABSENT, EXPIRE, PUT, PUT_IF, PUT_TTL, REMOVE, REMOVE_IF, TTL
from pequod.engine import Engine
from pequod.engine.answer import Answer, answer
from pequod.language.conditions import MET, Unmet
from pequod.language.deadlines import KEEP, TTL_MS_MAX, remaining_s
from pequod.native import core, parse_batch
from tests.native.test_hot_calls import Hot

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
KEYS = [b"x|%d" % number for number in range(6)]
TTLS = (0, 1, 7, 40, TTL_MS_MAX, KEEP)
IF_ABSENT, IF_PRESENT, IF_VALUE = 1, 2, 3


@pytest.fixture
def hot() -> Iterator[Hot]:
    made = Hot()
    yield made
    made.close()


class Twin:
    """An engine whose calls are Python's, and a native one that should be as it is."""

    def __init__(self, engine: Engine) -> None:
        self.native, self.plain = engine, Engine()
        for key in (b"x|1", b"x|2", b"x|3"):
            value = engine.get(key)
            assert isinstance(value, bytes)
            self.plain.put(key, value)
        self.effects: list[dict[bytes, bytes | None]] = [{}, {}]
        for one, effects in zip(self.both, self.effects, strict=True):
            one.record(effects)

    @property
    def both(self) -> tuple[Engine, Engine]:
        return self.native, self.plain

    def tell(self, now_ms: int, keys_max: int) -> None:
        for one in self.both:
            one.expire_due(now_ms, keys_max)

    def check(self) -> None:
        shown = [
            ([one.get(key) for key in KEYS], sorted(one.deadlines.among(KEYS)), one.revision, len(one.deadlines))
            for one in self.both
        ]
        assert shown[0] == shown[1]
        assert self.effects[0] == self.effects[1]
        self.native._check()


#: A kind, its arguments and its numbers, as a batch has them.
Asked = tuple[int, list[bytes], list[int]]


def asked_of(rng: random.Random) -> Asked:
    kind = rng.choice([PUT, PUT_TTL, PUT_TTL, REMOVE, PUT_IF, PUT_IF, REMOVE_IF, EXPIRE, EXPIRE, TTL])
    key, value, ttl_ms = rng.choice(KEYS), rng.choice([b"", b"1", b"2"]), rng.choice(TTLS)
    number = rng.choice([IF_ABSENT, IF_PRESENT, IF_VALUE])
    expected = rng.choice([b"1", b"2"]) if number == IF_VALUE else b""
    arguments = {PUT_IF: [key, value, expected], REMOVE_IF: [key, expected], PUT: [key, value], PUT_TTL: [key, value]}
    time = rng.choice(TTLS[:-1]) if kind == EXPIRE else ttl_ms
    numbers = {PUT_IF: [number, ttl_ms], REMOVE_IF: [number], PUT_TTL: [ttl_ms], EXPIRE: [time]}
    return kind, arguments.get(kind, [key]), numbers.get(kind, [])


def answer_of(engine: Engine, kind: int, arguments: list[bytes], numbers: list[int]) -> Answer:
    first, second, third = [*arguments, b"", b""][:3]
    number, ttl_ms = [*numbers, 0, 0][:2]
    return answer(engine, kind, first, second, number, 0.0, third, ttl_ms)


def time_of(ttl_ms: int) -> dict[str, Any]:
    return {"keep_ttl": True} if ttl_ms == KEEP else {"ttl_ms": ttl_ms}


def put_request(key: bytes, value: bytes, ttl_ms: int) -> pb.PutRequest:
    return pb.PutRequest(key=key, value=value, **time_of(ttl_ms))


def call_of(kind: int, arguments: list[bytes], numbers: list[int]) -> tuple[str, Any]:
    """Return a command as a call by itself."""
    key = arguments[0]
    match kind:
        case kinds.TTL:
            return "Ttl", pb.TtlRequest(key=key)
        case kinds.EXPIRE:
            return "Expire", pb.ExpireRequest(key=key, ttl_ms=numbers[0])
        case kinds.REMOVE:
            return "Remove", pb.RemoveRequest(key=key)
        case kinds.REMOVE_IF:
            return "WriteIf", pb.WriteIfRequest(key=key, condition=numbers[0], expected=arguments[1])
        case kinds.PUT_IF:
            value, expected = arguments[1:]
            time = time_of(numbers[1])
            return "WriteIf", pb.WriteIfRequest(key=key, value=value, condition=numbers[0], expected=expected, **time)
    return "Put", put_request(key, arguments[1], numbers[0] if numbers else 0)


def given(method: str, reply: bytes) -> Answer:
    """Return what a reply says, as the engine's own call returns it."""
    match method:
        case "Ttl":
            ttl = pb.TtlReply.FromString(reply)
            return remaining_s(ttl.remaining_ms) if ttl.HasField("remaining_ms") else None
        case "Expire":
            return pb.ExpireReply.FromString(reply).was_there
        case "Remove":
            return pb.RemoveReply.FromString(reply).removed
        case "WriteIf":
            done = pb.WriteIfReply.FromString(reply)
            return MET if done.met else Unmet(done.present if done.HasField("present") else None)
    return None


@pytest.mark.parametrize("seed", range(4))
def test_hot_calls_leave_what_the_engine_s_own_leave(hot: Hot, seed: int) -> None:
    rng, twin, now_ms = random.Random(seed), Twin(hot.engine), 1000
    answered = set[int]()
    for _ in range(400):
        if rng.random() < 0.2:
            now_ms += rng.randrange(12)
            twin.tell(now_ms, rng.choice([1, 100]))
        asked = asked_of(rng)
        wanted, (method, request) = answer_of(twin.plain, *asked), call_of(*asked)
        if (reply := hot.ask(method, request)) is None:
            assert answer_of(twin.native, *asked) == wanted
        else:
            assert given(method, reply) == wanted
            answered.add(asked[0])
        twin.check()
    assert answered == {PUT, PUT_TTL, REMOVE, PUT_IF, REMOVE_IF, EXPIRE, TTL}


@pytest.mark.parametrize("seed", range(4))
def test_hot_puts_of_many_keys_leave_what_the_engine_s_own_leave(hot: Hot, seed: int) -> None:
    rng, twin, now_ms, answered = random.Random(seed), Twin(hot.engine), 1000, 0
    for _ in range(200):
        now_ms += rng.randrange(12)
        twin.tell(now_ms, 100)
        count = rng.randrange(1, 6)
        keys, values = rng.choices(KEYS, k=count), rng.choices([b"", b"1", b"2"], k=count)
        ttl_ms = rng.choice(TTLS)
        twin.plain.put_all(keys, values, ttl_ms)
        answered += hot.ask("MultiPut", pb.MultiPutRequest(keys=keys, values=values, **time_of(ttl_ms))) is not None
        twin.check()
    assert answered == 200, "each call is quick"


@pytest.mark.parametrize("seed", range(4))
def test_batches_leave_what_the_engine_s_own_calls_leave(hot: Hot, seed: int) -> None:
    rng, twin, now_ms = random.Random(seed), Twin(hot.engine), 1000
    whole = 0
    for _ in range(100):
        now_ms += rng.randrange(12)
        twin.tell(now_ms, 100)
        some = [asked_of(rng) for _ in range(rng.randrange(1, 8))]
        message = pb.ExecuteRequest(
            batch=1,
            kinds=bytes(kind for kind, _, _ in some),
            arguments=[argument for _, arguments, _ in some for argument in arguments],
            numbers=[number for _, _, numbers in some for number in numbers],
        )
        batch = parse_batch(message.SerializeToString(), 100, 100, 1 << 20)
        assert batch is not None
        whole += not twin.native.run_quick(batch, 0.0)
        wanted = [answer_of(twin.plain, *asked) for asked in some]
        reply = pb.ExecuteReply.FromString(batch.reply(0, 0))
        left = [remaining_s(count) for count in reply.counts]
        assert left == [answer for answer in wanted if isinstance(answer, float)]
        refused = [answer in (None, False) or (isinstance(answer, Unmet) and answer.value is None) for answer in wanted]
        absent = [
            no and kind in (TTL, REMOVE, EXPIRE, PUT_IF, REMOVE_IF)
            for no, (kind, _, _) in zip(refused, some, strict=True)
        ]
        assert [status == ABSENT for status in reply.statuses or bytes(len(some))] == absent
        twin.check()
    assert whole == 100, "each command is quick"


_LONG = TTL_MS_MAX + 1
REFUSED: dict[str, tuple[str, Any]] = {
    "a time beyond a hundred years": ("Put", put_request(b"x|1", b"n", _LONG)),
    "a time that is kept and set": ("Put", pb.PutRequest(key=b"x|1", value=b"n", ttl_ms=5, keep_ttl=True)),
    "a time that stands twice": ("Put", put_request(b"x|1", b"n", 5).SerializeToString() + b"\x18\x05"),
    "many keys beyond it": ("MultiPut", pb.MultiPutRequest(keys=[b"x|1"], values=[b"n"], ttl_ms=_LONG)),
    "many keys with both": ("MultiPut", pb.MultiPutRequest(keys=[b"x|1"], values=[b"n"], ttl_ms=5, keep_ttl=True)),
    "a deadline beyond it": ("Expire", pb.ExpireRequest(key=b"x|1", ttl_ms=_LONG)),
    "a deadline that is kept": ("Expire", pb.ExpireRequest(key=b"x|1", ttl_ms=KEEP)),
    "a condition, beyond it": ("WriteIf", pb.WriteIfRequest(key=b"x|1", value=b"", condition=IF_ABSENT, ttl_ms=_LONG)),
    "a condition with both": ("WriteIf", pb.WriteIfRequest(key=b"x|1", condition=2, ttl_ms=5, keep_ttl=True)),
    "a level of freshness": ("Ttl", pb.TtlRequest(key=b"x|1", freshness=pb.Freshness(max_age_ms=5))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_times_that_are_python_s_to_look_at_are_opened(hot: Hot, name: str) -> None:
    assert hot.ask(*REFUSED[name]) is None
    assert not hot.engine.deadlines


def test_a_time_is_not_kept_natively_while_a_key_is_due(hot: Hot) -> None:
    hot.engine.put_for(b"x|1", b"one", 5)
    hot.engine.deadlines.tell(10)
    asked = (
        ("Put", put_request(b"x|1", b"n", KEEP)),
        ("MultiPut", pb.MultiPutRequest(keys=[b"x|1"], values=[b"n"], keep_ttl=True)),
        ("WriteIf", pb.WriteIfRequest(key=b"x|1", value=b"n", condition=IF_PRESENT, ttl_ms=5)),
        ("Expire", pb.ExpireRequest(key=b"x|1", ttl_ms=5)),
        ("Ttl", pb.TtlRequest(key=b"x|1")),
    )
    for method, request in asked:
        assert hot.ask(method, request) is None, method
    assert hot.ask("Put", put_request(b"x|1", b"n", 7)) is not None
    assert hot.engine.deadline_of(b"x|1") == 17


def test_deadlines_take_the_rights_of_a_write_and_of_a_read() -> None:
    hot = Hot(has_guard=True)
    ask, expire = ("Ttl", pb.TtlRequest(key=b"x|1")), ("Expire", pb.ExpireRequest(key=b"x|1", ttl_ms=5))
    hot.session.admit(b"", ([b"x|1"], [b"x|2"]), ([b"x|2"], [b"x|3"]))
    assert hot.ask(*ask) is not None
    assert hot.ask(*expire) is None
    assert hot.ask("Ttl", pb.TtlRequest(key=b"x|2")) is None
    hot.session.forget_rights()
    hot.session.admit(b"", ([], []), None)
    assert hot.ask(*ask) is None
    assert hot.ask(*expire) is not None
    hot.close()
