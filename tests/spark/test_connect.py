"""The data source through Spark Connect: a server in Java, and a client without a classic session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from pequod.client import Client
from tests.installed import lacking
from tests.spark.served import served


@pytest.mark.timeout(1500)
def test_a_client_of_spark_connect_reads_writes_looks_up_and_streams(tmp_path: Path) -> None:
    if find_spec("zstandard") is None or find_spec("grpc_status") is None:
        lacking("Spark Connect needs more packages: pip install 'pyspark[connect]'")
    with served() as target:
        with Client(target) as client:
            client.add_join("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
        command = [sys.executable, "-W", "ignore", "-m", "tests.spark.connected", target, str(tmp_path)]
        # A group of its own, so that nothing of it is left if the time is up.
        done = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            said, error = done.communicate()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(done.pid, signal.SIGKILL)
            done.wait()
    assert done.returncode == 0, error[-3000:]
    told = json.loads(said.splitlines()[-1])
    assert told["read"] == [["bob", "0001", "one"], ["liz", "0002", "two"]]
    assert told["looked_up"] == [[2, None], [3, None], "one", "two"]
    assert [[count for count in batches if count] for batches in told["batches"]] == [[1, 1], [1]]
    assert told["copied"] == [["copy|p|bob|0001", "won"], ["copy|p|liz|0002", "two"]]
    for refusal in told["refused"]:
        assert "needs a classic session" in refusal
