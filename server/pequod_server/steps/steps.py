"""The steps of commands that run in order: what they wait for, and the pieces of a reply.

    steps.start()        -> a piece of the reply, a need (ranges, writes), or room for a long row
    steps.go_on(...)     -> the next one, once the piece is sent or the need is met
    steps.refuse(error)  -> the next one; the command that waits fails

The last step is the piece of the reply without ``more``; of a call, which has no pieces, its outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from pequod_proto.pequod_pb2 import ExecuteReply

from pequod.commands.kinds import ADD, ARGUMENT_COUNTS, DECIDED, EXPIRE, PLAIN_WRITES, PUT_IF, PUT_TTL, SCAN, SCAN_DOWN
from pequod.engine import BackedKeyError, Engine, MissingError, PequodError
from pequod.engine.answer import Answer, answer
from pequod.engine.batch import BatchRun, Waits, is_short_of_memory, united, with_advice
from pequod.errors import InvalidTtlError
from pequod.freshness import merged
from pequod.language.conditions import decoded
from pequod_server.backing import Addition, ConditionalChange, RowChange
from pequod_server.backing.timed import over, timed
from pequod_server.database.databases import Databases
from pequod_server.database.flights import ROUNDS_MAX
from pequod_server.database.write_through import TOGETHER_MAX, CarriedOut, Settled
from pequod_server.steps.judges import CommandJudge
from pequod_server.steps.leveled import BatchLevels
from pequod_server.steps.native import BegunBatch, RestIds, is_for_core, run_rest, slow_reads
from pequod_server.steps.piece import ReplyPiece
from pequod_server.steps.repeatable import OnceRun
from pequod_server.wire.publishing import never_there

#: How many commands behind one that waits are looked at; and after how many slow reads that lack nothing the look ends:
#: to look at one costs ten times what a quick read does, and in a warm server one that lacks something stands alone.
_AHEAD_MAX: Final = 1000
_QUIET_MAX: Final = 16


class Writes(NamedTuple):
    """Puts of keys that the database owns, and removals (None): of the next command and of those right behind it."""

    changes: list[RowChange]


class WriteIf(NamedTuple):
    """A write under a condition, of a key that the database owns: the next command."""

    change: ConditionalChange


class Expire(NamedTuple):
    """A deadline for a key that the database owns: the next command."""

    key: bytes
    #: 0: it is to have none.
    ttl_ms: int


class Add(NamedTuple):
    """An addition to a key that the database owns: the next command."""

    addition: Addition


class Room(NamedTuple):
    """Memory for a row that is longer than a piece of the reply may be without asking."""

    bytes: int


class Outcomes:
    """The results of a call, which has no pieces."""

    __slots__ = ("_run", "all")
    #: There is always room for more.
    room: Final = 1

    def __init__(self, run: BatchRun) -> None:
        self._run = run
        #: By command what it gave, or its error.
        self.all: list[Answer | PequodError] = []

    def take(self, outcome: Answer | PequodError) -> bool:
        """Take what the next command gives, and pass by it."""
        self.all.append(outcome)
        self._run.advance()
        return True

    def settle(self, outcomes: Sequence[Settled]) -> None:
        """Note what came of the next commands, and pass by them."""
        for outcome in outcomes:
            self.take(outcome)


#: The cases in which a command waits.
Need = MissingError | Writes | WriteIf | Expire | Add
Step = Need | Room | ExecuteReply | Outcomes


class CommandRunner(Protocol):
    """Where batches run; see `Executor`."""

    engine: Engine
    server_id: int
    clock: Callable[[], float]
    piece_bytes_max: Callable[[], int]
    levels: BatchLevels
    databases: Databases


class Steps:
    """The steps of commands that run in order. Call `start` or `run` for the first one, once they are `ready`.

    Args:
        out: Takes what they give.
        judges: Say which of them fail without being run. They are asked again at each step.
        fresh: The judge of the reads among them, if anything can be wrong with these.

    Invariants:
        1. No command runs between a step that is returned and `go_on` or `refuse`, which say what came of it.
    """

    __slots__ = (
        *("_bases", "_executor", "_fresh", "_is_looking_ahead", "_is_shared", "_judges", "_out", "_refused", "_run"),
        *("_step", "_waits_left", "piece_bytes", "earlier"),
    )

    def __init__(
        self,
        executor: CommandRunner,
        run: BatchRun,
        out: ReplyPiece | Outcomes,
        judges: Sequence[CommandJudge],
        fresh: CommandJudge | None,
    ) -> None:
        self._executor = executor
        self._run = run
        self._out = out
        self._judges = judges if fresh is None else (fresh, *judges)
        self._fresh = fresh
        #: The commands that are refused, and what that depends on.
        self._refused: dict[int, PequodError] = {}
        self._bases: list[object] = []
        #: The token of its writes, and of the states in which commands have run before a step.
        self.earlier = b""
        #: Whether a command that waits for ranges waits for those of the reads behind it, too.
        self._is_looking_ahead = True
        #: Whether it does now.
        self._is_shared = False
        #: A range that is loaded is mostly there for the command that waits for it; it may be forgotten before.
        self._waits_left = ROUNDS_MAX * len(run.kinds)
        #: The step that was returned last.
        self._step: Step | None = None
        #: How many bytes of rows and errors the piece has that was returned last.
        self.piece_bytes = 0

    async def ready(self) -> None:
        """Wait until the reads that are left are as fresh as they have to be, and no commit of theirs is half applied.

        Requires:
            It is awaited before the first step, and before `go_on`, with no other wait in between.
        """
        await self._executor.levels.ready(self._fresh, self._run)

    def run(self) -> Step:
        """Run commands until all have run, a piece of the reply is full, or a command has to wait.

        Returns:
            A piece of the reply, to be sent before anything else runs. Or what the next command waits for: ranges that
            it lacks, writes that the database has to carry out, or room for a row. Or the outcomes.

        Raises:
            UnauthenticatedError: The caller is not known any more; nothing more of the batch is applied.
        """
        self._executor.databases.expiring.pass_due()
        self._judge()
        return self._run_on()

    def start(self) -> Step:
        """Do what `run` does, as far as possible on the native core: for many commands, none of which is refused."""
        self._executor.databases.expiring.pass_due()
        self._judge()
        begun = self._begun_natively()
        return self._run_on() if begun is None else self.resume(begun)

    def _begun_natively(self) -> BegunBatch | None:
        """Run what is left on the native core; None if that is not for it, and nothing has run."""
        executor, out, run = self._executor, self._out, self._run
        if not isinstance(out, ReplyPiece) or self._refused or not is_for_core(executor.engine, run):
            return None
        ids = None
        if isinstance(run, OnceRun):
            if (left := run.left()) is None:
                return None
            ids = RestIds(*left, run.remember)
        return run_rest(executor.engine, run, out.room, executor.clock(), ids)

    def _judge(self) -> None:
        """Have the commands that are left judged, unless that is done and what the judges go by is still the same.

        If several judges refuse a command, it fails with the error of the last of them.
        """
        bases = [judge.basis() for judge in self._judges]
        if bases == self._bases:
            return
        self._bases = bases
        self._refused = {}
        for judge in self._judges:
            self._refused |= judge.refused(self._run.ahead())
        self._run.refusal = self._refused.get if self._refused else None

    def _run_on(self) -> Step:
        executor = self._executor
        while self._out.room > 0:
            waits = self._run.run(executor.engine, executor.clock, self._out.take)
            if waits is None:
                break
            if not self._waits_left and self._run.shrink():
                # Fewer rows wait less often.
                self._waits_left = ROUNDS_MAX
                continue
            if self._waits_left:
                return self.wait_for(waits)
            self._out.settle([never_there(ROUNDS_MAX)])
        return self._noted(self._reached())

    def wait_for(self, waits: Waits) -> Step:
        """Return what the next command waits for, with what those behind it would wait for."""
        self._waits_left -= 1
        if isinstance(waits, BackedKeyError):
            if self._run.kind == ADD:
                _, key, delta, _ = self._run.command()
                return self._noted(Add(Addition(key, delta, self._run.request_id)))
            if self._run.kind == EXPIRE:
                _, key, _, ttl_ms = self._run.command()
                return self._noted(Expire(key, ttl_ms))
            if self._run.kind in DECIDED:
                return self._noted(self._write_if())
            return self._noted(Writes(self._writes_ahead()))
        ahead = self._lacking_ahead() if self._is_looking_ahead else []
        self._is_shared = bool(ahead)
        return self._noted(united([waits, *ahead]))

    def _noted(self, step: Step) -> Step:
        """Note a step that is returned, and the state in which the commands before it have run."""
        self._step = step
        is_last = isinstance(step, Outcomes) or (isinstance(step, ExecuteReply) and not step.more)
        if not is_last and (self._run.index or not isinstance(step, MissingError | Writes | WriteIf | Expire | Add)):
            self.earlier = merged(self.earlier, self._executor.levels.token)
        return step

    def resume(self, begun: BegunBatch) -> Step:
        """Go on with a batch of which more has run elsewhere."""
        assert isinstance(self._out, ReplyPiece), "calls run here"
        self._out.take_over(begun)
        if begun.stop.waits_for is not None and self._waits_left:
            return self.wait_for(begun.stop.waits_for)
        if begun.stop.excess is not None:
            return self._noted(self._reached())
        return self._run_on()

    def go_on(self, written: CarriedOut | None = None) -> Step:
        """Go on after a piece is sent, or a need is met.

        Args:
            written: What came of the writes, if these were the need.
        """
        step, out = self._step, self._out
        if isinstance(out, ReplyPiece):
            if isinstance(step, Room):
                out.begin(step.bytes)
            elif not out.bytes or isinstance(step, ExecuteReply):
                # The memory that was free before the batch waited may not be free now.
                out.begin(self._executor.piece_bytes_max())
            if isinstance(step, ExecuteReply):
                self._waits_left = max(self._waits_left, ROUNDS_MAX)
        if written is not None:
            out.settle(written.outcomes)
            self.earlier = merged(self.earlier, written.token)
        return self.start() if isinstance(step, MissingError) else self.run()

    def refuse(self, error: PequodError) -> Step:
        """Go on where a need cannot be met: the command that waits fails with the error.

        If other commands need some of it, they may be those whose database is down: from now on each waits for itself.
        """
        if isinstance(self._step, MissingError) and self._is_shared:
            self._is_looking_ahead = False
            return self.run()
        if isinstance(self._step, MissingError) and is_short_of_memory(error) and self._run.shrink():
            return self.run()
        if isinstance(self._step, Room) and isinstance(self._out, ReplyPiece):
            self._out.begin(self._executor.piece_bytes_max())
        self._out.settle([with_advice(self._run.kind, error)])
        return self.run()

    def _reached(self) -> Room | ExecuteReply | Outcomes:
        """Return what is ready: the outcomes, a piece, or the room that its first row needs."""
        out, executor = self._out, self._executor
        if isinstance(out, Outcomes):
            return out
        if out.lacking_bytes:
            return Room(out.lacking_bytes)
        self.piece_bytes = out.bytes
        reply = out.reply(executor.server_id, executor.engine.revision)
        reply.MergeFromString(executor.levels.tail(self.earlier))
        return reply

    def _write_if(self) -> WriteIf:
        """Return the write that waits, whose condition has been looked at."""
        kind, key, second, number = self._run.command()
        value, expected = (None, second)
        if kind == PUT_IF:
            value, expected = timed(second, self._run.ttl_ms), self._run.third
        return WriteIf(ConditionalChange(key, value, decoded(number, expected), self._run.request_id))

    def _writes_ahead(self) -> list[RowChange]:
        """Return the write that waits, and those right behind it that the database owns, too, and that may run."""
        changes: list[RowChange] = []
        latest: dict[bytes, bytes | None] = {}
        numbers = iter(self._run.numbers[self._run.number_at :])
        for position, kind, key, value in islice(self._run.ahead(), TOGETHER_MAX):
            if kind not in PLAIN_WRITES and kind != PUT_TTL:
                break
            ttl_ms = next(numbers) if kind == PUT_TTL else 0
            if position in self._refused:
                continue
            try:
                if not self._executor.engine.owned_by_database(key, value):
                    break
            except PequodError:
                break
            try:
                written = timed(value, ttl_ms) if ARGUMENT_COUNTS[kind] > 1 else None
            except InvalidTtlError:
                break
            if ttl_ms and written is not None and key in latest:
                written = over(latest[key], written)
            latest[key] = written
            changes.append(RowChange(key, written))
        return changes

    def _lacking_ahead(self) -> list[MissingError]:
        """Return what the reads behind the one that waits lack, up to the next write, so that all is loaded at once.

        What these reads compute now is there when their turn comes.
        """
        executor, run, lacking, quiet = self._executor, self._run, list[MissingError](), 0
        engine, clock = executor.engine, executor.clock
        refused = (position for position in self._refused if position > run.index)
        stop = min(refused, default=run.index + 1 + _AHEAD_MAX)
        room = self._out.room
        for kind, first, last in slow_reads(engine, run, min(stop, run.index + 1 + _AHEAD_MAX), room, clock()):
            if quiet == _QUIET_MAX:
                break
            quiet += 1
            try:
                # The last row takes the whole range, by the shortest way.
                answer(engine, SCAN_DOWN if kind == SCAN else kind, first, last, 1, clock())
            except MissingError as error:
                lacking.append(error.with_traceback(None))
                quiet = 0
            except PequodError:
                # The command fails with it when its turn comes.
                continue
        return lacking
