"""`pequod serve --data DIR`: rows, joins and tokens outlive the server, and what does not go together is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import ClientSession
from pequod_bench.systems.server import free_port
from pequod_grammar import parse_one
from pequod_server import PequodServer, ServerConfig
from pequod_server.data.disk import Fsync
from pequod_server.data.errors import DamagedError, FolderError
from pequod_server.data.folder import Folder
from pequod_server.data.opening import open_rows
from pequod_server.ops.web import WebServer

from pequod.engine import Engine
from pequod.errors import SettingError, TokenLostError
from pequod.freshness import after, database_of
from tests.disk.folders import contents, killed, lose_machine, served
from tests.forked import ForkedServer, run_command

KARMA = "karma|<author> = count vote|<author>|<voter>"
TIMELINE = "t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:3>"


@pytest.mark.parametrize("fsync", ["always", "everysec", "never"])
async def test_rows_and_joins_of_clients_are_there_after_a_restart(tmp_path: Path, fsync: str) -> None:
    async with served(tmp_path / "data", fsync=fsync, joins=KARMA) as (_, client):
        await client.add_join(TIMELINE)
        await client.add_join("gone|<a> = count vote|<a>|<b>")
        await client.drop_join("gone")
        for key in ("s|ann|bob", "p|bob|100", "p|bob|120", "vote|ann|bob", "loose"):
            await client.put(key, "1")
        await client.remove("p|bob|100")
        before, joins = await client.scan(), await client.joins()
    async with served(tmp_path / "data", fsync=fsync, joins=KARMA) as (_, client):
        assert await client.scan() == before
        assert await client.joins() == joins
        await client.put("p|bob|130", "again")
        assert await client.count("t|ann|", "t|ann}") == 2
    async with served(tmp_path / "data") as (_, client):
        assert [join.name for join in await client.joins()] == ["t"], "those of the settings are the settings' alone"


def cluster_of(place: Path, address: str, joins: str) -> None:
    place.write_text(
        f'cluster = "twip"\nversion = 1\njoins = """{joins}"""\n'
        f'[[servers]]\nid = "c1"\naddress = "{address}"\nroles = ["compute"]\n'
    )


async def test_a_server_of_a_cluster_refuses_a_folder_with_joins_that_the_map_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.add_join(KARMA)
        await client.add_join(TIMELINE)
        await client.put("vote|ann|bob", "")
    address = f"127.0.0.1:{free_port()}"
    cluster_of(tmp_path / "cluster.toml", address, f"{TIMELINE};")
    with monkeypatch.context() as shell:
        shell.setenv("PEQUOD_CLUSTER", f"static:{tmp_path / 'cluster.toml'}")
        done = run_command("serve", "--listen", address, "--data", str(tmp_path / "data"))
    assert done.code == 3
    assert f"it has joins that the cluster's map lacks: `{parse_one(KARMA)}`. " in done.err
    assert "without the variable PEQUOD_CLUSTER" in done.err
    async with served(tmp_path / "data") as (_, client):
        assert await client.get("karma|ann") == b"1", "nothing was changed"
        assert len(await client.joins()) == 2


async def test_a_folder_whose_joins_the_map_has_joins_the_cluster(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.add_join(KARMA)
        await client.put("vote|ann|bob", "")
    address = f"127.0.0.1:{free_port()}"
    # The same join in other words, and another one.
    cluster_of(tmp_path / "cluster.toml", address, f"{TIMELINE};\n  {KARMA.replace(' = ', '   =  ')} ;")
    place = f"static:{tmp_path / 'cluster.toml'}"
    for _ in range(2):
        async with served(tmp_path / "data", cluster=place, cluster_id="c1") as (_, client):
            assert await client.get("karma|ann") == b"1"
            assert {join.name for join in await client.joins()} == {"karma", "t"}
    async with served(tmp_path / "data") as (_, client):
        assert await client.joins() == [], "they are the map's alone now"
        assert await client.get("vote|ann|bob") == b""


async def test_a_kill_leaves_all_rows_and_joins(tmp_path: Path) -> None:
    async with served(tmp_path / "data", fsync="never") as (_, client):
        await client.add_join(KARMA)
        await client.put("vote|ann|bob", "")
        copy = killed(tmp_path / "data", tmp_path / "killed")
    async with served(copy) as (_, client):
        assert await client.get("karma|ann") == b"1"


async def test_tokens_outlive_a_restart_and_reach_no_further_than_the_data(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.put("a", "1")
        early = client.last_token
        copy = killed(tmp_path / "data", tmp_path / "killed")
        await client.put("a", "2")
        late = client.last_token
    assert early is not None and late is not None
    async with served(tmp_path / "data") as (server, client):
        assert await client.get("a", freshness=after(late)) == b"2"
        assert server.engine.revision == 2
        await client.put("a", "3")
        assert client.last_token is not None and client.last_token.has(late)
    # As if the machine had been lost with the second write.
    lose_machine(copy)
    async with served(copy) as (_, client):
        assert await client.get("a", freshness=after(early)) == b"1"
        with pytest.raises(TokenLostError, match="lost with the end of the data"):
            await client.get("a", freshness=after(late))
        await client.put("a", "4")
        assert client.last_token is not None and not client.last_token.has(late)
        with pytest.raises(TokenLostError, match="lost with the end of the data"):
            await client.get("a", freshness=after(late))
    async with served(tmp_path / "other") as (_, client):
        with pytest.raises(TokenLostError, match="of other data"):
            await client.get("a", freshness=after(late))


async def test_a_watch_names_the_folder_as_the_origin_of_its_rows(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (server, client):
        assert server.disk is not None
        async for event in client.watch("a", "b"):
            assert event.origins == (database_of("data", server.disk.folder.about.name),)
            break


async def test_a_second_server_is_refused_by_name(tmp_path: Path) -> None:
    async with served(tmp_path / "data"):
        second = PequodServer(ServerConfig(listen="127.0.0.1:0", data=tmp_path / "data"))
        with pytest.raises(FolderError, match=r"the process \d+ has it open"):
            await second.start()


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"backing": "sqlite:rows.db", "backing_tables": "p"}, "the database behind the server keeps the base data"),
        ({"snapshot_file": "pequod.snapshot"}, "give data or snapshot_file; `pequod data backup` makes copies of it"),
        ({"snapshot_folder": "snapshots"}, "give data or snapshot_folder; `pequod data backup` makes copies of it"),
        ({"snapshot_every_s": "60"}, "give data or snapshot_every_s; `pequod data backup` makes copies of it"),
    ],
)
def test_a_folder_beside_a_database_or_a_snapshot_is_refused_with_the_reason(
    tmp_path: Path, other: dict[str, str], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        PequodServer(ServerConfig(data=tmp_path / "data", **other))  # type: ignore[arg-type]


@pytest.mark.parametrize("fsync", ["always", "never"])
def test_fsync_without_a_folder_is_refused_by_its_name(fsync: Fsync) -> None:
    with pytest.raises(SettingError, match=f"fsync: no disk has what is written; give data, .* or leave {fsync} out"):
        PequodServer(ServerConfig(fsync=fsync))


async def test_rows_that_do_not_go_with_the_settings_end_the_start(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.put("karma|ann", "1")
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", data=tmp_path / "data", joins=KARMA))
    with pytest.raises(FolderError, match=r"its rows do not go with the settings: .*karma"):
        await server.start()
    assert contents(tmp_path / "data") == {b"karma|ann": b"1"}


async def test_joins_that_do_not_go_with_the_settings_end_the_start(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.add_join("b|<x> = copy a|<x>")
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", data=tmp_path / "data", joins="a|<x> = copy b|<x>"))
    with pytest.raises(FolderError, match="its joins do not go with those of the settings"):
        await server.start()


async def test_a_start_says_how_far_the_data_are_loaded(tmp_path: Path) -> None:
    with Folder(tmp_path / "data") as folder, open_rows(folder) as rows:
        rows.write({b"k%05d" % number: b"v" for number in range(10_000)}, 10_000)
        folder.note.written = 10_000
    said: list[str] = []

    class Watched(Engine):
        def put_all(self, keys: Sequence[bytes], values: Sequence[bytes], ttl_ms: int = 0) -> None:
            super().put_all(keys, values)
            said.append(server.waits_for)

    server = PequodServer(ServerConfig(listen="127.0.0.1:0", data=tmp_path / "data"), Watched())
    await server.start()
    about = re.escape(f"loading {tmp_path / 'data'}: ") + r"(\d+) of about \d+ keys"
    assert [match[1] for text in said if (match := re.fullmatch(about, text))] == ["0", "4096", "8192"]
    assert server.waits_for == "the listening socket"
    await server.stop()


def test_a_damaged_folder_ends_the_command_with_the_file_and_what_to_do(tmp_path: Path) -> None:
    with ForkedServer("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")) as server:
        server.terminate()
    (tmp_path / "data/folder.json").write_text("{")
    with pytest.raises(AssertionError, match=r"ended with 3:\n.*folder\.json: the file is damaged.*pequod data repair"):
        ForkedServer("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))


async def test_a_damaged_row_ends_the_start(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.multi_put({f"k{number:04}": "v" * 100 for number in range(2000)})
    (file,) = (tmp_path / "data/rows").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", data=tmp_path / "data"))
    with pytest.raises(DamagedError, match=rf"{file.name}: .*checksum mismatch"):
        await server.start()


async def test_a_server_that_loads_its_data_says_so_while_it_is_not_ready() -> None:
    async def scrape(_accepted: str) -> tuple[bytes, str]:
        return b"", "text/plain"

    web = WebServer(scrape, lambda: False, tuple, step=lambda: "loading data: 4096 of about 10000 keys")
    url = await web.start("127.0.0.1:0")
    async with ClientSession() as http, http.get(f"{url}/readyz") as response:
        assert (response.status, await response.text()) == (503, "not ready: loading data: 4096 of about 10000 keys\n")
    await web.stop()
