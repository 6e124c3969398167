"""What hot calls use of a lease: each is within it, and takes of it what quotas count; what goes beyond is Python's."""

from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import ADD, GET, PUT
from pequod.native import core
from pequod.native.http2 import NativeLease, new_lease
from tests.native.test_hot_batches import Streams, batch
from tests.native.test_hot_calls import Hot

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
TOKEN = ("authorization", "t")
ROOM = 1000


def lease_of(commands: int = ROOM, keys: int = ROOM, size: int = ROOM) -> NativeLease:
    lease = new_lease()
    lease.commands, lease.keys, lease.bytes = commands, keys, size
    return lease


#: What a call uses: commands, keys and bytes.
USES: dict[str, tuple[str, Any, tuple[int, int, int]]] = {
    "Get": ("Get", pb.GetRequest(key=b"x|1"), (1, 0, 0)),
    "Count": ("Count", pb.CountRequest(first=b"x|", last=b"x}"), (1, 0, 0)),
    "Scan": ("Scan", pb.ScanRequest(first=b"x|", last=b"x}"), (1, 0, 0)),
    "Remove": ("Remove", pb.RemoveRequest(key=b"x|1"), (1, 0, 0)),
    "Put": ("Put", pb.PutRequest(key=b"x|1", value=b"12345"), (1, 1, 8)),
    "Put for a time": ("Put", pb.PutRequest(key=b"x|1", value=b"12345", ttl_ms=5), (1, 1, 8)),
    "WriteIf": ("WriteIf", pb.WriteIfRequest(key=b"x|1", value=b"12", condition=2), (1, 1, 5)),
    "WriteIf that removes": ("WriteIf", pb.WriteIfRequest(key=b"x|1", condition=2), (1, 0, 0)),
    "Add": ("Add", pb.AddRequest(key=b"x|n", delta=b"1"), (1, 1, 27)),
    "MultiGet": ("MultiGet", pb.MultiGetRequest(keys=[b"x|1", b"x|2"]), (2, 0, 0)),
    "MultiGet of nothing": ("MultiGet", pb.MultiGetRequest(), (1, 0, 0)),
    "MultiPut": ("MultiPut", pb.MultiPutRequest(keys=[b"x|1", b"x|2"], values=[b"", b"123"]), (2, 2, 9)),
}


@pytest.mark.parametrize("name", USES)
def test_a_call_takes_what_it_uses_and_is_left_where_that_is_not_lent(name: str) -> None:
    method, request, use = USES[name]
    for at, needed in enumerate(use):
        hot = Hot(has_guard=True)
        short = [ROOM] * 3
        short[at] = needed - 1
        lease = lease_of(*short)
        hot.session.admit(b"t", None, None, lease)
        if needed:
            assert hot.ask(method, request, TOKEN) is None
            assert [lease.commands, lease.keys, lease.bytes] == short, "what has not run uses nothing"
        lease.commands, lease.keys, lease.bytes = use
        assert hot.ask(method, request, TOKEN) is not None
        assert (lease.commands, lease.keys, lease.bytes) == (0, 0, 0)
        hot.close()


def test_what_is_left_to_python_uses_nothing() -> None:
    hot, lease = Hot(has_guard=True), lease_of()
    hot.session.admit(b"t", None, None, lease)
    assert hot.ask("Put", pb.PutRequest(key=b"loose", value=b"n"), TOKEN) is None
    assert hot.ask("Get", pb.GetRequest(key=b"x|1"), ("authorization", "other")) is None
    assert (lease.commands, lease.keys, lease.bytes) == (ROOM, ROOM, ROOM)
    hot.session.admit(b"t", None, None)
    hot.session.forget_rights()
    with pytest.raises(TypeError, match="perhaps a lease"):
        hot.session.admit(b"t", None, None, object())  # type: ignore[arg-type]
    hot.close()


def test_a_batch_takes_its_commands_and_its_puts() -> None:
    hot, lease = Streams(has_guard=True), lease_of()
    hot.session.admit(b"t", None, None, lease)
    reads = batch((GET, b"x|1"), (GET, b"x|2"))
    hot.sent(reads)
    assert hot.reads() == 1
    assert (lease.commands, lease.keys, lease.bytes) == (ROOM - 2, ROOM, ROOM)
    writes = batch((GET, b"x|1"), (PUT, b"x|7", b"n"), (ADD, b"x|n", b"1"))
    size = len(writes.SerializeToString())
    hot.sent(writes)
    assert hot.reads() == 1
    assert (lease.commands, lease.keys) == (ROOM - 5, ROOM - 2)
    assert 27 + 4 <= ROOM - lease.bytes <= size + 48, "at the most"
    hot.close()


@pytest.mark.parametrize("short", ["commands", "keys", "bytes"])
def test_a_batch_that_is_not_lent_is_its_handler_s(short: str) -> None:
    hot, lease = Streams(has_guard=True), lease_of()
    setattr(lease, short, 0)
    hot.session.admit(b"t", None, None, lease)
    request = batch((PUT, b"x|1", b"n"))
    hot.sent(request)
    assert hot.reads() == 0
    assert hot.session.take(1) == request.SerializeToString()
    assert getattr(lease, short) == 0
    hot.close()
