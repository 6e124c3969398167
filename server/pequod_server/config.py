"""The settings of an operator: names, defaults, bounds and descriptions.

The flags of `pequod serve`, the names in the file and the variables PEQUOD_* are made from this model, so nothing is
written twice. It imports pydantic alone, since `pequod serve --help` waits for it; settings.py reads the sources.

>>> ServerConfig(value_bytes_max="4MiB").value_bytes_max
4194304
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict, Field

from pequod_server.setting_kinds import (
    KIB,
    MIB,
    Address,
    Addresses,
    BackingFeed,
    BackingMode,
    ClusterRelays,
    ClusterRoles,
    File,
    Files,
    Folder,
    Fsync,
    Lakes,
    LogFormat,
    LogLevel,
    MemoryLimit,
    Metavar,
    Milliseconds,
    Number,
    OptionalAddress,
    Origins,
    Port,
    Priorities,
    Seconds,
    Size,
    SizeOrShare,
    Transport,
    Weight,
    Workers,
)

#: Up to the last @, so that a password may contain characters that should have been escaped.
_PASSWORD: Final = re.compile(r"(://[^:/@?]*:).*(?=@)", re.DOTALL)
_QUERY_PASSWORD: Final = re.compile(r"([?&][a-z]*password=)[^&]*", re.IGNORECASE)


class ServerConfig(BaseModel):
    """The settings of one server; a setting that is not given has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Address = Field(default="127.0.0.1:7744", description="Where to listen; port 0 takes a free one.")
    workers: Workers = Field(
        default="1",
        description="Processes that are the server together, one for a core; auto: as many as this process may use. "
        "One of them is the home of base data, and all compute.",
    )
    worker_port: Port = Field(
        default=0,
        description="With workers: the port of the first worker by itself, the next has the next one; for clients that "
        "know the map. 0: free ports where `listen` is on the loopback, else none.",
    )
    worker_spread: Number = Field(
        default=1,
        description="With workers: how many of them may share the reads of a group of keys, such as a timeline, while "
        "it is hot. Each of them computes it then. 1: none is shared.",
    )
    key_bytes_max: Size = Field(default=4 * KIB, description="The longest key.")
    value_bytes_max: Size = Field(default=MIB, description="The longest value.")
    message_bytes_max: SizeOrShare = Field(
        default=0,
        description="The longest message that is accepted; a batch of commands is one message. "
        "0 for a share of memory_limit: 1/64, from 4MiB to 64MiB.",
    )
    messages_bytes_max: SizeOrShare = Field(
        default=0,
        description="Memory for requests, scans and replies of batches on their way, together. "
        "0 for 1/16 of memory_limit.",
    )
    # Clients of gRPC accept messages of 4 MiB by default, and a single row may exceed this.
    reply_bytes_max: Size = Field(
        default=3 * MIB, description="Bytes of rows in one message; a longer reply to a batch is sent in pieces."
    )
    chunk_bytes: Size = Field(
        default=256 * KIB, description="Keys and values in one chunk of a scan, unless the request says it."
    )
    batch_commands_max: Number = Field(default=100_000, description="Commands in one batch; keys in one MultiGet.")
    transaction_commands_max: Number = Field(
        default=128, description="Compares of one transaction, and commands of both of its lists."
    )
    request_ids_keep_s: Seconds = Field(
        default=600.0, description="How long a write with a request id is remembered, which then is not done twice."
    )
    request_ids_bytes_max: SizeOrShare = Field(
        default=0, description="Memory for these ids and their outcomes. 0 for 1/64 of memory_limit, 64MiB at most."
    )
    rows_max: Number = Field(default=8192, description="Rows of a scan read at a time; other calls run in between.")
    memory_limit: MemoryLimit = Field(
        default="75%", description="The limit of the process: a size, a share of the machine's memory, or none."
    )
    memory_priorities: Priorities = Field(
        default="", description="What is evicted last: joins and tables with higher numbers, or pinned."
    )
    streams_max: Number = Field(default=1000, description="Execute streams open at a time; a client has up to four.")
    calls_max: Number = Field(default=10_000, description="Calls under way at a time, streams included.")
    connection_streams_max: SizeOrShare = Field(
        default=0,
        description="Execute streams, watches and other calls that last, of one connection. "
        "0 for as many as 3/64 of memory_limit has room for.",
    )
    connections_max: Number = Field(
        default=10_000, description="Connections at a time; calls on further ones are refused."
    )
    keepalive_s: Seconds = Field(
        default=60.0, description="After this silence, a connection is asked for a sign of life; 0 for never."
    )
    keepalive_timeout_s: Seconds = Field(
        default=20.0, description="How long to wait for that sign before the connection is closed."
    )
    watches_max: Number = Field(default=1000, description="Watches at a time.")
    watch_changes_max: Number = Field(
        default=10_000, description="Changes kept for one watch; a client that is further behind must start again."
    )
    watch_linger_s: Seconds = Field(
        default=60.0, description="How long a watch is kept for a client whose connection broke."
    )
    joins_max: Number = Field(default=256, description="Joins installed at a time by clients, and in one text.")
    join_slots_max: Number = Field(default=4000, description="Slots in one text of joins that a client installs.")
    join_text_bytes_max: Size = Field(
        default=32 * KIB, description="The longest text of joins that a client installs at once."
    )
    backfills_max: Number = Field(default=8, description="Backfills under way at a time.")
    backfill_bytes_max: Size = Field(
        default=256 * MIB,
        description="Memory for the changes during one backfill; beyond this it ends. Rest: sharing equal rows.",
    )
    backfill_lease_s: Seconds = Field(default=60.0, description="How long a backfill continues whose driver is silent.")
    drain_s: Seconds = Field(
        default=5.0, description="How long calls under way may take when the server is told to stop."
    )
    tls_certificate: File = Field(default=None, description="Certificate chain for TLS, PEM; goes with tls_key.")
    tls_key: File = Field(default=None, description="Private key of the certificate, PEM.")
    tls_client_ca: File = Field(
        default=None, description="Accept only clients with a certificate that this authority signed, PEM."
    )
    access_file: File = Field(
        default=None, description="Tokens and roles, TOML; without it, every client may do everything."
    )
    insecure: bool = Field(default=False, description="Listen in plain text where other machines can reach it.")
    joins: str = Field(default="", description="Joins to install at the start, with ; between.")
    join_files: Files = Field(default=(), description="Files of joins to install at the start, before `joins`.")
    backing: str = Field(
        default="",
        description="The database behind the cache: sqlite:PATH, lake:DIR or postgresql://USER@HOST/NAME; or other "
        "servers that own the keys, pequod://HOST:PORT,HOST:PORT.",
    )
    backing_mapping: File = Field(
        default=None, description="Key patterns and the tables of the database that they come from, TOML."
    )
    backing_tables: str = Field(
        default="",
        description="Without a mapping: the tables whose keys are in the database's table of keys and values, which "
        "`pequod backing install --generic` makes; with pequod://, those that the other servers own. Such as p,s.",
    )
    backing_whole_tables: str = Field(
        default="",
        description="Small tables behind the cache that the first read of any of their keys loads as a whole: s.",
    )
    backing_token: File = Field(
        default=None, description="With pequod://, the file with the token that is sent to those servers."
    )
    backing_ca: File = Field(
        default=None, description="With pequod://, the authority that signed those servers' certificates, PEM."
    )
    backing_mode: BackingMode = Field(
        default="write-around",
        description="Who writes: write-around (the application to the database), write-through (puts go there), "
        "look-aside (the server does not follow the database).",
    )
    backing_feed: BackingFeed = Field(default="slot", description="How changes come from PostgreSQL: slot or notify.")
    backing_feed_name: str = Field(
        default="pequod", description="The publication and its replication slot in PostgreSQL, or the channel."
    )
    backing_bytes_max: Size = Field(
        default=64 * MIB,
        description="Memory for one commit of PostgreSQL for each pattern; after a larger one it is read again.",
    )
    backing_stale_max_s: Seconds = Field(
        default=300.0,
        description="Reads of the database's keys without a level of freshness fail when its changes are later than "
        "this; 0 for no bound.",
    )
    cluster: str = Field(
        default="",
        description="The cluster that the server belongs to: static:FILE (a map in a file) or "
        "etcd:HOST:PORT,HOST:PORT/NAME (`pequod cluster init` makes either).",
    )
    cluster_id: str = Field(
        default="", description="The server's name in the cluster, the same after a restart; from its address if empty."
    )
    cluster_address: OptionalAddress = Field(
        default="", description="Where clients and other servers reach it, if not at `listen`."
    )
    cluster_roles: ClusterRoles = Field(
        default="",
        description="home (it owns base data), compute (clients read from it), or both. Empty: both with a database "
        "behind it, else compute.",
    )
    cluster_group: str = Field(
        default="", description="The home group of a home: homes of one group are beside one database."
    )
    cluster_weight: Weight = Field(
        default=1.0, description="Its share of the reads, beside that of other servers of the cluster."
    )
    cluster_relays: ClusterRelays = Field(
        default="",
        description="Servers between it and the homes of home groups, which it asks before these: "
        "a=10.0.1.1:7744,10.0.1.2:7744.",
    )
    cluster_follow: Addresses = Field(
        default="",
        description="A compute hears of changes of the cluster from these servers, in place of watching etcd: "
        "10.0.0.1:7744,10.0.0.2:7744.",
    )
    cluster_warm_s: Seconds = Field(
        default=5.0,
        description="How long a compute that comes may read what is hot at the others and will be its own, before "
        "clients read it; 0: it does not.",
    )
    cluster_zone: str = Field(default="", description="Where it is, such as a rack or a zone; shown in tables.")
    cluster_ca: File = Field(default=None, description="Talk TLS with etcd, with this authority of its nodes, PEM.")
    cluster_certificate: File = Field(default=None, description="Certificate to show to etcd, PEM; with cluster_key.")
    cluster_key: File = Field(default=None, description="Private key of that certificate, PEM.")
    cluster_user: str = Field(default="", description="User of etcd, where it has users; with cluster_password.")
    cluster_password: File = Field(default=None, description="File with the password of that user.")
    peer_exports: str = Field(
        default="",
        description="Tables that this server's joins compute and that other servers use as base data: votes_at.",
    )
    peer_keep_bytes: Size = Field(
        default=64 * MIB,
        description="Memory for the latest changes, kept for servers that compute from this one's keys; one that is "
        "further behind reads again.",
    )
    snapshot_file: File = Field(default=None, description="The file that has base data from the end to the next start.")
    snapshot_folder: Folder = Field(
        default=None,
        description="A folder in its place: each save makes a file, the latest is restored at the start. It is made if "
        "it is not there.",
    )
    snapshot_every_s: Seconds = Field(
        default=0.0, description="Save base data there this often while the server runs; 0: only at the end."
    )
    snapshot_keep: Number = Field(
        default=5, description="How many files snapshot_folder keeps; older ones are removed."
    )
    data: Folder = Field(
        default=None,
        description="The folder in which base data and joins outlive the server; it is made if it is not there.",
    )
    fsync: Fsync = Field(
        default="everysec",
        description="When the disk has what is written to `data`: always (before the answer), everysec, never (when "
        "the system likes). The end of the process alone loses nothing with any of them.",
    )
    metrics: OptionalAddress = Field(default="", description="Serve metrics and health there over HTTP.")
    http: OptionalAddress = Field(default="", description="Answer calls as JSON there over HTTP, with a console.")
    http_origins: Origins = Field(default="", description="Origins of pages that may read its replies; * for all.")
    console_views: Files = Field(default=(), description="Files of durable views that the console shows.")
    console_lakes: Lakes = Field(default="", description="Lakes that the console shows, with spaces between.")
    slow_ms: Milliseconds = Field(
        default=100.0, description="Log calls and batches that take at least this long; 0 for none."
    )
    log_format: LogFormat = Field(default="console", description="Lines of the log: console (for people) or json.")
    log_level: LogLevel = Field(
        default="info", description="What is logged: debug (each call), info, warning or error."
    )
    traces: bool = Field(default=False, description="Send OpenTelemetry spans of calls, as the variables OTEL_* say.")
    channelz: bool = Field(default=False, description="Serve gRPC's own figures of connections and calls (channelz).")
    transport: Transport = Field(
        default="auto",
        description="What carries calls: native (the native core, with the library nghttp2), grpcio (gRPC's own), or "
        "auto (native where it is there).",
    )
    uvloop: bool = Field(default=True, description="Run on uvloop if it is installed.")


def metavar(name: str) -> str:
    """Return the name of a setting's value."""
    field = ServerConfig.model_fields[name]
    for mark in field.metadata:
        if isinstance(mark, Metavar):
            return mark
    return "FILE" if takes_path(name) else "TEXT"


def takes_path(name: str) -> bool:
    """Return whether a setting is a path, or several."""
    annotation = ServerConfig.model_fields[name].annotation
    return Path in (annotation, *get_args(annotation))


def without_passwords(value: str) -> str:
    """Return a setting for people to read, without the passwords of a database's URL.

    >>> without_passwords("postgresql://twip:s3cr/et@db:5432/twip?sslmode=require&sslpassword=x")
    'postgresql://twip:***@db:5432/twip?sslmode=require&sslpassword=***'
    """
    return _QUERY_PASSWORD.sub(r"\1***", _PASSWORD.sub(r"\1***", value))


def written(name: str, value: Any) -> str:
    """Return a value as a flag has it: sizes in the largest exact unit, files with a colon between."""
    if value is None:
        return ""
    if value and metavar(name) == "SIZE":
        for unit, text in ((KIB * MIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
            if value % unit == 0:
                return f"{value // unit}{text}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return os.pathsep.join(map(str, value))
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
