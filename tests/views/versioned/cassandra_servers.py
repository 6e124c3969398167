"""Three nodes of Cassandra for tests, each in a data centre of its own, so that each replica can be read alone.

    127.0.0.1..3:7000    links, which can be held      ->    127.0.1.1..3:7000    the nodes
    127.0.0.1..3:9042    the nodes, for clients

The jars are those of Maven's `org.apache.cassandra:cassandra-all`, in the folder that PEQUOD_CASSANDRA_JARS names.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from cassandra import ConsistencyLevel, DriverException
from cassandra.cluster import Cluster, NoHostAvailable

from tests.views.versioned.links import Links

COUNT: Final = 3
HOSTS: Final = [f"127.0.0.{number + 1}" for number in range(COUNT)]
KEYSPACE: Final = "pequod_test"
ADDRESS: Final = f"cassandra://{','.join(HOSTS)}/{KEYSPACE}"
_STORAGE_PORT: Final = 7000
#: Three JVMs on two cores that others use as well.
_START_S_MAX: Final = 600.0
_ANSWER_S_MAX: Final = 30.0
_MEMORY: Final = Path("/dev/shm")
_OPENS: Final = (
    *(f"java.base/java.{name}" for name in ("io", "lang", "lang.module", "lang.reflect", "math", "net", "nio", "util")),
    *(f"java.base/java.util.{name}" for name in ("concurrent", "concurrent.atomic")),
    *(f"java.base/jdk.internal.{name}" for name in ("loader", "math", "module", "ref", "reflect", "util.jar")),
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
_EXPORTS: Final = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
#: A node starts in the time of its JVM: nobody is waited for, and nothing is measured.
_PROPERTIES: Final = {
    "cassandra-foreground": "yes",
    "cassandra.consistent.rangemovement": "false",
    "cassandra.memtable.row_overhead_size": "100",
    "cassandra.memtable_row_overhead_computation_step": "100",
    "cassandra.ring_delay_ms": "100",
    "cassandra.skip_wait_for_gossip_to_settle": "0",
    "cassandra.superuser_setup_delay_ms": "0",
    "io.netty.tryReflectionSetAccessible": "true",
    "java.net.preferIPv4Stack": "true",
    "jdk.attach.allowAttachSelf": "true",
}
_CONFIGURATION: Final = """
cluster_name: pequod
num_tokens: 1
initial_token: "{token}"
auto_bootstrap: false
auto_snapshot: false
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: GossipingPropertyFileSnitch
listen_address: {listen}
broadcast_address: {host}
rpc_address: {host}
storage_port: {port}
commitlog_sync: batch
commitlog_segment_size: 8MiB
commitlog_total_space: 64MiB
memtable_heap_space: 48MiB
memtable_offheap_space: 32MiB
file_cache_size: 32MiB
concurrent_reads: 8
concurrent_writes: 8
concurrent_compactors: 1
paxos_variant: v2
read_request_timeout: 10s
write_request_timeout: 10s
cas_contention_timeout: 5s
data_file_directories: [{folder}/data]
commitlog_directory: {folder}/commitlog
saved_caches_directory: {folder}/caches
hints_directory: {folder}/hints
cdc_raw_directory: {folder}/cdc
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{seeds}"}}]
"""
_LOGGING: Final = """<configuration>
<appender name="file" class="ch.qos.logback.core.FileAppender"><file>{folder}/log</file>
<encoder><pattern>%d %-5level %logger{{0}} %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="file"/></root></configuration>
"""


def skip_without_cassandra() -> None:
    """Skip the tests of a module that need Cassandra where `make views-cassandra` does not run them."""
    if "PEQUOD_CASSANDRA_JARS" not in os.environ:
        pytest.skip("make views-cassandra runs what needs nodes of Cassandra", allow_module_level=True)


class CassandraServers:
    """Nodes in a folder; a context manager ends them. What they acknowledged outlives them."""

    def __init__(self, folder: Path) -> None:
        # A disk that others write to as well would be what a test waits for.
        place = _MEMORY if _MEMORY.is_dir() else folder
        self._folder = place / f"pequod-cassandra-{os.getpid()}"
        self._jars = Path(os.environ["PEQUOD_CASSANDRA_JARS"])
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        #: Held while a node fails: one at a time.
        self.failing = threading.Lock()
        self.links = Links({host: f"127.0.1.{number + 1}" for number, host in enumerate(HOSTS)}, _STORAGE_PORT)

    def __enter__(self) -> Self:
        try:
            self.links.open()
            for number in range(COUNT):
                self._configure(number)
                self.start(number)
            self.wait_until_up()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        for number in list(self._servers):
            self.kill(number)
        self.links.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self, number: int) -> None:
        folder = self._folder / str(number)
        folder.mkdir(parents=True)
        token = -(1 << 63) + (number << 64) // COUNT
        texts = {"folder": folder, "token": token, "host": HOSTS[number], "listen": f"127.0.1.{number + 1}"}
        named = _CONFIGURATION.format(**texts, port=_STORAGE_PORT, seeds=",".join(HOSTS))
        (folder / "cassandra.yaml").write_text(named)
        (folder / "logback.xml").write_text(_LOGGING.format(folder=folder))
        (folder / "cassandra-rackdc.properties").write_text(f"dc=dc{number}\nrack=rack\n")

    def start(self, number: int) -> None:
        """Start a node, without waiting for it."""
        folder = self._folder / str(number)
        properties = {
            **_PROPERTIES,
            "cassandra.config": f"file://{folder}/cassandra.yaml",
            "cassandra.storagedir": folder,
            "logback.configurationFile": folder / "logback.xml",
        }
        command = ["java", "-Xms256M", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        command += [f"-javaagent:{next(self._jars.glob('jamm-*.jar'))}"]
        for name, places in (("--add-opens", _OPENS), ("--add-exports", _EXPORTS)):
            command += [text for place in places for text in (name, f"{place}=ALL-UNNAMED")]
        command += [f"-D{name}={value}" for name, value in properties.items()]
        command += ["-cp", f"{folder}:{self._jars}/*", "org.apache.cassandra.service.CassandraDaemon"]
        with (folder / "out").open("ab") as out:
            self._servers[number] = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)

    def wait_until_up(self) -> None:
        """Wait until each node answers, and reaches each replica.

        Raises:
            RuntimeError: One ended, or it takes too long.
        """
        end = time.monotonic() + _START_S_MAX
        for number, host in enumerate(HOSTS):
            while (why := _obstacle(host)) is not None:
                if self._servers[number].poll() is not None or time.monotonic() > end:
                    said = [(self._folder / str(number) / name).read_text()[-2000:] for name in ("out", "log")]
                    raise RuntimeError(f"the node {host} does not start: {why}; {' '.join(said)}")
                time.sleep(2.0)

    def stop(self, number: int) -> None:
        """Have a node do nothing until `go_on`; its connections stay."""
        self._servers[number].send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        """Let a node go on."""
        self._servers[number].send_signal(signal.SIGCONT)

    def kill(self, number: int) -> None:
        """End a node at once."""
        server = self._servers.pop(number)
        server.kill()
        server.wait()


def _obstacle(host: str) -> str | None:
    """Return why a node does not read all replicas of the keyspace, which it makes if it is not there."""
    replication = {"class": "NetworkTopologyStrategy", **{f"dc{number}": 1 for number in range(COUNT)}}
    cluster = Cluster([host], connect_timeout=_ANSWER_S_MAX, control_connection_timeout=_ANSWER_S_MAX)
    try:
        session = cluster.connect()
        if len(cluster.metadata.all_hosts()) < COUNT:
            return "it does not know the others"
        session.execute(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}", timeout=60)
        session.execute(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.up (up int PRIMARY KEY)", timeout=60)
        query = session.prepare(f"SELECT up FROM {KEYSPACE}.up WHERE up = 0")
        query.consistency_level = ConsistencyLevel.ALL
        session.execute(query, timeout=_ANSWER_S_MAX)
    except (NoHostAvailable, DriverException, OSError) as error:
        return repr(error)
    finally:
        cluster.shutdown()
    return None
