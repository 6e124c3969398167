"""Addresses of keyspaces of Cassandra, and its consistency levels; neither needs a node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pequod_views.versioned import QuorumError, ReplicaRefusedError
from pequod_views.versioned.cassandra_address import CassandraAddress
from pequod_views.versioned.definition import VersionedFileError, parse_versioned

from pequod.errors import SettingError
from tests.views.versioned.test_versioned_cli import FILE, REPLICAS, called


def test_an_address_names_hosts_and_a_keyspace() -> None:
    address = CassandraAddress.of("cassandra://one,10.0.0.2,one/Tickets_1")
    assert (address.hosts, address.port, address.keyspace) == (("one", "10.0.0.2"), 9042, "Tickets_1")
    assert (address.user, address.password) == ("", "")
    address = CassandraAddress.of("cassandra://ann:p%40ss:w@one:9043/tickets")
    assert (address.hosts, address.port, address.user, address.password) == (("one",), 9043, "ann", "p@ss:w")
    assert "p@ss" not in repr(address)
    assert address.shown == "cassandra://one:9043/tickets"


@pytest.mark.parametrize(
    "wrong",
    [
        "cassandra://one",
        "cassandra://one/",
        "cassandra:///tickets",
        "cassandra://one,/tickets",
        "cassandra://one:x/tickets",
        "cassandra://one:0/tickets",
        "cassandra://one:65536/tickets",
        "cassandra://one/1tickets",
        "cassandra://one/tickets; DROP",
        "cassandra://ann@one/tickets",
        "cassandra://one:1,two:2/tickets",
    ],
)
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ReplicaRefusedError, match=r"HOST,HOST:PORT/KEYSPACE|there is no port"):
        CassandraAddress.of(wrong)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(ReplicaRefusedError) as refused:
        CassandraAddress.of("cassandra://ann:secret@one/")
    assert "secret" not in str(refused.value)


def test_a_file_has_one_address_of_cassandra() -> None:
    good = FILE.replace(REPLICAS, '"cassandra://one,two/tickets"')
    assert parse_versioned(good).kind == "cassandra"
    for replicas, reason in {
        '"cassandra://one/tickets", "cassandra://two/tickets"': "a keyspace of Cassandra is one address",
        '"cassandra://one/tickets", "redis://two"': "or it is one cassandra://",
        '"cassandra://one"': re.escape("HOST,HOST:PORT/KEYSPACE"),
    }.items():
        with pytest.raises(VersionedFileError, match=reason):
            parse_versioned(FILE.replace(REPLICAS, replicas))


def test_a_command_says_that_no_node_answers(tmp_path: Path) -> None:
    pytest.importorskip("cassandra", reason="the extra cassandra is not installed")
    file = tmp_path / "versioned.toml"
    file.write_text(FILE.replace(REPLICAS, '"cassandra://127.0.0.1:1/tickets"'))
    assert "127.0.0.1:1" in called("check", file, code=4)


def test_quorums_are_the_levels_of_cassandra() -> None:
    levels = pytest.importorskip("cassandra", reason="the extra cassandra is not installed").ConsistencyLevel
    from pequod_views.versioned.cassandra_store import consistency

    assert [consistency(quorum, 3) for quorum in (1, 2, 3)] == [levels.ONE, levels.QUORUM, levels.ALL]
    assert [consistency(quorum, 1) for quorum in (1,)] == [levels.ALL]
    assert [consistency(quorum, 5) for quorum in (1, 2, 3, 5)] == [levels.ONE, levels.TWO, levels.QUORUM, levels.ALL]
    assert consistency(3, 7) == levels.THREE
    with pytest.raises(SettingError, match="not for 5"):
        consistency(5, 7)
    with pytest.raises(SettingError, match="not for 0"):
        consistency(0, 3)
    with pytest.raises(QuorumError, match="the keyspace has no more"):
        consistency(4, 3)
