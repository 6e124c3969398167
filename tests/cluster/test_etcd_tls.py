"""etcd that talks TLS alone, and takes no client without a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pequod_server.cluster.etcd_calls import EtcdAccess
from pequod_server.cluster.membership import coordinator_of, etcd_access
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.cluster.map import ClusterMap
from pequod.errors import CoordinatorUnavailableError
from tests.cluster.conftest import Etcd
from tests.cluster.test_joins import TIMELINE, Cluster, names
from tests.cluster.waiting import eventually
from tests.server.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def etcd(etcd_binary: str, tmp_path: Path, authority: Authority) -> Iterator[Etcd]:
    assert etcd_binary
    own = authority.sign("etcd")
    security = {
        "cert-file": str(own.certificate),
        "key-file": str(own.key),
        "trusted-ca-file": str(authority.path),
        "client-cert-auth": "true",
    }
    etcd = Etcd(tmp_path / "nodes", 1, security)
    (tmp_path / "nodes").mkdir()
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()


async def test_a_cluster_lives_on_an_etcd_with_tls(etcd: Etcd, authority: Authority, tmp_path: Path) -> None:
    pair = authority.sign("server")
    files = {
        "cluster_ca": str(authority.path),
        "cluster_certificate": str(pair.certificate),
        "cluster_key": str(pair.key),
    }
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        place = etcd.setting(cluster.name)
        told = {f"PEQUOD_{name.upper()}": file for name, file in files.items()}
        done = await asyncio.to_thread(CliRunner().invoke, app, ["cluster", "init", place, "--at-once"], env=told)
        assert done.exit_code == 0, done.output
        one, other = await cluster.server("c1", **files), await cluster.server("c2", **files)
        assert one.member is not None
        member = one.member
        await eventually(lambda: len(member.state.servers) == 2)
        await (await cluster.client(one)).add_join(TIMELINE)
        assert names(other) == ["t"]
        done = await asyncio.to_thread(CliRunner().invoke, app, ["cluster", "status", place, "--json"], env=told)
        assert '"c2"' in done.output

        stranger = Authority(tmp_path, "stranger")
        strange = stranger.sign("strange")
        # In plain text, without a certificate, with one of another authority, and not trusting the node.
        await asyncio.gather(
            *(
                refused(place, access)
                for access in (
                    None,
                    etcd_access(authority.path),
                    etcd_access(authority.path, strange.certificate, strange.key),
                    etcd_access(stranger.path, pair.certificate, pair.key),
                )
            )
        )


async def refused(place: str, access: EtcdAccess | None) -> None:
    coordinator = coordinator_of(place, access)
    with pytest.raises(CoordinatorUnavailableError):
        await coordinator.put_map(ClusterMap("twip", 9))
    await coordinator.close()
