"""Transactions at a compute: the home decides, with a database and without, over its own keys alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import pequod
from pequod.engine import Rows
from pequod.errors import LimitExceededError, MixedWriteError, NotNumberError, TransactionError
from pequod.interface.transaction_parts import TransactionCommand
from tests.peer.homes import computing, on_sqlite, rows_of, running, sqlite


@pytest.mark.parametrize("has_database", [True, False])
async def test_a_compute_has_its_home_decide(tmp_path: Path, has_database: bool) -> None:
    store = None
    if has_database:
        await sqlite(tmp_path / "posts.db")
        store = on_sqlite(tmp_path / "posts.db")
    mode = {"backing_mode": "write-through"} if has_database else {}
    async with running(store, **mode) as home, computing([home.address], reply_bytes_max=500) as compute:
        assert await rows_of(compute, "t|ann|") == []
        done = await compute.client.transaction(
            [pequod.absent("p|bob|0100")],
            [
                pequod.Put("s|ann|bob", "1"),
                pequod.Put("p|bob|0100", "7"),
                pequod.Get("p|bob|0100"),
                pequod.Count("p|", "p}"),
            ],
        )
        assert done == (True, [None, None, b"7", 1])
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"7")]
        assert (await home.client.transaction([], [pequod.Put("p|bob|0100", "8")])).held
        refused = await compute.client.transaction(
            [pequod.value_of("p|bob|0100") < 8],
            [pequod.Put("p|bob|0100", "9")],
            [pequod.Scan(prefix="p|bob|"), pequod.Remove("p|bob|0200")],
        )
        assert refused == (False, [Rows([b"p|bob|0100"], [b"8"]), False])
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"8")]
        with pytest.raises(TransactionError, match="read them after the transaction"):
            await compute.client.transaction([pequod.present("p|bob|0100")], [pequod.Scan(prefix="t|ann|")])
        with pytest.raises(TransactionError, match="the join 't' computes it"):
            await compute.client.transaction([pequod.present("t|ann|0100|bob")], [])
        with pytest.raises(MixedWriteError):
            await compute.client.transaction([pequod.absent("own|1")], [pequod.Remove("p|bob|0100")])
        adds: list[TransactionCommand] = [
            pequod.Add("p|bob|0100", "-0.5"),
            pequod.Add("p|bob|0200", 3),
            pequod.Get("p|bob|0100"),
        ]
        added = await compute.client.transaction([pequod.value_of("p|bob|0100") > 7], adds)
        assert added == (True, [b"7.5", b"3", b"7.5"])
        assert await rows_of(compute, "t|ann|") == [(b"t|ann|0100|bob", b"7.5"), (b"t|ann|0200|bob", b"3")]
        with pytest.raises(NotNumberError):
            await compute.client.transaction([], [pequod.Put("p|bob|0100", "text"), pequod.Add("p|bob|0100", 1)])
        assert (await home.client.transaction([], [pequod.Put("p|bob|0100", "8"), pequod.Remove("p|bob|0200")])).held
        # The limit of the server that replies holds at the home, before anything is written.
        await home.client.put("p|bob|0300", "x" * 600)
        with pytest.raises(LimitExceededError):
            await compute.client.transaction([], [pequod.Remove("p|bob|0100"), pequod.Get("p|bob|0300")])
        assert await home.client.get("p|bob|0100") == b"8"
