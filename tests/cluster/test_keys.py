"""The keys of a cluster in etcd: a change of one leads where reading all of them leads, and parses no other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pequod_proto import etcd_pb2 as etcd
from pequod_server.cluster.keys import EtcdKeys, read_server, written

from pequod.cluster.map import ClusterMap
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import ClusterMapError

ROOT = b"/pequod/twip/"
ENTRIES = [
    ServerEntry(f"c{number}", f"10.0.0.{number}:1", frozenset({ServerRole.COMPUTE}), map_version=number)
    for number in range(5)
]
KEYS = st.sampled_from([b"map", b"other", *(f"servers/{one.id}".encode() for one in ENTRIES)])
VALUES = st.sampled_from(
    [None, b"{", b"\xff", *map(written, ENTRIES), *(written(ClusterMap("twip", n)) for n in (1, 7))]
)


def _said(keys: EtcdKeys) -> object:
    try:
        return keys.state(), keys.map_version, keys.remains(), len(keys)
    except ClusterMapError as error:
        return str(error), keys.map_version, keys.remains(), len(keys)


@example([(b"map", written(ClusterMap("twip", 7))), (b"map", None)])
@example([(b"servers/c2", b"{"), (b"servers/c0", written(ENTRIES[0])), (b"servers/c2", written(ENTRIES[1]))])
@given(st.lists(st.tuples(KEYS, VALUES), max_size=12))
def test_changes_lead_where_reading_everything_leads(changes: list[tuple[bytes, bytes | None]]) -> None:
    keys, pairs = EtcdKeys(ROOT, "etcd"), dict[bytes, bytes]()
    for key, value in changes:
        pair = etcd.KeyValue(key=ROOT + key, value=value or b"")
        kind = etcd.Event.DELETE if value is None else etcd.Event.PUT
        assert keys.take(etcd.Event(kind=kind, kv=pair)) == (key == b"map")
        if value is None:
            pairs.pop(key, None)
        else:
            pairs[key] = value
        anew = EtcdKeys(ROOT, "etcd")
        anew.take_all(etcd.KeyValue(key=ROOT + one, value=text) for one, text in pairs.items())
        assert _said(keys) == _said(anew)


def test_a_change_parses_its_own_value_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = EtcdKeys(ROOT, "etcd")
    pairs = [etcd.KeyValue(key=ROOT + b"servers/" + one.id.encode(), value=written(one)) for one in ENTRIES]
    keys.take_all([etcd.KeyValue(key=ROOT + b"map", value=written(ClusterMap("twip", 7))), *pairs])
    before, parsed = keys.state(), list[bytes]()

    def counted(value: bytes) -> ServerEntry:
        parsed.append(value)
        return read_server(value)

    monkeypatch.setattr("pequod_server.cluster.keys.read_server", counted)
    changed = written(replace(ENTRIES[2], map_version=7))
    keys.take(etcd.Event(kind=etcd.Event.PUT, kv=etcd.KeyValue(key=pairs[2].key, value=changed)))
    after = keys.state()
    assert parsed == [changed]
    assert after.map is before.map
    assert [one is other for one, other in zip(after.servers, before.servers, strict=True)] == [
        True,
        True,
        False,
        True,
        True,
    ]
