"""The page about TypeScript is true: its examples compile, run, and print what they show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import started_server
from tests.typescript.node import FOLDER, ROOT, compile_project, compiled, run_node

EXAMPLES = re.findall(r"```typescript\n(.*?)```\n\n```\n(.*?)```", (ROOT / "docs/typescript.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """The folder of the compiled examples; it is inside the package, which they import by its name."""
    compiled()
    folder = FOLDER / "build/page"
    folder.mkdir(parents=True, exist_ok=True)
    options = {"rootDir": ".", "outDir": "out", "declaration": False}
    project = {"extends": "../../tsconfig.json", "compilerOptions": options, "include": ["*.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(project))
    for number, (code, _) in enumerate(EXAMPLES):
        (folder / f"example{number}.ts").write_text(code)
    compile_project(folder / "tsconfig.json")
    yield folder / "out"


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_an_example_prints_what_it_shows(programs: Path, number: int) -> None:
    program = programs / f"example{number}.js"
    with started_server() as (target, _):
        program.write_text(program.read_text().replace("127.0.0.1:7744", target))
        assert await run_node(program) == (0, EXAMPLES[number][1])


def test_each_block_of_code_is_an_example() -> None:
    assert len(EXAMPLES) == (ROOT / "docs/typescript.md").read_text().count("```typescript") > 3
