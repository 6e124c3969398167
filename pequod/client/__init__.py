"""Clients of a Pequod server; docs/architecture/clients.md has the files, and the trace of a call through them."""

from pequod.answers.changes import Change, Expired
from pequod.answers.joins import Join
from pequod.answers.rows import Rows
from pequod.calls import Page, Result, Results, WatchEvent
from pequod.client.aio import AsyncClient
from pequod.client.batches import AsyncBatch, SyncBatch
from pequod.client.sync import Client
from pequod.errors import DeadlineExceededError, PequodError, UnavailableError

__all__ = [
    "AsyncBatch",
    "AsyncClient",
    "Change",
    "Client",
    "DeadlineExceededError",
    "Expired",
    "Join",
    "Page",
    "PequodError",
    "Result",
    "Results",
    "Rows",
    "SyncBatch",
    "UnavailableError",
    "WatchEvent",
]
