"""A differential random walk: the engine and the naive model take the same steps and must agree after each.

    python -m tests.engine.random_walk --seconds 60 --seed 1

Much quicker than the Hypothesis machine, which draws from the same alphabets. A difference is shrunk by leaving out
steps, and printed as steps that `replay` takes again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from random import Random

from pequod.engine import JoinSpec, Operator, Push
from pequod.engine.base import presence, rows
from pequod.engine.joins import capped, indexes
from pequod.engine.reads import building, execution, reach
from pequod.engine.writes import changes
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, Condition, IfValue
from tests.engine.draw import (
    BASE_TABLES,
    draw_bound,
    draw_join,
    draw_kept_timeline,
    draw_key,
    draw_range,
    draw_timeline,
)
from tests.engine.draw_composed import draw_composed_join, draw_searching_composed_join
from tests.engine.draw_rankings import draw_ranking
from tests.engine.draw_records import draw_record_join, draw_searching_join, draw_value
from tests.engine.draw_transactions import draw_transaction
from tests.engine.earlier import draw_beginning, draw_earlier
from tests.engine.replacing import draw_replacing
from tests.engine.walker import Step, Walker


def draw_limit(random: Random) -> int:
    """Draw a limit of memory, of the order of what a walk takes: a table alone has 3 KB."""
    return random.choice([12_000, 16_000, 20_000, 24_000, 28_000, 40_000, 100_000])


def draw_step(random: Random, walker: Walker, *, snapshots: bool, limits: bool = False) -> Step:
    """Draw the next step."""
    specs, base = walker.specs, walker.model.base
    chance = random.random()
    if chance < 0.3:
        return Step("put", (draw_key(random, specs), draw_value(random, specs)))
    if chance < 0.355:
        return draw_write_if(random, walker) if chance < 0.335 else draw_add(random, walker)
    if chance < 0.375:
        return Step("transact", (draw_transaction(random, specs, base),))
    if chance < 0.4:
        rows = tuple((draw_key(random, specs), draw_value(random, specs)) for _ in range(random.randrange(1, 8)))
        return Step("put_all", (rows if random.random() < 0.3 else tuple(sorted(dict(rows).items())),))
    if chance < 0.49:
        keys = sorted(base)
        return Step("remove", (random.choice(keys) if keys else b"s|a",))
    if walker.backed and random.random() < 0.15:
        kind = random.choice(["forget", "forget", "load"])
        if random.random() < 0.5:
            key = draw_key(random, specs)
            return Step(kind, (key, key + b"\0"))
        return Step(kind, draw_range(random, specs))
    if random.random() < (0.4 if walker.is_backfilling else 0.12):
        return draw_backfill_step(random, walker)
    if walker.is_replacing and random.random() < 0.25:
        return draw_replacement_step(random, walker, snapshots=snapshots)
    if random.random() < 0.15 and any(spec.has_records for spec in specs):
        return Step("index", (*draw_range(random, specs), random.choice([1, 1, 2, 3])))
    if chance < 0.5:
        return Step("remove_range", (*draw_range(random, specs), random.choice([None, 1, 2])))
    if chance < 0.54:
        return Step("evict", (random.randrange(1, 3),))
    if chance < 0.55:
        return Step("invalidate", draw_range(random, specs))
    if chance < 0.555 and limits:
        return Step("limit", (draw_limit(random),))
    if chance < 0.58:
        draw = draw_record_join if any(spec.has_records for spec in specs) else draw_join
        if any(spec.is_composed for spec in specs):
            draw = draw_composed_join
        return Step("add", (draw(random, snapshots=snapshots),))
    if chance < 0.6:
        return Step("drop", (random.randrange(10),))
    if chance < 0.62:
        return draw_replacement_step(random, walker, snapshots=snapshots)
    if chance < 0.64:
        return Step("wait", (random.choice([0.5, 1.0, 3.0]),))
    if chance < 0.66:
        return Step("watch", draw_range(random, specs))
    if chance < 0.72:
        return Step("settle", (random.randrange(10),))
    if chance < 0.78:
        return Step("get", (draw_bound(random, specs),))
    if chance < 0.88:
        return Step("again", (random.randrange(10),))
    if any(spec.keep is not None for spec in specs) and random.random() < 0.3:
        return Step("check", (random.randrange(100), random.randrange(100), random.random() < 0.3))
    first, last = draw_range(random, specs)
    return Step("scan", (first, last, random.choice([None] * 4 + [1, 2]), random.random() < 0.15))


def draw_write_if(random: Random, walker: Walker) -> Step:
    """Draw a write under a condition, of a key that is there half of the time, and often of its value."""
    specs, base = walker.specs, walker.model.base
    key = random.choice(sorted(base)) if base and random.random() < 0.5 else draw_key(random, specs)
    expected = base.get(key, b"1") if random.random() < 0.7 else draw_value(random, specs)
    conditions: list[Condition] = [IF_ABSENT, IF_PRESENT, IfValue(expected), IfValue(expected)]
    return Step(
        "write_if", (key, draw_value(random, specs) if random.random() < 0.7 else None, random.choice(conditions))
    )


def draw_add(random: Random, walker: Walker) -> Step:
    """Draw an addition, to a key that is there half of the time."""
    specs, base = walker.specs, walker.model.base
    key = random.choice(sorted(base)) if base and random.random() < 0.5 else draw_key(random, specs)
    return Step("add_to", (key, random.choice([b"1", b"-1", b"+02", b"0", b"0.5", b"-.25", b"9" * 18, b"9" * 64])))


def draw_backfill_step(random: Random, walker: Walker) -> Step:
    """Draw a step of a backfill."""
    chance = random.random()
    if walker.backfills and chance < 0.65:
        return Step("load_pieces", (random.randrange(1 << 30),))
    if chance > 0.95:
        return Step("end", (random.randrange(3),))
    first, last = draw_range(random, walker.specs) if random.random() < 0.3 else (b"", None)
    level = random.choice([None, None, None, 0, 1, 2])
    return Step("begin", (random.randrange(10), first, last, level, random.choice([1 << 20, 1 << 20, 1000])))


def draw_replacement_step(random: Random, walker: Walker, *, snapshots: bool) -> Step:
    """Draw a step of a replacement: its beginning, or a few steps or all of the rest; seldom its end."""
    if walker.engine.replacement is None and random.random() < 0.7:
        return Step("replace", draw_replacing(random, walker.specs, snapshots=snapshots))
    if random.random() < 0.1:
        return Step("end_replacement")
    return Step("replace_some", (random.choice([0, 1, 2, 5]),))


def draw_fit_join(random: Random, *, records: bool = False, composed: bool = False) -> JoinSpec:
    """Draw a join that can be backfilled; often the timeline, which has loops of its own."""
    if not (records or composed) and random.random() < 0.3:
        return random.choice([draw_timeline, draw_kept_timeline])(random)
    while True:
        spec = (draw_composed_join if composed else draw_record_join if records else draw_join)(random)
        tables = {source.pattern.literal_prefix.partition(b"|")[0] for source in spec.sources}
        is_last = spec.sources[-1].operator not in (Operator.CHECK, Operator.OPTIONAL)
        if is_last and spec.maintenance == Push() and tables <= {*BASE_TABLES}:
            return spec


def walk(
    seed: int,
    step_count: int,
    *,
    backed: bool = False,
    backfills: bool = False,
    records: bool = False,
    searched: bool = False,
    replacements: bool = False,
    composed: bool = False,
    taken: list[Step] | None = None,
) -> list[Step] | None:
    """Walk ``step_count`` steps, on an engine that has met others before: see `earlier`.

    Args:
        taken: The steps are added to it.

    Returns:
        The shortest found script of a difference, None if there was none.
    """
    random = Random(seed)
    snapshots = random.random() < 0.2
    limits = random.random() < 0.5
    with small_limits(random):
        walker = Walker()
        walker.is_backfilling = backfills
        walker.is_replacing = replacements
        script = [Step("add", (draw_join(random, snapshots=snapshots),)) for _ in range(random.choice([1, 1, 2, 3]))]
        if searched:
            draw = draw_searching_composed_join if composed else draw_searching_join
            script = [Step("add", (draw(random, snapshots=snapshots),)) for _ in script]
        elif backfills:
            draws = range(random.choice([1, 1, 2]))
            script = [Step("add", (draw_fit_join(random, records=records, composed=composed),)) for _ in draws]
        elif composed:
            script = [Step("add", (draw_composed_join(random, snapshots=snapshots),)) for _ in script]
            if random.random() < 0.3:
                script += [Step("add", (draw_record_join(random),))]
        elif records:
            script = [Step("add", (draw_record_join(random, snapshots=snapshots),)) for _ in script]
            script += [Step("add", (draw_join(random),)) for _ in range(random.choice([0, 0, 1]))]
            if random.random() < 0.4:
                ranking = [Step("add", (spec,)) for spec in draw_ranking(random, snapshots=snapshots)]
                script = ranking if random.random() < 0.7 else ranking + script
        specs = [spec for step in script for spec in step.arguments if isinstance(spec, JoinSpec)]
        script = [*draw_earlier(random, specs), *script, *draw_beginning(random, specs)]
        if backed:
            kind = "back_searched" if searched else "back"
            script.insert(0, Step(kind, tuple(random.sample(BASE_TABLES, random.choice([1, 2, 3])))))
        if limits:
            script.append(Step("limit", (draw_limit(random),)))
        try:
            for step in script:
                walker.take(step)
            for _ in range(step_count):
                script.append(draw_step(random, walker, snapshots=snapshots, limits=limits))
                walker.take(script[-1])
            script.append(Step("look_over"))
            walker.take(script[-1])
            if taken is not None:
                taken += script
        except Exception as error:
            return shrink(script, type(error))
    return None


class small_limits:  # noqa: N801 - used like a function
    """Make leaves, logs, loaded parts and slices small at random, so that splits and overflows happen."""

    def __init__(self, random: Random) -> None:
        self._leaf, self.log_max = random.choice([2, 4, 1024]), random.choice([2, 10_000, 10_000])
        self._part, self._at_a_time = random.choice([1, 2, 512]), random.choice([0, 1, 8192])
        self._slice = random.choice([1, 2, 3])
        self._keys = random.choice([1, 2, 64])
        self._spares = random.choice([1, 1, 2, 8])
        self._built = random.choice([1, 2, 512])

    def __enter__(self) -> None:
        self._leaf_before = rows.set_leaf_max(self._leaf)
        self._before = changes.LOG_MAX, presence.PART_ROWS_MAX, execution.ROWS_AT_A_TIME
        self._slice_before, indexes.SLICE_ROWS = indexes.SLICE_ROWS, self._slice
        self._keys_before, reach.SLICE_KEYS = reach.SLICE_KEYS, self._keys
        self._spares_before, capped.SPARES_MIN = capped.SPARES_MIN, self._spares
        self._built_before, building.ROWS_A_STEP = building.ROWS_A_STEP, self._built
        changes.LOG_MAX = self.log_max
        presence.PART_ROWS_MAX, execution.ROWS_AT_A_TIME = self._part, self._at_a_time

    def __exit__(self, *_: object) -> None:
        rows.set_leaf_max(self._leaf_before)
        changes.LOG_MAX, presence.PART_ROWS_MAX, execution.ROWS_AT_A_TIME = self._before
        indexes.SLICE_ROWS = self._slice_before
        reach.SLICE_KEYS = self._keys_before
        capped.SPARES_MIN = self._spares_before
        building.ROWS_A_STEP = self._built_before


def replay(script: Sequence[Step]) -> None:
    """Take all steps of a script; raises where the engine is wrong."""
    walker = Walker()
    for step in script:
        walker.take(step)


def shrink(script: list[Step], kind: type[Exception]) -> list[Step]:
    """Leave out steps as long as the script still fails in the same way."""
    shorter = True
    while shorter:
        shorter = False
        for at in reversed(range(len(script))):
            without = script[:at] + script[at + 1 :]
            try:
                replay(without)
            except kind:
                script, shorter = without, True
            except Exception:
                continue
    return script


def describe(step: Step) -> str:
    """Print a step as it can be pasted, with joins in the language."""
    shown = [str(part) if isinstance(part, JoinSpec) else repr(part) for part in step.arguments]
    return f"{step.kind:7} {'  '.join(shown)}"


def main() -> int:
    """Walk from consecutive seeds for some seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--backed", action="store_true", help="with a database behind some tables")
    parser.add_argument("--backfills", action="store_true", help="with joins that can be backfilled, and backfills")
    parser.add_argument("--records", action="store_true", help="with joins over the fields of records")
    parser.add_argument("--composed", action="store_true", help="with values that have fields of several sources")
    parser.add_argument("--searched", action="store_true", help="with a database that can be asked by fields")
    parser.add_argument("--replacements", action="store_true", help="with many joins that take the places of others")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    seed = options.seed
    while time.monotonic() < end:
        script = walk(
            seed,
            options.steps,
            backed=options.backed or options.searched,
            backfills=options.backfills,
            records=options.records or options.searched,
            searched=options.searched,
            replacements=options.replacements,
            composed=options.composed,
        )
        if script is not None:
            print(f"seed {seed}:", *map(describe, script), sep="\n")
            replay(script)
            return 1
        seed += 1
    print(f"{seed - options.seed} walks of {options.steps} steps, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
