"""Keys that expire in a store in the process: by calls, in batches, and by its own thread."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pytest

import pequod
from pequod.embedded import Embedded, shared
from pequod.language.conditions import IF_ABSENT, MET

JOIN = "posts|<poster> = count p|<poster>|<time:2>"


class Clock:
    """The time as a test sets it."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shared, "wall_ms", clock)
    return clock


@pytest.fixture
def store() -> Iterator[Embedded]:
    with pequod.open() as store:
        yield store


def test_a_store_sets_asks_and_takes_deadlines_away(store: Embedded, clock: Clock) -> None:
    store.add_join(JOIN)
    store.put("p|bob|01", "Hi", ttl_s=5)
    store.put("p|bob|02", "Ho", condition=IF_ABSENT, ttl_s=9)
    assert (store.ttl("p|bob|01"), store.ttl("p|bob|02"), store.get("posts|bob")) == (5.0, 9.0, b"2")
    store.put("p|bob|02", "Ha", keep_ttl=True)
    clock.now_ms += 5_000
    assert (store.ttl("p|bob|01"), store.ttl("p|bob|02"), store.get("posts|bob")) == (None, 4.0, b"1")
    assert store.persist("p|bob|02")
    assert store.ttl("p|bob|02") == math.inf
    batch = store.batch()
    batch.put("p|bob|03", "x", ttl_s=1)
    batch.ttl("p|bob|03")
    batch.expire("p|bob|02", 2)
    batch.put("p|bob|04", "x", condition=IF_ABSENT, ttl_s=3)
    batch.ttl("p|bob|04")
    batch.ttl("p|no|04")
    assert list(batch.send()) == [None, 1.0, True, MET, 3.0, None]
    store.multi_put({"p|bob|05": "x"}, ttl_s=2)
    store.transaction([], [pequod.Put("p|bob|05", "y", keep_ttl=True), pequod.Put("p|bob|06", "y", ttl_s=3)])
    assert (store.ttl("p|bob|05"), store.ttl("p|bob|06")) == (2.0, 3.0)
    events = store.watch("p|bob|06", "p|bob|07")
    next(events)
    clock.now_ms += 3_000
    assert store.keys() == []
    (gone,) = next(events).changes
    assert (gone, gone.reason) == ((b"p|bob|06", b"y", None), "expired")


async def test_a_store_of_one_that_awaits_does_the_same(clock: Clock) -> None:
    async with pequod.open_async() as store:
        await store.put("k", "1", ttl_s=5)
        assert await store.ttl("k") == 5.0
        assert await store.expire("k", 7)
        clock.now_ms += 7_000
        assert await store.ttl("k") is None


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_watch_is_told_though_no_call_comes(store: Embedded, clock: Clock, is_batch: bool) -> None:
    told, ready = threading.Event(), threading.Event()
    changes = list[tuple[bytes, bytes | None]]()

    def follow() -> None:
        for event in store.watch("k", "l"):
            ready.set()
            changes.extend((change.key, change.new) for change in event.changes)
            if (b"k", None) in changes:
                told.set()
                return

    thread = threading.Thread(target=follow)
    thread.start()
    assert ready.wait(10)
    if is_batch:
        batch = store.batch()
        batch.put("k", "1", ttl_s=5)
        batch.send()
    else:
        store.put("k", "1", ttl_s=5)
    clock.now_ms += 5_000
    assert told.wait(10)
    thread.join()
    assert changes[-1] == (b"k", None)
