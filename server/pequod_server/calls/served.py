"""What all calls share: the engine as it is served, with the databases behind it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine, LimitExceededError
from pequod_server.config import ServerConfig
from pequod_server.database.databases import Databases
from pequod_server.database.write_through import WriteThrough
from pequod_server.freshness.demands import Demand, Leveled, level_of
from pequod_server.freshness.levels import Levels
from pequod_server.freshness.own import OwnHistory
from pequod_server.homes.rules import HeldWrites, HomeRules
from pequod_server.memory.admission import Admission, request_ids_bytes_max
from pequod_server.once.memory import RequestIds
from pequod_server.steps.executor import Executor
from pequod_server.wire.bounds import Bounds

T = TypeVar("T")


class ServedEngine:
    """An engine that is served: with the server's settings and number, and with the databases behind it, if any.

    Each handler of calls has one. Commands go to the executor, and the beginnings of what is no command (watches,
    backfills) through `read`; every reply but those of batches gets its header here.

    Args:
        rules: Which keys the map of the cluster lets this server write; None: it belongs to none.
        own: Names the states of base data that outlive this server without a database; None: there are none.
    """

    __slots__ = ("config", "databases", "engine", "executor", "levels", "server_id")

    def __init__(
        self,
        engine: Engine,
        config: ServerConfig,
        databases: Databases,
        admission: Admission,
        rules: HomeRules | None = None,
        own: OwnHistory | None = None,
    ) -> None:
        self.engine = engine
        self.config = config
        self.databases = databases
        #: Random, so that clients notice a restart.
        self.server_id = secrets.randbits(63)
        #: Decides when reads may be answered, and names the states that answer.
        self.levels = Levels(engine, databases, self.server_id, own)
        self.executor = Executor(
            engine,
            self.server_id,
            commands_max=config.batch_commands_max,
            reply_bytes_max=config.reply_bytes_max,
            rows_max=config.rows_max,
            transaction_commands_max=config.transaction_commands_max,
            piece_bytes_max=admission.piece_bytes_max,
            databases=databases,
            levels=self.levels,
            through=WriteThrough(engine, databases) if rules is None else HeldWrites(engine, databases, rules),
            rules=rules,
            ids=RequestIds(config.request_ids_keep_s, request_ids_bytes_max(config)),
        )

    def demand(self, request: Leveled) -> Demand | None:
        """Count a call that reads and begins now; return how fresh its answer has to be, as `Executor.answer` takes it.

        Raises:
            InvalidTokenError: The call asks for a state after something that is no token.
        """
        return self.levels.demand(level_of(request))

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

    async def read(self, ask: Callable[[float], T], ranges: Sequence[Bounds], demand: Demand | None) -> T:
        """Return what ``ask`` begins at ranges, once they are as fresh as demanded and what it needs is there.

        Args:
            ask: Asks the engine; its argument is the present moment, in seconds.
            demand: See `demand`.

        Raises:
            StaleError, TokenLostError: The level of freshness cannot be had.
            BackingUnavailableError, BackingStaleError, UnassignedKeyError: As `Databases.read`.
            PequodError: What ``ask`` raises.
        """
        return await self.levels.read(lambda: ask(time.monotonic()), ranges, demand)

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
