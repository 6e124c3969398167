"""Writes under a condition at a compute: the home decides, with a database and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from pequod.language.conditions import IF_ABSENT, MET, Unmet, if_value
from tests.peer.homes import computing, on_sqlite, rows_of, running, sqlite


@pytest.mark.parametrize("has_database", [True, False])
async def test_a_compute_has_its_home_decide(tmp_path: Path, has_database: bool) -> None:
    store = None
    if has_database:
        await sqlite(tmp_path / "posts.db")
        store = on_sqlite(tmp_path / "posts.db")
    mode = {"backing_mode": "write-through"} if has_database else {}
    async with running(store, **mode) as home, computing([home.address]) as compute:
        assert await rows_of(compute, "t|ann|") == []
        assert await compute.client.put("s|ann|bob", "1", condition=IF_ABSENT) == MET
        assert await compute.client.put("p|bob|0100", "Hi", condition=IF_ABSENT) == MET
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"Hi")]
        assert await home.client.put("p|bob|0100", "Ho", condition=if_value("Hi")) == MET
        assert await compute.client.put("p|bob|0100", "Ha", condition=if_value("Hi")) == Unmet(b"Ho")
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"Ho")]
        assert await compute.client.remove("p|bob|0200", condition=if_value("")) == Unmet(None)
        assert await compute.client.remove("p|bob|0100", condition=if_value("Ho")) == MET
        assert await rows_of(compute, "t|ann|") == []
