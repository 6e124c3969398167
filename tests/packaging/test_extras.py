"""Each extra alone in an environment of its own: what is said to need that extra alone works there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from pequod import Client
from pequod.native.http2 import why_absent
from tests.forked import started_server
from tests.installed import lacking
from tests.packaging.environments import ROOT, built_wheel, environment

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: What is for those who work on Pequod, who have everything.
OWN = {"dev", "docs", "fuzz", "release"}

_STORE = """
import pequod
with pequod.open() as store:
    store.add_join("karma|<author> = count vote|<author>|<id>|<voter>")
    store.put("vote|ann|1|bob", "1")
    assert store.get("karma|ann") == b"1"
with pequod.Client(TARGET) as client:
    assert client.get("vote|ann|1|bob") == b"1"
"""
_SERVER = """
import subprocess, sys
from pequod import Client
command = [*PEQUOD, "serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--backing", "sqlite:base.db",
           "--backing-mode", "write-through", "--backing-tables", "a"]
subprocess.run([*PEQUOD, "backing", "install", "--generic", "sqlite:base.db"], check=True)
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
    first = next(line for line in process.stderr if " serving on " in line)
    try:
        with Client(first.split()[-1]) as client:
            client.put("a|b", "1")
            assert client.scan("a|", "a}") == [(b"a|b", b"1")]
    finally:
        process.terminate()
        print(first, process.stderr.read())
assert process.returncode == 0
subprocess.run([*PEQUOD, "cluster", "init", "static:map.json"], check=True)
"""
_BACKING = """
import subprocess
command = [*PEQUOD, "backing", "check", "mapping.toml", "postgresql://nobody@127.0.0.1:1/nothing"]
open("mapping.toml", "w").write('[[mapping]]\\nkeys = "p|<poster>|<time:10>"\\ntable = "posts"\\nvalue = "body"\\n')
done = subprocess.run(command, capture_output=True, text=True)
assert done.returncode == 4, done.stderr
"""
_SPARK = """
from pequod_spark.session import spark_session
# One query is planned and run: to compile it takes longer.
quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
         "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
spark = spark_session("local[1]", settings=quick)
rows = spark.read.format("pequod").options(target=TARGET, prefix="vote|").load().collect()
assert [bytes(row.key) for row in rows] == [b"vote|ann|1|bob"], rows
spark.stop()
"""
_LAKE = """
import subprocess
open("schema.toml", "w").write('[[table]]\\nname = "posts"\\nkey = ["id"]\\n'
                               'columns = { id = "int64", body = "text" }\\n')
open("posts.csv", "w").write("id,body\\n1,hello\\n")
for arguments in (["init", "lake", "schema.toml"], ["ingest", "lake", "posts=posts.csv"], ["compact", "lake"]):
    subprocess.run([*PEQUOD, "lake", *arguments], check=True)
asked = [*PEQUOD, "lake", "query", "lake", "posts", "id=1"]
assert "hello" in subprocess.run(asked, check=True, capture_output=True, text=True).stdout
"""
_LAKE_POSTGRES = """
import subprocess
open("schema.toml", "w").write('[[table]]\\nname = "posts"\\nkey = ["id"]\\ncolumns = { id = "int64" }\\n')
command = [*PEQUOD, "lake", "init", "lake", "schema.toml", "--catalog", "postgresql://nobody@127.0.0.1:1/nothing"]
done = subprocess.run(command, capture_output=True, text=True)
assert "cannot be reached" in done.stderr, done.stderr
"""
_VIEWS = """
import asyncpg, sqlite3, subprocess
open("views.toml", "w").write(f'server = "{TARGET}"\\ndatabase = "sqlite:live.db"\\n[[view]]\\nname = "votes"\\n'
                              'keys = "vote|<author>|<id>|<voter>"\\n')
subprocess.run([*PEQUOD, "views", "install", "views.toml"], check=True)
with subprocess.Popen([*PEQUOD, "views", "run", "views.toml", "--metrics", "127.0.0.1:0"]) as process:
    try:
        import time
        for _ in range(200):
            rows = sqlite3.connect("live.db").execute("SELECT author FROM votes").fetchall()
            if rows:
                break
            time.sleep(0.05)
        assert rows == [("ann",)], rows
    finally:
        process.terminate()
"""
_MARIADB = """
import pymysql, subprocess
open("views.toml", "w").write('database = "mariadb://nobody@127.0.0.1:1/nothing"\\n[[view]]\\nname = "votes"\\n'
                              'keys = "vote|<author>|<id>|<voter>"\\n')
done = subprocess.run([*PEQUOD, "views", "status", "views.toml"], capture_output=True, text=True)
assert done.returncode == 4, done.stderr
"""
_KAFKA = """
import subprocess
from pequod_views.targets.kafka import KafkaTarget
open("views.toml", "w").write('database = "kafka://127.0.0.1:1"\\n[[view]]\\nname = "votes"\\n'
                              'keys = "vote|<author>|<id>|<voter>"\\n')
done = subprocess.run([*PEQUOD, "views", "status", "views.toml"], capture_output=True, text=True)
assert done.returncode == 4, done.stderr
"""
_REDIS = """
import asyncio
from pequod_views.versioned import QuorumError
from pequod_views.versioned.redis_store import RedisReplicas
async def read():
    store = RedisReplicas(["unix:///nowhere/socket"])
    try:
        await store.get("t", "k", None, 1)
    except QuorumError as error:
        return error.answered
    finally:
        await store.close()
assert asyncio.run(read()) == 0
"""
_CASSANDRA = """
import asyncio
from pequod_views.versioned import QuorumError
from pequod_views.versioned.cassandra_store import CassandraReplicas
async def opened():
    try:
        await CassandraReplicas.open("cassandra://127.0.0.1:1/nowhere")
    except QuorumError as error:
        return error.answered
assert asyncio.run(opened()) == 0
"""
_FILES = """
import subprocess
subprocess.run([*PEQUOD, "dump", "--prefix", "vote|", "-o", "votes.parquet", "--target", TARGET], check=True)
subprocess.run([*PEQUOD, "load", "votes.parquet", "--target", TARGET], check=True)
"""
_SHELL = """
import pequod.cli.prompt, subprocess
shell = [*PEQUOD, "shell", "--target", TARGET]
done = subprocess.run(shell, input="get vote|ann|1|bob\\n", capture_output=True, text=True)
assert (done.returncode, done.stdout) == (0, "1\\n"), done
"""
_JWT = """
import json, os, subprocess
from joserfc.jwk import ECKey
key = ECKey.generate_key("P-256")
open("keys.json", "w").write(json.dumps({"keys": [key.as_dict(private=False)]}))
open("access.toml", "w").write('[issuers.a]\\nissuer = "a"\\naudience = "b"\\nkeys = "keys.json"\\nroles = "c"\\n')
check = [*PEQUOD, "config", "check"]
variables = os.environ | {"PEQUOD_ACCESS_FILE": "access.toml"}
subprocess.run(check, env=variables, check=True)
open("keys.json", "w").write("{}")
assert subprocess.run(check, env=variables).returncode != 0
"""
_OTEL = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from pequod import Client
trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("test").start_as_current_span("read"), Client(TARGET) as client:
    assert client.get("vote|ann|1|bob") == b"1"
"""
_DEMO = """
import subprocess
subprocess.run([*PEQUOD, "bench", "twip", "--users", "50", "--ticks", "500"], check=True)
"""
_BENCH = """
import subprocess
subprocess.run([*PEQUOD, "bench", "micro", "--smoke", "--only", "put"], check=True)
import matplotlib, hiredis, asyncpg, pequod_bench.lakes.demo
import pequod_bench.systems.redis_system
"""
#: What each extra is for, by its name; "" is Pequod without any.
USES = {
    "": _STORE,
    "server": _SERVER,
    "backing": _BACKING,
    "spark": _SPARK,
    "lake": _LAKE,
    "lake-postgres": _LAKE_POSTGRES,
    "views": _VIEWS,
    "mariadb": _MARIADB,
    "kafka": _KAFKA,
    "redis": _REDIS,
    "cassandra": _CASSANDRA,
    "jwt": _JWT,
    "files": _FILES,
    "shell": _SHELL,
    "otel": _OTEL,
    "demo": _DEMO,
    "bench": _BENCH,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with started_server() as (address, _), Client(address) as client:
        client.put("vote|ann|1|bob", "1")
        yield address


def test_the_wheel_has_what_is_imported_and_nothing_beside(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}
        scripts = {name for name in archive.namelist() if name.endswith(("build.py", "generate.py"))}
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert folders == {Path(package).name for package in packages["packages"]}
    assert {"pequod_bench", "pequod_workloads"} <= folders
    assert not scripts


def test_every_extra_for_users_is_used_alone() -> None:
    assert USES.keys() - {""} == EXTRAS.keys() - OWN


@pytest.mark.parametrize("extra", USES, ids=lambda name: name or "none")
def test_an_extra_alone_does_what_it_is_for(extra: str, wheel: Path, target: str, tmp_path: Path) -> None:
    if extra == "spark" and shutil.which("java") is None:
        lacking("no java on PATH: apt install openjdk-17-jre-headless")
    python = environment(tmp_path / "venv", wheel, (extra,) if extra else ())
    script = f"TARGET = {target!r}\nPEQUOD = [{str(python.with_name('pequod'))!r}]\n{USES[extra]}"
    command = [str(python), "-I", "-W", "ignore", "-c", script]
    others = ("PYTHON", "PEQUOD_", "SPARK")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    variables |= {"PYSPARK_PYTHON": str(python)}
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_needs_an_extra_names_it_where_there_is_none(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", wheel, ())
    serve = [str(python.with_name("pequod")), "serve"]
    done = subprocess.run(serve, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    # The wheel that was installed is there still: nothing is fetched by name.
    assert done.stderr.endswith(f": pip install '{wheel}[server]'\n"), done.stderr
    assert sys.prefix not in done.stderr


_TRANSPORT = """
import asyncio
from pequod import AsyncClient
from pequod_server import PequodServer, ServerConfig
async def main():
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    async with AsyncClient(f"127.0.0.1:{await server.start()}") as client:
        await client.put("a", "1")
        assert await client.get("a") == b"1"
    print(server.transport.name)
    await server.stop()
asyncio.run(main())
print(*{line.split()[-1] for line in open("/proc/self/maps") if "nghttp2" in line})
"""


@pytest.mark.skipif(why_absent() is not None or sys.platform != "linux", reason="there is no native transport to carry")
def test_a_wheel_carries_the_library_of_the_transport_and_its_licence(wheel: Path, tmp_path: Path) -> None:
    library = "pequod/native/libnghttp2.so.14"
    with ZipFile(wheel) as archive:
        assert {library, "pequod/native/http2/nghttp2.LICENSE.txt"} <= set(archive.namelist())
    python = environment(tmp_path / "venv", wheel, ("server",))
    done = subprocess.run([python, "-P", "-c", _TRANSPORT], capture_output=True, text=True, check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    assert done.stdout.split() == ["native", str(packages / library)]
