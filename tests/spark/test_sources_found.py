"""Spark finds the data sources, also where what a lake needs is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pequod_installed.names import how_to_install

#: What Spark does before it looks for any data source (`lookup_data_sources`), and then a use of the lake's.
_LOOKUP = """
import importlib, pkgutil
found = {}
for module in pkgutil.iter_modules():
    if module.name.startswith("pyspark_"):
        source = importlib.import_module(module.name).DefaultSource
        found[source.name()] = source
print(*sorted(found))
try:
    found["pequod_lake"]({"path": "lake", "table": "t"}).schema()
except ModuleNotFoundError as error:
    print(error)
"""


def test_what_a_lake_needs_is_asked_for_only_when_a_lake_is_read(tmp_path: Path) -> None:
    missing = "duckdb"
    lacking = f"raise ModuleNotFoundError('No module named {missing}', name='{missing}')"
    (tmp_path / f"{missing}.py").write_text(lacking)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    outcome = subprocess.run(
        [sys.executable, "-c", _LOOKUP], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    first, *rest = outcome.stdout.splitlines() or [outcome.stderr]
    assert first == "pequod pequod_lake", outcome.stderr
    assert rest == [f"the format pequod_lake needs {missing}: {how_to_install('lake')}"]
