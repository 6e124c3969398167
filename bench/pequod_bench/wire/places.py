"""What is measured: servers, each with the calls that are made at it, and why one cannot be started here.

gRPC, native                     a server by each transport of servers, called by gRPC
native on both sides             by the native transport, called by it
native, TLS and access file      the same with TLS, a token and its role
native, behind PostgreSQL        all rows are loaded; puts are transactions of the database
native, in a cluster, compute    all rows are loaded from a home
native, in a cluster, home       where the base data are, which puts go to
native, of two workers           what one of them has, asked of that one and of the other, which passes calls on
AsyncClient by grpcio, native    our client by each of its transports, at a server by the native one
etcd, Redis                      other systems, with rows of the same sizes
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory
from typing import Final

import grpc
from pequod_proto.pequod_pb2 import FollowClusterRequest
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server.backing import Mapping
from pequod_server.backing.postgres.store import PostgresStore

from pequod.cluster.servers import ServerRole
from pequod.native.http2 import why_absent
from pequod_bench.systems.postgres_cluster import BACKING_SETTINGS, find_postgres, started_cluster
from pequod_bench.systems.redis_system import RedisSystem
from pequod_bench.systems.server import find_program, listening_pid, started_server
from pequod_bench.systems.site import ClusterShape, started_etcd, started_site
from pequod_bench.systems.system import Missing, Presence
from pequod_bench.wire.callee import GATHERED, MANY, ONE, SPREAD, Call, Callee, Shape
from pequod_bench.wire.others import EtcdCallee, RedisCallee
from pequod_bench.wire.pequod_callee import ClientCallee, PequodCallee

_Calls = tuple[tuple[Call, Shape], ...]
_READS: Final[_Calls] = (("get", ONE), ("get", MANY), ("get", SPREAD), ("scan", ONE), ("scan", MANY))
_WRITES: Final[_Calls] = (("put", ONE), ("put", MANY), ("multi_put", ONE), ("multi_put", MANY))
_ALL: Final = (*_READS, *_WRITES)
_SINGLE: Final = tuple(one for one in _ALL if one[0] != "multi_put")
_PASSED: Final[_Calls] = (("get", ONE), ("get", MANY), ("get", SPREAD), ("scan", MANY))
_OF_CLIENT: Final[_Calls] = (("get", ONE), ("get", GATHERED))
_TABLE: Final = "p"


@dataclass(frozen=True, slots=True)
class Place:
    """A server to measure."""

    name: str
    calls: _Calls
    #: Starts it; it ends with the stack.
    start: Callable[[ExitStack], Callee]
    #: Returns why that cannot be done on this machine, or nothing.
    lack: Callable[[], str]


def _nothing() -> str:
    return ""


def _no_native() -> str:
    return why_absent() or ""


def _lack(find: Callable[[], Presence]) -> Callable[[], str]:
    def lack() -> str:
        found = find()
        return found.reason if isinstance(found, Missing) else ""

    return lack


def _either(*lacks: Callable[[], str]) -> Callable[[], str]:
    return lambda: next(filter(None, (lack() for lack in lacks)), "")


def _plain(transport: str, *, by: str = "grpcio") -> Callable[[ExitStack], Callee]:
    def start(stack: ExitStack) -> Callee:
        target, pid = stack.enter_context(started_server("--transport", transport))
        return PequodCallee(target, pid, transport=by)

    return start


def _of_client(transport: str) -> Callable[[ExitStack], Callee]:
    def start(stack: ExitStack) -> Callee:
        target, pid = stack.enter_context(started_server("--transport", "native"))
        return ClientCallee(target, pid, transport)

    return start


def _folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(TemporaryDirectory(prefix="pequod-wire-", ignore_cleanup_errors=True)))


def _no_openssl() -> str:
    return "" if shutil.which("openssl") else "no openssl on PATH, which makes the certificate"


def _secured(stack: ExitStack) -> Callee:
    folder = _folder(stack)
    certificate, key, access = folder / "certificate.pem", folder / "key.pem", folder / "access.toml"
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=pequod-bench"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made.split(), *names], check=True, capture_output=True)
    token = token_urlsafe()
    digest = sha256(token.encode()).hexdigest()
    access.write_text(f'[roles.all]\nread = [""]\nwrite = [""]\n[tokens.all]\nrole = "all"\nsha256 = "{digest}"\n')
    for path in (key, access):
        path.chmod(0o600)
    flags = ["--tls-certificate", certificate, "--tls-key", key, "--access-file", access]
    target, pid = stack.enter_context(started_server("--transport", "native", *map(str, flags)))
    return PequodCallee(target, pid, ca=certificate, token=token)


def _backed(stack: ExitStack) -> Callee:
    dsn = stack.enter_context(started_cluster(_folder(stack), BACKING_SETTINGS)).dsn

    async def install() -> None:
        store = PostgresStore(dsn, (Mapping.generic([_TABLE.encode()]),), feed_name="bench")
        await store.install()
        await store.close()

    asyncio.run(install())
    flags = ["--backing", dsn, "--backing-tables", _TABLE, "--backing-mode", "write-through"]
    flags += ["--backing-feed-name", "bench", "--transport", "native"]
    target, pid = stack.enter_context(started_server(*flags))
    return PequodCallee(target, pid)


def _clustered(role: ServerRole) -> Callable[[ExitStack], Callee]:
    def start(stack: ExitStack) -> Callee:
        site = stack.enter_context(started_site(ClusterShape(homes=1, computes=1)))
        server = site.one(role)
        return PequodCallee(server.entry.address, server.pid, written_at=site.target)

    return start


def _of_workers(asked: str) -> Callable[[ExitStack], Callee]:
    def start(stack: ExitStack) -> Callee:
        # No join reads the rows, so the first worker alone has them.
        target, pid = stack.enter_context(started_server("--transport", "native", "--workers", "2"))
        with grpc.insecure_channel(target) as channel:
            stub = PequodStub(channel)  # type: ignore[no-untyped-call]
            (reply,) = stub.FollowCluster(FollowClusterRequest(once=True))
        (address,) = (server.address for server in reply.servers if server.id == asked)
        return PequodCallee(address, pid, written_at=target)

    return start


def _etcd(stack: ExitStack) -> Callee:
    (target,) = stack.enter_context(started_etcd(_folder(stack), 1))
    return EtcdCallee(target, listening_pid(target))


def _redis(stack: ExitStack) -> Callee:
    server = stack.enter_context(RedisSystem().started(_folder(stack)))
    return RedisCallee(server.port, server.pid)


def _find_etcd() -> Presence:
    return find_program("etcd", "install it with: apt-get install etcd-server")


PLACES: Final = (
    Place("gRPC", _ALL, _plain("grpcio"), _nothing),
    Place("native", _ALL, _plain("native"), _no_native),
    Place("native on both sides", _ALL, _plain("native", by="native"), _no_native),
    Place("native, TLS and access file", _ALL, _secured, _either(_no_native, _no_openssl)),
    Place("native, behind PostgreSQL", _READS, _backed, _either(_no_native, _lack(find_postgres))),
    Place("native, in a cluster, compute", _READS, _clustered(ServerRole.COMPUTE), _no_native),
    Place("native, in a cluster, home", _WRITES, _clustered(ServerRole.HOME), _no_native),
    Place("native, of two workers, asked at once", _PASSED, _of_workers("w0"), _no_native),
    Place("native, of two workers, passed on", _PASSED, _of_workers("w1"), _no_native),
    Place("AsyncClient by grpcio", _OF_CLIENT, _of_client("grpcio"), _no_native),
    Place("AsyncClient by native", _OF_CLIENT, _of_client("native"), _no_native),
    Place("etcd", _SINGLE, _etcd, _lack(_find_etcd)),
    Place("Redis", _ALL, _redis, _lack(RedisSystem().find)),
)
