"""When each target of the Makefile that tests something ran last: `make ran` shows it, `make ran-TARGET` notes a run.

The list is tests/LAST_RUN.md, which is committed. Each target is to run once a week of work; those of `make test` and
`make check` run with every change and are not in it.

    python tests/ran.py                        print the list, and what is due
    python tests/ran.py TARGET -- COMMAND...   run the command, and note date, commit, duration and result
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
LIST: Final = ROOT / "tests/LAST_RUN.md"
_DUE_DAYS: Final = 7
_NEVER: Final = "never"
_HEAD: Final = """# When each target ran last

`make ran-TARGET` runs a target and notes it here; `make ran` says which are due. Each runs once a week of work.

| target | date | commit | minutes | result |
|---|---|---|---|---|
"""


class Run(NamedTuple):
    """A line of the list."""

    target: str
    date: str = _NEVER
    commit: str = ""
    minutes: str = ""
    result: str = ""


def targets(makefile: str) -> set[str]:
    """Return the targets whose recipe runs tests, but for those that run with every change."""
    rules = re.findall(r"^([a-z-]+):(?! [A-Z]+ =)[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE)
    found = {name for name, recipe in rules if re.search(r"-m pytest|-m tests\.|tests/fuzz|tests/pythons", recipe)}
    return found - {"test", "test-quick", "ran"}


def read(text: str) -> dict[str, Run]:
    """Return the lines of a list by their targets."""
    rows = re.findall(r"^\| ([a-z-]+) \| (.*) \| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    return {row[0]: Run(*row) for row in rows if row[0] != "target"}


def write(runs: dict[str, Run]) -> str:
    """Return the text of a list."""
    return _HEAD + "".join(f"| {' | '.join(runs[target])} |\n" for target in sorted(runs))


def is_due(run: Run, today: date) -> bool:
    """Return whether a target has not passed for a week."""
    return run.result != "passed" or (today - date.fromisoformat(run.date)).days >= _DUE_DAYS


def noted(target: str, command: list[str]) -> int:
    """Run a command, note how it ended, and return its exit code."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    begin_s = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    minutes = f"{(time.monotonic() - begin_s) / 60:.1f}"
    runs = read(LIST.read_text("utf-8"))
    now = datetime.now(UTC).date().isoformat()
    runs[target] = Run(target, now, commit.stdout.strip(), minutes, "passed" if code == 0 else f"exit code {code}")
    LIST.write_text(write(runs), "utf-8")
    return code


def main(arguments: list[str]) -> int:
    """Show the list, or run a target and note it."""
    if not arguments:
        today = datetime.now(UTC).date()
        for run in read(LIST.read_text("utf-8")).values():
            due = "due" if is_due(run, today) else ""
            print(f"{run.target:20} {run.date:10} {run.commit:9} {run.minutes:>6} {run.result:12} {due}".rstrip())
        return 0
    target, separator, *command = arguments
    if separator != "--" or target not in targets((ROOT / "Makefile").read_text("utf-8")):
        sys.exit(f"{target} is no target that tests, or -- is missing: python tests/ran.py TARGET -- COMMAND")
    return noted(target, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
