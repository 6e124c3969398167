"""A server that is killed in the middle of writes and started again: `python -m lab.disk_demo`, some seconds.

Four clients put posts while the server runs with a folder of data, and count the puts that it has answered. It is
killed without a word, and started on the same folder: each of these posts has to be there, and no post of another kind.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pequod_bench.systems.server import ServerProcess, serving

from pequod.client import Client
from pequod.errors import UnavailableError

_CLIENTS: Final = 4
_WRITE_S: Final = 2.0


def main() -> int:
    """Run the demo; return the exit code."""
    with TemporaryDirectory() as scratch:
        flags = ["--listen", "127.0.0.1:0", "--data", str(Path(scratch) / "data"), "--fsync", "always"]
        command = [sys.executable, "-m", "pequod.cli", "serve", *flags, "--slow-ms", "0"]
        server = ServerProcess(command)
        answered = _written(server)
        print(f"killed a server in the middle of writes: it had answered {sum(answered)} puts")
        begun_s = time.monotonic()
        server = ServerProcess(command)
        try:
            target = server.wait(serving)
            print(f"started it again, in {time.monotonic() - begun_s:.1f} s")
            with Client(target) as client:
                lost = sum(
                    client.get(_key(number, at)) != _value(at)
                    for number, count in enumerate(answered)
                    for at in range(count)
                )
                found = client.count("p|", "p}")
        finally:
            server.end()
    print(f"{found} posts are there; of those that were answered, {lost} are missing")
    return int(lost > 0 or found > sum(answered) + _CLIENTS)


def _written(server: ServerProcess) -> list[int]:
    """Put posts by several clients, kill the server meanwhile, and return how many puts of each were answered."""
    target, answered = server.wait(serving), [0] * _CLIENTS

    def write(number: int) -> None:
        with Client(target) as client:
            while True:
                try:
                    client.put(_key(number, answered[number]), _value(answered[number]))
                except UnavailableError:
                    return
                answered[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(_WRITE_S)
    server.kill()
    for thread in threads:
        thread.join()
    return answered


def _key(number: int, at: int) -> str:
    return f"p|user{number}|{at:010}"


def _value(at: int) -> bytes:
    return b"post %d" % at


if __name__ == "__main__":
    sys.exit(main())
