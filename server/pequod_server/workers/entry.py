"""The process of one worker, `python -m pequod_server.workers.entry FILE`.

It begins when its supervisor says so on its standard input, and says on its standard output that it serves. It ends
when its standard input does: then its supervisor is gone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from pequod_server.app import PequodServer
from pequod_server.config import ServerConfig
from pequod_server.running import run
from pequod_server.worker import Worker

#: The supervisor's word that it may begin: imports take the longest, and other workers may be waited for meanwhile.
GO: Final = b"\n"
#: Its own word that it serves.
READY: Final = b"ready\n"


def written(config: ServerConfig, worker: Worker) -> str:
    """Return the text of the file of a worker."""
    return json.dumps({"config": config.model_dump(mode="json"), "worker": worker.written()})


def main(file: Path) -> int:
    """Serve as a worker; return the exit code."""
    if os.read(sys.stdin.fileno(), len(GO)) != GO:
        return 0
    told = json.loads(file.read_text("utf-8"))
    worker = Worker.read(told["worker"])
    structlog.contextvars.bind_contextvars(worker=worker.id)
    threading.Thread(target=_end_with_supervisor, name="pequod supervisor", daemon=True).start()
    return run(ServerConfig(**told["config"]), make=partial(PequodServer, worker=worker), tell=_tell)


def _tell(_line: str, state: str) -> None:
    if state.startswith("READY=1"):
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()


def _end_with_supervisor() -> None:
    # Nothing more is written there.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
