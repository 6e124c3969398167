"""The Go client against real servers: the conformance script, interruptions, use from many goroutines, and clusters."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import AsyncExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import json_format
from pequod_server.cluster.etcd import EtcdCoordinator

from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, Placement
from pequod.cluster.messages import message_of_state
from pequod.cluster.owners import Owners, Rankings
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from tests.cluster.conftest import Etcd, etcd, etcd_binary, nodes
from tests.cluster.test_joins import Cluster
from tests.cluster.waiting import eventually
from tests.cluster_client.site import Site
from tests.forked import started_server
from tests.golang.conftest import GoTests
from tests.server.certificates import Authority

__all__ = ["etcd", "etcd_binary", "nodes"]

CASES: Final = Path(__file__).parents[1] / "conformance/cases.json"
#: Building takes minutes where nothing is built yet.
pytestmark = pytest.mark.timeout(1200)
TIMELINE: Final = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
ACCESS: Final = """
[roles.web]
write = ["p|"]
[tokens.web]
role = "web"
sha256 = "{digest}"
[certificates.go]
role = "web"
"""
HOMES: Final = (HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b"))


async def test_it_does_what_the_conformance_script_says(go_tests: GoTests) -> None:
    count = len(json.loads(CASES.read_text())["cases"])
    with started_server() as (target, _):
        printed = await go_tests("^TestConformance$", PEQUOD_TARGET=target, PEQUOD_CASES=str(CASES))
    assert printed.count("    --- PASS") == count


async def test_it_goes_on_after_interruptions_and_is_for_many_goroutines(go_tests: GoTests) -> None:
    with started_server() as (target, _):
        await go_tests("^Test(An?|Concurrent|Targets|Tokens|Sessions|Prefixes)[A-Z]", PEQUOD_TARGET=target)


async def test_it_proves_who_it_is_by_a_token_or_a_certificate(go_tests: GoTests, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    server, client = authority.sign("server", "localhost"), authority.sign("go")
    access = tmp_path / "access.toml"
    access.write_text(ACCESS.format(digest=sha256(b"web's").hexdigest()))
    access.chmod(0o600)
    flags = ("--tls-certificate", server.certificate, "--tls-key", server.key, "--tls-client-ca", authority.path)
    with started_server(*map(str, flags), "--access-file", str(access)) as (target, _):
        await go_tests(
            "^TestTLS",
            PEQUOD_TLS=target,
            PEQUOD_CA=str(authority.path),
            PEQUOD_CERTIFICATE=str(client.certificate),
            PEQUOD_KEY=str(client.key),
        )


def _states() -> list[tuple[ClusterState, str]]:
    """Return states of clusters, and the zone of a client: all that decides where keys go."""
    both = frozenset({ServerRole.HOME, ServerRole.COMPUTE})
    servers = [
        ServerEntry(f"s{number}", f"127.0.0.1:{number}", both, "ab"[number % 2], zone="xy"[number % 2])
        for number in range(1, 6)
    ]
    plain = ClusterState.of(ClusterMap("twip", 3), servers)
    placements = (Placement(b"", 2), Placement(b"top|", 0), Placement(b"t|ann|", 0))
    uneven = [replace(one, weight=1.0 + number) for number, one in enumerate(servers)]
    draining = [
        replace(servers[0], state=ServerState.DRAINING),
        *(replace(one, map_version=2 + number % 2) for number, one in enumerate(servers[1:])),
    ]
    many = [
        replace(servers[number % 5], id=f"m{number}", address=f"127.0.0.1:{1000 + number}", weight=1.0 + number % 3)
        for number in range(300)
    ]
    return [
        (plain, ""),
        (plain, "x"),
        (ClusterState.of(plain.map, many), "x"),
        (ClusterState.of(plain.map, many), ""),
        (replace(plain, map=replace(plain.map, placements=placements)), ""),
        (replace(plain, map=replace(plain.map, home_ranges=HOMES)), ""),
        (ClusterState.of(plain.map, uneven), ""),
        (ClusterState.of(plain.map, draining), ""),
    ]


def _routes_of(state: ClusterState, zone: str) -> dict[str, Any]:
    owners = Owners(state, Rankings(zone))
    keys = [
        b"t|ann|0100|bob",
        b"t|ann",
        b"t|",
        b"top|1",
        b"loose",
        b"\xff\x00|",
        *(b"p|%d|x" % one for one in range(20)),
    ]
    named = [
        {
            "key": b64encode(key).decode(),
            "readers": [server.id for server in owners.readers(key)],
            "writers": [server.id for server in owners.writers(key)],
        }
        for key in keys
    ]
    return {"state": json_format.MessageToDict(message_of_state(state)), "zone": zone, "keys": named}


async def test_keys_go_where_the_python_client_sends_them(go_tests: GoTests, tmp_path: Path) -> None:
    file = tmp_path / "routes.json"
    file.write_text(json.dumps([_routes_of(state, zone) for state, zone in _states()]))
    await go_tests("^TestKeysGo", PEQUOD_ROUTES=str(file))


async def test_routes_are_kept_through_changes_and_found_among_many(go_tests: GoTests) -> None:
    await go_tests("^Test(ServersOfGroups|AChangeCosts|Differences|HomesAreFound)")


async def test_it_works_with_a_cluster_that_loses_servers(go_tests: GoTests, tmp_path: Path) -> None:
    async with Site(tmp_path, 3) as site:
        # A watch of karma has to go on at another server: its owner is the one that is killed.
        killed, stopped, left = (server.id for server in Owners(site.state).readers(b"karma|"))
        pids = ",".join(str(site.processes[name].pid) for name in (stopped, killed, left))
        await go_tests("^TestClusters", PEQUOD_CLUSTER=site.target, PEQUOD_PIDS=pids)


async def test_writes_go_to_the_homes_of_their_keys(go_tests: GoTests, etcd: Etcd) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        await coordinator.put_map(ClusterMap(cluster.name, 1, TIMELINE, home_ranges=HOMES))
        await coordinator.close()
        for group in "ab":
            await cluster.server(f"h{group}", cluster_roles="home", cluster_group=group)
        computes = [await cluster.server(name, cluster_roles="compute") for name in ("c1", "c2")]
        members = [server.member for server in computes]
        await eventually(lambda: all(member is not None and len(member.state.servers) == 4 for member in members))
        addresses = [member.entry.address for member in members if member is not None]
        await go_tests("^TestWritesGo", PEQUOD_HOMES=f"pequod+cluster://{','.join(addresses)}")
