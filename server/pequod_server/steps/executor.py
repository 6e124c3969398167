"""Where commands run: batches, and calls of one command or of several at one moment, all by the same `Steps`.

Execute     message -> run_quick -> reply                 nearly all batches, natively: see quick.py
                    -> begin     -> steps                 the others, and the rest of one that waits
Get, Put .. command -> answer    -> outcome               at once, if nothing can be wrong with it
                                 -> steps -> outcome      the others: a batch of one
needs       ranges -> Databases.load      writes -> WriteThrough.carry_out
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, assert_never, cast

from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.answers.transacted import Transacted
from pequod.commands.columns import bounds_of, needs, range_arguments
from pequod.commands.kinds import GET, KINDS, SCAN, WRITES
from pequod.engine import BackedKeyError, Engine, LimitExceededError, MissingError, PequodError
from pequod.engine.answer import answer
from pequod.engine.batch import BatchRun, MomentRun, with_advice
from pequod.engine.transacting import TransactionLimits, backed_key, refuse, transact
from pequod.errors import BadRequestError, NoDeadlineError
from pequod.language.deadlines import KEEP
from pequod.language.transactions import COMMANDS_MAX, Transaction
from pequod_server.backing.timed import timed
from pequod_server.database.databases import Databases
from pequod_server.database.flights import ROUNDS_MAX
from pequod_server.database.write_through import CarriedOut, RemovedRange, WriteThrough
from pequod_server.freshness.demands import Demand
from pequod_server.freshness.levels import Levels
from pequod_server.homes.rules import HomeRules
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import BATCH_ID_BYTES, Decided, once_of, once_of_transaction, refuse_id
from pequod_server.steps.judges import CommandJudge, HomeJudge
from pequod_server.steps.leveled import BatchLevels
from pequod_server.steps.piece import ReplyPiece
from pequod_server.steps.repeatable import OnceRun, ids_of
from pequod_server.steps.steps import Add, Expire, Need, Outcomes, Room, Step, Steps, WriteIf, Writes
from pequod_server.wire.publishing import never_there

#: A removal takes 3 µs, and 0.4 µs for each computed key that goes with it: other calls wait for a few ms at most.
_REMOVED_AT_A_TIME: Final = 256


#: The `Answer` of a command of a call, as the table of kinds says; and the token of its write to a database,
#: empty if it wrote to none. A plain tuple, since each Get and each Put makes one.
Answered = tuple[Any, bytes]


class Executor:
    """Runs commands on one engine.

    Args:
        piece_bytes_max: Returns how many bytes the next piece of a reply may have; without it, ``reply_bytes_max``.
        clock: Returns the time in seconds. The engine has no clock; it judges by this one how old snapshots are.
        levels: Knows how fresh reads have to be, and names the states that answer.
        databases: Those behind the engine.
        through: Writes keys that databases own.
        rules: Which keys the map of the cluster lets this server write; None: it belongs to none.
        ids: Remembers writes that may come again.
    """

    __slots__ = (
        *("_rules", "clock", "commands_max", "databases", "engine", "home_judges", "ids", "levels", "piece_bytes_max"),
        *("reply_bytes_max", "rows_max", "server_id", "through", "transaction_commands_max", "transaction_counts"),
    )

    def __init__(
        self,
        engine: Engine,
        server_id: int,
        *,
        commands_max: int,
        reply_bytes_max: int,
        rows_max: int,
        transaction_commands_max: int = COMMANDS_MAX,
        piece_bytes_max: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        databases: Databases | None = None,
        levels: Levels | None = None,
        through: WriteThrough | None = None,
        rules: HomeRules | None = None,
        ids: RequestIds | None = None,
    ) -> None:
        self.engine = engine
        self.ids = ids or RequestIds()
        self.server_id = server_id
        self.commands_max = commands_max
        self.transaction_commands_max = transaction_commands_max
        self.reply_bytes_max = reply_bytes_max
        #: How many transactions have run each of their lists.
        self.transaction_counts = {"then": 0, "otherwise": 0}
        self.piece_bytes_max = piece_bytes_max or (lambda: reply_bytes_max)
        self.rows_max = rows_max
        self.clock = clock
        self.databases = databases or Databases(engine)
        self.levels = BatchLevels(engine, levels or Levels(engine, self.databases, server_id), self.databases)
        self.through = through or WriteThrough(engine, self.databases)
        self._rules = rules
        #: The judges of all callers' commands.
        self.home_judges: tuple[CommandJudge, ...] = () if rules is None else (HomeJudge(rules),)

    @property
    def write_figures(self) -> tuple[Mapping[str, int], RequestIds]:
        """The counts of writes for metrics: how many transactions have run each of their lists, and the request ids."""
        return self.transaction_counts, self.ids

    # Batches.

    def execute(self, request: ExecuteRequest) -> list[ExecuteReply]:
        """Run a batch where no database is behind the engine, and return the pieces of its reply; see `steps`."""
        pieces: list[ExecuteReply] = []
        steps = self.steps(request)
        step = steps.run()
        while True:
            if isinstance(step, ExecuteReply):
                pieces.append(step)
                if not step.more:
                    return pieces
            else:
                assert isinstance(step, Room), "an engine without backed tables lacks nothing"
            step = steps.go_on()

    async def begin(self, request: ExecuteRequest, judges: Sequence[CommandJudge]) -> Steps:
        """Return the steps of a batch, which are `Steps.ready`; see `steps`."""
        run = self._checked(request)
        fresh = self.levels.of(request)
        # Before there is a piece: while it waits, a batch counts on no memory.
        await self.levels.ready(fresh, run)
        return self._steps(run, request.batch, judges, fresh)

    def steps(
        self, request: ExecuteRequest, judges: Sequence[CommandJudge] = (), fresh: CommandJudge | None = None
    ) -> Steps:
        """Return the steps of a batch; call `Steps.start`, or `Steps.run`, for the first one, once they are ready.

        Args:
            judges: Say which commands fail without being run. They are asked again at each step.
            fresh: The judge of its reads.

        Raises:
            BadRequestError: The columns do not fit; nothing is applied.
            LimitExceededError: The batch has more than ``batch_commands_max`` commands; nothing is applied.
        """
        return self._steps(self._checked(request), request.batch, judges, fresh)

    def _steps(self, run: BatchRun, number: int, judges: Sequence[CommandJudge], fresh: CommandJudge | None) -> Steps:
        return Steps(self, run, ReplyPiece(run, number, self.piece_bytes_max()), judges, fresh)

    def _checked(self, request: ExecuteRequest) -> BatchRun:
        kinds = request.kinds
        if len(kinds) > self.commands_max:
            raise LimitExceededError("batch_commands_max", len(kinds), self.commands_max)
        run = BatchRun(kinds, request.arguments[:], request.numbers[:], self.rows_max)
        check_columns(kinds, len(run.arguments), len(run.numbers))
        if not (ids := ids_of(request)):
            return run
        columns = kinds, run.arguments, run.numbers, self.rows_max
        return OnceRun(*columns, ids, self.ids, request.batch_id, request.batch_positions)

    # Calls.

    async def answer(
        self,
        kind: int,
        first: bytes,
        second: bytes = b"",
        number: int = 0,
        demand: Demand | None = None,
        third: bytes = b"",
        ttl_ms: int = 0,
        request_id: bytes = b"",
    ) -> Answered:
        """Run one command: a batch of one, whose error is raised.

        Args:
            request_id: Of a write that may come again; empty: it has none.
            first, second, third, number, ttl_ms: As `pequod.engine.answer` has them.
            demand: How fresh the answer of a read has to be; None: as the server's settings say.

        Raises:
            StaleError, TokenLostError, BackingStaleError: A read cannot be answered as fresh as that.
            BackingUnavailableError, UnassignedKeyError: Its ranges cannot be loaded.
            NotHomeError: The map of the cluster gives the key of a write to another server.
            PequodError: What the engine, or the database of a write, refuses.
        """
        waits: MissingError | BackedKeyError | None = None
        self.databases.expiring.pass_due()
        # What is seen at once: most commands of calls may run now.
        refuse_id(request_id)
        if kind in WRITES:
            is_new = not request_id or self.ids.is_new(request_id[:BATCH_ID_BYTES])
            may_run = is_new and (self._rules is None or self._rules.error_of(first) is None)
        elif demand is None:
            may_run = self.levels.passes_reads()
        else:
            may_run = self.levels.passes_read(bounds_of(kind, first, second), demand)
        if may_run:
            try:
                outcome = answer(self.engine, kind, first, second, number, self.clock(), third, ttl_ms)
                if request_id:
                    write = once_of(request_id, kind, first, second, third, number)
                    self.ids.remember(request_id, write.kept(cast("Decided", outcome)))
                return outcome, b""
            except (MissingError, BackedKeyError) as error:
                waits = error.with_traceback(None)
            except LimitExceededError as error:
                raise with_advice(kind, error) from None
        column, arguments, numbers = bytes((kind,)), [first, second, third], [number, ttl_ms]
        if request_id:
            run: BatchRun = OnceRun(column, arguments, numbers, 0, {0: request_id}, self.ids)
        else:
            run = BatchRun(column, arguments, numbers)
        steps = self._call(run, demand)
        if waits is None:
            await steps.ready()
        try:
            (outcome,) = await self._outcomes(steps, steps.run() if waits is None else steps.wait_for(waits))
        except LimitExceededError as error:
            raise with_advice(kind, error) from None
        return outcome, steps.earlier

    async def get_all(self, keys: list[bytes], demand: Demand | None) -> list[Any]:
        """Get the values of keys, None for those without one, all at one moment.

        Raises:
            PequodError: As `answer`.
        """
        if demand is None and self.levels.passes_reads():
            engine, clock = self.engine, self.clock
            self.databases.expiring.pass_due()
            try:
                return [answer(engine, GET, key, b"", 0, clock()) for key in keys]
            except MissingError:
                # All that the keys lack is to be loaded at once.
                pass
        steps = self._call(MomentRun(bytes((GET,)) * len(keys), keys, []), demand)
        await steps.ready()
        return await self._outcomes(steps, steps.run())

    def _call(self, run: BatchRun, demand: Demand | None) -> Steps:
        return Steps(self, run, Outcomes(run), self.home_judges, self.levels.of_call(run, demand))

    async def _outcomes(self, steps: Steps, step: Step) -> list[Any]:
        """Have the commands of a call run; return what they give, or raise the first error."""
        while not isinstance(step, Outcomes):
            assert not isinstance(step, Room | ExecuteReply), "only replies have pieces"
            written = await self.meet(step)
            await steps.ready()
            step = steps.go_on(written)
        for outcome in step.all:
            if isinstance(outcome, PequodError):
                raise outcome
        return [*step.all]

    async def put_all(self, keys: Sequence[bytes], values: Sequence[bytes], ttl_ms: int = 0) -> bytes:
        """Put many rows at one moment, all or none; return the token of the write, as `Answered` has it.

        Args:
            ttl_ms: Of each of them, as `Engine.put_for` takes it.

        Raises:
            MixedWriteError: Not all keys are of one database, or of none.
            PequodError: As `answer`; nothing is written.
        """
        if self._rules is not None:
            self._rules.refuse(keys)
        self.databases.expiring.pass_due()
        try:
            self.engine.put_all(keys, values, ttl_ms)
        except MissingError as error:
            # Of keys that are to keep their deadlines.
            await self.databases.load(error.lacking)
            return await self.put_all(keys, values, ttl_ms)
        except BackedKeyError as error:
            if ttl_ms not in (0, KEEP) and not self.engine.has_backed_deadlines:
                raise NoDeadlineError(error.key) from error
            return await self.through.put_all(keys, [timed(value, ttl_ms) for value in values])
        return b""

    async def transact(self, transaction: Transaction, demand: Demand | None) -> tuple[Transacted, bytes]:
        """Run a transaction; return its outcome, and the token of what a database has decided, as `Answered` has it.

        Args:
            demand: How fresh its reads have to be, where no database decides.

        Raises:
            BadRequestError: Its request id is none, or that of another write.
            TransactionError, LimitExceededError: It cannot run; nothing is done, as with all other errors.
            MixedWriteError: Not all keys that are compared or written are of one database, or of none.
            PequodError: As `answer`, of any of its commands.
        """
        refuse_id(transaction.request_id)
        refuse(transaction, self.transaction_commands_max)
        self.databases.expiring.pass_due()
        if not transaction.writes():
            # Nothing has to be done once.
            transaction = transaction._replace(request_id=b"")
        done, token = await self._transact(transaction, demand)
        self.transaction_counts["then" if done.held else "otherwise"] += 1
        return done, token

    async def _transact(self, transaction: Transaction, demand: Demand | None) -> tuple[Transacted, bytes]:
        write = once_of_transaction(transaction)
        decided_by, limits = transaction.decided_by(), TransactionLimits(self.reply_bytes_max, self.rows_max)
        reads = transaction.ranges_read()
        columns = [bound for first, last in reads for bound in range_arguments(first, last)]
        run = BatchRun(bytes((SCAN,)) * len(reads), columns, [])
        fresh = self.levels.of_call(run, demand)
        for _ in range(ROUNDS_MAX):
            if backed_key(self.engine, transaction) is not None:
                return await self.through.transact(transaction, limits)
            await self.levels.ready(fresh, run)
            for error in () if fresh is None else fresh.refused(run.ahead()).values():
                raise error
            if self._rules is not None:
                # The map may have changed in the meantime.
                self._rules.refuse(decided_by)
            try:
                return self.ids.once(write, lambda: transact(self.engine, transaction, self.clock(), limits)), b""
            except MissingError as error:
                await self.databases.load(error.lacking, error.next_groups)
            except BackedKeyError:
                # A database has come by its keys in the meantime.
                continue
        raise never_there(ROUNDS_MAX)

    async def remove_range(self, first: bytes, last: bytes | None) -> RemovedRange:
        """Remove the base keys of a range; other calls have their turn between two parts of it.

        Raises:
            PequodError: As `WriteThrough.remove_range`, and as the map of the cluster says before each part.
        """
        removed = 0
        try:
            while True:
                # The map may have changed since the part before.
                if self._rules is not None:
                    self._rules.refuse_range(first, last)
                self.databases.expiring.pass_due()
                try:
                    keys = self.engine.remove_range(first, last, _REMOVED_AT_A_TIME)
                except MissingError as error:
                    await self.databases.load(error.lacking)
                    continue
                removed += len(keys)
                if len(keys) < _REMOVED_AT_A_TIME:
                    return RemovedRange(removed, b"")
                first = keys[-1] + b"\0"
                await asyncio.sleep(0)
        except BackedKeyError:
            # The engine raises before it removes the first key of the range.
            return await self.through.remove_range(first, last)

    # What commands wait for.

    async def meet(self, need: Need) -> CarriedOut | None:
        """Do what commands wait for, and return what came of their writes. Then they have to be made ready again.

        Raises:
            BackingUnavailableError, SchemaError, LimitExceededError, UnassignedKeyError: As `Databases.load`.
        """
        match need:
            case MissingError(lacking=lacking, next_groups=next_groups):
                await self.databases.load(lacking, next_groups)
                return None
            case Writes(changes=changes):
                return await self.through.carry_out(changes)
            case WriteIf(change=change):
                return await self.through.write_if(change)
            case Expire(key=key, ttl_ms=ttl_ms):
                return await self.through.expire(key, ttl_ms)
            case Add(addition=addition):
                return await self.through.add(addition)
            case _:
                assert_never(need)


def check_columns(kinds: bytes, argument_count: int, number_count: int) -> None:
    """Pass if the columns of a batch fit its kinds.

    Raises:
        BadRequestError: They do not.
    """
    needed = needs(kinds)
    if needed.unknown is not None:
        raise BadRequestError(
            f"there is no command of kind {needed.unknown}; kinds are {KINDS[0].code} to {KINDS[-1].code}"
        )
    for what, count, number in (
        ("arguments", argument_count, needed.argument_count),
        ("numbers", number_count, needed.number_count),
    ):
        if count != number:
            raise BadRequestError(f"the kinds of this batch take {number} {what}, not {count}")
