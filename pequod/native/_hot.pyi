# The native core, where it is built (pequod/native/); each name is the twin of a Python class or function.

from collections.abc import Iterator
from typing import Any

from pequod.answers.rows import Rows

INTERFACE: int

# The hash of the core's tables, with the secret of this process or with another one.
def hash_of(data: bytes, secret: tuple[int, int] = ..., /) -> int: ...

class SortedRows:
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes) -> bytes | None: ...
    def remove(self, key: bytes) -> bytes | None: ...
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
    cut_width: int

class HotRelations:
    table: HotTable
    readers: list[list[Any]]
    is_owned: bool
    is_watched: bool

class HotLedger:
    entry_count: int
    entry_count_max: int
    row_bytes: int
    updater_bytes: int
    log_bytes: int
    weigh_at: int

class HotEngine:
    revision: int
    ledger: HotLedger

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
    counters: Counters
    @property
    def held_count(self) -> int: ...
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

class QuickLens:
    def __init__(
        self,
        parts: tuple[bytes | int | None, ...],
        fields: tuple[tuple[str, int | None], ...],
        plain: tuple[bytes | int, ...],
        text_bytes_max: int,
        /,
    ) -> None: ...
    def look(self, key: bytes, value: bytes, parse: Any, /) -> tuple[bytes, dict[str, Any]] | None: ...
    def look_all(
        self, keys: list[bytes], values: list[bytes], parse: Any, give: Any, /
    ) -> tuple[list[bytes], list[bytes], list[int]]: ...

PARTS_MAX: int

class Route:
    is_followed: bool
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

class Kernel:
    is_quiet: bool
    def __init__(
        self,
        *,
        selecting: HotTable,
        copied: HotTable,
        checks: Frames,
        copies: Frames,
        ledger: HotLedger,
        before: bytes,
        bound_width: int,
        after: bytes,
        tail_width: int,
        ending: tuple[bytes | None, ...],
        copied_cut: int,
        entry_bytes: int,
        tail_bytes: int,
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
def put_loaded(engine: HotEngine, key: bytes, value: bytes) -> bool | None: ...

class Ends:
    def __len__(self) -> int: ...
    def get(self, last: bytes) -> Hot | None: ...
    def put(self, last: bytes, context: Hot, table: HotTable) -> None: ...
    def remove(self, last: bytes) -> None: ...

class Batch:
    index: int
    argument_at: int
    number_at: int
    room: int
    freshness: bytes
    trace_parent: bytes
    trace_state: bytes
    row_count: int
    @property
    def kinds(self) -> bytes: ...
    @staticmethod
    def parse(message: bytes, commands_max: int, rows_max: int, piece_bytes_max: int) -> Batch | None: ...
    def is_within(
        self,
        readable: tuple[list[bytes], list[bytes | None]],
        writable: tuple[list[bytes], list[bytes | None]],
        /,
    ) -> bool: ...
    def run(self, engine: object, now: float) -> bool: ...
    def command(self) -> tuple[int, bytes, bytes, int]: ...
    def first_argument(self) -> tuple[bytes, ...]: ...
    def rows(self, keys: list[bytes], values: list[bytes]) -> bool: ...
    def value(self, value: bytes) -> bool: ...
    def count(self, count: int) -> None: ...
    def done(self) -> None: ...
    def absent(self) -> None: ...
    def failed(self, error: bytes) -> bool: ...
    def reply(self, server_id: int, revision: int, rest: bytes = b"") -> bytes: ...

def encode_request(batch: int, kinds: bytes | bytearray, arguments: list[bytes], numbers: list[int]) -> bytes: ...
def decode_whole(kinds: bytes | bytearray, message: bytes) -> Any: ...

# Return replies as this class of named tuples from now on.
def use_reply(reply: type[tuple[Any, ...]]) -> None: ...

# How many entries the columns of a message have; see pequod_server/wire/tally.py.
def tally(message: bytes, layout: bytes, most: tuple[int, ...]) -> list[int] | None: ...
