"""Clients of a Pequod server; docs/architecture/clients.md has the files, and the trace of a call through them."""

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
