"""Empty lakes, copied from one that is made once: DuckDB takes half a second for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pequod_lake import Lake

from tests.lake.replay import SCHEMA

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
