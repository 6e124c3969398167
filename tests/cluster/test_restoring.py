"""`pequod cluster map restore` and the names of clusters: a map of another one takes the place of none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pequod.cli.cluster_restoring import Answer, Restoration
from pequod.cluster.map import ClusterMap
from pequod.cluster.servers import ServerEntry, ServerRole
from tests.cluster.conftest import Losing
from tests.cluster.test_commands import Servers
from tests.cluster.test_lost_maps import when_shown

OTHER = 'cluster = "other"\nversion = 9\n'
TWIP, NEWP = ClusterMap("twip", 3), ClusterMap("newp", 3)
REFUSED = "the cluster there is twip, and the file has the map of other"
HINT = 'take a file of twip, or the place of other. If this very map has to be there, write cluster = "twip" into'


@pytest.fixture
def servers(losing: Losing) -> Iterator[Servers]:
    servers = Servers(losing.etcd.setting("twip"))
    yield servers
    servers.stop()


def test_the_map_of_another_cluster_is_not_put_there(losing: Losing, servers: Servers, tmp_path: Path) -> None:
    place, other, kept = servers.place, tmp_path / "other.toml", tmp_path / "twip.toml"
    other.write_text(OTHER)
    servers.run("init", place)
    servers.run("placement", place, "t|", "--level", "0")
    servers.run("map", "save", str(kept), "--target", servers.start("c1"))
    for options in ((), ("--dry-run",), ("--older", "--anyway")):
        told = servers.run("map", "restore", place, str(other), *options, code=3)
        assert REFUSED in told
        assert HINT in told
        assert "nothing is changed: leave out" not in told
    assert servers.status()["c1"]["map_version"] == 2
    # Where etcd has lost the map, servers say whose it was.
    losing.lose()
    when_shown(servers, 2, "c1")
    for options in ((), ("--dry-run",)):
        assert REFUSED in servers.run("map", "restore", place, str(other), *options, code=3)
    assert servers.run("map", "restore", place, str(kept)).startswith("version 3\n")


def test_the_map_of_another_cluster_is_not_put_into_a_file(tmp_path: Path) -> None:
    there, other = tmp_path / "cluster.toml", tmp_path / "other.toml"
    there.write_text(text := 'cluster = "twip"\nversion = 3\n')
    other.write_text(OTHER)
    servers = Servers(f"static:{there}")
    for options in ((), ("--dry-run",)):
        assert REFUSED in servers.run("map", "restore", servers.place, str(other), *options, code=3)
    assert there.read_text() == text


@pytest.mark.parametrize(
    ("kept", "present", "registered", "unregistered", "is_refused"),
    [
        (TWIP, NEWP, [], [], True),
        (TWIP, None, [NEWP, NEWP], [], True),
        (TWIP, None, [], [], False),
        (TWIP, None, [None], [], False),
        # A server that runs at an address of the file belongs to no cluster of this place.
        (TWIP, None, [], [NEWP], False),
        # A map of another cluster was there for a while: servers go by it still.
        (TWIP, TWIP, [NEWP], [], False),
        (TWIP, None, [NEWP, TWIP], [], False),
    ],
)
def test_whose_map_is_there_is_known_from_it_or_else_from_servers_that_are_registered(
    kept: ClusterMap,
    present: ClusterMap | None,
    registered: list[ClusterMap | None],
    unregistered: list[ClusterMap | None],
    is_refused: bool,
) -> None:
    said = [(one, True) for one in registered] + [(one, False) for one in unregistered]
    entry = frozenset({ServerRole.COMPUTE})
    answers = tuple(
        Answer(ServerEntry(f"c{at}", "10.0.0.1:1", entry), one, is_registered)
        for at, (one, is_registered) in enumerate(said)
    )
    refusal = Restoration("etcd", kept, present, answers).refusal(is_older_taken=True, is_anyway=True)
    assert ("the cluster there is newp, and the file has the map of twip" in refusal) == is_refused
