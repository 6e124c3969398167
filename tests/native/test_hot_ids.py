"""Hot calls and batches with request ids: the core runs what is new, and leaves what came before to handlers."""

from __future__ import annotations

from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.once.outcomes import Decided, Once, once_of
from pequod_server.steps.quick import QuickBatch

from pequod.commands.kinds import ADD, PUT_IF, REMOVE_IF
from pequod.language.conditions import MET, Unmet
from pequod.native import core
from tests.native.test_hot_batches import Streams, batch
from tests.native.test_hot_calls import Hot

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
ONE_ID, OTHER_ID = b"a" * 16, b"b" * 16


@pytest.mark.parametrize(
    ("method", "request_", "once", "expected"),
    [
        ("Add", pb.AddRequest(key=b"x|7", delta=b"2"), once_of(ONE_ID, ADD, b"x|7", b"2"), b"2"),
        (
            "WriteIf",
            pb.WriteIfRequest(key=b"x|1", value=b"new", condition=3, expected=b"one"),
            once_of(ONE_ID, PUT_IF, b"x|1", b"new", b"one", 3),
            MET,
        ),
        (
            "WriteIf",
            pb.WriteIfRequest(key=b"x|2", condition=3, expected=b"one"),
            once_of(ONE_ID, REMOVE_IF, b"x|2", b"one", number=3),
            Unmet(b"two"),
        ),
        (
            "WriteIf",
            pb.WriteIfRequest(key=b"x|9", condition=3, expected=b"one"),
            once_of(ONE_ID, REMOVE_IF, b"x|9", b"one", number=3),
            Unmet(None),
        ),
    ],
)
def test_a_write_with_an_id_is_remembered_and_its_repetition_is_the_handlers(
    method: str, request_: Any, once: Once[Decided], expected: object
) -> None:
    hot = Hot()
    request_.request_id = ONE_ID
    assert hot.ask(method, request_) is not None
    kept = hot.ids.known(ONE_ID)
    assert kept is not None
    assert once.outcome(kept) == expected, "as Python would have it"
    assert hot.ask(method, request_) is None
    request_.request_id = OTHER_ID
    assert hot.ask(method, request_) is not None
    request_.request_id = b"short"
    assert hot.ask(method, request_) is None
    hot.ids._check()
    hot.close()


def test_a_batch_with_an_id_is_run_once_and_its_repetition_is_the_handlers() -> None:
    hot = Streams()
    request = batch((ADD, b"x|7", b"2"), (PUT_IF, b"x|8", b"new", b""), (ADD, b"x|7", b"0.5"), batch_id=bytes(12))
    request.numbers.extend([1, 0])
    hot.engine.put(b"x|7", b"1")
    hot.sent(request)
    done = hot.run()
    assert done.begun is not None, "half a number is Python's to add"
    assert hot.executor.ids.figures.id_count == 0, "Python remembers what it goes on with"
    quick = QuickBatch(hot.executor, done.begun[1], ())
    assert pb.ExecuteReply.FromString(quick.reply or b"").values == [b"3", b"3.5"]
    assert hot.executor.ids.figures.id_count == 3
    hot.session.send(1, quick.reply or b"")
    hot.session.output(1 << 20)
    assert hot.session.take(1) is None
    whole = batch((ADD, b"x|7", b"-0"), (ADD, b"x|8", b"1"), batch_id=b"b" * 12)
    hot.engine.put(b"x|7", b"3")
    hot.engine.put(b"x|8", b"1")
    hot.sent(whole)
    assert hot.reads() == 1
    (reply,) = hot.replies()[1]
    assert reply.values == [b"3", b"2"]
    assert hot.executor.ids.known(b"b" * 12 + bytes([0, 0, 0, 1])) is not None
    for again in (request, whole):
        hot.sent(again)
        assert hot.reads() == 0
        assert hot.session.take(1) == again.SerializeToString()
        hot.session.send(1, b"of the handler")
        assert hot.session.take(1) is None
    hot.executor.ids._check()
    hot.close()
