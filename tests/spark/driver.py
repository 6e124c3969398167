"""A process with a Spark of its own that runs commands, to be killed with it.

echo 'backfill --join t' | python -m tests.spark.driver     runs it, and prints {"code": 0, ...}
"""

from __future__ import annotations

import json
import sys

from pequod_spark.session import spark_session
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.spark.conftest import SETTINGS


def main() -> None:
    # Tasks are tried again, as `pequod backfill` has them.
    session = spark_session("local[2,4]", settings={**SETTINGS, "spark.log.level": "ERROR"})
    for line in sys.stdin:
        result = CliRunner().invoke(app, line.split())
        print(json.dumps({"code": result.exit_code, "said": result.stdout, "told": result.stderr}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
