"""What all calls share: the engine as it is served, with the databases behind it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine, Lacking, LimitExceededError, MissingError
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases
from pequod_server.freshness.demands import Demand
from pequod_server.freshness.levels import Levels

Answer = TypeVar("Answer")


class ServedEngine:
    """An engine that is served: with the server's settings and number, and with the databases behind it, if any.

    Each handler of calls has one. Every read but those of batches goes through `read` or `read_keys`, and every reply
    but those of batches gets its header here.
    """

    __slots__ = ("config", "databases", "engine", "levels", "server_id")

    def __init__(self, engine: Engine, config: ServerConfig, databases: Databases) -> None:
        self.engine = engine
        self.config = config
        self.databases = databases
        #: Random, so that clients notice a restart.
        self.server_id = secrets.randbits(63)
        #: Decides when reads may be answered, and names the states that answer.
        self.levels = Levels(engine, databases, self.server_id)

    def header(self, revision: int | None = None, token: bytes | None = None, *, written: bytes = b"") -> pb.Header:
        """Return the header of a reply that shows the engine as of a revision and its token, by default the present.

        Args:
            written: The token of the write that the reply acknowledges.
        """
        levels = self.levels
        return pb.Header(
            server_id=self.server_id,
            revision=self.engine.revision if revision is None else revision,
            token=levels.token_with(written) if token is None else token,
            age_ms=levels.age_ms,
        )

    async def read(
        self, ask: Callable[[float], Answer], first: bytes, last: bytes | None, demand: Demand | None
    ) -> Answer:
        """Answer a read of a range, once it is as fresh as demanded, and what it needs is loaded or made.

        Args:
            ask: Asks the engine; its argument is the present moment, in seconds.
            demand: See `Levels.demand`.

        Raises:
            StaleError, TokenLostError: The level of freshness cannot be had.
            BackingUnavailableError, BackingStaleError, UnassignedKeyError: As `Databases.read`.
            PequodError: What ``ask`` raises.
        """
        if demand is None and not self.databases.all:
            with suppress(MissingError):
                return ask(time.monotonic())
        return await self.levels.read(lambda: ask(time.monotonic()), ((first, last),), demand)

    async def read_keys(self, keys: Sequence[bytes], demand: Demand | None) -> list[bytes | None]:
        """Return the values of keys, None for those without one, once what the read needs is loaded.

        Raises:
            StaleError, TokenLostError, BackingUnavailableError, BackingStaleError: As `read`.
        """
        if demand is None and not self.databases.all:
            with suppress(MissingError):
                return self._get_all(keys)
        return await self.levels.read(lambda: self._get_all(keys), [(key, key + b"\0") for key in keys], demand)

    def _get_all(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return many values; one MissingError names the ranges that all keys lack."""
        get, clock, missing = self.engine.get, time.monotonic, list[Lacking]()
        values: list[bytes | None] = []
        for key in keys:
            try:
                values.append(get(key, now=clock()))
            except MissingError as error:
                missing += error.lacking
        if missing:
            raise MissingError(missing)
        return values

    def refuse_many(self, count: int) -> None:
        """Pass if one call may have ``count`` keys.

        Raises:
            LimitExceededError: It may not.
        """
        if count > self.config.batch_commands_max:
            raise LimitExceededError("batch_commands_max", count, self.config.batch_commands_max)

    async def opened(self) -> None:
        """Wait until no commit of a database is half applied."""
        await self.databases.gate.opened()
