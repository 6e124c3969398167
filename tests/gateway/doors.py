"""A server with a door for HTTP, and what stands in a stream of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
from pequod_server import PequodServer, ServerConfig

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>"


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[tuple[PequodServer, aiohttp.ClientSession]]:
    """Yield a server, and a client with the server's URL."""
    defaults: dict[str, Any] = {"listen": "127.0.0.1:0", "http": "127.0.0.1:0", "drain_s": 0.5}
    config = ServerConfig(**(defaults | settings))
    server = PequodServer(config)
    await server.start()
    try:
        async with aiohttp.ClientSession(server.http_url) as client:
            yield server, client
    finally:
        await server.stop()
        server.engine._check()


class Event(NamedTuple):
    """One event of a stream."""

    kind: str
    name: str
    members: dict[str, Any]


async def events_of(reply: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Yield the events of a stream, as a browser reads it."""
    fields: dict[str, str] = {}
    async for line in reply.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            yield Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
            fields = {}


class Reader:
    """A page that shows a range: its rows by the events."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.revision = 0
        self.name = ""
        self.resets = 0
        self.is_ready = False

    def take(self, event: Event) -> None:
        """Take in an event."""
        if event.kind == "reset":
            self.rows, self.is_ready = {}, False
            self.resets += 1
        elif event.kind == "rows":
            self.rows |= dict(event.members["rows"])
        elif event.kind == "changes":
            assert self.is_ready
            for change in event.members["changes"]:
                assert self.rows.get(change["key"]) == change["old"], "a change tells what was there"
                if change["new"] is None:
                    del self.rows[change["key"]]
                else:
                    self.rows[change["key"]] = change["new"]
        elif event.kind == "ready":
            self.is_ready = True
        if event.name:
            self.name, self.revision = event.name, event.members["revision"]
