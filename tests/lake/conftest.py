"""Empty lakes, copied from one that is made once: DuckDB takes half a second for it.

A lake is of one of three kinds: a folder, a folder with a catalog in PostgreSQL, an object store with such a catalog.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pequod_lake import Lake
from pequod_lake.place import POINTER, opened_files
from pequod_lake.postgres import shown
from pyarrow import fs

from tests.backing.conftest import Postgres, postgres
from tests.lake.replay import SCHEMA

__all__ = ["postgres"]

#: Credentials that the store of tests takes.
S3_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "lake", "AWS_SECRET_ACCESS_KEY": "lake", "AWS_DEFAULT_REGION": "us-east-1"}

#: In memory if it is there: what is tested is not the disk, and an SCU of five tables waits for it 15 times.
MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def lake_root() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="lake-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def tmp_path(lake_root: Path) -> Iterator[Path]:
    """The folder of a test, in memory, too."""
    path = Path(tempfile.mkdtemp(prefix="tmp-", dir=lake_root))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def template(lake_root: Path) -> Path:
    Lake.create(lake_root / "template", SCHEMA).close()
    return lake_root / "template"


@pytest.fixture
def folder(template: Path, lake_root: Path) -> Iterator[Path]:
    """An empty lake with the schema of the replay."""
    path = Path(tempfile.mkdtemp(prefix="one-", dir=lake_root)) / "lake"
    shutil.copytree(template, path)
    yield path
    shutil.rmtree(path.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def templates(lake_root: Path) -> dict[str, Path]:
    """Empty lakes by their schemas, made when they are first asked for."""
    return {}


@pytest.fixture
def make(lake_root: Path, templates: dict[str, Path]) -> Iterator[Callable[[str], Lake]]:
    """Makes lakes of a schema."""
    made: list[Lake] = []
    root = Path(tempfile.mkdtemp(prefix="made-", dir=lake_root))

    def one(schema: str) -> Lake:
        if schema not in templates:
            template = lake_root / f"template-{len(templates)}"
            Lake.create(template, schema).close()
            templates[schema] = template
        shutil.copytree(templates[schema], root / str(len(made)))
        made.append(Lake(root / str(len(made))))
        return made[-1]

    yield one
    for lake in made:
        lake.close()
    shutil.rmtree(root, ignore_errors=True)


class Shared:
    """Makes lakes whose catalogs are in PostgreSQL, each from a template."""

    def __init__(self, postgres: Postgres, root: Path) -> None:
        self.postgres = postgres
        self.root = root
        self._templates: dict[str, str] = {}
        self._count = 0

    def location(self, kind: str, schema: str) -> str:
        """Make an empty lake and return where it is."""
        if schema not in self._templates:
            name = f"lake_template_{len(self._templates)}"
            self._execute(f"CREATE DATABASE {name}")
            Lake.create(self.root / name, schema, catalog=self.postgres.dsn(name)).close()
            self._templates[schema] = name
        self._count += 1
        name = f"lake_{self._count}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {self._templates[schema]}")
        location = f"s3://lakes/{name}" if kind == "s3" else str(self.root / name)
        if kind != "s3":
            Path(location).mkdir()
        with opened_files(location).create(POINTER) as file:
            file.write(json.dumps({"catalog": shown(self.postgres.dsn(name))}).encode())
        return location

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.postgres.dsn("postgres"), autocommit=True) as admin:
            admin.execute(statement)


@pytest.fixture(scope="session")
def shared(postgres: Postgres, lake_root: Path) -> Shared:
    return Shared(postgres, lake_root)


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """An object store with the bucket `lakes`; its address."""
    # Here, since each process of the suite reads this file, and the import takes it 0.3 s.
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in S3_ENVIRONMENT.items():
            patch.setenv(name, value)
        address = f"http://{host}:{port}"
        patch.setenv("AWS_ENDPOINT_URL", address)
        fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True).create_dir(
            "lakes"
        )
        yield address
    server.stop()


@pytest.fixture(params=["sqlite", "postgres", "s3"])
def location(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes lakes of a schema, of each kind; gives where they are."""
    if request.param == "sqlite":
        make: Callable[[str], Lake] = request.getfixturevalue("make")
        return lambda schema: str(make(schema).folder)
    shared: Shared = request.getfixturevalue("shared")
    if request.param == "s3":
        request.getfixturevalue("object_store")
    return lambda schema: shared.location(request.param, schema)
