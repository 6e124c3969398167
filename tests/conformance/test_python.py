"""The conformance script, run by both Python clients against a real server, and by a store in the process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import pequod
from tests.conformance.forms import differing
from tests.conformance.running import CaseRunner
from tests.forked import started_server

CASES: Final[list[dict[str, Any]]] = json.loads(Path(__file__).with_name("cases.json").read_text())["cases"]
NAMES: Final = [case["name"] for case in CASES]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with started_server() as (target, _):
        yield target


@pytest.mark.parametrize("case", CASES, ids=NAMES)
async def test_the_asyncio_client_gets_what_the_script_says(target: str, case: dict[str, Any]) -> None:
    async with pequod.AsyncClient(target) as client:
        await CaseRunner(client).run(case)


@pytest.fixture(scope="module")
def client(target: str) -> Iterator[pequod.Client]:
    with pequod.Client(target) as client:
        yield client


@pytest.mark.parametrize("case", CASES, ids=NAMES)
async def test_the_synchronous_client_gets_what_the_script_says(client: pequod.Client, case: dict[str, Any]) -> None:
    await CaseRunner(client).run(case)


#: It keeps no changes for watches that have ended.
NOT_IN_THE_PROCESS: Final = "a watch goes on after changes that it has not taken"


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["name"] != NOT_IN_THE_PROCESS], ids=lambda case: case["name"]
)
async def test_a_store_in_the_process_gives_what_the_script_says(case: dict[str, Any]) -> None:
    with pequod.open() as store:
        await CaseRunner(store).run(case)


def test_each_case_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"reply": "a"}, {"reply": "b"}),
        ({"reply": 1}, {"reply": True}),
        ({"reply": ["a", "b"]}, {"reply": ["a"]}),
        ({"reply": {"held": True}}, {"reply": {"held": True, "outcomes": []}}),
        ({"error": {"code": "NOT_FOUND"}}, {"reply": None}),
        ({"reply": 0}, {"reply": {"at_most": 5}}),
        ({"reply": "short"}, {"reply": {"contains": "long"}}),
    ],
)
def test_a_reply_that_differs_is_told(found: Any, expected: Any) -> None:
    assert differing(found, found) == ""
    assert differing(found, expected) != ""
