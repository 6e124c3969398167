# The native core, where it is built (pequod/native/). This is its interface, written once: a test compares it with what
# is there. Most names are the twins of Python classes and functions, whose docstrings hold for them.

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from pequod.answers.rows import Rows
from pequod.native import KeyBounds

INTERFACE: int

# Go by this table of the kinds of commands from now on; see `packed` in pequod/commands/kinds.py.
def use_kinds(rows: bytes) -> None: ...

# The hash of the core's tables, with the secret of this process or with another one.
def hash_of(data: bytes, secret: tuple[int, int] = ..., /) -> int: ...

class SortedRows:
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> bytes | None: ...
    def remove(self, key: bytes) -> bytes | None: ...
    def take_first(self, count: int) -> SortedRows: ...
    def floor_key(self, key: bytes) -> bytes | None: ...
    def replace(self, key: bytes, value: bytes) -> bytes | None: ...
    def merge(self, keys: list[bytes], values: list[bytes]) -> None: ...
    def insert(self, keys: list[bytes], values: list[bytes]) -> bool: ...
    def slice(self, first: bytes, last: bytes | None, limit: int | None = None, *, reverse: bool = False) -> Rows: ...
    def since(self, prefix: bytes, first: bytes, limit: int | None) -> Rows: ...
    def everything(self) -> Rows: ...
    def count(self, first: bytes, last: bytes | None) -> int: ...
    def sample(self, first: bytes, last: bytes | None, step: int) -> Iterator[tuple[bytes, int]]: ...
    def leaves(self) -> Iterator[Rows]: ...
    def _check(self) -> None: ...

# Return rows as this class from now on.
def use_rows(rows: type[Rows]) -> None: ...

# Split leaves beyond this length, as tests do; return what it was.
def set_leaf_max(count: int) -> int: ...

class Counters:
    hits: int
    computed_ranges: int
    rows_computed: int
    log_applied: int
    invalidations: int

FRESH_MAX: int

class HotGroups:
    fresh: list[bytes]
    def __len__(self) -> int: ...
    def get(self, prefix: bytes) -> SortedRows | None: ...
    def add(self, prefix: bytes) -> SortedRows: ...
    def take_out(self, prefix: bytes) -> None: ...
    def items(self) -> list[tuple[bytes, SortedRows]]: ...

class HotTable:
    entry_count: int
    key_bytes: int
    value_bytes: int
    prefix: bytes
    end: bytes
    groups: HotGroups
    loose: SortedRows
    loaded: SortedRows | None
    uses: dict[bytes, Numbers] | None
    cut_width: int
    def get(self, key: bytes, /) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, /) -> bytes | None: ...
    def remove(self, key: bytes, /) -> bytes | None: ...

class HotRelations:
    table: HotTable
    readers: list[list[Any]]
    searched: list[Any]
    contexts: dict[bytes, Any] | None
    slot_start: int
    slot_width: int
    slot_follow: int
    is_owned: bool
    is_watched: bool

class HotLedger:
    entry_count: int
    entry_count_max: int
    row_bytes: int
    updater_bytes: int
    log_bytes: int
    weigh_at: int
    index_bytes: int
    index_count: int
    def change_rows(self, count: int, own_bytes: int, /) -> None: ...
    def fan_out(self, count: int, tail_bytes: int, /) -> None: ...
    def change_logs(self, grown_bytes: int, /) -> None: ...
    def change_updaters(self, grown_bytes: int, /) -> None: ...
    def change_indexes(self, count: int, grown_bytes: int, /) -> None: ...

# What the ledger counts from now on for an entry of rows, for a tail beside its bytes, for an entry of a log, and for a
# table, a group and a row of an index.
def use_sizes(entry: int, tail: int, log_entry: int, table: int, group: int, row: int, /) -> None: ...

class HotEngine:
    revision: int
    ledger: HotLedger
    _key_bytes_max: int
    _value_bytes_quick: int
    _ends: Ends
    _reads: Numbers
    _relations: dict[bytes, HotRelations]
    _writer: Any
    _recording: list[Any]
    _effects: dict[bytes, bytes | None] | None
    _closed: Any
    _deadlines: Deadlines
    _now_s: float
    _log_max: int
    def _put_quick(self, key: bytes, value: bytes, /) -> bool: ...
    def _put_for_quick(self, key: bytes, value: bytes, ttl_ms: int, /) -> bool: ...
    def _remove_quick(self, key: bytes, /) -> bool | None: ...
    def _expire_quick(self, keys_max: int, /) -> tuple[int, bytes | None]: ...
    def _get_quick(self, key: bytes, now: float, /) -> bytes | Literal[False] | None: ...
    def _scan_quick(
        self, first: bytes, last: bytes | None, limit: int | None, reverse: bool, now: float, /
    ) -> Rows | None: ...

class Numbers:
    number: int

class Hot:
    rows: SortedRows
    prefix: bytes
    end: bytes
    first: bytes
    last: bytes
    lower: bytes
    upper: bytes | None
    ready_until_s: float
    last_used: int
    hits: int
    log: dict[tuple[int, bytes], bytes | None]
    log_bytes: int
    dependants: dict[Any, None]
    has_dependants: bool
    upstreams: dict[Any, None]
    has_upstreams: bool
    updaters: list[Any]
    has_updaters: bool
    aggregate_states: dict[bytes, Any]
    is_fresh: bool
    stale_since_s: float
    is_whole: bool
    is_capped: bool
    room: int
    room_over: int
    counters: Counters
    ledger: HotLedger
    kernel: Kernel | None
    expires_s: float
    row_bytes: int
    @property
    def held_count(self) -> int: ...
    def note(self, depth: int, key: bytes, old: bytes | None, grown_bytes: int, /) -> int: ...
    def go_stale(self, now_s: float, /) -> None: ...
    def settle(self) -> None: ...
    def gain_rows(self, count: int, own_bytes: int, /) -> None: ...
    def lose_row(self) -> None: ...
    def let_go(self) -> int: ...
    def hand_over(self, other: Hot) -> int: ...
    def frames_held(self) -> list[Waiting]: ...

class Waiting:
    tail_bytes: int
    @property
    def key(self) -> bytes: ...
    @property
    def contexts(self) -> dict[Hot, None]: ...
    def __len__(self) -> int: ...
    def _check(self) -> None: ...

class Frames:
    def __init__(self, frame_bytes: int, hold_bytes: int, is_ordered: bool = False) -> None: ...
    def __len__(self) -> int: ...
    def get(self, frame_key: bytes) -> Waiting | None: ...
    def add_all(self, frame_keys: list[bytes], context: Hot) -> int: ...
    def remove(self, frame_key: bytes, context: Hot) -> int: ...
    def over(self, first: bytes, last: bytes) -> list[Waiting]: ...
    def values(self) -> list[Waiting]: ...

def may_lose(value: bytes, /) -> bool: ...

# The first servers of a group by rendezvous hashing; see pequod/native/ranks.hpp.
def keyed(ids: list[bytes], /) -> bytes: ...
def first_ranked(keyed: bytes, weights: bytes, group: bytes, wanted: int, /) -> list[int]: ...
def use_lanes(lanes: int, /) -> bool: ...

class QuickLens:
    def __init__(
        self,
        parts: tuple[bytes | int | None, ...],
        fields: tuple[tuple[str | None, int | None, bool], ...],
        plain: tuple[bytes | int, ...],
        text_bytes_max: int,
        gives: tuple[tuple[bytes | None, str] | tuple[bytes | None, str, str], ...] | bytes | bool | None,
        /,
    ) -> None: ...
    def show(self, key: bytes, value: bytes, /) -> tuple[bytes, bytes] | None: ...
    def look(self, key: bytes, value: bytes, parse: Any, /) -> tuple[bytes, Any] | None: ...
    def look_all(
        self, keys: list[bytes], values: list[bytes], parse: Any, give: Any, /
    ) -> tuple[list[bytes], list[bytes], list[int]]: ...

PARTS_MAX: int

class HotIndex:
    rows: HotTable | None
    begun: HotTable | None
    quick: QuickLens | None
    ledger: HotLedger
    counted_bytes: int
    has_own_values: bool
    def count_bytes(self) -> int: ...
    def weigh(self) -> None: ...

class HotProjection:
    index: HotIndex
    readers: list[list[Any]]

class HotSite:
    route: Route | None
    told: tuple[HotWatch, ...] | None

# What watches are told; see pequod/native/changes.hpp and pequod/native/watches.hpp.
class Changes:
    def append(self, change: tuple[bytes, bytes | None, bytes | None], /) -> None: ...
    def tell(self, key: bytes, old: bytes | None, new: bytes | None, /) -> None: ...
    def begin_run(self, number: int, /) -> None: ...
    def runs(self) -> list[tuple[int, int]]: ...
    def take(self) -> list[Any]: ...
    def part(self, start: int, stop: int, /) -> list[Any]: ...
    def text_bytes(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> Any: ...

class HotWatch:
    first: bytes
    last: bytes | None
    changes: Any
    stale: dict[Any, None]
    lost: list[tuple[bytes, bytes]]
    ended: str | None
    waker: Any
    is_awake: bool

class HotLane:
    changes: Any
    woken: list[int]
    begin: Any
    number: int
    def append(self, change: tuple[bytes, bytes | None, bytes | None], /) -> None: ...
    def tell(self, key: bytes, old: bytes | None, new: bytes | None, /) -> None: ...
    def take(self) -> list[Any]: ...

def use_changes(change: type, expired: type, /) -> None: ...
def encode_changes(head: bytes, changes: Any, /) -> bytes: ...
def take_runs(watches: Mapping[int, Any], woken: list[int], changes: Any, /) -> Any | None: ...

# The way from a written key to those who wait for it; see pequod/native/routes.hpp.
class Route:
    # Whether changes of the rows go to watches or to other joins.
    is_followed: bool
    # Whether watches are all who follow them, and the rows are copies.
    tells_watches: bool
    tells_joins: bool
    def __init__(
        self,
        frames: Frames,
        parts: tuple[bytes | int | None, ...],
        frame_part_count: int,
        tail: tuple[bytes | int, ...],
        depth: int,
        is_check: bool,
        /,
    ) -> None: ...

# How a timeline gets what is in its sources; see pequod/native/kernel.hpp.
class Kernel:
    # Whether no join computes rows of the sources, and neither watches nor joins follow the timeline's rows.
    is_quiet: bool
    def __init__(
        self,
        *,
        selecting: HotTable,
        copied: HotTable,
        checks: Frames,
        copies: Frames,
        before: bytes,
        bound_width: int,
        after: bytes,
        tail_width: int,
        ending: tuple[bytes | None, ...],
        copied_cut: int,
    ) -> None: ...

def collect(
    context: Hot,
    selected: SortedRows,
    prefix: bytes,
    begin: bytes,
    end: bytes | None,
    lower: bytes,
    upper: bytes | None,
    first: bytes,
    last: bytes | None,
    rows_max: int,
) -> int | None: ...
def apply_log(context: Hot) -> bool: ...
def apply_loaded(
    engine: HotEngine,
    changes: tuple[tuple[bytes, bytes | None], ...] | list[tuple[bytes, bytes | None]],
    start: int,
    told_max: int,
    /,
) -> tuple[int, int]: ...
def select(
    keys: list[bytes], known: int, before: bytes, width: int | None, after: bytes, /
) -> tuple[list[bytes], list[bytes]]: ...
def fill(
    start: int,
    bounds: list[bytes],
    prefixes: list[bytes],
    groups: HotGroups,
    first: bytes,
    last: bytes | None,
    head: tuple[bytes | None, ...],
    width: int,
    ending: tuple[bytes | None, ...],
    lower: bytes,
    upper: bytes | None,
    room: int,
    tails: list[bytes],
    values: list[bytes],
    /,
) -> int: ...
def newest_from(prefixes: list[bytes], groups: Any, first: bytes, width: int, wanted: int, /) -> bytes | None: ...
def in_order(tails: list[bytes], values: list[bytes], /) -> Rows: ...
def apply_write(updaters: Any, tail: bytes, value: bytes, /) -> int: ...
def tell_row(route: Route, key: bytes, old: bytes | None, new: bytes | None, /) -> bool: ...

class Deadlines:
    now_ms: int
    is_due: bool
    first_ms: int | None
    byte_count: int
    def __len__(self) -> int: ...
    def set(self, key: bytes, at_ms: int, /) -> bool: ...
    def remove(self, key: bytes, /) -> bool: ...
    def get(self, key: bytes, /) -> int | None: ...
    def tell(self, now_ms: int, /) -> bool: ...
    def take_due(self) -> bytes | None: ...
    def due(self, keys: list[bytes], /) -> list[bytes]: ...
    def among(self, keys: list[bytes], /) -> list[tuple[bytes, int]]: ...
    def _check(self) -> None: ...

class Tails:
    tail_bytes: int
    def __len__(self) -> int: ...
    def share(self, tails: list[bytes], /) -> list[bytes]: ...
    def release(self, tails: list[bytes], /) -> None: ...
    def row_count(self, tail: bytes, /) -> int: ...

class Ends:
    def __len__(self) -> int: ...
    def get(self, last: bytes) -> Hot | None: ...
    def put(self, last: bytes, context: Hot, table: HotTable) -> None: ...
    def remove(self, last: bytes) -> None: ...

class Batch:
    """A batch of commands from the bytes of its message to those of its reply; see pequod/native/batch.cpp."""

    @property
    def kinds(self) -> bytes:
        """The kinds of its commands."""

    # The message that it is made of.
    message: bytes
    argument_count: int
    # How many bytes of rows and errors the reply has.
    reply_bytes: int
    # The next command.
    index: int
    # Where its arguments are.
    argument_at: int
    # Where its number is.
    number_at: int
    # How fresh the reads have to be, as bytes; empty: as the server's settings say.
    freshness: bytes
    # The span of the caller, as W3C's header says it; empty: none.
    trace_parent: bytes
    # What the caller's tracing system says of the span.
    trace_state: bytes
    # That of the commands' request ids; empty: they have none.
    batch_id: bytes
    # What commands with request ids have given, one behind the other, and how many of them.
    outcomes: bytes
    outcome_count: int
    # How many bytes the reply still has room for.
    room: int
    # How many rows scans gave.
    row_count: int
    @staticmethod
    def parse(message: bytes, commands_max: int, rows_max: int, piece_bytes_max: int) -> Batch | None:
        """Return the batch of an `ExecuteRequest`; see `pequod.native.parse_batch`."""

    def argument(self, at: int, /) -> bytes:
        """Return the argument at a place, of ``argument_count``."""

    def is_within(self, readable: KeyBounds, writable: KeyBounds) -> bool:
        """Return whether all keys that the commands read, and all that they write, lie in ranges.

        Args:
            readable: Where the ranges start, which ascend and do not touch, and where each ends; None: nowhere.
            writable: The same for keys that are written.
        """

    def run(self, engine: object, now: float) -> bool:
        """Run quick commands on an engine, up to one that is not quick; return whether there is one."""

    def command(self) -> tuple[int, bytes, bytes, int, bytes, int]:
        """Return kind, first and second argument, number, third argument and second number of the next command.

        What it does not take is empty, or 0.
        """

    def rows(self, keys: list[bytes], values: list[bytes]) -> bool:
        """Take the rows of the next command, a scan; return False, and change nothing, if there is no room."""

    def value(self, value: bytes) -> bool:
        """Take the value of the next command, a GET; return False, and change nothing, if there is no room."""

    def unmet(self, value: bytes) -> bool:
        """Take the present value, which does not meet the condition of the next command, as `value` does."""

    def count(self, count: int) -> None:
        """Take what the next command, a COUNT, gave."""

    def done(self) -> None:
        """Note that the next command, a write, was done."""

    def absent(self) -> None:
        """Note that there is no such key as the next command names."""

    def failed(self, error: bytes) -> bool:
        """Take the `CommandError` of the next command; return whether the reply has room for more."""

    def reply(self, server_id: int, revision: int, rest: bytes = b"") -> bytes:
        """Return the bytes of the reply, with what has run so far; ``rest`` are the bytes of further fields."""

def encode_request(batch: int, kinds: bytes | bytearray, arguments: list[bytes], numbers: list[int]) -> bytes: ...
def decode_whole(kinds: bytes | bytearray, message: bytes) -> Any: ...

# Return replies as this class of named tuples from now on, and as these what came of conditions.
def use_reply(reply: type[tuple[Any, ...]], met: object, unmet: Callable[[bytes | None], object], /) -> None: ...

# What rows of a lake say: the sums of rows are arrays of 64-bit numbers; see pequod_lake/contents.py.
def add_numbers(sums: Any, values: Any, name: int, nulls: Any, /) -> None: ...
def add_texts(sums: Any, ends: Any, data: Any, name: int, nulls: Any, /) -> None: ...
def content_sums(sums: Any, /) -> tuple[int, int]: ...

# How many entries the columns of a message have; see pequod_server/wire/tally.py.
def tally(message: bytes, layout: bytes, most: tuple[int, ...]) -> list[int] | None: ...

# Find nghttp2, at a path or where the system has it; return None, or why it is not there.
def load_nghttp2(path: str) -> str | None: ...

# One connection of HTTP/2; see pequod/native/http2/__init__.py.
class Session:
    unread_bytes: int
    unsent_bytes: int
    held_bytes: int
    header_bytes: int
    total_bytes: int
    stream_count: int
    hot_answered: int
    hot_count: int
    has_output: bool
    is_over: bool
    read_s: float
    is_calm: bool
    noted_bytes: int
    def __init__(self, message_bytes_max: int, header_bytes_max: int, streams_max: int, /) -> None: ...
    def receive(self, data: bytes | memoryview, /) -> list[tuple[int, int, Any] | None]: ...
    def events(self) -> list[tuple[int, int, Any] | None]: ...
    def output(self, most: int, /) -> bytes: ...
    def take(self, stream: int, /) -> bytes | tuple[bytes] | bool | int | None: ...
    def send(self, stream: int, message: bytes, /) -> int: ...
    def begin(self, stream: int, fields: list[tuple[bytes, bytes]], /) -> bool: ...
    def finish(self, stream: int, trailers: list[tuple[bytes, bytes]] | None, message: bytes | None, /) -> int: ...
    def ignore(self, stream: int, /) -> None: ...
    def is_half_closed(self, stream: int, /) -> bool: ...
    def when_drained(self, stream: int, /) -> bool: ...
    def reset(self, stream: int, code: int, /) -> None: ...
    def ping(self) -> None: ...
    def say_last(self, is_notice: bool, /) -> None: ...
    def close(self) -> None: ...
    def use_hot(self, calls: HotCalls, has_guard: bool, /) -> None: ...
    def run_hot(
        self,
        most: int,
        unsent_max: int,
        turn: tuple[float, bytes, bool, int | None, bool, KeyBounds | None, int],
        /,
    ) -> tuple[
        int,
        list[tuple[int, float, list[tuple[bytes, bytes]], bytes]] | None,
        list[int] | None,
        list[tuple[float, bytes, bytes | None, int]] | None,
        tuple[int, Batch] | None,
    ]: ...
    def attach(
        self,
        buffer: memoryview,
        turn: Callable[[], tuple[float, bytes, bool, int | None, bool, KeyBounds | None, int] | None] | None,
        write: Callable[[bytes], None],
        rest: Callable[[Any], None],
        most: int,
        unsent_max: int,
        output_max: int,
        /,
    ) -> None: ...
    def buffer(self, size: int, /) -> memoryview: ...
    def updated(self, size: int, /) -> None: ...
    def hand_over(self) -> None: ...
    def stranger(self) -> bytes | None: ...
    def admit(
        self,
        authorization: bytes,
        readable: KeyBounds | None,
        writable: KeyBounds | None,
        lease: Lease | None = ...,
        relay_as: bytes | None = ...,
        /,
    ) -> None: ...
    def waited_s(self, stream: int, /) -> float: ...
    def forget_rights(self) -> None: ...

# One connection of HTTP/2 from the client's side; see pequod/native/http2/client.py.
class ClientSession:
    unread_bytes: int
    unsent_bytes: int
    stream_count: int
    has_output: bool
    is_over: bool
    def __init__(
        self,
        message_bytes_max: int,
        header_bytes_max: int,
        window_bytes: int,
        authority: bytes,
        agent: bytes,
        is_secure: bool,
        /,
    ) -> None: ...
    def receive(self, data: bytes | memoryview, /) -> list[tuple[int, int, Any]]: ...
    def events(self) -> list[tuple[int, int, Any]]: ...
    def output(self, most: int, /) -> bytes: ...
    def open(
        self,
        path: bytes,
        timeout: bytes | None,
        metadata: list[tuple[bytes, bytes]] | None,
        message: bytes | None,
        is_unary: bool,
        /,
    ) -> int: ...
    def send(self, stream: int, message: bytes, /) -> int: ...
    def finish(self, stream: int, /) -> None: ...
    def take(self, stream: int, /) -> bytes | tuple[bytes, bytes] | bool | int | None: ...
    def when_emptied(self, stream: int, /) -> bool: ...
    def reset(self, stream: int, code: int, /) -> None: ...
    def ping(self) -> None: ...
    def terminate(self) -> None: ...
    def close(self) -> None: ...

# The hot calls of a server; see pequod/native/http2/hot_calls.hpp.
class Lease:
    commands: int
    keys: int
    bytes: int

class HotCalls:
    answered: int
    reads: int
    answered_s: float
    sample_every_s: float
    relayed_count: int
    passed: int
    returned: int
    def __init__(
        self,
        engine: HotEngine,
        server_id: int,
        rows_max: int,
        commands_max: int,
        reply_bytes_max: int,
        chunk_bytes: int,
        slow_s: float,
        is_new: Callable[[bytes], bool],
        remember: Callable[[bytes, bytes, int], None],
        /,
    ) -> None: ...
    def tallies(self) -> list[tuple[int, float, list[int]]]: ...
    def samples(self) -> list[tuple[bytes, bool, float, float]]: ...
    def batch_tallies(self) -> tuple[tuple[int, float, list[int]], list[int], int, list[int]]: ...
    def relay_by(
        self,
        owners: Owners = ...,
        tables: KeyBounds = ...,
        links: list[RelayLink | None] = ...,
        own: int = ...,
        home: int = ...,
        count_max: int = ...,
        has_guard: bool = ...,
        /,
    ) -> None: ...

# Which of some servers computes a key; see pequod/native/http2/owners.hpp.
class Owners:
    def __init__(
        self,
        servers: tuple[tuple[bytes, float], ...],
        placements: tuple[tuple[bytes, int], ...],
        spreads: tuple[tuple[bytes, int], ...],
        /,
    ) -> None: ...
    def group_of(self, key: bytes, /) -> bytes: ...
    def owner_of(self, key: bytes, /) -> int: ...
    def reader_of(self, key: bytes, own: int, /) -> int: ...

# Both ends of the way from one worker to another; see pequod/native/http2/relay.py.
class RelayLink:
    is_up: bool
    is_silent: bool
    def __init__(self, calls: HotCalls, /) -> None: ...
    def open(self, buffer: memoryview, write: Callable[[bytes], None], soon: Callable[[], None], /) -> None: ...
    def close(self) -> None: ...
    def buffer(self, size: int, /) -> memoryview: ...
    def updated(self, size: int, /) -> list[tuple[int, float, list[tuple[bytes, bytes]], bytes]] | None: ...
    def flush(self) -> None: ...
    def look(self, margin_s: float, silence_s: float, /) -> int: ...

class RelayEnd:
    token: bytes
    role: bytes
    def __init__(self, calls: HotCalls, /) -> None: ...
    def receive(self, data: bytes | memoryview, /) -> None: ...
    def run(self, turn: tuple[float, bytes, bool, int | None, bool, KeyBounds | None, int] | None, /) -> int: ...
    def reach(self, is_reached: bool, /) -> None: ...
    def admit(self, readable: KeyBounds | Literal[False] | None, /) -> None: ...
    def forget(self) -> None: ...
    def output(self) -> bytes: ...
    def take_slow(self) -> list[tuple[int, float, list[tuple[bytes, bytes]], bytes]] | None: ...
