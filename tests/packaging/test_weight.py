"""What `make install` brings is light: the server and the clients, as their distributions weigh."""

from __future__ import annotations

import re
from pathlib import Path

from tests.packaging.environments import NAME, ROOT, needed

#: pip comes with an environment, and the native core is compiled into the checkout.
_PIP_MB = 25
_MB_MAX = 150


def _size_mb(*extras: str) -> float:
    """Return the megabytes of all files that Pequod with extras asks for, without Pequod's own."""
    packages = [one for one in needed(extras) if one.name != NAME]
    assert len(packages) > 20
    paths = {
        path
        for one in packages
        for file in one.files or ()
        if (path := Path(str(one.locate_file(file))).resolve()).is_file()
    }
    return sum(path.stat().st_size for path in paths) / (1 << 20)


def test_a_server_and_its_clients_are_light() -> None:
    (extra,) = re.findall(r"^\.venv/\.light\.packages: EXTRAS = (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert _size_mb(*extra.split(",")) + _PIP_MB < _MB_MAX


def test_what_a_database_and_traces_need_is_not_in_it() -> None:
    light = {one.name for one in needed(["server"])}
    assert not light & {"asyncpg", "psycopg2-binary", "duckdb", "pyspark", "pyarrow", "numpy", "opentelemetry-sdk"}
