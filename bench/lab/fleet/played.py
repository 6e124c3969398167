"""What a server of a large cluster lives in, played in one process: time that jumps, and an etcd of dictionaries.

    played servers --put--> PlayedEtcd --changes--> EtcdCoordinator, Member: the real ones of one server

Nothing waits for a clock: with nothing to do the time jumps to the next thing that is due, so minutes take seconds.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Final, TypeVar

from pequod_proto import etcd_pb2 as etcd
from pequod_server.cluster.etcd_calls import EtcdCalls
from pequod_server.cluster.keys import written

from pequod.cluster.map import ClusterMap
from pequod.cluster.servers import ServerEntry

T = TypeVar("T")
_ROOT: Final = b"/pequod/twip/"
#: The coordinator's place, which nothing connects to.
ENDPOINT: Final = "127.0.0.1:1"


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: the time goes on at once."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen again"
        self.now_s += max(timeout, 0.0)
        return super().select(0)


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_played(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in time that jumps."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(main)


class PlayedEtcd(EtcdCalls):
    """The keys of a cluster; who watches is told of a change in the same turn."""

    def __init__(self) -> None:
        super().__init__((ENDPOINT,))
        self._pairs: dict[bytes, etcd.KeyValue] = {}
        self._revision = 1
        #: All changes, the first one of revision 2.
        self._told: list[etcd.WatchReply] = []
        self._watches: list[asyncio.Queue[etcd.WatchReply]] = []
        self.change_count = 0
        #: What playing it has taken, which is no server's.
        self.spent_ns = 0

    def put_map(self, cluster_map: ClusterMap) -> None:
        self._change(etcd.Event.PUT, _ROOT + b"map", cluster_map)

    def put_server(self, entry: ServerEntry) -> None:
        self._change(etcd.Event.PUT, _key(entry), entry)

    def remove_server(self, entry: ServerEntry) -> None:
        self._change(etcd.Event.DELETE, _key(entry), None)

    def _change(self, kind: etcd.Event.Kind, key: bytes, value: ClusterMap | ServerEntry | None) -> None:
        begun = time.thread_time_ns()
        self._tell(kind, key, b"" if value is None else written(value))
        self.spent_ns += time.thread_time_ns() - begun

    def _tell(self, kind: etcd.Event.Kind, key: bytes, value: bytes) -> None:
        self._revision += 1
        self.change_count += 1
        pair = etcd.KeyValue(key=key, value=value, mod_revision=self._revision)
        if kind == etcd.Event.DELETE:
            self._pairs.pop(key, None)
        else:
            self._pairs[key] = pair
        reply = etcd.WatchReply(events=[etcd.Event(kind=kind, kv=pair)])
        self._told.append(reply)
        for watch in self._watches:
            watch.put_nowait(reply)

    # What a coordinator calls.

    async def read(self, key: bytes, range_end: bytes = b"") -> etcd.RangeReply:
        found = [pair for name, pair in sorted(self._pairs.items()) if key <= name < (range_end or key + b"\0")]
        return etcd.RangeReply(header=etcd.Header(revision=self._revision), kvs=found)

    async def transact(self, request: etcd.TransactionRequest) -> etcd.TransactionReply:
        put = request.success[0].put
        self._tell(etcd.Event.PUT, put.key, put.value)
        return etcd.TransactionReply(succeeded=True)

    async def watch(self, key: bytes, range_end: bytes, revision: int) -> AsyncGenerator[etcd.WatchReply, None]:
        assert key == _ROOT < range_end, "the whole cluster is watched"
        changes: asyncio.Queue[etcd.WatchReply] = asyncio.Queue()
        for missed in self._told[revision - 2 :]:
            changes.put_nowait(missed)
        self._watches.append(changes)
        while True:
            yield await changes.get()

    async def grant(self, ttl_s: int) -> int:
        assert ttl_s > 0
        return 1

    async def keep(self, lease: int) -> bool:
        return lease == 1

    async def revoke(self, lease: int) -> None:
        assert lease == 1


def _key(entry: ServerEntry) -> bytes:
    return _ROOT + b"servers/" + entry.id.encode()
