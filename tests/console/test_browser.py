"""The console in a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.console.browser import PHONE, comes_to_count, comes_to_show, launched, page_of
from tests.gateway.doors import TIMELINE, opened
from tests.gateway.test_views_and_lakes import filled_lake, installed

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).parents[2]
#: The longest pause between two looks at the statistics.
LOOK_MS = 60_000
#: JavaScript: the left edges of the nodes of the graph of joins that have these names.
LEFTS = """names => names.map(name => [...document.querySelectorAll(".graph g > title")]
    .find(title => title.textContent === name).parentElement.getBoundingClientRect().x)"""
#: JavaScript: waits until the graph of joins is drawn anew.
DRAWN_ANEW = """() => new Promise(ended => {
    const drawn = document.querySelector(".graph");
    const look = () => drawn.isConnected ? setTimeout(look, 20) : ended();
    look();
})"""
PLACES = ("overview", "joins", "keys", "watch", "playground", "contexts", "slow", "cluster", "start")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


async def test_the_overview_shows_what_the_server_holds_and_does(browser: Browser) -> None:
    async with opened() as (server, client), page_of(browser) as page:
        await client.post("/v1/joins", json={"text": TIMELINE})
        for number in range(30):
            await client.put(f"/v1/keys/p|bob|{number:04}", json={"value": "x"})
        # It stands: a look between the reads and the next one would show them, and this one no call.
        await page.clock.install(time=0)
        await page.clock.pause_at(1_000)
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
        await page.goto(f"{server.http_url}/console/#/overview")
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
        await page.get_by_text("What the next read has to do").click()
        await page.get_by_text("120 written keys;").wait_for()
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


async def test_an_escape_that_stands_for_no_byte_is_refused_by_its_name(browser: Browser) -> None:
    escapes = {"a\\z|": "\\z", "\\q": "\\q", "a\\xg1": "\\xg1", "a\\x4": "\\x4", "a\\": "\\"}
    async with opened() as (server, _), page_of(browser) as page:

        async def refused(label: str, typed: str, count: int) -> None:
            await page.get_by_label(label, exact=True).fill(typed)
            await page.keyboard.press("Enter")
            words = f"{escapes[typed]} stands for no byte: write \\\\ for a backslash"
            refusal = re.compile(rf"(^|\s){re.escape(words)}")
            await comes_to_count(page.get_by_text(refusal), count)

        await page.goto(f"{server.http_url}/console/#/keys")
        await page.get_by_text("Write a key").click()
        for typed in escapes:
            await refused("Keys that begin with", typed, 1)
            await refused("Key", typed, 2)
        await page.goto(f"{server.http_url}/console/#/watch")
        for typed in escapes:
            await refused("Keys that begin with", typed, 1)
        assert server.engine.count(b"", None) == 0


async def test_a_watch_shows_each_change_as_it_comes(browser: Browser) -> None:
    async with opened() as (server, client), page_of(browser) as page:
        await client.post("/v1/joins", json={"text": TIMELINE})
        await client.put("/v1/keys/s|ann|bob", json={"value": "1"})
        await client.put("/v1/keys/p|bob|0100", json={"value": "first post"})
        await page.goto(f"{server.http_url}/console/#/watch?prefix=t|ann|")
        await page.get_by_role("cell", name="first post").wait_for()
        await client.put("/v1/keys/p|bob|0090", json={"value": "earlier post"})
        await page.get_by_role("cell", name="earlier post").wait_for()
        await comes_to_show(page.locator(".live td.value"), "earlier post", "first post")
        await client.delete("/v1/keys/p|bob|0100")
        await page.get_by_role("cell", name="first post").wait_for(state="detached")
        await page.get_by_text("1 row; 2 changes").wait_for()


async def test_an_empty_server_greets_with_a_timeline_that_lives_by_clicks_alone(browser: Browser) -> None:
    async with opened() as (server, _), page_of(browser) as page:
        await page.goto(f"{server.http_url}/")
        await page.get_by_text("Its rows are shown here, once step 1 is done.").wait_for()
        await page.get_by_role("button", name="Declare it").click()
        await page.get_by_role("heading", name="Ann's timeline, live").wait_for()
        await page.get_by_role("button", name="Ann follows Bob").click()
        await page.get_by_role("button", name="Post it").click()
        await page.get_by_role("cell", name="Hello!").wait_for()
        await page.get_by_role("button", name="Post it").click()
        await page.get_by_role("cell", name="There she blows.").wait_for()
        await comes_to_show(page.locator(".live td.value"), "There she blows.", "Hello!")
        assert len(server.engine.scan(b"t|ann|", b"t|ann}").keys) == 2
        await comes_to_count(page.locator(".steps li.done"), 3)


async def test_the_playground_shows_places_of_errors_and_adds_what_is_right(browser: Browser) -> None:
    async with opened() as (server, _), page_of(browser) as page:
        server.engine.put(b"s|ann|bob", b"1")
        server.engine.put(b"p|bob|0100", b"post")
        await page.goto(f"{server.http_url}/console/#/playground")
        text = page.get_by_label("Joins")
        await text.fill(TIMELINE.replace("copy", "copi"))
        await page.get_by_text("'copi' is no operator").wait_for()
        assert await page.locator(".behind mark").text_content() == "copi"
        caret = await page.locator(".caret").text_content()
        assert caret is not None
        line, carets = caret.split("\n")
        assert line[carets.index("^") :][: carets.count("^")] == "copi"
        add = page.get_by_role("button", name="Add to the server")
        assert await add.is_disabled()
        await text.fill(TIMELINE)
        await page.get_by_text("t|ann|0100|bob").wait_for()
        await comes_to_count(page.get_by_text("1 of 1 key", exact=True), 2)
        assert server.engine.joins() == []
        await add.click()
        await page.get_by_text("The server has t now.").wait_for()
        assert [join.name for join in server.engine.joins()] == ["t"]
        await page.get_by_text("installed", exact=True).wait_for()
        await page.get_by_role("heading", name="Rows that it computes").wait_for()
        await text.fill(TIMELINE.replace("time:4", "time:10"))
        await page.get_by_text("It computes no row from the first rows of its sources").wait_for()
        await comes_to_count(page.get_by_text("t|ann|0100|bob"), 0)
        await text.fill(TIMELINE.replace("<poster>", "<writer>"))
        await page.get_by_text("nothing of it is shown").wait_for()


async def test_the_graph_leads_to_each_join_and_its_plan(browser: Browser) -> None:
    async with opened() as (server, client), page_of(browser) as page:
        await client.post("/v1/joins", json={"text": f"{TIMELINE}; n|<user> = count t|<user>|<time:4>|<poster>"})
        for key in (b"s|ann|bob", b"p|bob|0100"):
            server.engine.put(key, b"1")
        server.engine.scan(b"t|ann|", b"t|ann}")
        await page.goto(f"{server.http_url}/console/#/joins")
        await page.get_by_role("button", name="join n").wait_for()
        # All at once: the graph is drawn anew at each look.
        lefts = await page.evaluate(LEFTS, ["s|", "t", "t|", "n", "n|"])
        assert lefts == sorted(lefts)
        assert len(set(lefts)) == 5
        # The focus stays while the graph is drawn anew.
        await page.get_by_role("button", name="join n").focus()
        await page.evaluate(DRAWN_ANEW)
        assert await page.evaluate("document.activeElement.getAttribute('aria-label')") == "join n"
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Join n").wait_for()
        page.on("dialog", lambda dialog: dialog.accept())
        await page.get_by_role("button", name="Drop").click()
        await page.get_by_text("n is dropped.").wait_for()
        assert [join.name for join in server.engine.joins()] == ["t"]
        await page.goto(f"{server.http_url}/console/#/contexts")
        await page.get_by_role("link", name="t|ann|").first.wait_for()


async def test_one_of_a_kind_is_told_in_the_singular(browser: Browser) -> None:
    async with opened() as (server, client), page_of(browser) as page:
        await client.post("/v1/joins", json={"text": "a|<x> = copy b|<x>"})
        server.engine.put(b"b|1", b"1")
        server.engine.scan(b"a|", b"a}")
        await page.goto(f"{server.http_url}/console/#/overview")
        for text in ("1 join", "1 table"):
            await page.get_by_text(text, exact=True).wait_for()
        await page.goto(f"{server.http_url}/console/#/joins")
        for text in ("1 key", "push · 1 row"):
            await page.get_by_text(text, exact=True).wait_for()
        await page.goto(f"{server.http_url}/console/#/keys?prefix=b|")
        await page.get_by_text("What the next read has to do").click()
        await page.get_by_text("1 written key;").wait_for()


async def test_slow_calls_and_the_cluster_are_shown(browser: Browser, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        'cluster = "shop"\nversion = 3\n[[servers]]\nid = "mill"\naddress = "127.0.0.1:1"\nroles = ["compute"]\n'
    )
    async with (
        opened(cluster=f"static:{cluster}", cluster_id="mill", slow_ms=1e-6) as (server, client),
        page_of(browser) as page,
    ):
        await client.get("/v1/count?prefix=t|ann|")
        await page.goto(f"{server.http_url}/console/#/slow")
        row = page.get_by_role("row", name="Count")
        await row.wait_for()
        assert "t|ann|" in (await row.text_content() or "")
        await page.goto(f"{server.http_url}/console/#/cluster")
        await page.get_by_text("shop, version 3").wait_for()
        assert "ready" in (await page.get_by_role("row", name="mill").text_content() or "")
        await page.goto(f"{server.http_url}/console/#/overview")
        await page.get_by_text("No database, lake or home is behind this server").wait_for()


def page_in(path: str, url: str) -> str:
    """Return the page that a document shows, for a server."""
    (page,) = re.findall(r"^```html\n(.*?)^```$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    return str(page).replace("http://127.0.0.1:7780", url)


async def test_the_page_of_the_readme_is_alive(browser: Browser, tmp_path: Path) -> None:
    async with opened(http_origins="*") as (server, client), page_of(browser) as page:
        await client.post("/v1/joins", json={"text": TIMELINE})
        for key in ("s|ann|bob", "p|bob|0002"):
            await client.put(f"/v1/keys/{key}", json={"value": "second"})
        (tmp_path / "page.html").write_text(page_in("README.md", server.http_url))
        await page.goto(f"file://{tmp_path}/page.html")
        posts = page.locator("#posts li")
        await posts.filter(has_text="second").wait_for()
        await client.put("/v1/keys/p|bob|0001", json={"value": "first"})
        await posts.filter(has_text="first").wait_for()
        await comes_to_show(posts, "first", "second")
        await client.delete("/v1/keys/s|ann|bob")
        await posts.first.wait_for(state="detached")


async def test_two_windows_of_the_chat_room_show_the_same(browser: Browser, tmp_path: Path) -> None:
    join = "busy|<room>|<user> = count m|<room>|<time>|<user>"
    async with opened(http_origins="*") as (server, client), page_of(browser) as ann, page_of(browser) as bob:
        await client.post("/v1/joins", json={"text": join})
        (tmp_path / "chat.html").write_text(page_in("docs/http.md", server.http_url))
        for page in (ann, bob):
            await page.goto(f"file://{tmp_path}/chat.html")
        await bob.locator("#who").fill("bob")
        for page, text in ((ann, "hello"), (bob, "there"), (ann, "you")):
            await page.locator("#text").fill(text)
            await page.get_by_role("button", name="Say").click()
            for each in (ann, bob):
                await each.locator("#posts li").filter(has_text=text).wait_for()
        for page in (ann, bob):
            await page.get_by_text("ann has written 2").wait_for()
            await comes_to_show(page.locator("#posts li"), "ann: hello", "bob: there", "ann: you")
            await comes_to_show(page.locator("#busy li"), "ann has written 2", "bob has written 1")


async def test_views_and_lakes_are_shown_with_their_stages_and_ages(browser: Browser, tmp_path: Path) -> None:
    settings = {"console_views": (await installed(tmp_path),), "console_lakes": str(filled_lake(tmp_path))}
    async with opened(**settings) as (server, _), page_of(browser, viewport=PHONE) as page:
        await page.goto(f"{server.http_url}/console/#/cluster")
        part = page.get_by_role("row", name="karma")
        await part.wait_for()
        assert "free" in (await part.text_content() or "")
        stage = page.get_by_role("row", name="raw")
        assert "12" in (await stage.text_content() or ""), "one run of two rows"
        await page.get_by_text("SCU 1; the authority has SCU 0").wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


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


async def test_figures_of_joins_and_slow_calls_need_no_scroll_on_a_phone(browser: Browser) -> None:
    fits = "[...document.querySelectorAll('.scroll:has(table)')].map(box => box.scrollWidth <= box.clientWidth)"
    async with opened(slow_ms=1e-6) as (server, client), page_of(browser, viewport=PHONE) as page:
        await client.post("/v1/joins", json={"text": f"{TIMELINE}; {'karma_of_' * 3}|<a> = count vote|<a>|<v>"})
        await client.get(f"/v1/count?prefix={'t|ann|' * 12}")
        for place, row in (("joins", "karma_of_"), ("slow", "Count")):
            await page.goto(f"{server.http_url}/console/#/{place}")
            await page.get_by_role("row", name=row).wait_for()
            assert await page.evaluate(fits) == [True], place
        title = "getComputedStyle(document.querySelector('.cards td:nth-child(3)'), '::before').content"
        assert await page.evaluate(title) == '"time"'


async def test_a_token_is_asked_for_and_what_its_role_may_not_see_shows_as_such(
    browser: Browser, tmp_path: Path
) -> None:
    from tests.gateway.test_who_may import ACCESS

    access = tmp_path / "access.toml"
    access.write_text(ACCESS)
    access.chmod(0o600)
    async with opened(access_file=access) as (server, _), page_of(browser, faults=True) as page:
        await page.goto(f"{server.http_url}/")
        status = page.locator("#server")
        await status.get_by_text("Asks for a token").wait_for()
        assert await page.get_by_role("link", name="Overview").count() == 0
        await page.goto(f"{server.http_url}/console/#/keys")
        await page.get_by_label("Token").fill("nobody's")
        await page.keyboard.press("Enter")
        await page.get_by_text("does not know this token").wait_for()
        await status.get_by_text("Asks for a token").wait_for()
        await page.get_by_label("Token").fill("web's")
        await page.keyboard.press("Enter")
        await status.get_by_text("Version").wait_for()
        await page.goto(f"{server.http_url}/console/#/overview")
        await page.get_by_text("not shown to your role").first.wait_for()
        await page.goto(f"{server.http_url}/console/#/slow")
        await page.get_by_text("Not shown to your role web").wait_for()
        await page.goto(f"{server.http_url}/console/#/keys?prefix=t|")
        await page.get_by_text("Not shown to your role web").wait_for()
        assert await page.evaluate("Object.values(sessionStorage)") == ["web's"]


async def test_a_role_with_few_rights_sees_what_it_may_not_see_and_do(browser: Browser, tmp_path: Path) -> None:
    from tests.gateway.test_who_may import ACCESS

    access = tmp_path / "access.toml"
    access.write_text(ACCESS)
    access.chmod(0o600)
    async with opened(access_file=access) as (server, _), page_of(browser, faults=True) as page:
        server.engine.put(b"q|1", b"1")
        await page.goto(f"{server.http_url}/console/#/start")
        await page.get_by_label("Token").fill("web's")
        await page.keyboard.press("Enter")
        await page.get_by_text("Not allowed to your role web").nth(1).wait_for()
        buttons = [page.get_by_role("button", name=name) for name in ("Declare it", "Ann follows Bob", "Post it")]
        assert [await button.is_enabled() for button in buttons] == [False, False, True]
        assert server.engine.count(b"", None) == 1
        await page.goto(f"{server.http_url}/console/#/overview")
        await page.get_by_text("Your role sees no table and no join.").wait_for()
        await page.get_by_text("Operations, times, memory and evictions are not shown to your role").wait_for()
        assert await page.locator(".tile small").all_text_contents() == ["not shown to your role"] * 2
        assert await page.locator(".plot:visible").count() == 0
        await page.goto(f"{server.http_url}/console/#/joins")
        await page.get_by_text("Your role sees no join.").wait_for()
        await page.goto(f"{server.http_url}/console/#/contexts")
        await page.get_by_text("Your role sees nothing that is materialised.").first.wait_for()
        await page.goto(f"{server.http_url}/console/#/watch?prefix=t|")
        await page.get_by_text("Not shown to your role web").wait_for()
        assert await page.get_by_text("Connecting").is_hidden()
        server.engine.put(b"p|1", b"1")
        await page.goto(f"{server.http_url}/console/#/overview")
        await page.reload()
        await page.get_by_text("of 1 table that your role sees").wait_for()
