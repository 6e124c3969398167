"""Clients of a Pequod server.

columns.py  batches of commands as columns, and replies taken apart
stream.py   one Execute stream: batches out, replies in
lane.py     one stream after another: batches that a broken one leaves are sent again, in order
retry.py    which calls may be repeated, and when
connection.py  the channel, and calls that are retried
gathering.py   the commands of one event-loop turn as a batch
credentials.py  TLS and tokens
aio.py      AsyncClient: the calls of pequod.interface as requests to a server
watch.py    the changes of a range, over broken connections
backfills.py  the calls of backfills; sync_backfills.py is generated from it
background.py  an event loop in a thread
sync.py     Client: the same for callers that wait, from any thread
decode.py   messages to records, errors to exceptions
"""

from pequod.calls import Join, Page, Result, WatchEvent
from pequod.client.aio import AsyncBatch, AsyncClient
from pequod.client.sync import Client, SyncBatch
from pequod.engine.base.rows import Rows
from pequod.engine.joins.watches import Change
from pequod.errors import DeadlineExceededError, PequodError, UnavailableError

__all__ = [
    "AsyncBatch",
    "AsyncClient",
    "Change",
    "Client",
    "DeadlineExceededError",
    "Join",
    "Page",
    "PequodError",
    "Result",
    "Rows",
    "SyncBatch",
    "UnavailableError",
    "WatchEvent",
]
