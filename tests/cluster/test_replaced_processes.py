"""A join is replaced in a cluster of processes, by the command, while computes die and start again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pequod.client import AsyncClient
from pequod.errors import UnavailableError
from tests.cluster.conftest import Etcd
from tests.cluster.held import HOLDS, run_held
from tests.cluster.test_replaced import has_ended, waits_for
from tests.cluster_faults.site import LATEST, FaultSite
from tests.forked import ForkedServer, Outcome, run_command
from tests.peer.homes import TIMELINE

MUTED = f"{TIMELINE} unless s|<poster>|<user>"
OLD = {b"t|ann|0001|bob": b"Hi", b"t|ann|0002|liz": b"Ho"}
#: Liz follows ann.
NEW = {b"t|ann|0001|bob": b"Hi"}


class HeldSite(FaultSite):
    """Two homes and two computes, whose building of joins the test holds."""

    holds: Path

    def _started(self, *flags: str) -> ForkedServer:
        return ForkedServer(*flags, serve=run_held)

    def direct(self, name: str, *, retries: int = 0) -> AsyncClient:
        """Return a client of one server, which goes by no map."""
        return AsyncClient(self.entries[name].address, timeout_s=60, retries=retries)

    async def command(self, *arguments: str) -> Outcome:
        """Run a command about the joins of the cluster."""
        return await asyncio.to_thread(run_command, "join", *arguments, "--target", self.target)


@pytest.fixture
async def site(tmp_path: Path, etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HeldSite]:
    monkeypatch.setenv(HOLDS, str(tmp_path))
    async with HeldSite(tmp_path, etcd.setting("").rstrip("/"), computes=2) as site:
        site.holds = Path(os.environ[HOLDS])
        async with site.client() as client:
            for key, value in {"s|ann|bob": "1", "s|ann|liz": "1", "s|liz|ann": "1"}.items():
                await client.put(key, value)
            for key, value in {"p|bob|0001": "Hi", "p|liz|0002": "Ho"}.items():
                await client.put(key, value)
        for name in ("c1", "c2"):
            async with site.direct(name) as client:
                assert await timeline(client) == OLD
        yield site


async def timeline(client: AsyncClient) -> dict[bytes, bytes]:
    return dict(await client.scan(prefix="t|ann|", freshness=LATEST))


@pytest.mark.timeout(180)
async def test_the_compute_that_was_asked_is_killed_and_the_join_takes_its_place(site: HeldSite) -> None:
    (site.holds / "c2").touch()
    async with site.direct("c1") as asked, site.direct("c2") as other, site.client() as client:
        replaced = asyncio.create_task(asked.replace_join("t", MUTED))
        await waits_for(other, "c2")
        assert await timeline(asked) == await timeline(other) == await timeline(client) == OLD
        site.kill("c1")
        with pytest.raises(UnavailableError):
            await replaced
        assert await timeline(client) == OLD
        (site.holds / "c2").unlink()
        await has_ended(other)
        assert await timeline(client) == await timeline(other) == NEW
        await asyncio.to_thread(site.start, "c1")
    async with site.direct("c1", retries=99) as again, site.direct("c2") as other, site.client() as client:
        assert await timeline(again) == NEW
        undone = await site.command("replace", "t", "--undo")
        assert (undone.code, undone.out) == (0, f"t\t{TIMELINE.replace('<time>', '<time:4>')}\n")
        assert await timeline(again) == await timeline(other) == await timeline(client) == OLD


@pytest.mark.timeout(180)
async def test_a_compute_that_is_killed_and_starts_again_is_not_waited_for(site: HeldSite) -> None:
    (site.holds / "c1").touch()
    (site.holds / "c2").touch()
    async with site.direct("c1") as one, site.direct("c2") as other:
        replaced = asyncio.create_task(site.command("replace", "t", MUTED))
        await waits_for(one, "c1", "c2")
        listed = await site.command("list")
        assert "join t is being replaced" in listed.err
        assert "it waits for c1, c2" in listed.err
        site.kill("c2")
        (site.holds / "c2").unlink()
        await asyncio.to_thread(site.start, "c2")
    async with site.direct("c1") as one, site.direct("c2", retries=99) as other:
        assert await timeline(other) == OLD
        await waits_for(other, "c1")
        (site.holds / "c1").unlink()
        outcome = await replaced
        assert (outcome.code, outcome.out.split("\t")[0]) == (0, "t")
        assert await timeline(one) == await timeline(other) == NEW


async def test_the_command_cancels_at_all_computes(site: HeldSite) -> None:
    (site.holds / "c1").touch()
    async with site.direct("c1") as one, site.direct("c2") as other:
        replaced = asyncio.create_task(site.command("replace", "t", MUTED))
        await waits_for(other, "c1")
        assert (await site.command("replace", "t", "--cancel")).code == 0
        outcome = await replaced
        assert outcome.code != 0
        assert "it was cancelled" in outcome.err
        assert await timeline(one) == await timeline(other) == OLD
        assert [join.text for join in await other.joins()] == [TIMELINE.replace("<time>", "<time:4>")]
