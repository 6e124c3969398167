"""Adds at a compute: the home adds, with a database and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from pequod.errors import NotNumberError
from tests.peer.homes import computing, on_sqlite, rows_of, running, sqlite


@pytest.mark.parametrize("has_database", [True, False])
async def test_a_compute_has_its_home_add(tmp_path: Path, has_database: bool) -> None:
    store = None
    if has_database:
        await sqlite(tmp_path / "posts.db")
        store = on_sqlite(tmp_path / "posts.db")
    mode = {"backing_mode": "write-through"} if has_database else {}
    async with running(store, **mode) as home, computing([home.address]) as compute:
        await compute.client.put("s|ann|bob", "1")
        assert await rows_of(compute, "t|ann|") == []
        assert await compute.client.add("p|bob|0100", 5) == b"5"
        assert await home.client.add("p|bob|0100", "0.5") == b"5.5"
        assert await compute.client.add("p|bob|0100", -6) == b"-0.5"
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"-0.5")]
        await compute.client.put("p|bob|0100", "text")
        with pytest.raises(NotNumberError):
            await compute.client.add("p|bob|0100", 1)
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"text")]
