"""Hot calls whose writes go by the present value of their key."""

from collections.abc import Iterator
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod.native import core
from tests.native.test_hot_calls import Hot, header

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
#: Conditions, as proto/pequod/v1/pequod.proto numbers them.
IF_ABSENT, IF_PRESENT, IF_VALUE = 1, 2, 3


@pytest.fixture
def hot() -> Iterator[Hot]:
    made = Hot()
    yield made
    made.close()


def test_conditions_decide_and_tell_the_present_value(hot: Hot) -> None:
    def ask(**fields: Any) -> pb.WriteIfReply:
        found = hot.ask("WriteIf", pb.WriteIfRequest(key=b"x|1", **fields))
        assert found is not None
        reply = pb.WriteIfReply.FromString(found)
        assert reply.header == header(hot)
        reply.ClearField("header")
        return reply

    met = pb.WriteIfReply(met=True)
    assert ask(value=b"two", condition=IF_VALUE, expected=b"one") == met
    assert ask(value=b"three", condition=IF_VALUE, expected=b"one") == pb.WriteIfReply(present=b"two")
    assert ask(value=b"three", condition=IF_ABSENT) == pb.WriteIfReply(present=b"two")
    assert ask(value=b"", condition=IF_PRESENT) == met
    assert ask(condition=IF_VALUE, expected=b"two") == pb.WriteIfReply(present=b"")
    assert hot.engine.get(b"x|1", now=0.0) == b""
    assert ask(condition=IF_VALUE) == met
    assert hot.engine.get(b"x|1", now=0.0) is None
    assert ask(condition=IF_PRESENT) == pb.WriteIfReply()
    assert ask(condition=IF_ABSENT) == met
    assert ask(value=b"new", condition=IF_ABSENT) == met
    assert hot.engine.get(b"x|1", now=0.0) == b"new"
    assert hot.calls.reads == 0


def test_adds_are_done_and_told(hot: Hot) -> None:
    for total in (b"7", b"14"):
        found = hot.ask("Add", pb.AddRequest(key=b"x|n", delta=b"7"))
        assert found is not None
        assert pb.AddReply.FromString(found) == pb.AddReply(header=header(hot), value=total)
    assert hot.engine.get(b"x|n", now=0.0) == b"14"


def test_the_value_of_a_key_is_told_to_those_who_may_read_it() -> None:
    hot = Hot(has_guard=True)
    everything, nothing = None, (list[bytes](), list[bytes | None]())
    put_if = pb.WriteIfRequest(key=b"x|1", value=b"n", condition=IF_ABSENT)
    add = pb.AddRequest(key=b"x|n", delta=b"1")
    for readable, writable, is_hot in ((nothing, everything, False), (everything, nothing, False), (None, None, True)):
        hot.session.forget_rights()
        hot.session.admit(b"t", readable, writable)
        for method, request in (("WriteIf", put_if), ("Add", add)):
            assert (hot.ask(method, request, ("authorization", "t")) is not None) == is_hot
    hot.close()
