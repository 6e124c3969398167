"""What an engine holds and has done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The client-written rows of one table."""

    keys: int
    key_bytes: int
    value_bytes: int
    #: The number of groups; 0 if the table is not cut.
    groups: int


@dataclass(frozen=True, slots=True)
class ContextStatistics:
    """One context: what is materialised of a join under a prefix, such as a single timeline."""

    prefix: bytes
    rows: int
    #: Reads that found everything there and fresh, since it was materialised.
    hits: int


@dataclass(frozen=True, slots=True)
class JoinStatistics:
    """The materialised rows of one join, and its events since it was installed."""

    #: Materialised rows and the bytes of their keys after the prefix; copied keys and values may be shared.
    rows: int
    key_bytes: int
    contexts: int
    status_ranges: int
    #: Frames that wait for changes of source keys, and changes noted but not applied yet.
    updaters: int
    log_entries: int
    #: The age of the oldest materialised rows that are not fresh: the time since the first change that a context waits
    #: to apply, or since a snapshot was taken. 0 if everything is fresh.
    age_s: float
    #: Reads that found everything materialised and fresh.
    hits: int
    computed_ranges: int
    rows_computed: int
    log_applied: int
    invalidations: int
    not_a_number: int
    #: Values that were looked at and gave no row: they are no records, or a field is missing or does not fit.
    misfits: int = 0
    #: Some of the contexts: those of the most rows, and those of the most hits; the first has the most.
    largest: tuple[ContextStatistics, ...] = ()
    hottest: tuple[ContextStatistics, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """The bytes of the engine by kind; estimates, except for the limit and the counters."""

    #: 0: no limit.
    limit_bytes: int = 0
    total_bytes: int = 0
    #: Client-written keys and values, with their tables and groups.
    stored_bytes: int = 0
    #: Computed rows; values that they share with their sources are counted there.
    row_bytes: int = 0
    context_bytes: int = 0
    updater_bytes: int = 0
    log_bytes: int = 0
    state_bytes: int = 0
    watch_bytes: int = 0
    #: Loaded rows of the database's tables.
    loaded_bytes: int = 0
    #: Contexts and loaded parts that were evicted, and calls that were refused because memory was short.
    evictions: int = 0
    refusals: int = 0
    #: The size of the process a moment ago, and its limit; 0: the process has no limit. The limit of the data is what
    #: the rest of the process leaves of that.
    process_bytes: int = 0
    process_limit_bytes: int = 0
    #: Indexes over the fields of records.
    index_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Everything of one engine."""

    revision: int
    #: Client-written keys without a table.
    loose_keys: int
    #: By table name, without the delimiter; tables without client-written rows are left out.
    tables: dict[bytes, TableStatistics]
    #: By join name.
    joins: dict[str, JoinStatistics]
    memory: MemoryStatistics
    #: Keys with a deadline, and keys that have expired so far.
    expiring_keys: int
    expired_keys: int
