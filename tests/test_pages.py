"""Pages of tables are true as well: calls that they show are made, and words mean one thing."""

import re
from pathlib import Path

import pequod
from pequod import Client
from tests.forked import started_server

ROOT = Path(__file__).parents[1]
CELL = re.compile(r"(?<!\\)\|")


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of the rows of all tables of a page, without those of headings."""
    rows = re.findall(r"^\| *(.*?) *\|$", (ROOT / page).read_text(), re.MULTILINE)
    return [[cell.strip().replace(r"\|", "|") for cell in CELL.split(row)] for row in rows if not row.startswith("---")]


def test_the_calls_of_the_redis_page_give_what_it_shows() -> None:
    calls = [row for row in rows_of("docs/coming-from-redis.md") if re.fullmatch(r"`client\..*`", row[1])]
    with started_server() as (target, _), Client(target) as client:
        for _, call, shown in calls:
            result = eval(call.strip("`"), {"client": client, "pequod": pequod})
            assert not shown or repr(result) == shown.strip("`"), call
            assert shown or result is None or "add_join" in call, f"{call} gives something that is not shown"
    assert len(calls) > 50
