"""What an engine has met before a case begins: other joins over the same tables, most of them dropped, and other rows.

    y0|<x> = count p|<x>|<y>            p is cut after its first delimiter, for good
    drop y0
    t|<x>|<y:1>|<z:2> = check s|<x>|<z> copy p|<z>|<y>      the case: its keys of p may hold a delimiter in <z>

A table keeps what the first join that read it has made of it, and so do engines in use: joins come and go for months.
So each walk begins with steps drawn here. A script of them is replayed, shrunk and printed, as one of all other steps;
that would not be so if an engine were kept from one case to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pequod.engine import Engine, JoinSpec, Operator, Pattern, Slot, Source
from tests.engine.draw import BASE_TABLES, OUTPUT_TABLES, draw_value_of, table_of
from tests.engine.draw_records import draw_value
from tests.engine.walker import Step


def draw_earlier(random: Random, specs: Sequence[JoinSpec]) -> list[Step]:
    """Draw what came before: joins that cut tables in many ways, rows, a read, and that most of it has gone.

    Args:
        specs: The joins of the case, whose tables were read by the others too.
    """
    tables = sorted({table_of(source.pattern.literal_prefix) for spec in specs for source in spec.sources})
    tables = [table for table in tables if table not in OUTPUT_TABLES] or BASE_TABLES
    cut = random.sample(tables, random.randint(1, len(tables)))
    joins = [draw_cutting_join(random, table, number) for number, table in enumerate(cut)]
    steps = [Step("add", (join,)) for join in joins]
    steps += draw_rows(random, joins, random.choice([0, 4, 8]))
    if random.random() < 0.7:
        steps.append(Step("scan", (b"y", b"z", None, False)))
    steps += [Step("drop", (0,)) for _ in joins if random.random() < 0.8]
    if random.random() < 0.5:
        table = random.choice(cut)
        steps.append(Step("remove_range", (table + b"|", table + b"}", None)))
    return steps


def draw_rows(random: Random, specs: Sequence[JoinSpec], count: int) -> list[Step]:
    """Draw rows that joins read, as one step for each table; slots have few values, so that rows find each other."""
    sources = [source.pattern for spec in specs for source in spec.sources]
    patterns = [pattern for pattern in sources if table_of(pattern.literal_prefix) not in OUTPUT_TABLES]
    values = {slot: [draw_value_of(random, slot) for _ in range(3)] for each in patterns for slot in each.slots()}
    rows: dict[bytes, dict[bytes, bytes]] = {}
    for _ in range(count if patterns else 0):
        chosen = {slot: random.choice(drawn) for slot, drawn in values.items()}
        parts = random.choice(patterns).parts
        key = b"".join([part if isinstance(part, bytes) else chosen[part] for part in parts])
        rows.setdefault(table_of(key), {})[key] = draw_value(random, [*specs])
    return [Step("put_all", (tuple(sorted(found.items())),)) for found in rows.values()]


def draw_beginning(random: Random, specs: Sequence[JoinSpec]) -> list[Step]:
    """Draw rows for joins that were just added, and a look at all that they make of these."""
    return [*draw_rows(random, specs, random.choice([0, 12, 24])), Step("look_over")]


def live_before(random: Random, engine: Engine, tables: Sequence[bytes]) -> None:
    """Have joins that cut most of some tables come to an engine, and mostly go."""
    for number, table in enumerate(tables):
        if random.random() < 0.3:
            continue
        engine.add_joins([draw_cutting_join(random, table, number)])
        if random.random() < 0.8:
            engine.drop_join(engine.joins()[0].name)


def draw_cutting_join(random: Random, table: bytes, number: int) -> JoinSpec:
    """Draw a join that reads a table by its first slot, after which the table is cut, unless it is cut already."""
    first, rest = Slot("x", random.choice([None, None, None, 1, 2, 3])), Slot("y", random.choice([None, None, 1]))
    source = Source(random.choice([Operator.COUNT, Operator.MAX]), Pattern((table + b"|", first, b"|", rest)))
    return JoinSpec(Pattern((b"y%d|" % number, first)), (source,))
