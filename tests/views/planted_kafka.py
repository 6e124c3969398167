"""Plant faults in a copy of the Kafka target, one at a time, and see that its tests over a broker find each.

python -m tests.views.planted_kafka                all of them
python -m tests.views.planted_kafka --only fence   those whose words hold this

First all tests run without a fault. If a fault is not found, it survives, and the exit code is 1. It takes a minute or
two a fault, and the jars of `make views-kafka`, whose folder PEQUOD_KAFKA_JARS names.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("pequod", "grammar", "proto", "server", "bench", "tests", "docs", "pyproject.toml")
_TESTS: Final = tuple(f"tests/views/test_kafka{name}.py" for name in ("_transactions", "_waits", ""))
_TEST_S: Final = 300
#: A run that ends by one of these says nothing of the fault.
_VOID: Final = re.compile(r"(ImportError|SyntaxError|NameError|ResourceWarning|CalledProcessError)\b")


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a file that makes it wrong."""

    breaks: str
    file: str
    right: str
    wrong: str


_WRITE: Final = "            await self._write(owner, ledger, rows)\n"
_SENT: Final = "            sent.append(await producer.send(*record))\n"
FAULTS: Final = (
    Fault(
        "rows are in another transaction than their position, before it",
        "kafka.py",
        _WRITE,
        "            await self._write(owner, [], rows)\n            await self._write(owner, ledger, [])\n",
    ),
    Fault(
        "rows are in another transaction than their position, behind it",
        "kafka.py",
        _WRITE,
        "            await self._write(owner, ledger, [])\n            await self._write(owner, [], rows)\n",
    ),
    Fault(
        "a transaction is committed before all rows are sent",
        "kafka.py",
        _SENT,
        f"            if len(sent) == 1:\n                await producer.commit_transaction()\n"
        f"                await producer.begin_transaction()\n{_SENT}",
    ),
    Fault(
        "each producer has an id of its own, and fences nobody off",
        "kafka_topics.py",
        "transactional_id=transactional_id,",
        "transactional_id=f'{transactional_id}/{time.monotonic_ns()}',",
    ),
    Fault(
        "a row that is gone leaves no tombstone",
        "kafka_transaction.py",
        "self.rows += [RowRecord(view.name, view.table, key, None) for key in keys]",
        "self.rows += []",
    ),
    Fault(
        "positions are read that were not committed",
        "kafka_topics.py",
        'self._consumer("read_committed")',
        'self._consumer("read_uncommitted")',
    ),
    Fault(
        "who takes a part reads the ledger to the first open transaction",
        "kafka_topics.py",
        "if is_blocked and not to_latest:",
        "if is_blocked:",
    ),
    Fault(
        "the header of a row has the revision before",
        "kafka.py",
        'f"{server_id}:{revision}".encode()',
        'f"{server_id}:{revision - 1}".encode()',
    ),
    Fault(
        "topics of views are made without compaction",
        "kafka_topics.py",
        'ROWS: Final = {**_COMPACTED, "delete.retention.ms": "86400000"}',
        'ROWS: Final = {"cleanup.policy": "delete", "delete.retention.ms": "86400000"}',
    ),
    Fault(
        "a call has no end",
        "kafka_waits.py",
        "await asyncio.wait([task], timeout=wait_s)\n        finally:",
        "await task\n        finally:",
    ),
    Fault(
        "a start is cut short",
        "kafka_waits.py",
        "        if start is not None:\n            await _over(start)\n            start.cancel()\n",
        "        if start is not None:\n            start.cancel()\n",
    ),
)


def outcome_of(folder: Path, fault: Fault) -> tuple[str, str]:
    """Return what becomes of a fault, and the test that says so."""
    path = folder / "server/pequod_views/targets" / fault.file
    right = path.read_text("utf-8")
    assert right.count(fault.right) == 1, f"{fault.file} has no such place, or several: {fault.right!r}"
    path.write_text(right.replace(fault.right, fault.wrong), "utf-8")
    try:
        passes, told = _run(folder)
    finally:
        path.write_text(right, "utf-8")
    if passes:
        return "SURVIVED", ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
    errors = "\n".join(line for line in told.splitlines() if line.startswith("E  "))
    is_void = found is None or _VOID.search(errors) is not None
    # A lost connection is what one fault is about.
    if is_void and "cut short" in fault.breaks and "ResourceWarning" in errors:
        is_void = False
    return ("void" if is_void else "found"), (found[1] if found else told[-2000:])


def _run(folder: Path) -> tuple[bool, str]:
    paths = os.pathsep.join(str(folder / name) for name in (".", "grammar", "proto", "server", "bench"))
    jars = os.environ.get("PEQUOD_KAFKA_JARS", str(_ROOT / "build/kafka"))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "PEQUOD_KAFKA_JARS": jars}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", f"--timeout={_TEST_S}"]
    done = subprocess.run([*command, *_TESTS], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def main() -> int:
    """Plant, and print what became of each fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in _COPIED:
            source = _ROOT / part
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / part, ignore=ignored) if source.is_dir() else shutil.copy(source, folder)
        passes, told = _run(folder)
        if not passes:
            print(f"without a fault the tests fail:\n{told[-4000:]}")
            return 1
        print("without a fault: passes", flush=True)
        missed = 0
        for fault in FAULTS:
            if options.only not in fault.breaks:
                continue
            became, test = outcome_of(folder, fault)
            missed += became != "found"
            print(f"{became}: {fault.file}: {fault.breaks} {test}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
