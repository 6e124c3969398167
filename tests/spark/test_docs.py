"""The examples of docs/spark.md print what they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.forked import started_server

PAGE = Path(__file__).parents[2] / "docs/spark.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_all_examples_are_found() -> None:
    assert len(EXAMPLES) == PAGE.read_text().count("```python") > 0


@pytest.mark.parametrize(("code", "expected"), EXAMPLES)
@pytest.mark.usefixtures("spark")
def test_an_example_prints_what_it_shows(code: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with started_server() as (target, _):
        exec(compile(code.replace("127.0.0.1:7744", target), str(PAGE), "exec"), {})
    assert capsys.readouterr().out == expected
