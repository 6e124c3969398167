"""What the engine holds and did, as plain records."""

from __future__ import annotations

from dataclasses import dataclass

from pequod.engine.catalog import Catalog
from pequod.engine.joins import InstalledJoin
from pequod.engine.store import Store


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The client-written rows of one table."""

    keys: int
    key_bytes: int
    value_bytes: int
    #: Parts that the table is cut into; 0 if it is not cut.
    groups: int


@dataclass(frozen=True, slots=True)
class JoinStatistics:
    """What is materialised of one join, and what happened to it since it was installed."""

    #: Materialised rows and the bytes of their keys after the prefix; copied keys and values may be shared.
    rows: int
    key_bytes: int
    contexts: int
    status_ranges: int
    #: Frames that wait for changes of source keys, and changes noted but not applied yet.
    updaters: int
    log_entries: int
    #: Reads that found everything materialised and fresh.
    hits: int
    computed_ranges: int
    rows_computed: int
    log_applied: int
    invalidations: int
    not_a_number: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Everything of one engine."""

    revision: int
    #: Client-written keys that belong to no table.
    loose_keys: int
    #: By table name, without the delimiter; tables without client-written rows are left out.
    tables: dict[bytes, TableStatistics]
    #: By join name.
    joins: dict[str, JoinStatistics]


def collect(revision: int, store: Store, catalog: Catalog) -> Statistics:
    """Collect the statistics.

    Cost:
        O(computed rows), 20 ns or so for each.
    """
    return Statistics(
        revision=revision,
        loose_keys=len(store.loose),
        tables={
            name: TableStatistics(table.entry_count, table.key_bytes, table.value_bytes, table.group_count)
            for name, table in sorted(store.tables.items())
            if table.entry_count
        },
        joins={join.info.name: _collect_join(join) for join in catalog},
    )


def _collect_join(join: InstalledJoin) -> JoinStatistics:
    contexts = {status.context: None for status in join.coverage}
    counters = join.counters
    return JoinStatistics(
        rows=sum(len(context.rows) for context in contexts),
        key_bytes=sum(sum(map(len, keys)) for context in contexts for keys, _ in context.rows.leaves()),
        contexts=len(contexts),
        status_ranges=len(join.coverage),
        updaters=sum(len(context.updaters) - context.updaters_gone for context in contexts),
        log_entries=sum(len(context.log) for context in contexts),
        hits=counters.hits,
        computed_ranges=counters.computed_ranges,
        rows_computed=counters.rows_computed,
        log_applied=counters.log_applied,
        invalidations=counters.invalidations,
        not_a_number=join.aggregate.not_a_number,
    )
