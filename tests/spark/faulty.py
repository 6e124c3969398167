"""A server whose computed rows are wrong in places, as a defect would leave them.

python -m tests.spark.faulty < scene.json          prints its target and serves until it is killed
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pequod_grammar import parse
from pequod_server import PequodServer, ServerConfig

from pequod.engine import Engine


@contextmanager
def faulty_server(
    joins: str,
    rows: Mapping[str, str],
    read: Sequence[tuple[str, str]] = (),
    faults: Sequence[tuple[str, str, str | None]] = (),
) -> Iterator[str]:
    """Run a server in a process of its own and yield its target.

    Args:
        rows: Its base rows.
        read: Ranges that are materialised at the start.
        faults: Join, key, and the wrong value; None: the row is lost.
    """
    command = [sys.executable, "-m", "tests.spark.faulty"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump({"joins": joins, "rows": dict(rows), "read": read, "faults": faults}, process.stdin)
        process.stdin.close()
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def plant(engine: Engine, join: str, key: bytes, value: bytes | None) -> None:
    """Make one materialised row wrong, without anybody noticing."""
    status = engine._catalog.find(join).coverage.find(key)
    assert status is not None, f"{key!r} is not materialised"
    context = status.context
    tail = key[len(context.prefix) :]
    if value is None:
        assert context.rows.remove(tail) is not None
    else:
        assert context.rows.put(tail, value) != value


async def _main() -> None:
    scene = json.load(sys.stdin)
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    engine = server.engine
    engine.add_joins(parse(scene["joins"]))
    for key, value in scene["rows"].items():
        engine.put(key.encode(), value.encode())
    for first, last in scene["read"]:
        engine.scan(first.encode(), last.encode())
    for join, key, value in scene["faults"]:
        plant(engine, join, key.encode(), None if value is None else value.encode())
    print(f"127.0.0.1:{await server.start()}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
