"""The tutorials: their applications run before a real PostgreSQL, and each command prints what its page shows."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.backing.conftest import Postgres
from tests.forked import ForkedServer, run_command

TUTORIALS = Path(__file__).parents[2] / "docs/tutorials"
#: The instant at which a post is written; the page shows one of them.
INSTANT = re.compile(r"\b\d{16}\b")

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@contextmanager
def serving(folder: Path, dsn: str) -> Iterator[str]:
    """Install what Pequod needs in the database, and run its server as the tutorial does; yield the target."""
    done = run_command("backing", "install", str(folder / "mapping.toml"), dsn, "--feed", "notify")
    assert done.code == 0, done.err
    with ForkedServer("--listen", "127.0.0.1:0", "--config", str(folder / "pequod.toml"), "--backing", dsn) as server:
        yield server.target


@contextmanager
def running(command: list[str], folder: Path, variables: dict[str, str]) -> Iterator[str]:
    """Run an application; yield its URL, which it prints."""
    environment = os.environ | variables | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if url := re.search(r"http://(127\.0\.0\.1:[1-9]\d*)", line):
                yield url[1]
                break
        else:
            raise AssertionError("".join(said))
    finally:
        process.terminate()
        process.communicate()


def shown_by(folder: Path) -> list[tuple[str, str]]:
    """Return the commands of a page, each with what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [
        (words, said)
        for block in blocks
        for words, said in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    ]


def compare(folder: Path, url: str, jar: Path) -> None:
    """Run each command of the page, and compare what it prints; instants are those of the first post."""
    written = ""
    for words, expected in shown_by(folder):
        said = curl(
            *shlex.split(INSTANT.sub(written, words.replace("localhost:8000", url).replace("jar", str(jar))))[1:]
        )
        written = written or "".join(INSTANT.findall(said))
        assert said.rstrip() == INSTANT.sub(written, expected.rstrip()), words


async def test_a_feed_with_fastapi_answers_as_its_page_shows(dsn: str, tmp_path: Path) -> None:
    await asyncio.to_thread(use_fastapi, dsn, tmp_path)


def use_fastapi(dsn: str, tmp_path: Path) -> None:
    folder = TUTORIALS / "fastapi"
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        connection.execute((folder / "schema.sql").read_bytes())
        target = stack.enter_context(serving(folder, dsn))
        variables = {"DATABASE": dsn, "PEQUOD_TARGET": target}
        url = stack.enter_context(running(["uvicorn", "app:app", "--port", "0"], folder, variables))
        compare(folder, url, tmp_path / "jar")
        follow_live(connection, url)
        assert "string_pattern_mismatch" in curl("-X", "POST", f"{url}/a%7Cb/follows/bob")
        forged = curl("-D", "-", "-b", "seen=forged", f"{url}/liz/timeline")
        assert "307 Temporary Redirect" in forged
        assert 'set-cookie: seen=""' in forged


def curl(*arguments: str) -> str:
    return subprocess.run(["curl", "-s", *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def follow_live(connection: psycopg.Connection, url: str) -> None:
    """See a post of another program come into a live timeline."""
    live = subprocess.Popen(["curl", "-sN", f"{url}/eve/timeline/live"], stdout=subprocess.PIPE, text=True)
    assert live.stdout is not None
    try:
        assert live.stdout.readline() == ": alive\n"
        connection.execute("INSERT INTO follows VALUES ('eve', 'liz')")
        connection.execute("INSERT INTO posts (author, body) VALUES ('liz', 'There she blows')")
        assert [live.stdout.readline() for _ in range(2)] == ["\n", "data: liz: There she blows\n"]
    finally:
        live.kill()
        live.communicate()


async def test_a_front_page_with_django_answers_as_its_page_shows(postgres: Postgres, dsn: str, tmp_path: Path) -> None:
    variables = {"PGHOST": str(postgres.directory), "PGUSER": "postgres", "PGDATABASE": "postgres"}
    await asyncio.to_thread(use_django, dsn, variables, tmp_path)


def use_django(dsn: str, variables: dict[str, str], tmp_path: Path) -> None:
    folder = TUTORIALS / "django"
    for words in (["makemigrations", "--check", "--dry-run", "board"], ["migrate", "-v", "0"], ["check"]):
        command = [sys.executable, "-B", "manage.py", *words]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with serving(folder, dsn) as target:
        command = ["manage", "runserver", "--noreload", "127.0.0.1:0"]
        with running(command, folder, variables | {"PEQUOD_TARGET": target}) as url:
            compare(folder, url, tmp_path / "jar")
