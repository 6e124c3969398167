"""What the door for HTTP tells of durable views and lakes: what their commands tell, to administrators alone."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from pequod_lake import Lake
from pequod_server import ServerConfig
from pequod_views import open_target
from pequod_views.definition import parse_views
from pequod_views.install import install

from pequod import AsyncClient
from tests.gateway.doors import opened
from tests.server.serving import serving

SCHEMA = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", body = "text" }
"""
ACCESS = f"""
[roles.reader]
read = [""]

[roles.operator]
admin = [""]

[tokens.reader]
role = "reader"
sha256 = "{sha256(b"reader's").hexdigest()}"

[tokens.operator]
role = "operator"
sha256 = "{sha256(b"operator's").hexdigest()}"
"""


def views_file(folder: Path) -> Path:
    """Write a file of one view, in a database beside it."""
    file = folder / "views.toml"
    file.write_text(
        f'database = "sqlite:{folder / "live.db"}"\n[[view]]\nname = "karma"\nkeys = "karma|<author>"\n'
        'value = { column = "votes", type = "integer" }\n'
    )
    return file


async def installed(folder: Path) -> Path:
    """Do what `pequod views install` does, with some server; return the file of the views."""
    file = views_file(folder)
    views = parse_views(file.read_text())
    assert views.database is not None
    target = open_target(views.database)
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await install(target, client, views.views)
    await target.close()
    return file


def filled_lake(folder: Path) -> Path:
    """Make a lake of two rows, which no worker has merged."""
    with Lake.create(folder / "lake", SCHEMA) as lake, lake.ingestor() as ingestor:
        upload = ingestor.upload("first")
        upload.put("posts", {"id": [1, 2], "body": ["a", "b"]})
        ingestor.take(upload)
    return folder / "lake"


async def test_it_tells_the_state_of_each_part_and_the_stages_of_a_lake(tmp_path: Path) -> None:
    lake, file, absent = filled_lake(tmp_path), await installed(tmp_path), tmp_path / "absent.toml"
    settings = {"console_views": (file, absent), "console_lakes": f"{lake} {lake}-2"}
    async with opened(**settings) as (_, client), client.get("/v1/views") as reply:
        assert reply.status == 200
        told = await reply.json()
    (known, unknown), (here, elsewhere) = told["views"], told["lakes"]
    assert (known["file"], known["problem"]) == (str(file), "")
    assert [(part["view"], part["state"], part["age_s"]) for part in known["parts"]] == [("karma", "free", None)]
    assert unknown == {"file": str(absent), "parts": [], "problem": unknown["problem"]}
    assert unknown["problem"].startswith("cannot read the views: ")
    assert (here["lake"], here["status"]["scu"], here["status"]["stages"]["raw"]["row_count"]) == (str(lake), 1, 2)
    assert elsewhere["status"] is None
    assert f"{lake}-2" in elsewhere["problem"]


async def test_administrators_alone_are_told(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text(ACCESS)
    access.chmod(0o600)
    async with opened(access_file=access) as (_, client):
        for who, status in (("reader", 403), ("operator", 200)):
            async with client.get("/v1/views", headers={"Authorization": f"Bearer {who}'s"}) as reply:
                assert reply.status == status
                assert ("error" in await reply.json()) == (status == 403)


async def test_an_answer_stands_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "absent.toml"
    async with opened(console_views=(file,)) as (_, client):
        problems = []
        # The second question comes after the first answer has lost its standing, the third one before.
        for text, seconds in (("[", 0.0), ('database = "sqlite:a"\n', 3600.0), ("[", 3600.0)):
            monkeypatch.setattr("pequod_server.gateway.views_and_lakes._STANDS_S", seconds)
            file.write_text(text)
            async with client.get("/v1/views") as reply:
                problems.append((await reply.json())["views"][0]["problem"])
    assert problems[0] != problems[1] == problems[2]
