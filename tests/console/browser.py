"""A real browser, and pages of it that may print no error."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.installed import lacking

if TYPE_CHECKING:
    from playwright.async_api import Browser, Locator, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")
PHONE = {"width": 390, "height": 844}
_WAIT_MS = 20_000
DESK = {"width": 1280, "height": 860}


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """Yield a browser without windows."""
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        lacking("playwright is not installed: `pip install playwright`")
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        lacking("no Chromium is installed: `apt-get install chromium`")
    async with async_playwright() as playwright:
        # Root has no sandbox; and what is loaded comes from the tests' own servers.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@asynccontextmanager
async def page_of(browser: Browser, *, faults: bool = False, **options: Any) -> AsyncIterator[Page]:
    """Yield a page of its own, which must not have printed an error in the end.

    Args:
        faults: Whether it may: a browser prints each answer that is a refusal.
    """
    context = await browser.new_context(**({"viewport": DESK} | options))
    page = await context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if line.type == "error" and not faults else None)
    page.set_default_timeout(_WAIT_MS)
    yield page
    await context.close()
    assert said == []


async def comes_to_show(locator: Locator, *texts: str) -> None:
    """Wait until just these texts are shown, in this order: a page shows a change some time after it has come."""
    from playwright.async_api import expect

    await expect(locator).to_have_text(list(texts), timeout=_WAIT_MS)


async def comes_to_count(locator: Locator, count: int) -> None:
    """Wait until there are `count` of it."""
    from playwright.async_api import expect

    await expect(locator).to_have_count(count, timeout=_WAIT_MS)
