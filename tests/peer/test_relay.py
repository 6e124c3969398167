"""The ring and its subscribers, without a network."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pequod_server.backing import Changes, History, Place, RowChange
from pequod_server.homes.home.relay import LOOKED_AT, Relay, Subscriber
from pequod_server.homes.subscriptions import Subscriptions

HISTORY = History(b"test")


def made(keep_bytes: int = 1 << 20) -> Relay:
    relay = Relay(keep_bytes)
    relay.begin(HISTORY, 0)
    relay.complete_from = 0
    return relay


def commit(relay: Relay, position: int, *keys: bytes, shown: int | None = None) -> None:
    changes = tuple(RowChange(key, b"v") for key in keys)
    relay.taken(Changes(position, position, changes, shown=shown), HISTORY, position)


def told(relay: Relay, subscriber: Subscriber) -> list[bytes]:
    keys = []
    while (one := relay.next_for(subscriber)) is not None:
        at: int | None = None
        while at != 0:
            found, at = relay.wanted(one, subscriber, at or 0)
            keys += [key for key, _ in found]
        relay.pass_by(subscriber)
        relay._check()
    return keys


def test_a_subscriber_is_told_what_it_wants_and_woken_for_nothing_else() -> None:
    relay, woken = made(), list[int]()
    one, other = relay.subscribe(lambda: woken.append(1)), relay.subscribe(lambda: woken.append(2))
    relay.want(one, b"p|bob|", b"p|bob}")
    relay.want(other, b"p|", b"p}")
    commit(relay, 1, b"p|bob|1", b"p|eve|1")
    commit(relay, 2, b"q|1")
    commit(relay, 3, b"p|eve|2")
    assert woken == [1, 2]
    assert told(relay, one) == [b"p|bob|1"]
    assert told(relay, other) == [b"p|bob|1", b"p|eve|1", b"p|eve|2"]


def test_one_that_has_left_takes_nothing_from_the_next_with_its_bit() -> None:
    relay = made()
    gone = relay.subscribe(lambda: None)
    relay.want(gone, b"p|", b"p}")
    relay.leave(gone)
    for _ in relay.sweep_in_steps():
        pass
    following = relay.subscribe(lambda: None)
    assert following.bit == gone.bit
    relay.want(following, b"s|", b"s}")
    relay.want(gone, b"p|", b"p}")
    relay.release(gone, b"s|", b"s}")
    relay.leave(gone)
    relay.lose(gone, "late")
    commit(relay, 1, b"p|1", b"s|1")
    assert told(relay, following) == [b"s|1"]


def test_a_ring_that_is_full_loses_only_those_who_have_not_been_told() -> None:
    relay = made(keep_bytes=2000)
    slow, quick = relay.subscribe(lambda: None), relay.subscribe(lambda: None)
    for subscriber in (slow, quick):
        relay.want(subscriber, b"p|", b"p}")
    idle = relay.subscribe(lambda: None)
    for position in range(1, 20):
        commit(relay, position, b"p|%d" % position)
        assert told(relay, quick) == [b"p|%d" % position]
        relay._check()
    assert relay.size_bytes <= 2000
    assert (bool(slow.lost), bool(quick.lost), bool(idle.lost)) == (True, False, False)
    commit(relay, 20, b"p|20")
    assert told(relay, slow) == [], "it wants nothing until it has loaded it again"


def test_a_feed_resumes_where_everything_after_its_place_is_kept() -> None:
    relay = made(keep_bytes=2000)
    for position in range(10, 200, 10):
        commit(relay, position, b"p|%d" % position)
    assert relay.complete_from is not None
    late, early = Place(1, relay.complete_from), Place(1, relay.complete_from - 1)
    subscriber = relay.subscribe(lambda: None)
    relay.want(subscriber, b"p|", b"p}")
    assert not relay.resume(subscriber, early)
    assert not relay.resume(subscriber, Place(2, 190))
    assert relay.resume(subscriber, late)
    assert told(relay, subscriber) == [b"p|%d" % at for at in range(late.position + 10, 200, 10)]
    assert relay.resume(subscriber, Place(1, 185))
    assert told(relay, subscriber) == [b"p|190"]


def test_places_that_do_not_say_what_a_state_holds_are_not_resumed_from() -> None:
    relay = made()
    commit(relay, 1, b"p|1")
    commit(relay, 2, b"p|2", shown=3)
    assert not relay.resume(relay.subscribe(lambda: None), Place(1, 1))


def test_a_failover_ends_what_can_be_resumed() -> None:
    relay = made()
    slow = relay.subscribe(lambda: None)
    relay.want(slow, b"p|", b"p}")
    commit(relay, 1, b"p|1")
    later = History(b"test", 2, {1: 1})
    relay.taken(Changes(2, 2, (RowChange(b"p|2", b"v"),)), later, 2)
    assert slow.lost
    assert not relay.resume(slow, Place(1, 1))
    assert relay.resume(slow, Place(2, 2))
    relay._check()


def test_the_ring_charges_what_it_takes() -> None:
    charged = 0

    def charge(grown_bytes: int) -> None:
        nonlocal charged
        charged += grown_bytes

    relay = Relay(2000, charge)
    relay.begin(HISTORY, 0)
    for position in range(1, 30):
        commit(relay, position, b"p|%d" % position)
        assert charged == relay.size_bytes <= 2000


def test_a_large_commit_is_looked_up_in_parts_once_for_all_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    masks_of = Subscriptions.masks_of

    def counted(wants: Subscriptions, keys: Sequence[bytes]) -> list[int]:
        looked.append(len(keys))
        return masks_of(wants, keys)

    monkeypatch.setattr(Subscriptions, "masks_of", counted)
    relay = made(keep_bytes=64 << 20)
    one, other = relay.subscribe(lambda: None), relay.subscribe(lambda: None)
    relay.want(one, b"p|", b"p}")
    relay.want(other, b"p|00500", b"p|00510")
    keys = [b"p|%05d" % number for number in range(20_000)]
    commit(relay, 1, *keys)
    assert looked == []
    assert 20_000 * 100 < relay.size_bytes < 20_000 * 300
    late = relay.subscribe(lambda: None)
    relay.want(late, b"p|", b"p}")
    assert told(relay, one) == keys
    assert told(relay, other) == keys[500:510]
    assert sum(looked) == 20_000
    assert max(looked) <= LOOKED_AT
    assert told(relay, late) == []
    assert relay.resume(late, Place(1, 0))
    assert told(relay, late) == keys
    assert max(looked) <= LOOKED_AT
