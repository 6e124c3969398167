"""The dashboard and the alerts for operators: each metric and label in them is one that servers tell."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from aiohttp import ClientSession
from pequod_views import DurableView, Manager, open_target
from pequod_views.metrics import ManagerCollector
from prometheus_client.parser import text_string_to_metric_families

from pequod.client import AsyncClient
from pequod.errors import ComputedKeyError, UnknownJoinError
from tests.peer.homes import LATEST, Running, computing, on_sqlite, running, sqlite

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "docs/deploy"
DASHBOARD = DEPLOY / "pequod.dashboard.json"
RULES = DEPLOY / "pequod.rules.yaml"
#: Those that Prometheus adds to all that it reads.
_FROM_PROMETHEUS: Final = {"instance", "job"}
#: Metrics that are not told by servers.
_OF_PROMETHEUS: Final = {"up"}
_METRIC = re.compile(r"\b(?:pequod|process|python)_\w+")
_SELECTOR = re.compile(r"\b((?:pequod|process|python)_\w+)\{([^}]*)\}")
_BY = re.compile(r"\bby \(([^)]*)\)")
_LEGEND = re.compile(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}")
MAP = """
cluster = "twip"
version = 1
[[servers]]
id = "c1"
address = "127.0.0.1:1"
roles = ["compute"]
"""
_ACCESS: Final = """
[roles.web.quotas]
calls_per_s = 1
watches = 1
"""
_METRICS: Final[dict[str, Any]] = {"metrics": "127.0.0.1:0"}


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression, and the text that is shown beside it."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]
    for rule in rules():
        yield rule["expr"], rule["annotations"]["summary"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


async def scrape(server: Running, told: defaultdict[str, set[str]]) -> None:
    """Note the names of a server's metrics, and the labels of each."""
    async with ClientSession() as session, session.get(f"{server.server.instruments.url}/metrics") as reply:
        for family in text_string_to_metric_families(await reply.text()):
            # A family without samples has not happened yet; its labels cannot be seen.
            for name in (family.name, *(f"{family.name}_{end}" for end in ("total", "bucket", "sum", "count"))):
                told[name] |= {label for sample in family.samples for label in sample.labels}


async def use(client: AsyncClient) -> None:
    """Make calls that succeed and calls that fail, so that their labels are there."""
    await client.put("s|ann|bob", "1")
    await client.put("p|bob|0001", "Hi")
    assert len(await client.scan(prefix="t|ann|", freshness=LATEST)) == 1
    with pytest.raises(UnknownJoinError):
        await client.drop_join("nobody")
    with pytest.raises(ComputedKeyError):
        await client.put("t|ann|0001|bob", "Hi")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the labels of each metric of servers of every kind."""
    return asyncio.run(_told(tmp_path_factory.mktemp("dashboards")))


async def _told(path: Path) -> dict[str, set[str]]:
    (path / "cluster.toml").write_text(MAP)
    await sqlite(path / "twip.db")
    found: defaultdict[str, set[str]] = defaultdict(set)
    joins = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
    snapshots: dict[str, Any] = {"snapshot_folder": path / "snapshots", "snapshot_every_s": 3600}
    async with running(**_METRICS, joins=joins, **snapshots) as plain:
        await use(plain.client)
        await plain.client.save_snapshot()
        await scrape(plain, found)
    (path / "access.toml").write_text(_ACCESS)
    async with running(**_METRICS, access_file=path / "access.toml") as with_roles:
        await scrape(with_roles, found)
    async with running(**_METRICS, joins=joins, data=path / "data") as with_data:
        await use(with_data.client)
        await scrape(with_data, found)
    member: dict[str, Any] = {"cluster": f"static:{path / 'cluster.toml'}", "cluster_id": "c1"}
    async with running(**_METRICS, **member) as in_a_cluster:
        await scrape(in_a_cluster, found)
    async with (
        running(on_sqlite(path / "twip.db"), **_METRICS, backing_mode="write-through") as home,
        computing([home.address], own_id="c7", **_METRICS) as compute,
    ):
        await use(compute.client)
        await scrape(home, found)
        await scrape(compute, found)
    views = [DurableView.parse({"name": "v", "keys": "v|<a>"})]
    manager = Manager(AsyncClient(), open_target(f"sqlite:{path / 'views.db'}"), views)
    for metric in ManagerCollector(manager).collect():
        found[metric.name] = set()
    return found


def test_the_servers_of_this_test_tell_what_the_pages_list(told: dict[str, set[str]]) -> None:
    pages = "".join((ROOT / f"docs/{page}.md").read_text() for page in ("operations", "backing", "cluster", "security"))
    listed = {
        name for line in re.findall(r"^\| (`pequod_[^|]*)\|", pages, re.MULTILINE) for name in _METRIC.findall(line)
    }
    assert len(listed) > 60
    assert listed - told.keys() == set()


@pytest.mark.parametrize("file", [DASHBOARD, RULES], ids=lambda file: file.name)
def test_each_metric_is_one_that_a_server_tells(file: Path, told: dict[str, set[str]]) -> None:
    named = set(_METRIC.findall(file.read_text()))
    assert len(named) > 10
    assert named - told.keys() == set()


def test_each_label_is_one_of_its_metric(told: dict[str, set[str]]) -> None:
    for expression, text in expressions():
        names = _METRIC.findall(expression)
        labels = set().union(*(told[name] for name in names)) | _FROM_PROMETHEUS
        asked = {label.strip() for group in _BY.findall(expression) for label in group.split(",")}
        asked |= set(_LEGEND.findall(text))
        assert asked <= labels | {"database"}, expression
        for name, selector in _SELECTOR.findall(expression):
            matched = set(re.findall(r"(\w+)(?:=~|!=|!~|=)", re.sub(r'"[^"]*"', "", selector)))
            assert matched <= told[name] | _FROM_PROMETHEUS, expression


def test_the_expressions_name_what_they_are_about() -> None:
    for expression, _ in expressions():
        assert _METRIC.search(expression) or set(re.findall(r"\w+(?=\{)", expression)) == _OF_PROMETHEUS, expression


def test_panels_have_their_own_places_and_numbers() -> None:
    board = json.loads(DASHBOARD.read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["targets"]
    known = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval", "__all"}
    assert set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) <= known


def test_each_alert_says_how_bad_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]


def test_promtool_takes_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here: `apt-get install prometheus` brings it")
    done = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
