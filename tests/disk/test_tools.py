"""`pequod data check, repair, export, import and backup`, on folders that are right and on damaged ones."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from random import Random

import pytest
from pequod_server.data import tools
from pequod_server.data.errors import FolderError
from pequod_server.data.folder import Folder, read_about
from pequod_server.data.opening import open_rows
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.disk.damages import damage, outcome, written
from tests.disk.folders import contents, deadlines, killed, served
from tests.forked import Outcome

JOIN = "karma|<author> = count vote|<author>|<voter>;\n"


def pequod(*arguments: object, stdin: bytes = b"") -> Outcome:
    """Run a command in this process."""
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin, prog_name="pequod")
    return Outcome(result.exit_code, result.stdout, result.stderr)


def made(path: Path, rows: dict[bytes, bytes] | None = None) -> Path:
    """Make a folder of some rows and a join."""
    with Folder(path) as folder:
        opened = open_rows(folder)
        opened.write(rows or {b"a": b"1", b"b\xff": b"\n"}, 2, JOIN)
        tools._end(folder, opened)
    return path


def test_a_folder_that_is_right_is_checked_and_not_changed(tmp_path: Path) -> None:
    path = made(tmp_path / "data")
    files = [file for file in path.rglob("*") if file.is_file() and file.name not in ("LOG", "LOCK")]
    before = {file: file.read_bytes() for file in files}
    done = pequod("data", "check", path)
    assert done == Outcome(0, f"{path}: 2 keys, 1 join, at change 2: all is right\n", "")
    assert json.loads(pequod("data", "check", path, "--json").out) == {
        "name": read_about(path).name, "key_count": 2, "position": 2, "timeline": 1, "join_count": 1,
    }  # fmt: skip
    assert {file: file.read_bytes() for file in before} == before


def test_a_folder_that_is_none_or_is_damaged_is_told_with_exit_code_3(tmp_path: Path) -> None:
    done = pequod("data", "check", tmp_path / "nothing")
    assert (done.code, "there are no data in it" in done.err) == (3, True)
    path = made(tmp_path / "data")
    (file,) = (path / "rows").glob("*.sst")
    file.write_bytes(file.read_bytes()[:-100])
    for command in ("check", "export"):
        done = pequod("data", command, path, *(["-"] if command == "export" else []))
        assert done.code == 3
        assert file.name in done.err
        assert f"pequod data repair {path}" in done.err


def test_a_repair_of_a_folder_that_is_right_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "data")
    history = read_about(path)
    done = pequod("data", "repair", path)
    assert done == Outcome(0, f"{path}: 2 keys, 1 join: nothing is damaged, and nothing was changed\n", "")
    assert json.loads(pequod("data", "repair", path, "--json").out)["damaged"] is None
    assert read_about(path) == history
    assert not list(path.glob("rows.*"))


async def test_a_folder_that_a_server_has_open_is_left_alone_but_for_a_backup(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.put("a", "1")
        await client.add_join(JOIN)
        for command in (["check"], ["repair"], ["export", "-"], ["import", "-"]):
            arguments = [command[0], tmp_path / "data", *command[1:]]
            done = await asyncio.to_thread(pequod, "data", *arguments)
            assert (done.code, "has it open" in done.err) == (3, True), command
        done = await asyncio.to_thread(pequod, "data", "backup", tmp_path / "data", tmp_path / "copy")
        assert done == Outcome(0, f"{tmp_path / 'copy'}: 1 key, 1 join\n", "")
        await client.put("b", "2")
    assert contents(tmp_path / "copy") == {b"a": b"1"}
    assert read_about(tmp_path / "copy").name != read_about(tmp_path / "data").name
    async with served(tmp_path / "copy") as (_, client):
        assert [join.name for join in await client.joins()] == ["karma"]
    done = pequod("data", "backup", tmp_path / "data", tmp_path / "copy")
    assert (done.code, "is there already" in done.err) == (3, True)


async def test_a_backup_under_writes_is_of_one_moment(tmp_path: Path) -> None:
    async with served(tmp_path / "data", fsync="never") as (_, client):

        async def write() -> None:
            for number in range(100_000):
                await client.multi_put({"first": str(number), "second": str(number)})

        writing = asyncio.create_task(write())
        for number in range(5):
            await asyncio.to_thread(tools.backup, tmp_path / "data", tmp_path / str(number))
        writing.cancel()
    found = [contents(tmp_path / str(number)) for number in range(5)]
    assert all(rows.get(b"first") == rows.get(b"second") for rows in found)
    counts = [int(rows.get(b"first", b"-1")) for rows in found]
    assert counts == sorted(counts) and counts[-1] > 0


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_rows_go_out_and_in_again(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "data")
    assert pequod("data", "export", path, tmp_path / name).code == 0
    done = pequod("data", "import", tmp_path / "other", tmp_path / name)
    assert done == Outcome(0, "", "pequod: 2 rows imported\n")
    assert contents(tmp_path / "other") == contents(path)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
async def test_deadlines_go_out_and_in_again(tmp_path: Path, name: str) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.multi_put({"a": "1", "b": "2"}, ttl_s=3600)
        await client.put("c", "3")
    with Folder(tmp_path / "other") as folder, open_rows(folder) as rows:
        rows.write({b"c": b"0"}, 1, deadlines={b"c": 9 << 40})
        folder.note.written = 1
    for command, *arguments in (("export", "data", name), ("import", "other", name)):
        done = await asyncio.to_thread(pequod, "data", command, *(tmp_path / one for one in arguments))
        assert done.code == 0, done.err
    assert deadlines(tmp_path / "other") == deadlines(tmp_path / "data")
    assert list(deadlines(tmp_path / "data")) == [b"a", b"b"]
    assert contents(tmp_path / "other") == contents(tmp_path / "data")


def test_a_row_that_cannot_be_read_ends_an_import_with_its_place(tmp_path: Path) -> None:
    done = pequod("data", "import", tmp_path / "data", "-", stdin=b'{"key": "a", "value": "1"}\n{\n')
    assert (done.code, done.err.startswith("pequod: -: row 2: it is no JSON")) == (3, True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "data"
    written(path)
    return path


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_folder_is_repaired_and_keeps_all_that_can_be_read(whole: Path, tmp_path: Path, seed: int) -> None:
    base = contents(killed(whole, tmp_path / "right"))
    path = shutil.copytree(whole, tmp_path / "data", ignore=shutil.ignore_patterns("LOCK", "lock"))
    what = damage(path, Random(seed))
    history = read_about(path) if what.file != "folder.json" else None
    is_harmless = not outcome(shutil.copytree(path, tmp_path / "copy"), base)
    done = pequod("data", "repair", path, "--json")
    assert done.code == 0, done.err
    found = contents(path)
    if is_harmless:
        assert found == base
    assert len(found) > len(base) // 3, f"{what}: one damage leaves most of the rows"
    assert json.loads(done.out)["key_count"] == len(found)
    after = read_about(path)
    if json.loads(done.out)["damaged"] is None:
        assert (found, after) == (base, history), f"{what}: nothing that is needed is damaged"
        return
    assert Path(json.loads(done.out)["damaged"]).is_dir()
    assert history is None or (after.name == history.name and after.timeline > history.timeline)
    assert pequod("data", "check", path).code == 0


def test_a_damaged_block_costs_the_rows_of_the_block_alone(tmp_path: Path) -> None:
    base = {b"k%05d" % number: Random(number).randbytes(100) for number in range(5000)}
    path = made(tmp_path / "data", base)
    (file,) = (path / "rows").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    done = pequod("data", "repair", path)
    assert (done.code, "rows are missing at 1 place." in done.out) == (0, True)
    found = contents(path)
    assert found.items() < base.items()
    assert len(base) - len(found) < 500


async def test_a_row_that_a_join_of_the_folder_computes_is_not_put(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.add_join("karma|<author> = count vote|<author>|<voter>")
        await client.put("a", "1")
    with pytest.raises(FolderError, match=r"key 'karma\|ann' is computed by its join karma\|<author>"):
        tools.put_rows(tmp_path / "data", [(b"b", b"2", 0), (b"karma|ann", b"7", 0)])
    async with served(tmp_path / "data") as (_, client):
        assert await client.get("a") == b"1", "a server starts on it"
        assert await client.get("karma|ann") is None


async def test_what_is_due_is_not_exported(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.put("a", "1", ttl_s=0.2)
        await client.put("b", "1", ttl_s=3600)
    await asyncio.sleep(0.25)
    assert [row[:2] for row in tools.rows_of(tmp_path / "data")] == [(b"b", b"1")]
