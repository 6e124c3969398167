"""Micro benchmarks of a cluster's map and servers, by the number of servers: what one change of one of them costs.

etcd --an entry has changed--> a server --what has changed--> its followers --> where a group is read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from pequod_proto import etcd_pb2 as etcd
from pequod_proto import pequod_pb2 as pb
from pequod_server.cluster.keys import EtcdKeys, written

from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.messages import message_of_difference, message_of_state, state_after, state_of
from pequod.cluster.owners import Owners, Rankings
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod_bench.micro.frame import MicroRows, MicroScale, Samples, clock

MEMBERS: Final = MicroRows()
#: Servers of the clusters.
_COUNTS: Final = (48, 200, 1000)
_CHANGES: Final = 4
_GROUPS: Final = 16
_ROOT: Final = b"/pequod/twip/"
#: Twip's, with one home group.
MAP: Final = ClusterMap(
    "twip",
    7,
    "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10>;\n",
    home_ranges=(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "a")),
)


def _entries(server_count: int) -> list[ServerEntry]:
    return [
        ServerEntry(f"c{number:04}", f"10.0.{number // 250}.{number % 250}:7744", frozenset({ServerRole.COMPUTE}))
        for number in range(server_count)
    ]


def _pair(entry: ServerEntry) -> etcd.KeyValue:
    return etcd.KeyValue(key=_ROOT + b"servers/" + entry.id.encode(), value=written(entry))


def _states(server_count: int) -> Iterator[ClusterState]:
    """Yield states in each of which one server is another than in the state before."""
    entries = _entries(server_count)
    for number in count():
        at = number * 37 % server_count
        entries[at] = replace(entries[at], map_version=number + 1)
        yield ClusterState.of(replace(MAP, version=1), entries)


def _change(server_count: int, _scale: MicroScale) -> Samples:
    """Take changes of entries in, and make a state of each."""
    keys, entries = EtcdKeys(_ROOT, "etcd"), _entries(server_count)
    keys.take_all([etcd.KeyValue(key=_ROOT + b"map", value=written(MAP)), *map(_pair, entries)])
    for number in count():
        changed = [
            replace(entries[(number + at) * 37 % server_count], map_version=number + 1) for at in range(_CHANGES)
        ]
        events = [etcd.Event(kind=etcd.Event.PUT, kv=_pair(one)) for one in changed]
        begun = clock()
        for event in events:
            keys.take(event)
            keys.state()
        yield _CHANGES, clock() - begun


def _told(server_count: int, _scale: MicroScale) -> Samples:
    """Make the message that tells a change, and take it in at a follower."""
    states = _states(server_count)
    before = next(states)
    known = state_after(before, message_of_state(before))
    while True:
        after = next(states)
        begun = clock()
        told = message_of_difference(before, after).SerializeToString()
        known = state_after(known, pb.FollowClusterReply.FromString(told))
        yield 1, clock() - begun
        before = after


def _new_group(server_count: int, _scale: MicroScale) -> Samples:
    """Find the servers of groups that were never asked for."""
    owners, numbers = Owners(next(_states(server_count)), Rankings()), count()
    while True:
        keys = [b"t|%d|" % next(numbers) for _ in range(_GROUPS)]
        begun = clock()
        for key in keys:
            owners.readers(key)
        yield _GROUPS, clock() - begun


def _known_group(server_count: int, _scale: MicroScale) -> Samples:
    """Find the servers of groups anew after one server has gone, or come; what every state costs is in it."""
    state, rankings = next(_states(server_count)), Rankings()
    states = [state, replace(state, servers=state.servers[:-1])]
    keys = [b"t|%d|" % number for number in range(1024)]
    for number in count():
        begun = clock()
        owners = Owners(states[number % 2], rankings)
        for key in keys:
            owners.readers(key)
        yield len(keys), clock() - begun


def _home_ranges(range_count: int, _scale: MicroScale) -> Samples:
    """Take a map of home ranges in at a client, up to where its first write goes."""
    ranges = tuple(
        HomeRange(b"p|%06d" % number, b"p|%06d" % (number + 1), "ab"[number % 2]) for number in range(range_count)
    )
    homes = [ServerEntry(f"h{one}", f"10.0.0.1:774{at}", group=one) for at, one in enumerate("ab")]
    told = message_of_state(ClusterState.of(replace(MAP, home_ranges=ranges), homes)).SerializeToString()
    while True:
        begun = clock()
        owners = Owners(state_of(pb.FollowClusterReply.FromString(told)), Rankings())
        owners.writers(b"p|000001|1")
        yield 1, clock() - begun


_ROWS: Final[tuple[tuple[str, str, Callable[[int, MicroScale], Samples]], ...]] = (
    ("members: change", "a change of an entry at a server", _change),
    ("members: told", "a change told to a follower", _told),
    ("members: new group", "a group's servers, first", _new_group),
    ("members: known group", "a group's servers after a change", _known_group),
)
for _name, _operation, _samples in _ROWS:
    for _count in _COUNTS:
        MEMBERS.row(f"{_name}, {_count:,}", _operation)(partial(_samples, _count))
MEMBERS.row("members: home ranges, 10,000", "a map, and the home of a first write")(partial(_home_ranges, 10_000))
