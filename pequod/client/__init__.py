"""Clients of a Pequod server.

columns.py  batches of commands as columns, and replies taken apart
stream.py   one Execute stream: batches out, replies in
aio.py      AsyncClient; calls of one event-loop turn share a message
sync.py     Client: the same from any thread
decode.py   messages to records, errors to exceptions
"""

from pequod.client.aio import AsyncBatch, AsyncClient
from pequod.client.columns import Result
from pequod.client.decode import Join
from pequod.client.sync import Client, SyncBatch
from pequod.engine.rows import Rows
from pequod.errors import DeadlineExceededError, PequodError, UnavailableError

__all__ = [
    "AsyncBatch",
    "AsyncClient",
    "Client",
    "DeadlineExceededError",
    "Join",
    "PequodError",
    "Result",
    "Rows",
    "SyncBatch",
    "UnavailableError",
]
