"""Puts of keys that expire, as hot calls and in batches: what the engine's own calls make of them, or nothing."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import PUT, PUT_TTL, REMOVE
from pequod.engine import Engine
from pequod.language.deadlines import KEEP, TTL_MS_MAX
from pequod.native import core, parse_batch
from tests.native.test_hot_calls import Hot

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
KEYS = [b"x|%d" % number for number in range(6)]
TTLS = (0, 1, 7, 40, TTL_MS_MAX, KEEP)


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


def request(rng: random.Random) -> tuple[bytes, bytes, int]:
    return rng.choice(KEYS), rng.choice([b"", b"1", b"2"]), rng.choice(TTLS)


def put_request(key: bytes, value: bytes, ttl_ms: int) -> pb.PutRequest:
    ttl: dict[str, Any] = {"keep_ttl": True} if ttl_ms == KEEP else {"ttl_ms": ttl_ms}
    return pb.PutRequest(key=key, value=value, **ttl)


@pytest.mark.parametrize("seed", range(4))
def test_hot_puts_leave_what_the_engine_s_own_leave(hot: Hot, seed: int) -> None:
    rng, twin, now_ms, answered = random.Random(seed), Twin(hot.engine), 1000, 0
    for _ in range(400):
        if rng.random() < 0.2:
            now_ms += rng.randrange(12)
            twin.tell(now_ms, rng.choice([1, 100]))
        key, value, ttl_ms = request(rng)
        twin.plain.put_for(key, value, ttl_ms)
        if hot.ask("Put", put_request(key, value, ttl_ms)) is None:
            twin.native.put_for(key, value, ttl_ms)
        else:
            answered += 1
        twin.check()
    assert answered > 300


@pytest.mark.parametrize("seed", range(4))
def test_batches_leave_what_the_engine_s_own_calls_leave(hot: Hot, seed: int) -> None:
    rng, twin, now_ms = random.Random(seed), Twin(hot.engine), 1000
    whole = 0
    for _ in range(100):
        now_ms += rng.randrange(12)
        twin.tell(now_ms, 100)
        kinds, arguments, numbers = bytearray(), list[bytes](), list[int]()
        for _ in range(rng.randrange(1, 8)):
            key, value, ttl_ms = request(rng)
            kind = rng.choice([PUT, PUT_TTL, PUT_TTL, REMOVE])
            kinds.append(kind)
            arguments += [key] if kind == REMOVE else [key, value]
            if kind == PUT_TTL:
                numbers.append(ttl_ms)
                twin.plain.put_for(key, value, ttl_ms)
            elif kind == PUT:
                twin.plain.put(key, value)
            else:
                twin.plain.remove(key)
        message = pb.ExecuteRequest(batch=1, kinds=bytes(kinds), arguments=arguments, numbers=numbers)
        batch = parse_batch(message.SerializeToString(), 100, 100, 1 << 20)
        assert batch is not None
        whole += not twin.native.run_quick(batch, 0.0)
        twin.check()
    assert whole == 100, "each command is quick"


REFUSED = {
    "a time beyond a hundred years": put_request(b"x|1", b"n", TTL_MS_MAX + 1),
    "a time that is kept and set": pb.PutRequest(key=b"x|1", value=b"n", ttl_ms=5, keep_ttl=True),
    "a time that stands twice": put_request(b"x|1", b"n", 5).SerializeToString() + b"\x18\x05",
}


@pytest.mark.parametrize("name", REFUSED)
def test_times_that_are_python_s_to_refuse_are_opened(hot: Hot, name: str) -> None:
    assert hot.ask("Put", REFUSED[name]) is None
    assert not hot.engine.deadlines


def test_a_time_is_not_kept_natively_while_a_key_is_due(hot: Hot) -> None:
    hot.engine.put_for(b"x|1", b"one", 5)
    hot.engine.deadlines.tell(10)
    assert hot.ask("Put", put_request(b"x|1", b"n", KEEP)) is None
    assert hot.ask("Put", put_request(b"x|1", b"n", 7)) is not None
    assert hot.engine.deadline_of(b"x|1") == 17
