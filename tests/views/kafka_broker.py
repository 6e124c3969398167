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
from tests.server.certificates import Pair

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
#: A second listener, for those that name themselves over TLS.
_GUARD: Final = """
listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{guarded}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={directory}/broker.store
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={plain} required user_{user}="{password}" user_{guest}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{user};User:ANONYMOUS
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram} required;
"""
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
USER: Final = "ann"
#: One without any right.
GUEST: Final = "bob"
#: It has what addresses have to have escaped.
PASSWORD: Final = "se/cr@t:1"
_JAVA: Final = ("-Xmx384m", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class Kafka:
    """A broker that listens on loopback, with its data in a directory of its own.

    Args:
        certificate: With it the broker listens on another port, too, over TLS, for `USER` with `PASSWORD` alone.
    """

    def __init__(self, directory: Path, jars: Path, certificate: Pair | None = None) -> None:
        self.directory = directory
        self._jars = jars
        self.port, self.guarded_port, controller = _free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None
        # A broker that makes topics by itself, as many do: views must not rely on its making none.
        settings = _SETTINGS.format(port=self.port, controller=controller, directory=directory, makes="true").lstrip()
        users: tuple[str, ...] = ()
        if certificate is not None:
            store = certificate.key.read_text() + certificate.certificate.read_text()
            (directory / "broker.store").write_text(store)
            # Of two lines of one name the last one counts.
            settings += _GUARD.format(
                port=self.port,
                guarded=self.guarded_port,
                controller=controller,
                directory=directory,
                plain=_PLAIN,
                scram=_SCRAM,
                user=USER,
                guest=GUEST,
                password=PASSWORD,
            )
            users = ("--add-scram", f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]")
        (directory / "server.properties").write_text(settings)
        arguments = ("-t", "cGVxdW9kLXRlc3RzLWthZg", "-c", "server.properties", *users)
        self._run_to_end("kafka.tools.StorageTool", "format", *arguments)

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
def started_kafka(certificate: Pair | None = None) -> Iterator[Kafka]:
    """Run a broker in a folder of its own; where it is not there, tests of it are skipped."""
    jars = os.environ.get("PEQUOD_KAFKA_JARS", "build/kafka")
    if shutil.which("java") is None or not any(Path(jars).glob("kafka_2.13-*.jar")):
        lacking("no java on PATH, or no jars of Kafka in PEQUOD_KAFKA_JARS; `make views-kafka` fetches them")
    with tempfile.TemporaryDirectory(prefix="pequod-kafka-", ignore_cleanup_errors=True) as directory:
        broker = Kafka(Path(directory), Path(jars).absolute(), certificate)
        broker.start()
        try:
            yield broker
        finally:
            if broker.is_running:
                broker.stop()
