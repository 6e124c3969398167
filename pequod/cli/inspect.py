"""join explain, explain and stats: what the server does and holds, as tables or as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target
from pequod.cli.data import First, Last, Prefix, key_range
from pequod.cli.freshness import in_session
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples
from pequod.cli.text import counted, escaped, json_bytes, json_line

if TYPE_CHECKING:
    from pequod.answers.explanations import CoverageExplanation, JoinExplanation
    from pequod.answers.statistics import JoinStatistics
    from pequod.calls import BackingStatistics, ServerStatistics

app: Final = typer.Typer()
#: The fields of a join's statistics that name some of its contexts.
_NAMED: Final = ("largest", "hottest")


def explain_join(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, as `pequod join list` prints it.")],
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Show how a join is evaluated and kept: its sources in the order of the plan.

    READS is the part of the source's keys that is known at this step, for a read that fixes the first slot of the
    output (as a scan of one timeline does). The step reads all keys with this prefix, or fewer if the bounds of the
    read narrow the slot that is named beside it. Below are the indexes over the fields of records, why values gave no
    rows, and notes: tables that nothing has, keys that match no pattern.
    """
    with in_session(target) as client:
        plan = client.explain_join(name)
    if json:
        found = {**asdict(plan), "notes": [note.text for note in plan.notes]}
        for source in found["sources"]:
            for misfit in source["misfits"]:
                misfit["key"] = json_bytes(misfit["key"])
        print(json_line(found))
    else:
        _print_plan(plan)


def _print_plan(plan: JoinExplanation) -> None:
    print(f"{plan.name}: {plan.text}")
    print(f"maintenance: {plan.maintenance}")
    print(f"contributions to an output key: {'one at most' if plan.is_unique else 'any number'}")
    print_table(
        ("source", "reads", "narrowed by", "binds", "upkeep", "computed by"),
        (
            (
                source.source,
                source.reads,
                source.narrowed_by or "",
                ", ".join(source.binds),
                source.upkeep,
                ", ".join(source.computed_by),
            )
            for source in plan.sources
        ),
    )
    for source in plan.sources:
        if source.index is not None:
            made = f"{source.index.rows} rows, {source.index.bytes} bytes" if source.index.is_made else "not made yet"
            print(f"index for {source.source}: {source.index.order}: {made}")
        for misfit in source.misfits:
            example = f", such as {escaped(misfit.key)}" if misfit.key else ""
            print(f"no row of {source.source}: {misfit.reason}, {misfit.count} times{example}")
    for warning in plan.warnings:
        print(f"warning: {warning}")
    for note in plan.notes:
        print(f"note: {note}")


@app.command(
    "explain",
    epilog=examples(
        "pequod explain --prefix 't|ann|'",
        "pequod explain 't|ann|0000000100' 't|ann}' --json",
    ),
)
def explain(
    first: First,
    last: Last = None,
    prefix: Prefix = False,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Show what a read of a range would find and would have to do; nothing is computed.

    For each join whose outputs may lie there: the parts that are valid, have a log to apply, are expired or absent.
    Then the parts of the range that were dropped a short while ago, when, and why. Notes say why there may be no rows:
    a table that nothing has, or keys that do not match the pattern of a join's source.
    """
    start, end = key_range(first, last, prefix)
    with in_session(target) as client:
        found = client.explain_range(start, end)
    if json:
        joins = [_coverage_data(coverage) for coverage in found.joins]
        last_key = None if end is None else json_bytes(end)
        print(
            json_line(
                {
                    "first": json_bytes(start),
                    "last": last_key,
                    "stored_keys": found.stored_keys,
                    "freshness": found.freshness,
                    "notes": [note.text for note in found.notes],
                    "joins": joins,
                    "dropped": [
                        asdict(one) | {"first": json_bytes(one.first), "last": json_bytes(one.last)}
                        for one in found.dropped
                    ],
                }
            )
        )
        return
    print(f"client-written keys: {found.stored_keys}")
    if found.freshness:
        print(f"freshness: {found.freshness}")
    for note in found.notes:
        print(f"note: {note}")
    for coverage in found.joins:
        print(f"\njoin {coverage.join}; the next read will {coverage.next_read}")
        print_table(
            ("first", "last", "state", "rows", "updaters", "log entries"),
            (
                (
                    escaped(part.first),
                    escaped(part.last),
                    part.state,
                    str(part.rows),
                    str(part.updaters),
                    str(part.log_entries),
                )
                for part in coverage.parts
            ),
        )
    if found.dropped:
        print("\ndropped, the latest first")
        print_table(
            ("join or table", "first", "last", "ago", "what for"),
            (
                (one.name, escaped(one.first), escaped(one.last), f"{one.ago_s:.1f} s", one.reason)
                for one in found.dropped
            ),
        )


def _coverage_data(coverage: CoverageExplanation) -> dict[str, object]:
    parts = [
        {**asdict(part), "first": json_bytes(part.first), "last": json_bytes(part.last)} for part in coverage.parts
    ]
    return {"join": coverage.join, "next_read": coverage.next_read, "parts": parts}


@app.command("stats", epilog=examples("pequod stats", "pequod stats --json"))
def stats(target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Show what the server holds and has done, by table and by join, and the state of the databases behind it."""
    with in_session(target) as client:
        collected = client.statistics()
    if json:
        tables = [{"table": json_bytes(name), **asdict(table)} for name, table in collected.tables.items()]
        joins = [{"join": name, **_join_data(join)} for name, join in collected.joins.items()]
        shown = {"revision": collected.revision, "loose_keys": collected.loose_keys, "tables": tables, "joins": joins}
        shown["memory"] = asdict(collected.memory)
        shown["databases"] = [asdict(one) for one in collected.databases]
        print(json_line(shown))
    else:
        _print_statistics(collected)


def _join_data(join: JoinStatistics) -> dict[str, object]:
    named = {
        which: [{**asdict(one), "prefix": json_bytes(one.prefix)} for one in getattr(join, which)] for which in _NAMED
    }
    return {**asdict(join), **named}


def backing_line(backing: BackingStatistics) -> str:
    """Return the state of a database in one line."""
    words = [f"database {backing.name}".rstrip() + f" {backing.state} ({backing.mode})"]
    if backing.position is not None:
        words.append(f"position {backing.position}")
    if backing.lag:
        words.append(f"lag {backing.lag}")
    if backing.age_s is not None:
        words.append(f"as of {backing.age_s:.1f} s ago")
    words.append(f"{backing.loaded_ranges} ranges loaded")
    if backing.error:
        words.append(f"{'error' if backing.state == 'down' else 'it was down, and is over'}: {backing.error}")
    return ", ".join(words)


def _print_statistics(collected: ServerStatistics) -> None:
    print(f"revision {collected.revision}; {counted(collected.loose_keys, 'key')} without a table")
    if collected.expiring_keys or collected.expired_keys:
        print(f"{counted(collected.expiring_keys, 'key')} with a deadline; expired so far: {collected.expired_keys}")
    for one in collected.databases:
        print(backing_line(one))
    memory = collected.memory
    limit = f" of {memory.limit_bytes}" if memory.limit_bytes else ""
    if memory.process_limit_bytes:
        limit += f" (process: {memory.process_bytes} of {memory.process_limit_bytes})"
    if not memory.total_bytes and not memory.process_bytes:
        limit += ", or this caller is not shown them"
    kinds = ("stored", "loaded", "row", "context", "updater", "log", "state", "watch", "index")
    print(f"memory: {memory.total_bytes} bytes{limit}; {memory.evictions} evictions, {memory.refusals} refusals")
    print("  " + ", ".join(f"{kind} {getattr(memory, f'{kind}_bytes')}" for kind in kinds))
    tables = {escaped(name): asdict(table) for name, table in collected.tables.items()}
    joins = {name: asdict(join) for name, join in collected.joins.items()}
    for record in joins.values():
        for which in _NAMED:
            del record[which]
    for title, records in (("table", tables), ("join", joins)):
        if records:
            print()
            columns = next(iter(records.values()))
            print_table(
                (title, *(column.replace("_", " ") for column in columns)),
                ((name, *map(_figure, record.values())) for name, record in records.items()),
            )

    for which in _NAMED:
        contexts = [(name, one) for name, join in collected.joins.items() for one in getattr(join, which)]
        if contexts:
            print(f"\n{which} contexts of each join")
            print_table(
                ("join", "prefix", "rows", "hits"),
                ((name, escaped(one.prefix), str(one.rows), str(one.hits)) for name, one in contexts),
            )


def _figure(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"
