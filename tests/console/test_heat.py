"""Hot groups of keys in the console."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.console.browser import PHONE, launched, page_of
from tests.gateway.doors import opened

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


CLUSTER = """cluster = "shop"
version = 3
[[placements]]
prefix = "t|ann|"
read_spread = 2
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_hot_groups_are_shown_with_their_share_and_where_they_are_read(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    servers = [f'[[servers]]\nid = "{name}"\naddress = "127.0.0.1:{port}"\n' for port, name in enumerate("ab", 1)]
    (tmp_path / "map.toml").write_text(CLUSTER + "".join(f'{one}roles = ["compute"]\n' for one in servers))
    async with (
        opened(cluster=f"static:{tmp_path / 'map.toml'}", cluster_id="a") as (server, _),
        page_of(browser, viewport=PHONE, color_scheme=scheme) as page,
    ):
        await page.goto(f"{server.http_url}/console/#/contexts")
        await page.get_by_text("No group of keys takes a thousandth of a core.").wait_for()
        for _ in range(100):
            server.instruments.heat.note(b"t|ann|1", False, 0.005)
        server.instruments.heat.tick()
        await page.reload()
        row = page.get_by_role("row", name="t|ann|")
        await row.wait_for()
        cells = await row.locator("td").all_text_contents()
        assert cells[1] == "100 %"
        assert set(cells[-1].split(", ")) == {"a", "b"}
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
