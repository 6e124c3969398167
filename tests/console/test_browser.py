"""The console in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.console.browser import PHONE, launched, page_of
from tests.gateway.doors import TIMELINE, opened

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.asyncio(loop_scope="module")
#: The longest pause between two looks at the statistics.
LOOK_MS = 60_000
PLACES = ("overview", "keys", "watch")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


async def test_the_overview_shows_what_the_server_holds_and_does(browser: Browser) -> None:
    async with opened() as (server, client), page_of(browser) as page:
        await client.post("/v1/joins", json={"text": TIMELINE})
        for number in range(30):
            await client.put(f"/v1/keys/p|bob|{number:04}", json={"value": "x"})
        await page.clock.install()
        await page.goto(f"{server.http_url}/")
        await page.get_by_text("Written keys", exact=True).wait_for()
        assert await page.locator(".tile", has_text="Written keys").locator("dd").text_content() == "30"
        for _ in range(20):
            await client.get("/v1/keys/p|bob|0000")
        async with page.expect_response("**/v1/statistics"):
            await page.clock.run_for(LOOK_MS)
        await page.locator(".tile small", has_text="half").wait_for()
        await page.locator(".plot path.line").first.wait_for(state="attached")
        assert await page.locator(".tile", has_text="Operations").locator("dd").text_content() != "–"


async def test_it_does_not_ask_while_nobody_sees_it(browser: Browser) -> None:
    async with opened() as (server, _), page_of(browser) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "statistics" in request.url else None)
        await page.clock.install()
        await page.goto(f"{server.http_url}/")
        await page.get_by_text("Written keys", exact=True).wait_for()
        await page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        asked.clear()
        await page.clock.run_for(600_000)
        assert asked == []
        async with page.expect_response("**/v1/statistics"):
            await page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        assert len(asked) == 1


async def test_keys_are_read_page_by_page_and_written(browser: Browser) -> None:
    async with opened() as (server, client), page_of(browser) as page:
        for number in range(120):
            server.engine.put(b"p|bob|%04d" % number, b"post %d" % number)
        server.engine.put(b"\xff|a\n", b'{"a": 1}')
        await page.goto(f"{server.http_url}/console/#/keys")
        await page.get_by_role("button", name="p|", exact=True).click()
        await page.get_by_text("p|bob|0049").wait_for()
        await page.get_by_role("button", name="Next").click()
        await page.get_by_text("p|bob|0099").wait_for()
        await page.get_by_role("button", name="Back").click()
        await page.get_by_text("p|bob|0000").click()
        await page.get_by_text("Does not expire.").wait_for()
        await page.get_by_role("button", name="all").click()
        await page.get_by_label("Keys that begin with").fill("\\xff|")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="\\xff|a\\x0a").click()
        await page.get_by_text('"a": 1', exact=False).nth(1).wait_for()
        await page.get_by_text("Write a key").click()
        await page.get_by_label("Key", exact=True).fill("\\xff|b")
        await page.get_by_label("Value").fill("new")
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="\\xff|b").wait_for()
        assert server.engine.get(b"\xff|b") == b"new"
        async with client.get("/v1/keys/%FF%7Cb") as reply:
            assert reply.status == 200


async def test_a_watch_shows_each_change_as_it_comes(browser: Browser) -> None:
    async with opened() as (server, client), page_of(browser) as page:
        await client.post("/v1/joins", json={"text": TIMELINE})
        await client.put("/v1/keys/s|ann|bob", json={"value": "1"})
        await client.put("/v1/keys/p|bob|0100", json={"value": "first post"})
        await page.goto(f"{server.http_url}/console/#/watch?prefix=t|ann|")
        await page.get_by_role("cell", name="first post").wait_for()
        await client.put("/v1/keys/p|bob|0090", json={"value": "earlier post"})
        await page.get_by_role("cell", name="earlier post").wait_for()
        assert await page.locator(".live td.value").all_text_contents() == ["earlier post", "first post"]
        await client.delete("/v1/keys/p|bob|0100")
        await page.get_by_role("cell", name="first post").wait_for(state="detached")
        await page.get_by_text("1 row; 2 changes").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone_and_is_used_by_keys_alone(browser: Browser, scheme: str) -> None:
    async with opened() as (server, _), page_of(browser, viewport=PHONE, color_scheme=scheme) as page:
        for place in PLACES:
            await page.goto(f"{server.http_url}/console/#/{place}")
            await page.locator("main h1").wait_for()
            assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], place
        await page.goto(f"{server.http_url}/console/#/overview")
        await page.get_by_role("link", name="Keys", exact=True).focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Keys").wait_for()
        assert await page.evaluate("document.activeElement.id") == "main"


async def test_a_token_is_asked_for_and_what_its_role_may_not_see_shows_as_such(
    browser: Browser, tmp_path: Path
) -> None:
    from tests.gateway.test_who_may import ACCESS

    access = tmp_path / "access.toml"
    access.write_text(ACCESS)
    access.chmod(0o600)
    async with opened(access_file=access) as (server, _), page_of(browser, faults=True) as page:
        await page.goto(f"{server.http_url}/console/")
        await page.get_by_label("Token").fill("nobody's")
        await page.keyboard.press("Enter")
        await page.get_by_text("does not know this token").wait_for()
        await page.get_by_label("Token").fill("web's")
        await page.keyboard.press("Enter")
        await page.get_by_text("not shown to your role").first.wait_for()
        await page.goto(f"{server.http_url}/console/#/keys?prefix=t|")
        await page.get_by_text("Not shown to your role web").wait_for()
        assert await page.evaluate("Object.values(sessionStorage)") == ["web's"]
