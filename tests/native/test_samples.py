"""Samples of what hot calls and batches spend their time on."""

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import GET, PUT, SCAN
from pequod.native import core
from tests.native.test_hot_batches import Streams, batch
from tests.native.test_hot_calls import Hot
from tests.server.frames import WINDOW_UPDATE, frame

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")

#: What a client lets in once more.
_MORE = (1 << 16).to_bytes(4, "big")


def test_each_call_is_a_sample_of_its_first_key_where_all_are_wanted() -> None:
    hot = Hot()
    hot.calls.sample_every_s = 0.0
    assert hot.calls.samples() == []
    hot.ask("Get", pb.GetRequest(key=b"x|1"))
    hot.ask("Scan", pb.ScanRequest(first=b"x|", last=b"x}"))
    hot.ask("Put", pb.PutRequest(key=b"x|7", value=b"seven"))
    hot.ask("MultiGet", pb.MultiGetRequest(keys=[b"x|2", b"x|1"]))
    samples = hot.calls.samples()
    assert [one[:2] for one in samples] == [(b"x|1", False), (b"x|", False), (b"x|7", True), (b"x|2", False)]
    assert all(0 < own_s == stands_for_s < 60 for *_, stands_for_s, own_s in samples)
    assert hot.calls.samples() == [], "each is told once"
    hot.close()


def test_any_command_of_a_batch_may_be_its_sample() -> None:
    streams = Streams()
    streams.calls.sample_every_s = 0.0
    commands = [(GET, b"x|1"), (PUT, b"x|2", b"two"), (SCAN, b"x|3", b"x}"), (GET, b"x|4")]
    for _ in range(60):
        streams.sent(batch(*commands).SerializeToString())
        streams.run()
        streams.replies()
    samples = streams.calls.samples()
    assert len(samples) == 60
    assert {one[:2] for one in samples} == {(b"x|1", False), (b"x|2", True), (b"x|3", False), (b"x|4", False)}
    assert all(own_s == stands_for_s / 4 for *_, stands_for_s, own_s in samples)
    streams.close()


def test_a_sample_stands_for_the_calls_before_it_and_few_wait() -> None:
    streams = Streams()
    streams.calls.sample_every_s = 1e9
    request = batch((GET, b"x|1")).SerializeToString()
    for _ in range(3):
        streams.sent(request)
        streams.run()
    assert streams.calls.samples() == []
    streams.calls.sample_every_s = 0.0
    streams.sent(request)
    streams.run()
    ((_, _, stands_for_s, own_s),) = streams.calls.samples()
    assert stands_for_s > own_s
    for _ in range(90):
        streams.session.receive(frame(WINDOW_UPDATE, 0, 0, _MORE) + frame(WINDOW_UPDATE, 0, 1, _MORE))
        streams.sent(*[request] * 100)
        streams.run(1000)
        streams.session.output(1 << 20)
    assert len(streams.calls.samples()) == 8192, "what comes then is forgotten"
    streams.close()
