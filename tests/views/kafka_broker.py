"""A broker of Kafka of our own, one node without ZooKeeper, from its jars, for the whole run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.installed import lacking

#: Topics of the broker's own have one replica; transactions that were left open end soon.
_SETTINGS: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/data
num.partitions=1
auto.create.topics.enable={makes}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=8388608
log.segment.bytes=16777216
"""
_JAVA: Final = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class Kafka:
    """A broker that listens on loopback, with its data in a directory of its own."""

    def __init__(self, directory: Path, jars: Path) -> None:
        self.directory = directory
        self._jars = jars
        self.port, controller = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "server.properties").write_text(
            # A broker that makes topics by itself, as many do: views must not rely on its making none.
            _SETTINGS.format(port=self.port, controller=controller, directory=directory, makes="true").lstrip()
        )
        self._run_to_end("kafka.tools.StorageTool", "format", "-t", "cGVxdW9kLXRlc3RzLWthZg", "-c", "server.properties")

    def _command(self, *arguments: str) -> list[str]:
        return ["java", *_JAVA, "-cp", f"{self._jars}/*", *arguments]

    def _run_to_end(self, *arguments: str) -> None:
        subprocess.run(self._command(*arguments), check=True, capture_output=True, timeout=120, cwd=self.directory)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", "server.properties"), stdout=log, stderr=log, cwd=self.directory
            )
        end_s = time.monotonic() + 120
        while time.monotonic() < end_s:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self._process.poll() is None, (self.directory / "log").read_text()
            time.sleep(0.05)
        raise AssertionError("Kafka did not start")

    @property
    def is_running(self) -> bool:
        """Whether its process is."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it at once, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop its process for a while: it takes connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def _free_ports(count: int) -> list[int]:
    # A broker that is started again has its ports again, so they are from below those that the system gives to others.
    with suppress(OSError):
        sockets = [socket.socket() for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        return ports
    raise AssertionError("no port is free")


@contextmanager
def started_kafka() -> Iterator[Kafka]:
    """Run a broker in a folder of its own; where it is not there, tests of it are skipped."""
    jars = os.environ.get("PEQUOD_KAFKA_JARS", "build/kafka")
    if shutil.which("java") is None or not any(Path(jars).glob("kafka_2.13-*.jar")):
        lacking("no java on PATH, or no jars of Kafka in PEQUOD_KAFKA_JARS; `make views-kafka` fetches them")
    with tempfile.TemporaryDirectory(prefix="pequod-kafka-", ignore_cleanup_errors=True) as directory:
        broker = Kafka(Path(directory), Path(jars).absolute())
        broker.start()
        try:
            yield broker
        finally:
            if broker.is_running:
                broker.stop()
