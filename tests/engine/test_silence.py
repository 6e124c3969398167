"""A join or a range that shows nothing says why, from the keys that are there; where nothing is wrong it is silent."""

from typing import Any

import pytest
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine.shown import silence

TIMELINE = "t|<user>|<time:4>|<poster> = check {}|<user>|<poster> copy p|<poster>|<time>"


def engine_of(rows: dict[str, str], backed: tuple[bytes, ...] = ()) -> Engine:
    engine = Engine(backed=backed)
    for key, value in rows.items():
        engine.put(key.encode(), value.encode())
    return engine


def added(engine: Engine, text: str) -> list[str]:
    return [str(note) for join in engine.add_joins(parse(text)) for note in join.notes]


def explained(engine: Engine, name: str) -> list[str]:
    return [str(note) for note in engine.explain_join(name).notes]


def explained_range(engine: Engine, first: str, last: str) -> list[str]:
    return [str(note) for note in engine.explain_range(first.encode(), last.encode()).notes]


FOLLOWED = {"follow|ann|bob": "1", "p|bob|0100": "Hi"}


def test_a_misspelt_table_is_told_with_the_one_that_is_meant() -> None:
    engine = engine_of(FOLLOWED)
    absent, meant = "no key and no join has the table 'folow'", "is the table 'follow' meant?"
    assert added(engine, TIMELINE.format("folow")) == [f"{absent}; {meant}"]
    assert explained(engine, "t") == [absent, meant]
    assert explained_range(engine, "t|ann|", "t|ann}") == [f"join t: {absent}", f"join t: {meant}"]
    assert engine.scan(b"t|", b"t}").keys == []


def test_a_scan_of_a_table_that_nothing_has_is_told() -> None:
    engine = engine_of(FOLLOWED)
    absent, meant = "no key and no join has the table 'folow'", "is the table 'follow' meant?"
    assert explained_range(engine, "folow|ann|", "folow|ann}") == [absent, meant]
    assert explained_range(engine, "other|", "other}") == ["no key and no join has the table 'other'"]
    assert explained_range(engine, "follow|zoe|", "follow|zoe}") == []


def test_an_empty_store_makes_no_noise_when_joins_are_installed() -> None:
    engine = Engine()
    assert added(engine, TIMELINE.format("follow")) == []
    assert explained(engine, "t") == [f"no key and no join has the table '{name}'" for name in ("follow", "p")]


def test_tables_without_a_similar_one_are_silent_when_joins_are_installed() -> None:
    assert added(engine_of({"user|ann": "1", "x|1": ""}), TIMELINE.format("follow")) == []


def test_similar_names_of_outputs_make_no_noise_when_joins_are_installed() -> None:
    text = "stars|<id> = copy star|<id>; starry|<id> = copy star|<id>"
    assert added(Engine(), text) == []
    engine = Engine()
    added(engine, text)
    assert explained(engine, "stars") == [
        "no key and no join has the table 'star'",
        "is the table 'starry' meant?",
    ]


def test_keys_of_another_width_are_told_with_one_of_them() -> None:
    engine = engine_of({f"status|{number:010}": "ok" for number in range(300)})
    told = "0 of 300 keys of 'status|' match status|<id:12>: 'status|0000000000' has 10 bytes in the place of <id:12>"
    assert added(engine, "s|<id:12> = copy status|<id>") == [told]
    assert explained(engine, "s") == [told]


def test_keys_with_more_parts_than_the_pattern_are_told() -> None:
    engine = engine_of({"vote|bob|7|ann": "1"})
    told = "0 of 1 key of 'vote|' match vote|<author>|<id>: 'vote|bob|7|ann' has 4 parts, the pattern has 3"
    assert added(engine, "karma|<author> = count vote|<author>|<id>") == [told]


def test_keys_of_another_literal_are_told() -> None:
    engine = engine_of({"page|1|b": "1", "page|2|b": "1"})
    assert added(engine, "a|<id> = copy page|<id>|a") == [
        "0 of 2 keys of 'page|' match page|<id>|a: such as 'page|1|b'"
    ]


def test_a_prefix_that_no_key_has_is_told_when_it_is_explained() -> None:
    engine = engine_of({"s|bob|liz": "1"})
    assert added(engine, "a|<x> = copy s|ann|<x>") == []
    assert explained(engine, "a") == ["no key begins with 's|ann|'"]


def test_values_that_are_no_records_are_told() -> None:
    engine = engine_of({"vote|bob|1": "5", "vote|bob|2": "7"})
    told = (
        "0 of 2 values match `check vote|<author>|<id> with value = <n>`: the value is no JSON object, such as that of "
        "'vote|bob|1'; `with` and `as` look at the fields of objects"
    )
    text = "top|<n>|<author>|<id> = check vote|<author>|<id> with value = <n> copy vote|<author>|<id>"
    assert added(engine, text) == [told]
    assert explained(engine, "top") == [told]


def test_a_field_that_no_record_has_is_told() -> None:
    engine = engine_of({"item|1": '{"colour": "red"}'})
    told = "0 of 1 value match `copy item|<id> with color = <c>`: a field is missing, such as that of 'item|1'"
    assert added(engine, "c|<c>|<id> = copy item|<id> with color = <c>") == [told]


def test_conditions_that_hold_for_none_are_told_only_when_they_are_explained() -> None:
    engine = engine_of({"item|1": '{"stock": 0}'})
    assert added(engine, "in|<id> = copy item|<id> with stock > 0") == []
    assert explained(engine, "in") == ["0 of 1 value match `copy item|<id> with stock > 0`: the conditions do not hold"]
    engine.put(b"item|2", b'{"stock": 1}')
    assert explained(engine, "in") == []


def test_sources_with_a_key_that_matches_are_silent() -> None:
    engine = engine_of(FOLLOWED | {"p|bob|0100|odd": "", "follow|odd": ""})
    assert added(engine, TIMELINE.format("follow")) == []
    assert explained(engine, "t") == []
    assert explained_range(engine, "t|", "t}") == []


def test_computed_tables_are_there() -> None:
    engine = engine_of({"vote|bob|7": "1", "ranks|1": ""})
    text = "rank|<author> = count vote|<author>|<id>; page|<author> = copy rank|<author>"
    assert added(engine, text) == []
    assert explained(engine, "page") == []


def test_computed_keys_of_another_shape_are_told() -> None:
    engine = engine_of({"vote|bob|7": "1"})
    told = "no key of the table 'rank' matches rank|<author>|<id>: it has the keys rank|<author> of join rank"
    text = "rank|<author> = count vote|<author>|<id>; page|<author>|<id> = copy rank|<author>|<id>"
    assert added(engine, text) == [told]


def test_backed_tables_of_which_nothing_is_loaded_are_not_missing() -> None:
    engine = engine_of({"folow|ann|bob": "1"}, backed=(b"follow", b"p"))
    assert added(engine, TIMELINE.format("follow")) == []
    assert explained(engine, "t") == []
    assert explained_range(engine, "follow|", "follow}") == []
    engine.load(b"p|", b"p}", [(b"p|bob|00001", b"Hi")])
    assert explained(engine, "t") == [
        "0 of 1 key of 'p|' match p|<poster>|<time:4>: 'p|bob|00001' has 5 bytes in the place of <time:4>"
    ]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the rows that are taken from tables to be looked at."""
    found: list[int] = []
    sliced = silence.Silence._sample

    def sample(self: silence.Silence, *args: Any) -> Any:
        taken = sliced(self, *args)
        found.append(0 if taken is None else len(taken.rows.keys))
        return taken

    monkeypatch.setattr(silence.Silence, "_sample", sample)
    return found


def test_the_keys_that_are_looked_at_are_bounded_and_the_note_says_so(looks: list[int]) -> None:
    engine = engine_of({f"status|{number:010}": "ok" for number in range(5000)})
    (told,) = added(engine, "s|<id:12> = copy status|<id>")
    assert told.startswith("0 of 2000 keys of 'status|' (the first and the last 1000) match status|<id:12>: ")
    assert looks == [silence.KEYS_MAX]
    looks.clear()
    joins = "; ".join(f"s{number}|<id:12> = copy status|<id>" for number in range(40))
    told_of = added(engine, joins)
    assert 0 < len(told_of) < 40
    assert sum(looks) <= silence.CALL_KEYS_MAX


def test_a_key_that_matches_among_the_last_ones_is_seen() -> None:
    engine = engine_of({f"status|{number:010}": "ok" for number in range(5000)} | {"status|a00000000000": ""})
    assert added(engine, "s|<id:12> = copy status|<id>") == []


def test_large_values_are_not_parsed() -> None:
    engine = engine_of({"item|1": "[" * silence.VALUE_BYTES_MAX + "["})
    assert added(engine, "c|<c>|<id> = copy item|<id> with color = <c>") == []


COUNTED = "karma|<author> = count vote|<author>|<id>"
WAY_OUT = "To replace karma, drop it first: `pequod join drop karma`, or client.drop_join('karma')"
HIDDEN = f"nothing of it is shown: join karma, which was installed before, computes the same keys. {WAY_OUT}"


@pytest.mark.parametrize(
    "changed",
    [
        "karma|<author> = sum vote|<author>|<id>",
        "karma|<who> = count vote|<who>|<post>",
        "karma|<author> = snapshot 5 count vote|<author>|<id>",
        "karma|<author> = check user|<author> count vote|<author>|<id>",
        "karma|<author> = count vote|<author>|<id> with up = true",
    ],
)
def test_a_join_that_an_earlier_one_hides_is_warned_of_with_the_way_out(changed: str) -> None:
    engine = engine_of({"vote|bob|1": "3"})
    engine.add_joins(parse(COUNTED))
    (join,) = engine.add_joins(parse(changed))
    assert HIDDEN in join.warnings
    assert HIDDEN in engine.joins()[1].warnings
    assert HIDDEN in engine.explain_join("karma.2").warnings
    assert engine.joins()[0].warnings == ()
    engine.drop_join("karma")
    (again,) = engine.add_joins(parse(changed))
    assert HIDDEN not in again.warnings


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("karma|<author> = sum vote|<author>|<id>", COUNTED),
        ("karma|<author> = sum vote|<author>|<id>", "karma|<author> = max vote|<author>|<id>"),
        ("karma|<author> = check user|<author> count vote|<author>|<id>", COUNTED),
        ("karma|<author> = count vote|<author>|<id> with up = true", COUNTED),
        ("karma|<author> = snapshot 5 count vote|<author>|<id>", COUNTED),
        ("karma|<author> = count vote|<author>|<author>", COUNTED),
        (
            "karma|<author> = sum vote|<author>|<id> as up",
            "karma|<author> = sum vote|<author>|<id> as down",
        ),
    ],
)
def test_a_join_that_an_earlier_one_hides_in_part_is_warned_of_as_such(earlier: str, later: str) -> None:
    engine = Engine()
    engine.add_joins(parse(earlier))
    (join,) = engine.add_joins(parse(later))
    assert join.warnings == (
        f"join karma, which was installed before, has the same output: of a key of both, its value is shown. {WAY_OUT}",
    )


@pytest.mark.parametrize(
    "text",
    [
        # Two tables into one inbox; those that many follow, on each read; parts of one page.
        "in|<u>|<id> = copy mail|<u>|<id>; in|<u>|<id> = copy chat|<u>|<id>",
        "ct|<time:4>|<poster> = copy cp|<poster>|<time>;"
        + TIMELINE.format("s")
        + "; t|<user>|<time:4>|<poster> = pull copy ct|<time>|<poster> check s|<user>|<poster>",
        "page|<a>|<id>|a = copy article|<a>|<id>; page|<a>|<id>|r = copy article|<a>|<id>",
    ],
)
def test_joins_that_are_written_for_one_output_are_silent(text: str) -> None:
    assert [join.warnings for join in Engine().add_joins(parse(text))] == [()] * text.count("=")
