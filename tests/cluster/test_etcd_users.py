"""etcd that has users, and takes no call without one."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pequod_proto import etcd_pb2 as etcd_messages
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.etcd_calls import EtcdAccess, EtcdCalls
from pequod_server.cluster.membership import coordinator_of, etcd_access
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.cluster.map import ClusterMap
from pequod.cluster.servers import ServerState
from pequod.errors import CoordinatorUnavailableError, SettingError
from tests.cluster.conftest import Etcd
from tests.cluster.test_joins import TIMELINE, Cluster, names
from tests.cluster.waiting import eventually


def told(etcd: Etcd, call: str, token: str = "", /, **fields: Any) -> dict[str, Any]:
    """Tell etcd something by its JSON interface, and return its answer."""
    request = Request(f"http://{etcd.endpoints[0]}/v3/{call}", json.dumps(fields).encode(), method="POST")
    if token:
        request.add_header("Authorization", token)
    with urlopen(request, timeout=20) as reply:
        assert reply.status == 200
        answer: dict[str, Any] = json.load(reply)
        return answer


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


@pytest.fixture
def open_to_all(etcd_binary: str, tmp_path: Path) -> Iterator[Etcd]:
    """A node that has users, and takes calls without one; other tests know no user."""
    etcd = Etcd(tmp_path, 1)
    etcd.start()
    told(etcd, "auth/user/add", name="root", password="all")
    told(etcd, "auth/user/add", name="servers", password="word")
    told(etcd, "auth/role/add", name="root")
    told(etcd, "auth/role/add", name="pequod")
    allowed = {"permType": "READWRITE", "key": text(b"/pequod/"), "range_end": text(b"/pequod0")}
    told(etcd, "auth/role/grant", name="pequod", perm=allowed)
    told(etcd, "auth/user/grant", user="root", role="root")
    told(etcd, "auth/user/grant", user="servers", role="pequod")
    yield etcd
    etcd.stop()


@pytest.fixture
def guarded(open_to_all: Etcd) -> Etcd:
    """A node with a root, and a user that may do everything below /pequod/."""
    told(open_to_all, "auth/enable")
    return open_to_all


async def test_a_cluster_lives_on_an_etcd_with_users(guarded: Etcd, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("word\n")
    (tmp_path / "wrong").write_text("sword")
    user: dict[str, Any] = {"cluster_user": "servers", "cluster_password": str(tmp_path / "password")}
    async with AsyncExitStack() as stack:
        cluster = Cluster(guarded, stack)
        place = guarded.setting(cluster.name)
        for access in (None, etcd_access(cluster_user="servers", cluster_password=tmp_path / "wrong")):
            stranger = coordinator_of(place, access)
            with pytest.raises(CoordinatorUnavailableError):
                await stranger.put_map(ClusterMap(cluster.name, 1))
            await stranger.close()
        known = {f"PEQUOD_{name.upper()}": value for name, value in user.items()}
        done = await asyncio.to_thread(CliRunner().invoke, app, ["cluster", "init", place, "--at-once"], env=known)
        assert done.exit_code == 0, done.output
        one, other = await cluster.server("c1", **user), await cluster.server("c2", **user)
        assert one.member is not None
        member = one.member
        await eventually(lambda: len(member.state.servers) == 2)
        # Nodes that start anew know no tokens of before.
        for node in guarded.nodes:
            await asyncio.to_thread(node.kill)
        await asyncio.to_thread(guarded.start)
        await (await cluster.client(one)).add_join(TIMELINE)
        await eventually(lambda: names(other) == ["t"])
        done = await asyncio.to_thread(CliRunner().invoke, app, ["cluster", "status", place, "--json"], env=known)
        assert '"c2"' in done.output


async def test_calls_at_once_all_get_a_new_token_when_the_old_one_is_forgotten(guarded: Etcd) -> None:
    calls = EtcdCalls(guarded.endpoints, EtcdAccess(user="servers", password="word"))
    await calls.read(b"/pequod/x")
    root = await asyncio.to_thread(told, guarded, "auth/authenticate", name="root", password="all")
    # etcd forgets the tokens of a user whose password is set.
    await asyncio.to_thread(told, guarded, "auth/user/changepw", root["token"], name="servers", password="word")
    await asyncio.gather(*(calls.read(b"/pequod/x") for _ in range(4)))
    await calls.close()


async def test_servers_with_a_user_are_there_before_etcd_asks_for_users(open_to_all: Etcd) -> None:
    coordinator = EtcdCoordinator(open_to_all.endpoints, "early", EtcdAccess(user="servers", password="word"))
    await coordinator.put_map(ClusterMap("early", 1))
    await asyncio.to_thread(told, open_to_all, "auth/enable")
    await coordinator.put_map(ClusterMap("early", 2))
    assert (await coordinator.read()).map.version == 2
    await coordinator.close()


def test_a_user_without_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="it goes with cluster_user"):
        etcd_access(cluster_user="servers")
    with pytest.raises(SettingError, match="cannot read it"):
        etcd_access(cluster_user="servers", cluster_password=tmp_path / "none")


ROLES = ("servers", "c1", "c2", "h1", "operator")


@pytest.fixture
def by_key(open_to_all: Etcd) -> Etcd:
    """A node with the users of the docs: each server may write its own entry, and an operator the map."""
    etcd, root = open_to_all, b"/pequod/rights/"
    end = b"/pequod/rights0"
    for name in ROLES:
        told(etcd, "auth/user/add", name=f"{name}-user", password="word")
        told(etcd, "auth/role/add", name=f"{name}-role")
        read = {"permType": "READ", "key": text(root), "range_end": text(end)}
        own = root + (b"map" if name == "operator" else b"servers/" + name.encode())
        told(etcd, "auth/role/grant", name=f"{name}-role", perm=read)
        told(etcd, "auth/role/grant", name=f"{name}-role", perm={"permType": "READWRITE", "key": text(own)})
        told(etcd, "auth/user/grant", user=f"{name}-user", role=f"{name}-role")
    servers = {"permType": "READWRITE", "key": text(root + b"servers/"), "range_end": text(root + b"servers0")}
    told(etcd, "auth/role/grant", name="operator-role", perm=servers)
    told(etcd, "auth/enable")
    return etcd


async def test_servers_with_rights_by_key_live_and_cannot_change_the_map_or_others(
    by_key: Etcd, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("word")

    def user(name: str) -> dict[str, Any]:
        return {"cluster_user": f"{name}-user", "cluster_password": str(tmp_path / "password")}

    def coordinator(name: str) -> EtcdCoordinator:
        return EtcdCoordinator(by_key.endpoints, "rights", EtcdAccess(user=f"{name}-user", password="word"))

    operator = coordinator("operator")
    await operator.put_map(ClusterMap("rights", 1))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(operator.close)
        cluster = Cluster(by_key, stack)
        cluster.name = "rights"
        home = await cluster.server("h1", cluster_roles="home", cluster_group="a", **user("h1"))
        one, other = await cluster.server("c1", **user("c1")), await cluster.server("c2", **user("c2"))
        assert one.member is not None
        assert other.member is not None
        assert home.member is not None
        member = one.member
        await eventually(lambda: {server.id for server in member.state.servers} == {"h1", "c1", "c2"})
        # All of them go by what the operator changes.
        await operator.put_map(ClusterMap("rights", 2, f"{TIMELINE};"))
        await eventually(lambda: names(one) == names(other) == ["t"])
        await operator.ask_state("c2", ServerState.DRAINING)
        await eventually(lambda: member.state.servers[1].state is ServerState.DRAINING)
        for name in ("h1", "c1"):
            taken_over = coordinator(name)
            stack.push_async_callback(taken_over.close)
            assert (await taken_over.read()).map.version == 2
            with pytest.raises(CoordinatorUnavailableError, match="permission denied") as refused:
                await taken_over.put_map(ClusterMap("rights", 3))
            assert "does not answer" not in str(refused.value)
            for key in (b"map", b"servers/c2", b"servers/c11", b"other"):
                put = etcd_messages.PutRequest(key=b"/pequod/rights/" + key, value=b"mine")
                request = etcd_messages.TransactionRequest(success=[etcd_messages.Operation(put=put)])
                with pytest.raises(CoordinatorUnavailableError, match="permission denied"):
                    await taken_over._calls.transact(request)
        # A join that a compute may not put into the map is nowhere.
        with pytest.raises(CoordinatorUnavailableError, match="permission denied"):
            await (await cluster.client(one)).add_join("karma|<a> = count v|<a>|<i>")
        assert names(one) == names(other) == ["t"]
    # Leases of servers that were stopped are gone, with their entries.
    late = coordinator("operator")
    assert (await late.read()).servers == ()
    await late.close()
