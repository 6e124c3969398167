"""Transactions in a cluster: a compute takes them, which knows what is computed, and the keys' home decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pequod_bench.systems.server import free_port

import pequod
from pequod import LATEST, AsyncClient, Client
from pequod.engine import Rows
from pequod.errors import MixedWriteError, TransactionError
from pequod.interface.transaction_parts import TransactionCommand
from tests.cluster.test_commands import _MAP, Servers


async def test_a_client_of_a_cluster_has_transactions(client: AsyncClient) -> None:
    await client.put("s|ann|bob", "1")
    done = await client.transaction(
        [pequod.absent("p|bob|1"), pequod.present("s|ann|bob")],
        [pequod.Put("p|bob|1", "7"), pequod.Remove("s|ann|bob"), pequod.Put("s|cat|bob", ""), pequod.Get("p|bob|1")],
    )
    assert done == (True, [None, True, None, b"7"])
    assert await client.scan(prefix="t|", freshness=LATEST) == [(b"t|cat|1|bob", b"7")]
    assert await client.transaction([], [], [pequod.Get("p|bob|1")]) == (True, [])
    moved = await asyncio.gather(*(_count_up(client) for _ in range(3)))
    assert await client.get("p|bob|1", freshness=LATEST) == b"%d" % (7 + sum(moved))
    await client.multi_put({"p|bob|2": "50", "p|bob|3": "0"})
    transfer = [pequod.Add("p|bob|2", -20), pequod.Add("p|bob|3", 20)]
    done_by = await asyncio.gather(*(client.transaction([pequod.value_of("p|bob|2") > 19], transfer) for _ in range(3)))
    assert [outcome.held for outcome in done_by].count(True) == 2
    assert await client.multi_get(["p|bob|2", "p|bob|3"], freshness=LATEST) == [b"10", b"40"]


async def _count_up(client: AsyncClient) -> int:
    done = 0
    for _ in range(5):
        value = await client.get("p|bob|1", freshness=LATEST)
        assert value is not None
        done += (
            await client.transaction(
                [pequod.value_of("p|bob|1") == value], [pequod.Put("p|bob|1", str(int(value) + 1))]
            )
        ).held
    return done


def test_all_keys_are_of_one_home_group_and_computed_ones_are_known(tmp_path: Path) -> None:
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("h1", "h2", "c1", "c2")}
    path = tmp_path / "cluster.toml"
    path.write_text(_MAP.format(**addresses))
    servers = Servers(f"static:{path}")
    try:
        for name, address in addresses.items():
            servers.start(name, listen=address)
        with Client(f"pequod+cluster://{addresses['c1']}", timeout_s=60) as client:
            client.put("s|ann|bob", "1")
            writes: list[TransactionCommand] = [
                pequod.Put("p|bob|0001", "Hi"),
                pequod.Put("p|bob|0002", "Ho"),
                pequod.Scan(prefix="p|bob|"),
            ]
            done = client.transaction([pequod.absent("p|bob|0001")], writes)
            assert done == (True, [None, None, Rows([b"p|bob|0001", b"p|bob|0002"], [b"Hi", b"Ho"])])
            assert len(client.scan(prefix="t|ann|", freshness=pequod.after(client.last_token))) == 2
            assert client.transaction([], [pequod.Add("p|bob|0003", 1), pequod.Add("p|bob|0003", 2)]) == (
                True,
                [b"1", b"3"],
            )
            with pytest.raises(MixedWriteError):
                client.transaction([pequod.present("s|ann|bob")], [pequod.Add("p|bob|0003", 1)])
            assert client.remove("p|bob|0003")
            with pytest.raises(MixedWriteError):
                client.transaction([pequod.present("s|ann|bob")], [pequod.Remove("p|bob|0001")])
            with pytest.raises(TransactionError, match="the join 't' computes it"):
                client.transaction([pequod.present("t|ann|0001|bob")], [pequod.Scan(prefix="t|ann|")])
            with pytest.raises(TransactionError, match="read them after the transaction"):
                client.transaction([pequod.present("p|bob|0001")], [pequod.Scan(prefix="t|ann|")])
            assert client.transaction([], [pequod.Count(prefix="t|ann|")]) == (True, [2])
    finally:
        servers.stop()
