"""`import pequod` is light: no gRPC, no server, no Spark; what is heavy is imported when it is asked for."""

import subprocess
import sys

SCRIPT = """
import sys
import pequod
heavy = {"grpc", "pyspark", "pequod_server", "pequod.client", "lark", "typer", "asyncio"} & set(sys.modules)
assert not heavy, heavy
from pequod.engine import Engine
assert not {"grpc", "lark", "asyncio", "socket"} & set(sys.modules)
from pequod import Client, AsyncClient
assert "grpc" in sys.modules
assert not {"pyspark", "pequod_server", "lark"} & set(sys.modules)
"""


def test_importing_pequod_is_light() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)
