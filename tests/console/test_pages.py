"""The files of the console: what is served, how browsers may use it, and that all of it is there."""

import re
from hashlib import sha256
from pathlib import Path

import pequod_server.console.pages
import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.gateway.doors import opened

ROOT = Path(__file__).parents[2]
STATIC = Path(pequod_server.console.pages.__file__).parent / "static"


async def test_the_root_leads_to_the_console_and_each_file_has_its_type() -> None:
    async with opened() as (_, client):
        async with client.get("/", allow_redirects=False) as reply:
            assert (reply.status, reply.headers["Location"]) == (302, "/console/")
        async with client.get("/console/") as reply:
            assert (reply.status, reply.content_type) == (200, "text/html")
            assert await reply.text() == (STATIC / "index.html").read_text()
        for name, kind in (("main.js", "text/javascript"), ("base.css", "text/css"), ("mark.svg", "image/svg+xml")):
            async with client.get(f"/console/{name}") as reply:
                assert (reply.status, reply.content_type, reply.charset) == (200, kind, "utf-8")
                assert await reply.read() == (STATIC / name).read_bytes()


async def test_a_browser_runs_nothing_but_the_files_and_keeps_those_that_have_not_changed() -> None:
    async with opened() as (_, client), client.get("/console/") as reply:
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        async with client.get("/console/", headers={"If-None-Match": reply.headers["ETag"]}) as again:
            assert (again.status, await again.read()) == (304, b"")


@pytest.mark.parametrize("path", ["/console/none.js", "/console/pages.py", "/console/..%2fpages.py", "/console/a/b"])
async def test_nothing_else_is_served(path: str) -> None:
    async with opened() as (_, client), client.get(path) as reply:
        assert (reply.status, reply.content_type) == (404, "application/json")


async def test_files_need_no_token_and_data_does(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text(f'[roles.all]\nadmin = [""]\n[tokens.x]\nrole = "all"\nsha256 = "{sha256(b"x").hexdigest()}"\n')
    access.chmod(0o600)
    async with opened(access_file=access) as (_, client):
        async with client.get("/console/") as reply:
            assert reply.status == 200
        async with client.get("/v1/statistics") as reply:
            assert reply.status == 401


def test_modules_import_files_that_are_there_and_nothing_from_elsewhere() -> None:
    for path in STATIC.iterdir():
        text = path.read_text()
        assert re.search(r"https?://(?!www\.w3\.org/)", text) is None, path.name
        for name in re.findall(r'from "\./([^"]+)"', text):
            assert (STATIC / name).exists(), f"{path.name} imports {name}"
        if path.suffix == ".js":
            names = re.findall(r"^import \{([^}]*)\}", text, re.MULTILINE)
            for name in ", ".join(names).split(", "):
                assert not name or len(re.findall(rf"\b{name}\b", text)) > 1, f"{path.name} does not use {name}"


def test_files_are_short() -> None:
    for path in STATIC.iterdir():
        lines = path.read_text().splitlines()
        assert len(lines) <= 400, path.name
        assert max(map(len, lines)) <= 120 or path.suffix == ".svg", path.name


def test_the_wheel_has_them() -> None:
    names = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"pequod_server/console/static/{path.name}" for path in STATIC.iterdir()} <= names
