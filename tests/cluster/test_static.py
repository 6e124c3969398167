"""A cluster whose map is a file: servers follow it, say what is wrong with it, and tell it to their clients."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import ClientSession
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod.client import AsyncClient
from pequod.cluster.document import TEMPLATE, read
from pequod.cluster.map import ClusterState
from pequod.cluster.messages import state_after, state_of
from pequod.errors import ClusterMapError, MapFixedError, SettingError
from tests.cluster.waiting import eventually

ROOT = Path(__file__).parents[2]
JOIN = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
MAP = """
cluster = "twip"
version = {version}
joins = "{joins}"
[[servers]]
id = "c1"
address = "127.0.0.1:1"
{first}
zone = "north"
[[servers]]
id = "c2"
address = "127.0.0.1:2"
roles = ["compute"]
"""


def write(path: Path, version: int, joins: str = "", first: str = 'roles = ["compute"]') -> None:
    beside = path.with_suffix(".new")
    beside.write_text(MAP.format(version=version, joins=joins, first=first))
    beside.replace(path)


def spoil(path: Path) -> None:
    path.write_text("cluster = 'twip'\nversion = 'two'")


def said(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    """Return the lines of the log that contain a text."""
    return [line for record in caplog.records if part in (line := record.getMessage())]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    write(path, 1)
    return path


def config(path: Path, **settings: Any) -> ServerConfig:
    return ServerConfig(listen="127.0.0.1:0", cluster=f"static:{path}", **{"cluster_id": "c1", **settings})


@asynccontextmanager
async def serving(path: Path, **settings: Any) -> AsyncIterator[tuple[PequodServer, str]]:
    server = PequodServer(config(path, **settings))
    port = await server.start()
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop()
        server.engine._check()


@asynccontextmanager
async def following(address: str) -> AsyncIterator[AsyncIterator[ClusterState]]:
    """Follow the cluster by plain gRPC."""
    async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = PequodStub(channel).FollowCluster(pb.FollowClusterRequest())  # type: ignore[no-untyped-call]

        async def states() -> AsyncIterator[ClusterState]:
            async for reply in call:
                yield state_of(reply)

        yield states()
        call.cancel()


async def until(states: AsyncIterator[ClusterState], version: int) -> ClusterState:
    """Return the first state in which the first server goes by a version of the map."""
    async for state in states:
        if state.servers[0].map_version >= version:
            return state
    raise AssertionError("the stream ended")


async def test_a_client_is_told_the_map_and_the_servers(path: Path) -> None:
    async with serving(path) as (_, address), following(address) as states:
        state = await until(states, 1)
        assert state.map.cluster == "twip"
        assert [(server.id, server.zone, server.is_ready) for server in state.servers] == [
            ("c1", "north", True),
            ("c2", "", True),
        ]
        assert state.servers[0].address == "127.0.0.1:1"


async def test_a_changed_file_is_taken_in_and_told(path: Path) -> None:
    async with serving(path) as (server, address), following(address) as states:
        await until(states, 1)
        write(path, 2, JOIN)
        server.reload()
        state = await until(states, 2)
        assert (state.map.version, state.map.joins) == (2, "")
        assert [join.name for join in server.engine.joins()] == ["t"]
        write(path, 3, "k|<a> = count v|<a>|<i>")
        # Without a signal the file is looked at every second.
        await until(states, 3)
        assert [join.name for join in server.engine.joins()] == ["k"]


async def test_a_follower_that_wants_differences_is_told_what_has_changed_alone(path: Path) -> None:
    async with serving(path) as (server, address), following(address) as whole:
        await until(whole, 1)
        async with aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = PequodStub(channel).FollowCluster(pb.FollowClusterRequest(differences=True))  # type: ignore[no-untyped-call]
            state = state_of(first := await call.read())
            assert not first.is_difference
            write(path, 2, JOIN)
            server.reload()
            told = []
            while state.servers[0].map_version < 2:
                told.append(await call.read())
                state = state_after(state, told[-1])
            assert state == await until(whole, 2)
            assert all(one.is_difference for one in told)
            # The server that is followed has changed, and the other one has not.
            assert {entry.id for one in told for entry in one.servers} == {"c1"}
            assert [one.map.version for one in told if one.HasField("map")] == [2]
            assert not any(one.map.joins for one in told)
            call.cancel()


async def test_joins_of_the_first_map_are_there_at_the_start_beside_those_of_the_settings(path: Path) -> None:
    write(path, 7, JOIN)
    async with serving(path, joins="k|<a> = count v|<a>|<i>") as (server, _):
        assert {join.name for join in server.engine.joins()} == {"t", "k"}


async def test_a_file_that_becomes_wrong_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(path) as (server, address), following(address) as states:
        await until(states, 1)
        spoil(path)
        server.reload()
        await eventually(lambda: said(caplog, "stays in use"))
        assert said(caplog, "stays in use") == [
            f"{path}: the map, version: it has to be a whole number; the map read before stays in use"
        ]
        assert server.member is not None
        assert server.member.map.version == 1
        write(path, 2)
        server.reload()
        await until(states, 2)


async def test_a_changed_map_without_a_greater_version_is_refused(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(path) as (server, _):
        write(path, 1, JOIN)
        server.reload()
        await eventually(lambda: said(caplog, "not taken"))
        assert server.engine.joins() == []


async def test_a_map_whose_joins_cannot_be_installed_leaves_the_joins_as_they_were(path: Path) -> None:
    write(path, 1, JOIN)
    async with serving(path) as (server, address), following(address) as states:
        await until(states, 1)
        async with AsyncClient(address) as client:
            await client.put("k|ann", "1")
        write(path, 2, f"{JOIN} k|<a> = count v|<a>|<i>")
        server.reload()
        member = server.member
        assert member is not None
        await eventually(lambda: member.fault)
        assert "k" in member.fault
        assert [join.name for join in server.engine.joins()] == ["t"]
        assert member.entry.map_version == 1
        async with AsyncClient(address) as client:
            await client.remove("k|ann")
        # It is tried again by itself.
        state = await until(states, 2)
        assert state.map.version == 2
        assert {join.name for join in server.engine.joins()} == {"t", "k"}


async def test_joins_are_not_added_to_a_file(path: Path) -> None:
    async with serving(path) as (server, address), AsyncClient(address) as client:
        with pytest.raises(MapFixedError) as raised:
            await client.add_join(JOIN)
        assert raised.value.version == 2
        assert str(path) in str(raised.value)
        # The join was tried here, and is gone again.
        assert server.engine.joins() == []


async def test_a_home_refuses_joins_of_a_file_as_computes_do(path: Path) -> None:
    write(path, 1, first='roles = ["home"]\ngroup = "a"')
    async with serving(path) as (server, address), AsyncClient(address) as client:
        with pytest.raises(MapFixedError):
            await client.add_join(JOIN)
        assert server.engine.joins() == []


async def test_a_client_hears_that_a_server_drains_before_it_is_refused(path: Path) -> None:
    server = PequodServer(config(path))
    port = await server.start()
    async with following(f"127.0.0.1:{port}") as states:
        await until(states, 1)
        stopping = asyncio.create_task(server.stop())
        state = await anext(states)
        assert [one.state for one in state.servers] == ["draining", "ready"]
        with pytest.raises(grpc.RpcError) as raised:
            await anext(states)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        await stopping


async def test_metrics_tell_the_map_that_a_server_goes_by_and_who_is_there(path: Path) -> None:
    async with serving(path, metrics="127.0.0.1:0") as (server, _), ClientSession() as session:
        async with session.get(f"{server.instruments.url}/metrics") as reply:
            lines = (await reply.text()).splitlines()
        page = (ROOT / "docs/cluster.md").read_text()
        for line in (
            'pequod_cluster_member{group="",id="c1",roles="compute",state="ready",zone="north"} 1.0',
            "pequod_cluster_map_version 1.0",
            "pequod_cluster_map_taken_in_version 1.0",
            'pequod_cluster_servers{role="compute",state="ready"} 2.0',
        ):
            assert line in lines
            assert f"`{re.split('[{ ]', line)[0]}`" in page
        async with session.get(f"{server.instruments.url}/readyz") as reply:
            assert reply.status == 200


async def test_a_server_without_a_cluster_says_so() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = PequodStub(channel).FollowCluster(pb.FollowClusterRequest())  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as raised:
            await call.read()
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await server.stop()


async def test_a_server_finds_itself_in_the_file_by_its_address(path: Path) -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:2", cluster=f"static:{path}"))
    assert server.member is not None
    assert server.member.entry.id == "c2"


@pytest.mark.parametrize(
    ("settings", "place", "hint"),
    [
        ({"cluster_id": "c9"}, "servers", "none has the id c9; give cluster_id, or put the server into the file"),
        ({"cluster_id": ""}, "servers", "none has the address 127.0.0.1:0"),
        ({"cluster_group": "a"}, "cluster_group", "says it; take it out here"),
        ({"cluster": "zookeeper:1"}, "cluster", "write static:FILE or etcd:HOST:PORT,HOST:PORT/NAME"),
        ({"cluster": "etcd:there:2379"}, "cluster", "does not end with the name of the cluster"),
        ({"cluster": "etcd:there/twip"}, "cluster", "'there' is no address"),
        ({"cluster": ""}, "cluster_id", "it needs a cluster"),
        ({"cluster": "etcd:there:2379/twip", "cluster_id": ""}, "cluster_id", "give the server a name"),
        ({"cluster": "etcd:there:2379/twip", "cluster_roles": "home"}, "cluster_group", "give its name"),
        ({"cluster": "etcd:there:2379/twip", "listen": "0.0.0.0:7744"}, "cluster_address", "others cannot reach"),
        ({"cluster": "static:/nowhere"}, "/nowhere", "`pequod cluster init` writes one"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_with_a_hint(
    path: Path, settings: dict[str, Any], place: str, hint: str
) -> None:
    with pytest.raises((SettingError, ClusterMapError)) as raised:
        PequodServer(ServerConfig(**{**config(path).model_dump(), **settings}))
    assert place in str(raised.value).partition(": ")[0]
    assert hint in str(raised.value)


def test_the_map_of_the_page_is_right() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/cluster.md").read_text(), re.DOTALL)
    state = read(text)
    state.check_groups()
    assert [server.id for server in state.homes_of("a")] == ["s1", "s2"]


async def test_the_template_starts_a_server(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(TEMPLATE)
    async with serving(path, cluster_id="s1") as (server, address), AsyncClient(address) as client:
        await client.put("s|ann|bob", "1")
        await client.put("p|bob|0000000100", "Hi")
        assert await client.scan("t|ann|", "t|ann}") == [(b"t|ann|0000000100|bob", b"Hi")]
        assert server.member is not None
        server.member.state.check_groups()
