"""The endpoints of /v1 with a plain client of HTTP: what they do, and how they refuse what is not right."""

import asyncio
import json
from typing import Any
from urllib.parse import quote_from_bytes

import aiohttp
import pytest
from yarl import URL

from tests.gateway.doors import TIMELINE, opened


async def _asked(client: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Return status and members of a reply; the path goes out as it is."""
    base = str(client._base_url).rstrip("/")
    data = None if body is None else json.dumps(body)
    headers = {} if body is None else {"Content-Type": "application/json"}
    async with client.request(method, URL(base + path, encoded=True), data=data, headers=headers) as reply:
        assert reply.content_type == "application/json"
        return reply.status, await reply.json()


async def test_any_bytes_are_written_read_and_removed() -> None:
    async with opened() as (server, client):
        for key, value in ((b"p|ann|1", b"Hi"), (b"a/b?c#d%", "caf\u00e9".encode()), (b"\xff/\x00\n", b"\xfe\x00")):
            path = f"/v1/keys/{quote_from_bytes(key, safe='|')}"
            shown: Any = value.decode() if value != b"\xfe\x00" else {"base64": "/gA="}
            assert await _asked(client, "PUT", path, {"value": shown}) == (200, {"met": True})
            assert server.engine.get(key) == value
            status, members = await _asked(client, "GET", path)
            assert (status, members["value"]) == (200, shown)
            assert await _asked(client, "DELETE", path) == (200, {"removed": True})
            assert await _asked(client, "DELETE", path) == (200, {"removed": False})
            status, members = await _asked(client, "GET", path)
            assert (status, members["value"]) == (404, None)


async def test_writes_under_a_condition_tell_the_present_value() -> None:
    async with opened() as (server, client):
        lock = "/v1/keys/lock"
        assert await _asked(client, "PUT", lock, {"value": "me", "if": "absent"}) == (200, {"met": True})
        unmet = (412, {"met": False, "present": "me"})
        assert await _asked(client, "PUT", lock, {"value": "you", "if": "absent"}) == unmet
        assert await _asked(client, "PUT", lock, {"value": "you", "if": {"value": "her"}}) == unmet
        assert await _asked(client, "DELETE", lock, {"if": {"value": "her"}}) == unmet
        assert await _asked(client, "PUT", lock, {"value": "you", "if": {"value": "me"}}) == (200, {"met": True})
        assert await _asked(client, "PUT", lock, {"value": "she", "if": "present"}) == (200, {"met": True})
        assert await _asked(client, "DELETE", lock, {"if": {"value": "she"}}) == (200, {"met": True})
        assert await _asked(client, "PUT", lock, {"value": "x", "if": "present"}) == (
            412,
            {"met": False, "present": None},
        )
        assert server.engine.get(b"lock") is None


async def test_numbers_grow_and_keys_expire() -> None:
    async with opened() as (server, client):
        assert await _asked(client, "POST", "/v1/add/n", {"delta": 5}) == (200, {"value": "5"})
        assert await _asked(client, "POST", "/v1/add/n", {"delta": "-0.5"}) == (200, {"value": "4.5"})
        assert await _asked(client, "GET", "/v1/ttl/n") == (200, {"key": "n", "ttl_s": None})
        assert await _asked(client, "PUT", "/v1/ttl/n", {"ttl_s": 100}) == (200, {"was_there": True})
        status, members = await _asked(client, "GET", "/v1/ttl/n")
        assert (status, 0 < members["ttl_s"] <= 100) == (200, True)
        assert await _asked(client, "PUT", "/v1/ttl/n", {"ttl_s": None}) == (200, {"was_there": True})
        assert await _asked(client, "GET", "/v1/ttl/n") == (200, {"key": "n", "ttl_s": None})
        assert await _asked(client, "PUT", "/v1/keys/n", {"value": "1", "ttl_s": 0.5}) == (200, {"met": True})
        assert await _asked(client, "PUT", "/v1/keys/n", {"value": "2", "keep_ttl": True}) == (200, {"met": True})
        assert 0 < (await _asked(client, "GET", "/v1/ttl/n"))[1]["ttl_s"] <= 0.5
        server.databases.expiring.clock_ms = lambda: 1 << 46
        assert (await _asked(client, "GET", "/v1/keys/n"))[0] == 404
        assert (await _asked(client, "GET", "/v1/ttl/n"))[0] == 404
        assert await _asked(client, "PUT", "/v1/ttl/n", {"ttl_s": 1}) == (404, {"was_there": False})


@pytest.mark.parametrize("reverse", [False, True])
async def test_pages_one_after_another_have_all_rows(*, reverse: bool) -> None:
    async with opened(chunk_bytes=300) as (server, client):
        rows = {b"k|%03d\xff" % number: b"v" * (number % 40) for number in range(100)}
        for key, value in rows.items():
            server.engine.put(key, value)
        found: list[Any] = []
        path: str | None = f"/v1/scan?prefix=k|&limit=7&reverse={str(reverse).lower()}"
        while path is not None:
            status, members = await _asked(client, "GET", path)
            assert status == 200
            assert 0 < len(members["rows"]) <= 7
            found += [row[1] for row in members["rows"]]
            path = members["next"]
        expected = [value.decode() for value in rows.values()]
        assert found == (expected[::-1] if reverse else expected)
        assert await _asked(client, "GET", "/v1/count?prefix=k|") == (200, {"count": 100})
        assert await _asked(client, "GET", "/v1/scan?prefix=k|&limit=0") == (200, {"rows": [], "next": None})
        status, members = await _asked(client, "GET", "/v1/scan?first=k|098&keys_only=true")
        assert members["keys"] == [{"base64": "a3wwOTj/"}, {"base64": "a3wwOTn/"}]
        assert await _asked(client, "DELETE", "/v1/range?prefix=k|") == (200, {"removed": 100})


async def test_pages_over_the_longest_keys_and_heads_of_replies() -> None:
    async with opened(key_bytes_max=4096) as (server, client):
        keys = [b"\xff" * 4090 + b"%d" % number for number in range(4)]
        for key in keys:
            server.engine.put(key, b"v")
        path: str | None = f"/v1/scan?first=%00&last={'%ff' * 4096}&limit=1"
        count = 0
        while path is not None:
            status, members = await _asked(client, "GET", path)
            path, count = members["next"], count + len(members["rows"])
        assert (status, count) == (200, 4)
        async with client.head("/v1/keys/none") as reply:
            assert reply.status == 404


async def test_joins_are_added_read_explained_and_dropped() -> None:
    async with opened() as (server, client):
        status, members = await _asked(client, "POST", "/v1/joins", {"text": TIMELINE})
        assert (status, members["joins"][0]["name"]) == (200, "t")
        assert len((await _asked(client, "GET", "/v1/joins"))[1]["joins"]) == 1
        for key, value in (("s|ann|bob", "1"), ("p|bob|0001", "Hi")):
            await _asked(client, "PUT", f"/v1/keys/{key}", {"value": value})
        found = await _asked(client, "GET", "/v1/scan?prefix=t|ann|")
        assert found == (200, {"rows": [["t|ann|0001|bob", "Hi"]], "next": None})
        status, members = await _asked(client, "GET", "/v1/explain?join=t")
        assert (status, members["join"]["text"]) == (200, TIMELINE.replace("time>", "time:4>"))
        status, members = await _asked(client, "GET", "/v1/explain?first=t|ann|&last=t|ann}")
        assert (status, members["range"]["joins"][0]["join"]) == (200, "t")
        assert (await _asked(client, "PUT", "/v1/keys/t|ann|0001|bob", {"value": "x"}))[0] == 409
        status, members = await _asked(client, "POST", "/v1/joins", {"text": "t|<a> = copy"})
        assert (status, members["error"]["reason"]) == (400, "JoinError")
        assert await _asked(client, "DELETE", "/v1/joins/t") == (200, {})
        status, members = await _asked(client, "DELETE", "/v1/joins/t")
        assert (status, members["error"]["code"]) == (404, "NOT_FOUND")
        server.instruments.heat.note(b"t|ann|1", False, 0.005)
        server.instruments.heat.tick()
        found = (await _asked(client, "GET", "/v1/statistics"))[1]
        assert found["joins"] == []
        assert "t|ann|" in {one["group"] for one in found["heat"]["groups"]}
        assert {tuple(one["read_at"]) for one in found["heat"]["groups"]} == {()}, "it belongs to no cluster"


async def test_a_transaction_runs_one_of_its_lists() -> None:
    form = {
        "compares": [{"key": "stock", ">": 0}],
        "then": [{"add": "stock", "delta": -1}, {"put": "order|1", "value": "book"}, {"scan": "order|"}],
        "otherwise": [{"get": "stock"}],
    }
    async with opened() as (server, client):
        server.engine.put(b"stock", b"1")
        ran = {"held": True, "outcomes": ["0", None, [["order|1", "book"]]]}
        assert await _asked(client, "POST", "/v1/transaction", form) == (200, ran)
        assert await _asked(client, "POST", "/v1/transaction", form) == (200, {"held": False, "outcomes": ["0"]})
        form["then"][1]["vale"] = "pen"  # type: ignore[index]
        status, members = await _asked(client, "POST", "/v1/transaction", form)
        assert (status, "then[1]: it has 'vale'" in members["error"]["message"]) == (400, True)


async def test_a_reply_names_its_state_and_a_read_waits_for_it() -> None:
    async with opened() as (_, client):
        async with client.put("/v1/keys/k", json={"value": "1"}) as reply:
            token = reply.headers["Pequod-Token"]
        assert (await _asked(client, "GET", f"/v1/keys/k?after={token}"))[0] == 200
        assert (await _asked(client, "GET", "/v1/keys/k?latest=true"))[0] == 200
        assert (await _asked(client, "GET", "/v1/keys/k?max_age_ms=1000"))[0] == 200
        status, members = await _asked(client, "GET", "/v1/keys/k?after=pq1.AAAA")
        assert (status, members["error"]["reason"]) == (400, "InvalidTokenError")


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("GET", "/v1/scan?limt=1", None, "no parameter 'limt'"),
        ("GET", "/v1/keys/a%zz", None, "'%zz', which encodes no byte; a percent sign itself is %25"),
        ("PUT", "/v1/keys/100%", b'{"value": "1"}', "the path has '%', which encodes no byte"),
        ("GET", "/v1/scan?prefix=%4", None, "the parameter 'prefix' has '%4', which encodes no byte"),
        ("GET", "/v1/scan?%=a", None, "the name of a parameter has '%', which encodes no byte"),
        ("GET", "/v1/scan?limit=1&limit=2", None, "occurs twice"),
        ("GET", "/v1/scan?limit=-1", None, "limit must be a number"),
        ("GET", "/v1/scan?reverse=yes", None, "true or false"),
        ("GET", "/v1/keys/k?latest=true&max_age_ms=1", None, "give one of them"),
        ("DELETE", "/v1/range", None, "which keys to remove"),
        ("GET", "/v1/explain", None, "which join to explain, or which range"),
        ("PUT", "/v1/keys/k", b"{", "line 1, column 2"),
        ("PUT", "/v1/keys/k", b'{"value": "\xff"}', "no UTF-8"),
        ("PUT", "/v1/keys/k", b"[" * 100_000, "nested too deeply"),
        ("PUT", "/v1/keys/k", b"", "JSON"),
        ("PUT", "/v1/keys/k", b"[]", "must be an object"),
        ("PUT", "/v1/keys/k", b"{}", "value is missing"),
        ("PUT", "/v1/keys/k", b'{"value": 1}', "value: it must be text"),
        ("PUT", "/v1/keys/k", b'{"value": {"base64": "?"}}', "no base64"),
        ("PUT", "/v1/keys/k", b'{"value": "\\ud800"}', "surrogate"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "value": "2"}', "occurs twice"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "valu": "2"}', "valu is no member"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "if": "there"}', "if must be"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "if": null}', "if must be"),
        ("DELETE", "/v1/keys/k", b'{"if": null}', "if must be"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "if": {"value": "1", "x": 1}}', "if.x is no member"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "ttl_s": 0}', "above 0"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "ttl_s": NaN}', "above 0"),
        ("PUT", "/v1/keys/k", b'{"value": "1", "ttl_s": 1, "keep_ttl": true}', "contradict"),
        ("PUT", "/v1/ttl/k", b"{}", "ttl_s is missing"),
        ("PUT", "/v1/keys/", b'{"value": "1"}', "empty"),
        ("POST", "/v1/add/k", b'{"delta": 0.5}', "decimal as text"),
        ("POST", "/v1/add/k", b'{"delta": "x"}', "x"),
        ("GET", "/v1/scan", b"{}", "takes no body"),
    ],
)
async def test_what_is_not_right_is_refused_and_changes_nothing(
    method: str, path: str, body: bytes | None, message: str
) -> None:
    async with opened() as (server, client):
        revision = server.engine.revision
        base = str(client._base_url).rstrip("/")
        headers = {"Content-Type": "application/json"}
        async with client.request(method, URL(base + path, encoded=True), data=body, headers=headers) as reply:
            members = await reply.json()
        assert (reply.status, message in members["error"]["message"]) == (400, True), members
        assert server.engine.revision == revision


async def test_bodies_of_other_types_and_too_long_ones_are_refused() -> None:
    async with opened(message_bytes_max=1000) as (server, client):
        async with client.put("/v1/keys/k", data=b'{"value": "1"}', headers={"Content-Type": "text/plain"}) as reply:
            assert reply.status == 415
        async with client.put("/v1/keys/k", json={"value": "x" * 2000}) as reply:
            assert (reply.status, "error" in await reply.json()) == (413, True)

        async def pieces() -> Any:
            for _ in range(20):
                yield b" " * 100

        async with client.put("/v1/keys/k", data=pieces(), headers={"Content-Type": "application/json"}) as reply:
            assert (reply.status, "error" in await reply.json()) == (413, True)
        assert server.engine.get(b"k") is None


async def test_bodies_that_do_not_come_keep_nobody_else_waiting() -> None:
    async with opened(messages_bytes_max=400_000, message_bytes_max=100_000) as (server, client):
        host, port = server.http_url.removeprefix("http://").split(":")
        head = "PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writers = []
        for _ in range(50):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"{head}Content-Length: 90000\r\n\r\n{{".encode())
            writers.append(writer)
        for number in range(20):
            body = {"value": "x" * 50_000}
            assert await _asked(client, "PUT", f"/v1/keys/o|{number}", body) == (200, {"met": True})
        assert len((await _asked(client, "GET", "/v1/scan?prefix=o|"))[1]["rows"]) > 0
        for writer in writers:
            writer.close()


async def test_unknown_paths_and_methods_are_told_where_the_list_is() -> None:
    async with opened() as (_, client):
        for method, path, status in (("GET", "/v2", 404), ("PATCH", "/v1/scan", 405), ("GET", "/v1/", 404)):
            async with client.request(method, path) as reply:
                members = await reply.json()
            assert (reply.status, "openapi.json" in members["error"]["message"]) == (status, True)
        async with client.get("/v1/openapi.json") as reply:
            assert "/v1/watch" in (await reply.json())["paths"]
