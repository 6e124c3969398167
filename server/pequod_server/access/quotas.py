"""What roles may use: calls a second, watches, keys and bytes; and what they use.

    call, batch -> Meter.take      -> a rate with a second's worth at once
    watch       -> Meter.watching  -> the watches that are open
    puts        -> Meter.need_room -> the tables of the role's `write` count their keys, and all writers' alike
    hot calls   -> Meter.lend      -> what the core may let through before it is asked again

Nothing is written down: what is stored is counted where it is, so a restart or an import changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat
from time import monotonic
from typing import Any, Final

from pequod_proto import pequod_pb2 as pb

from pequod.commands.columns import commands, needs
from pequod.commands.kinds import ADD, PUT, PUT_IF, PUT_TTL
from pequod.engine import Engine
from pequod.errors import PermissionDeniedError, QuotaExceededError
from pequod.native.http2 import NativeLease, new_lease
from pequod_server.access.allowances import Allowance
from pequod_server.access.grants import Quotas, Right, Role
from pequod_server.wire.handlers import PEER_PATH, SERVICE_PATH

#: Commands that store something.
PUTS: Final = frozenset({PUT, PUT_IF, PUT_TTL, ADD})
#: The number that is lent where there is no quota.
_ALL: Final = 1 << 62
#: The most that a sum has: an add is a put of that.
_SUM_BYTES: Final = 24
#: A key, and how many bytes its value is to have.
Put = tuple[bytes, int]


def put_of(kind: int, key: bytes, argument: bytes) -> Put:
    """Return what a command of `PUTS` stores at the most."""
    return key, max(len(argument), _SUM_BYTES) if kind == ADD else len(argument)


class Meter:
    """The use that one role makes of its quotas.

    Invariants:
        1. ``watch_count`` is the number of watches that are open, under these quotas or those before.
        2. ``_lent`` is what ``lease`` would have of commands if none had been used that are not counted yet.
    """

    __slots__ = (
        *("_allowance", "_clock", "_counted", "_engine", "_lent", "lease", "quotas", "refusals", "role"),
        "watch_count",
    )

    def __init__(self, role: Role, quotas: Quotas, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self.watch_count = 0
        self._counted = 0
        #: The use that is lent to hot calls; None: none was lent yet.
        self.lease: NativeLease | None = None
        self._lent = 0
        #: By quota, how often it refused something.
        self.refusals: Counter[str] = Counter()
        self.renew(role, quotas)

    def renew(self, role: Role, quotas: Quotas) -> None:
        """Go by the quotas of an access file that was read anew."""
        self._settle()
        rate = quotas.calls_per_s
        self.role = role
        self.quotas = quotas
        self._allowance = None if rate is None else Allowance(rate, most=max(rate, 1.0), now_s=self._clock())

    def take(self, count: int) -> None:
        """Pass if calls may be made now, and count them.

        Raises:
            QuotaExceededError: There were too many a moment ago.
        """
        self._settle()
        allowance = self._allowance
        if allowance is not None and (wait_s := allowance.take(count, self._clock())):
            assert self.quotas.calls_per_s is not None, "it is the allowance's"
            raise self._refusal("calls_per_s", self.quotas.calls_per_s, wait_s)
        self._counted += count

    @property
    def call_count(self) -> int:
        """How many calls and commands were let through."""
        self._settle()
        return self._counted

    def lend(self) -> NativeLease:
        """Return what hot calls of this turn may use; it is counted later, before anything else is.

        Cost:
            2 µs or so, and the look at the tables that `stored` has.
        """
        if self.lease is None:
            self.lease = new_lease()
        self._settle()
        lease, quotas = self.lease, self.quotas
        left = _ALL if self._allowance is None else int(self._allowance.left(self._clock()))
        lease.commands = self._lent = max(left, 0)
        keys, size = self.stored() if quotas.are_of_data else (0, 0)
        lease.keys = _ALL if quotas.keys is None else quotas.keys - keys
        lease.bytes = _ALL if quotas.bytes is None else quotas.bytes - size
        return lease

    def _settle(self) -> None:
        """Count what hot calls have used."""
        lease = self.lease
        if lease is None or not (used := self._lent - lease.commands):
            return
        self._lent = lease.commands
        self._counted += used
        if self._allowance is not None:
            self._allowance.owe(used)

    @contextmanager
    def watching(self, count: int = 1) -> Iterator[None]:
        """Count the ranges of a watch while it is open.

        Raises:
            QuotaExceededError: There are as many as there may be.
        """
        most = self.quotas.watches
        if most is not None and self.watch_count + count > most:
            raise self._refusal("watches", most)
        self.watch_count += count
        try:
            yield
        finally:
            self.watch_count -= count

    def stored(self) -> tuple[int, int]:
        """Return how many keys there are in the tables that the role may write, and their bytes.

        Cost:
            O(tables).
        """
        sizes = [self._engine.stored(prefix) for prefix in self.role.write.prefixes]
        return sum(count for count, _ in sizes), sum(size for _, size in sizes)

    def has_room(self, key_count: int, size: int) -> bool:
        """Return whether as many keys and bytes more are allowed in any case."""
        quotas = self.quotas
        if not quotas.are_of_data:
            return True
        keys, stored_bytes = self.stored()
        return (quotas.keys is None or keys + key_count <= quotas.keys) and (
            quotas.bytes is None or stored_bytes + size <= quotas.bytes
        )

    def need_room(self, puts: Iterable[Put]) -> None:
        """Pass if puts, one after the other, keep within what may be stored.

        Raises:
            QuotaExceededError: They do not.
        """
        for error in self.refused(puts):
            if error is not None:
                raise error

    def refused(self, puts: Iterable[Put]) -> Iterator[QuotaExceededError | None]:
        """Yield for each put why it is refused; None: it is not. A refused put takes no room from those behind it.

        Cost:
            O(puts), and a look-up for each if not all of them fit in any case.
        """
        quotas, puts = self.quotas, list(puts)
        if self.has_room(len(puts), sum(len(key) + value_bytes for key, value_bytes in puts)):
            yield from repeat(None, len(puts))
            return
        keys, size = self.stored()
        #: The bytes of keys that the puts before have written.
        sizes: dict[bytes, int] = {}
        for key, value_bytes in puts:
            old = sizes.get(key) if key in sizes else self._engine.stored_bytes(key)
            new_keys, new_size = keys + (old is None), size + len(key) + value_bytes - (old or 0)
            if quotas.keys is not None and new_keys > quotas.keys and new_keys > keys:
                yield self._refusal("keys", quotas.keys)
            elif quotas.bytes is not None and new_size > quotas.bytes and new_size > size:
                yield self._refusal("bytes", quotas.bytes)
            else:
                keys, size, sizes[key] = new_keys, new_size, len(key) + value_bytes
                yield None

    def _refusal(self, quota: str, maximum: float, retry_s: float | None = None) -> QuotaExceededError:
        self.refusals[quota] += 1
        return QuotaExceededError(self.role.name, quota, maximum, retry_s)


class Meters:
    """The meters of all roles that have quotas, by their names: they outlive the access file that names them."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = monotonic) -> None:
        self._engine = engine
        #: Tells the time by which calls are counted.
        self.clock = clock
        self.all: dict[str, Meter] = {}

    def of(self, role: Role) -> Meter | None:
        """Return the meter of a role; None: it has no quotas."""
        if role.quotas is None:
            return None
        meter = self.all.get(role.name)
        if meter is None:
            meter = self.all[role.name] = Meter(role, role.quotas, self._engine, self._now_s)
        elif meter.role is not role:
            meter.renew(role, role.quotas)
        return meter

    def _now_s(self) -> float:
        return self.clock()


def charge(meter: Meter, method: str, request: Any) -> None:
    """Count a call, and pass if there is room for its puts. Batches are counted by their commands (`QuotaJudge`).

    Raises:
        QuotaExceededError: A quota does not let it through.
        PermissionDeniedError: It is a call of servers.
    """
    name = method.removeprefix(SERVICE_PATH)
    if name == "Execute":
        return
    if method.startswith(PEER_PATH):
        # Only servers make these calls; a caller with quotas is a client.
        raise PermissionDeniedError(meter.role.name, Right.FEED, b"", None)
    meter.take(max(_command_count(name, request), 1))
    if meter.quotas.are_of_data:
        meter.need_room(_puts(name, request))


def _command_count(name: str, request: Any) -> int:
    """Return how many commands a call stands for; docs/security.md lists them.

    Of a transaction that is what `transaction_commands_max` bounds: which list runs is known later.
    """
    match name:
        case "MultiGet" | "MultiPut":
            return len(request.keys)
        case "Transaction":
            return len(request.compare_keys) + len(request.then.kinds) + len(request.otherwise.kinds)
        case "LoadBackfill":
            return len(request.firsts)
        case _:
            return 1


def _puts(name: str, request: Any) -> Iterator[Put]:
    """Yield what a call stores at the most."""
    match name:
        case "Put":
            yield request.key, len(request.value)
        case "WriteIf" if request.HasField("value"):
            yield request.key, len(request.value)
        case "Add":
            yield put_of(ADD, request.key, request.delta)
        case "MultiPut":
            yield from zip(request.keys, map(len, request.values), strict=False)
        case "Transaction":
            yield from _puts_of_lists(request)


def _puts_of_lists(request: pb.TransactionRequest) -> Iterator[Put]:
    """Yield what both lists of a transaction store: which of them runs is known later."""
    for columns in (request.then, request.otherwise):
        needed = needs(columns.kinds)
        if needed.unknown is None and needed.argument_count == len(columns.arguments):
            for _, kind, first, second in commands(columns.kinds, columns.arguments[:]):
                if kind in PUTS:
                    yield put_of(kind, first, second)
