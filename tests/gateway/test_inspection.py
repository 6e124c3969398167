"""What the endpoints of joins, slow calls and the cluster tell of a server, without a change of it."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pequod_server import PequodServer

from tests.gateway.doors import TIMELINE, opened

KARMA = "karma|<author> = count vote|<author>|<voter>"


async def _checked(client: aiohttp.ClientSession, text: str, **options: Any) -> Any:
    async with client.post("/v1/joins/check", json={"text": text}, **options) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.json()


def _fill(server: PequodServer) -> None:
    server.engine.put(b"s|ann|bob", b"1")
    server.engine.put(b"s|malformed", b"1")
    for number in range(3):
        server.engine.put(b"p|bob|%04d" % number, b"post %d" % number)


async def test_a_check_shows_matches_rows_and_the_plan_and_changes_nothing() -> None:
    async with opened() as (server, client):
        _fill(server)
        before = server.engine.revision, dict(server.engine._directory.by_name)
        (join,) = (await _checked(client, TIMELINE))["joins"]
        assert (join["is_installed"], join["looked_at"], join["matching"]) == (False, [2, 3], [1, 3])
        assert join["keys"] == [f"t|ann|{number:04}|bob" for number in range(3)]
        assert join["values"] == ["post 0", "post 1", "post 2"]
        assert [source["reads"] for source in join["explanation"]["sources"]] == ["s|<user>|", "p|<poster>|"]
        assert server.engine.joins() == []
        assert (server.engine.revision, dict(server.engine._directory.by_name)) == before
        assert server.engine.count(b"t|", b"t}") == 0


async def test_what_a_check_shows_is_what_is_installed_then() -> None:
    async with opened() as (server, client):
        _fill(server)
        server.engine.put(b"vote|bob|ann", b"1")
        text = f"{TIMELINE}; {KARMA}; best|<user>|<poster> = check s|<user>|<poster> copy karma|<poster>"
        checked = (await _checked(client, text))["joins"]
        async with client.post("/v1/joins", json={"text": text}) as reply:
            assert reply.status == 200
        for join in checked:
            explained = server.engine.explain_join(join["explanation"]["name"])
            assert (join["explanation"]["text"], join["explanation"]["maintenance"]) == (
                explained.text,
                explained.maintenance,
            )
            first = explained.text.partition("|")[0].encode()
            rows = server.engine.scan(first + b"|", first + b"}")
            assert [key.encode() for key in join["keys"]] == rows.keys
            assert [value.encode() for value in join["values"]] == rows.values
        assert all(join["is_installed"] for join in (await _checked(client, text))["joins"])


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("t|<user> = copi p|<user>", 1, 12, "copi"),
        ("a|<x> = copy b|<x>;\nb|<x> = copy a|<x>", 1, 1, "cycle|reads"),
        ("p|<poster>|<time> = copy q|<poster>|<time>", 1, 1, "which a client has written"),
        ("", 0, 0, ""),
    ],
)
async def test_a_text_that_would_be_refused_has_its_problem_and_place(
    text: str, line: int, column: int, words: str
) -> None:
    async with opened() as (server, client):
        _fill(server)
        told = await _checked(client, text)
        async with client.post("/v1/joins", json={"text": text}) as reply:
            assert reply.status == 400
            refusal = (await reply.json())["error"]
        assert told["joins"] == []
        problem = told["problem"]
        assert (problem["line"], problem["column"]) == (line, column)
        assert (problem["reason"], problem["hint"]) == (refusal["facts"]["reason"], refusal["facts"]["hint"])
        assert any(word in problem["reason"] for word in words.split("|"))


async def test_a_check_warns_of_a_join_that_shows_its_values_in_place_of_these() -> None:
    async with opened() as (server, client):
        for text in (TIMELINE, KARMA, "karma|<a> = sum vote|<a>|<v>"):
            await client.post("/v1/joins", json={"text": text})
        server.engine.drop_join("karma")
        (join,) = (await _checked(client, "karma|<author> = max vote|<author>|<voter>"))["joins"]
        assert join["explanation"]["name"] == "karma"
        assert "join karma.2, which was installed before" in join["explanation"]["warnings"][0]


async def test_a_check_shows_the_rows_of_each_join_alone() -> None:
    async with opened() as (server, client):
        wide = TIMELINE.replace("time:4", "time:10")
        await client.post("/v1/joins", json={"text": wide})
        server.engine.put(b"s|ann|bob", b"1")
        server.engine.put(b"p|bob|0000000100", b"post")
        (join,) = (await _checked(client, TIMELINE))["joins"]
        assert (join["matching"], join["keys"]) == ([1, 0], [])
        assert join["explanation"]["name"] == "t.2"
        other = "t|<user>|<time:10>|<poster> = copy own|<user>|<time:10>|<poster>"
        server.engine.put(b"own|ann|0000000200|ann", b"mine")
        told = (await _checked(client, f"{other}; all|<user>|<time:10> = count t|<user>|<time:10>|<poster>; {wide}"))[
            "joins"
        ]
        assert [join["keys"] for join in told] == [
            ["t|ann|0000000200|ann"],
            ["all|ann|0000000100", "all|ann|0000000200"],
            ["t|ann|0000000100|bob"],
        ]
        assert [join["is_installed"] for join in told] == [False, False, True]


async def test_a_check_of_joins_of_one_table_leaves_them_in_their_order() -> None:
    async with opened() as (server, client):
        server.engine.put(b"vote|bob|ann", b"1")
        await client.post("/v1/joins", json={"text": KARMA})
        text = (
            "karma|<a> = sum vote|<a>|<v>; top|<a> = copy karma|<a>; "
            "karma|<author> = max vote|<author>|<voter>; karma|<a> = min vote|<a>|<v>"
        )
        checked = (await _checked(client, text))["joins"]
        await client.post("/v1/joins", json={"text": text})
        for join in checked:
            explained = server.engine.explain_join(join["explanation"]["name"])
            assert join["explanation"]["warnings"] == list(explained.warnings)
        assert [len(join["explanation"]["warnings"]) for join in checked] == [1, 0, 1, 1]


async def test_a_check_of_rows_without_end_shows_none() -> None:
    async with opened() as (server, client):
        for number in range(600):
            server.engine.put(b"a|%03d" % number, b"")
            server.engine.put(b"b|%03d" % number, b"x" * 100)
        (join,) = (await _checked(client, "o|<x>|<y>|<z> = check a|<x> check a|<y> copy b|<z>"))["joins"]
        assert (join["looked_at"], join["keys"]) == ([500, 500, 500], [])
        assert server.engine.ledger.total_bytes < 1 << 20


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "access.toml"
    roles = {"author": 'read = ["s|", "p|"]\njoin = ["t|"]', "reader": 'read = ["s|", "p|", "t|"]\njoin = ["t|"]'}
    roles["operator"] = 'admin = [""]'
    path.write_text(
        "".join(
            f'[roles.{name}]\n{rights}\n[tokens.{name}]\nrole = "{name}"\n'
            f'sha256 = "{sha256(name.encode()).hexdigest()}"\n'
            for name, rights in roles.items()
        )
    )
    path.chmod(0o600)
    yield path


def _as(name: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {name}"}}


async def test_a_check_shows_rows_to_those_alone_who_may_read_them(access: Path) -> None:
    async with opened(access_file=access) as (server, client):
        _fill(server)
        for name, count in (("author", 0), ("reader", 3)):
            (join,) = (await _checked(client, TIMELINE, **_as(name)))["joins"]
            assert (len(join["keys"]), len(join["values"]), join["matching"]) == (count, count, [1, 3])
        async with client.post("/v1/joins/check", json={"text": KARMA}, **_as("author")) as reply:
            assert reply.status == 403


async def test_slow_calls_are_kept_for_those_who_may_administer(access: Path) -> None:
    async with opened(access_file=access, slow_ms=1e-6) as (server, client):
        _fill(server)
        for key in ("p|bob|0000", "p|bob|0001"):
            await client.get(f"/v1/keys/{key}", **_as("reader"))
        async with client.get("/v1/slow", **_as("reader")) as reply:
            assert reply.status == 403
        async with client.get("/v1/slow", **_as("operator")) as reply:
            told = await reply.json()
        # The refused one was a call, too.
        assert [(one["method"], one["key"]) for one in told["calls"]][-2:] == [
            ("Get", "p|bob|0001"),
            ("Get", "p|bob|0000"),
        ]
        assert all(one["ms"] > 0 and one["at_s"] > 1e9 and one["request_id"] for one in told["calls"])
        for number in range(120):
            server.instruments.slow_batch(1.0, b"\1", b"k|%d" % number, 3)
        async with client.get("/v1/slow", **_as("operator")) as reply:
            calls = (await reply.json())["calls"]
        assert (len(calls), calls[0]["first"], calls[0]["commands"], calls[0]["rows"]) == (100, "k|119", 1, 3)


async def test_at_a_home_a_check_goes_by_the_joins_of_the_map_that_computes_have(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        f'cluster = "shop"\nversion = 1\njoins = "{KARMA};"\n'
        '[[servers]]\nid = "a"\naddress = "127.0.0.1:1"\nroles = ["home"]\ngroup = "g"\n'
    )
    async with opened(cluster=f"static:{cluster}", cluster_id="a") as (server, client):
        assert server.engine.joins() == []
        checked = (await _checked(client, f"{KARMA}; {KARMA.replace('author', 'writer')}"))["joins"]
        assert [join["is_installed"] for join in checked] == [True, False]
        assert "nothing of it is shown: join karma" in checked[1]["explanation"]["warnings"][0]


async def test_a_server_in_no_cluster_has_no_map() -> None:
    async with opened() as (_, client), client.get("/v1/cluster") as reply:
        assert (reply.status, await reply.json()) == (200, {"map": None, "servers": []})


async def test_a_server_in_a_cluster_tells_its_map_and_ends(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        'cluster = "shop"\nversion = 3\n[[servers]]\nid = "a"\naddress = "127.0.0.1:1"\nroles = ["compute"]\n'
    )
    async with opened(cluster=f"static:{cluster}", cluster_id="a") as (_, client), client.get("/v1/cluster") as reply:
        told = await reply.json()
    assert (told["map"]["cluster"], told["map"]["version"]) == ("shop", 3)
    assert [(one["id"], one["state"]) for one in told["servers"]] == [("a", "ready")]
