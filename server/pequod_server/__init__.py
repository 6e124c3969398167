"""The asyncio gRPC server: a thin shell around one engine.

app.py       composition: engine, servicers, listening, signals
service.py   the calls of data: decode, ask the engine, encode
watching.py  the call of watches                    watches.py    their feeds
administration.py  the calls about joins and state  snapshots.py  base data in a file
backfills.py the calls of backfills, and their leases
batch.py     the hot loop: one batch of commands    columns.py    what a batch is made of
execute.py   what batches wait for where a database is behind the engine, and the pieces of their replies
bounds.py    the ranges that requests name
loader.py    the database behind the engine: misses, changes, writes
write_through.py  writes that go to the database first
database.py  which database that is
memory.py    the limit of memory on this machine, and keeping it between calls
connections.py  how many clients there may be
undecodable.py  requests that are no messages
calls.py     which calls are under way, how many may be, draining
standard.py  health, reflection, channelz
config.py    what can be set
settings.py  from a file, the environment and flags to a configuration
joins.py     the joins of the configuration
errors.py    exceptions to status codes     handlers.py  what interceptors and services need of gRPC
tls.py       the listening port
access.py    the access file: tokens, certificates, roles
grants.py    rights on key ranges
guard.py     who calls, and whether they may
commands.py  which commands of a batch must not run

clock.py        the time, for an engine without one
observe.py      the interceptor around all calls, which tells what watches them
instruments.py  what watches, put together
metrics.py      what Prometheus reads           web.py     /metrics, /healthz, /readyz
logs.py         lines of the log, slow calls    traces.py  OpenTelemetry
loader_metrics.py  what Prometheus reads of the database
statistics.py   what the engine holds, collected while it goes on
"""

from typing import TYPE_CHECKING

from pequod_server.config import ServerConfig

if TYPE_CHECKING:
    from pequod_server.app import PequodServer, run

__all__ = ["PequodServer", "ServerConfig", "run"]


def __getattr__(name: str) -> object:
    """Import the server, and gRPC with it, when it is first asked for: the flags need the configuration alone."""
    if name in ("PequodServer", "run"):
        from pequod_server import app  # noqa: PLC0415 - as said

        return getattr(app, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
