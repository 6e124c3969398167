"""What a reader may rely on, one law a test."""

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, UnknownJoinError
from tests.engine.joins import CELEBRITY, NEWP, TIMELINE, engine_with, put_all, scan


def test_a_scan_after_a_put_sees_the_join() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"s|ann|bob": "1", "p|bob|0100": "Hi"})
    assert scan(engine, "t|ann|") == {"t|ann|0100|bob": "Hi"}
    put_all(engine, {"p|bob|0120": "again", "p|liz|0110": "not followed"})
    assert scan(engine, "t|ann|") == {"t|ann|0100|bob": "Hi", "t|ann|0120|bob": "again"}


def test_reads_to_the_end_of_a_timeline_see_what_comes_to_it_by_other_ways() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"s|ann|bob": "1", "p|bob|0100": "Hi"})

    def end() -> dict[str, str]:
        # The first read computes the timeline, the second finds it, later ones know where it is.
        reads = [scan(engine, "t|ann|0050", "t|ann}") for _ in range(4)]
        assert all(read == reads[0] for read in reads)
        return reads[0]

    assert end() == {"t|ann|0100|bob": "Hi"}
    engine.put(b"t|ann|note", b"mine")
    assert end() == {"t|ann|0100|bob": "Hi", "t|ann|note": "mine"}
    engine.remove(b"t|ann|note")
    assert end() == {"t|ann|0100|bob": "Hi"}
    engine.add_joins(parse("t|<user>|<time:4>|like|<poster> = check s|<user>|<poster> copy like|<poster>|<time:4>"))
    engine.put(b"like|bob|0200", b"+")
    assert end() == {"t|ann|0100|bob": "Hi", "t|ann|0200|like|bob": "+"}
    engine.drop_join("t.2")
    assert end() == {"t|ann|0100|bob": "Hi"}
    assert engine.invalidate(b"t|ann|", b"t|ann}") == 1
    engine.put(b"p|bob|0300", b"later")
    assert end() == {"t|ann|0100|bob": "Hi", "t|ann|0300|bob": "later"}
    assert list(engine.scan(b"t|ann|0050", b"t|ann}", limit=1).keys) == [b"t|ann|0100|bob"]
    assert list(engine.scan(b"t|ann|0050", b"t|ann}", limit=1, reverse=True).keys) == [b"t|ann|0300|bob"]
    assert engine.scan(b"t|ann}", b"t|ann}").keys == []
    engine._check()


def test_a_value_is_shared_not_copied() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"s|ann|bob": "1", "s|liz|bob": "1"})
    scan(engine, "t|ann|")
    scan(engine, "t|liz|")
    value = b"a value that is not interned"
    engine.put(b"p|bob|0100", value)
    assert engine.scan(b"t|ann|", b"t|ann}").values[0] is engine.scan(b"t|liz|", b"t|liz}").values[0] is value


def test_a_bound_reaching_past_the_first_slot_that_differs_loses_nothing() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"s|ann|cat": "1", "p|cat|0150": "in between"})
    assert scan(engine, "t|ann|0100|bob", "t|ann|0200|bob") == {"t|ann|0150|cat": "in between"}


def test_users_whose_names_are_prefixes_of_others_keep_their_timelines() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"s|ann|bob": "1", "s|anna|bob": "1", "s|an|bob": "1", "p|bob|0100": "Hi"})
    everybody = {"t|an|0100|bob", "t|ann|0100|bob", "t|anna|0100|bob"}
    for user in ("ann", "anna", "an"):
        assert scan(engine, f"t|{user}|") == {f"t|{user}|0100|bob": "Hi"}
    assert set(scan(engine, "t|an", "t|b")) == everybody
    assert list(scan(engine, "t|anna|", "t|ann}")) == ["t|anna|0100|bob", "t|ann|0100|bob"]


def test_two_ranges_that_touch_one_group_do_not_count_twice() -> None:
    engine = engine_with("n|<a>|<b> = count x|<a>|<b>|<c>")
    put_all(engine, {"x|1|1|1": "", "x|1|1|2": "", "x|1|2|1": ""})
    assert scan(engine, "n|1|", "n|1|1a") == {"n|1|1": "2"}
    assert scan(engine, "n|1|") == {"n|1|1": "2", "n|1|2": "1"}
    put_all(engine, {"x|1|1|3": ""})
    assert scan(engine, "n|") == {"n|1|1": "3", "n|1|2": "1"}


def test_removing_a_check_key_takes_its_contributions_out_of_an_aggregate() -> None:
    engine = engine_with("total|<user> = check s|<user>|<item> sum price|<item>")
    put_all(engine, {"s|ann|a": "", "s|ann|b": "", "price|a": "1.5", "price|b": "2"})
    assert scan(engine, "total|ann", "total|ann~") == {"total|ann": "3.5"}
    engine.remove(b"s|ann|b")
    assert scan(engine, "total|ann", "total|ann~") == {"total|ann": "1.5"}
    engine.remove(b"s|ann|a")
    assert scan(engine, "total|ann", "total|ann~") == {}


def test_a_mean_is_of_the_exact_sum_whatever_came_and_went() -> None:
    engine = engine_with("mean|<a> = avg v|<a>|<b>")
    put_all(engine, {"v|x|1": "0.1", "v|x|2": "0.2", "v|x|3": "many", "v|y|1": "1", "v|y|2": "1", "v|y|3": "-4"})
    expected = {"mean|x": "0.15", "mean|y": "-0." + "6" * 33 + "7"}
    assert scan(engine, "mean|", "mean}") == expected
    put_all(engine, {"v|x|4": "9" * 40, "v|y|4": "1" + "0" * 62})
    assert scan(engine, "mean|", "mean}") == {"mean|x": "3" * 34 + "0" * 6, "mean|y": "25" + "0" * 60}
    put_all(engine, {"v|x|4": "none", "v|y|4": "-"})
    assert scan(engine, "mean|", "mean}") == expected
    for number in (1, 2):
        engine.remove(b"v|x|%d" % number)
    assert scan(engine, "mean|", "mean}") == {"mean|y": expected["mean|y"]}


@pytest.mark.parametrize(("operator", "kept"), [("min", ["-3", "2", "10", "x"]), ("max", ["x", "10", "2", "-3"])])
def test_an_extreme_survives_the_removal_of_the_extreme(operator: str, kept: list[str]) -> None:
    engine = engine_with(f"e|<a> = {operator} v|<a>|<b>")
    for number, value in enumerate(kept):
        put_all(engine, {f"v|1|{number}": value})
    for number, value in enumerate(kept):
        assert scan(engine, "e|1", "e|2") == {"e|1": value}
        engine.remove(f"v|1|{number}".encode())
    assert scan(engine, "e|1", "e|2") == {}


def test_numbers_come_before_text_and_compare_as_numbers() -> None:
    engine = engine_with("lo|<a> = min v|<a>|<b>; hi|<a> = max v|<a>|<b>")
    put_all(engine, {"v|1|1": "9", "v|1|2": "10", "v|1|3": "1e9"})
    assert engine.get(b"lo|1") == b"9"
    assert engine.get(b"hi|1") == b"1e9", "an exponent makes it text"
    engine.remove(b"v|1|3")
    assert engine.get(b"hi|1") == b"10"
    put_all(engine, {"v|1|4": "010"})
    assert engine.get(b"hi|1") == b"10", "equal numbers go by their bytes"


def test_a_check_key_removed_and_put_again_before_the_next_read_changes_nothing() -> None:
    engine = engine_with("n|<user> = check s|<user>|<poster> count p|<poster>|<time>")
    put_all(engine, {"s|ann|bob": "1", "p|bob|1": "", "p|bob|2": ""})
    assert engine.get(b"n|ann") == b"2"
    engine.remove(b"s|ann|bob")
    engine.put(b"p|bob|3", b"")
    engine.put(b"s|ann|bob", b"other value")
    assert engine.get(b"n|ann") == b"3"
    engine.put(b"s|ann|liz", b"1")
    engine.remove(b"s|ann|liz")
    assert engine.get(b"n|ann") == b"3"


def test_an_output_goes_only_with_its_last_derivation() -> None:
    engine = engine_with("feed|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
    put_all(engine, {"s|ann|bob": "", "s|liz|bob": "", "p|bob|1": "Hi"})
    assert scan(engine, "feed|") == {"feed|1|bob": "Hi"}
    engine.remove(b"s|ann|bob")
    assert scan(engine, "feed|") == {"feed|1|bob": "Hi"}
    engine.put(b"p|bob|1", b"changed")
    engine.remove(b"s|liz|bob")
    assert scan(engine, "feed|") == {}


def test_a_slot_shared_by_two_sources_is_compared_on_eager_updates() -> None:
    engine = engine_with("o|<a>|<b>|<c> = check l|<a>|<b> copy r|<c>|<b>|<a>")
    put_all(engine, {"l|1|2": ""})
    assert scan(engine, "o|1|") == {}
    put_all(engine, {"r|9|2|1": "yes", "r|9|2|7": "other a", "r|9|7|1": "other b"})
    assert scan(engine, "o|1|") == {"o|1|2|9": "yes"}


def test_a_join_added_when_its_range_was_read_already_shows_up() -> None:
    engine = Engine()
    put_all(engine, {"t|note": "mine", "s|ann|bob": "", "p|bob|0001": "Hi"})
    assert scan(engine, "t|") == {"t|note": "mine"}
    engine.add_joins(parse(TIMELINE))
    assert scan(engine, "t|") == {"t|ann|0001|bob": "Hi", "t|note": "mine"}
    engine.add_joins(parse("late|<poster>|<user>|<time:4> = copy t|<user>|<time>|<poster>"))
    assert scan(engine, "late|") == {"late|bob|ann|0001": "Hi"}
    engine.add_joins(parse("t|<poster>|<time:4>|copy = copy p|<poster>|<time>"))
    assert scan(engine, "t|") == {"t|ann|0001|bob": "Hi", "t|bob|0001|copy": "Hi", "t|note": "mine"}
    assert scan(engine, "late|") == {"late|bob|ann|0001": "Hi", "late|copy|bob|0001": "Hi"}


def test_dropping_a_join_takes_exactly_its_outputs() -> None:
    engine = engine_with(NEWP)
    put_all(engine, {"article|bob|1": "A", "vote|bob|1|x": "", "page|bob|1|note": "mine"})
    assert scan(engine, "page|") == {"page|bob|1|a": "A", "page|bob|1|r": "1", "page|bob|1|note": "mine"}
    engine.drop_join("page")
    assert scan(engine, "page|") == {"page|bob|1|r": "1", "page|bob|1|note": "mine"}
    engine.drop_join("rank")
    assert scan(engine, "page|") == {"page|bob|1|note": "mine"}
    engine.put(b"rank|bob|1", b"by hand")
    assert scan(engine, "page|") == {"page|bob|1|r": "by hand", "page|bob|1|note": "mine"}
    with pytest.raises(UnknownJoinError):
        engine.drop_join("rank")


def test_joins_over_joins_cascade_to_any_depth() -> None:
    chain = "; ".join(f"c{n + 1}|<b>|<a> = copy c{n}|<a>|<b>" for n in range(8))
    engine = engine_with(chain)
    put_all(engine, {"c0|1|2": "x"})
    assert scan(engine, "c8|") == {"c8|1|2": "x"}
    put_all(engine, {"c0|1|2": "y", "c0|1|3": "z"})
    assert scan(engine, "c8|") == {"c8|1|2": "y", "c8|1|3": "z"}
    engine.remove(b"c0|1|2")
    assert scan(engine, "c8|") == {"c8|1|3": "z"}


def test_an_article_page_is_one_scan() -> None:
    engine = engine_with(NEWP)
    put_all(
        engine,
        {"article|bob|101": "text", "comment|bob|101|c1|liz": "nice", "vote|bob|101|ann": "", "vote|liz|7|ann": ""},
    )
    assert scan(engine, "page|bob|101|") == {
        "page|bob|101|a": "text",
        "page|bob|101|c|c1|liz": "nice",
        "page|bob|101|k|c1|liz": "1",
        "page|bob|101|r": "1",
    }
    put_all(engine, {"vote|liz|8|jim": "", "vote|bob|101|jim": ""})
    page = scan(engine, "page|bob|101|")
    assert page["page|bob|101|k|c1|liz"] == "2"
    assert page["page|bob|101|r"] == "2"


def test_both_celebrity_joins_fill_one_timeline() -> None:
    engine = engine_with(CELEBRITY)
    put_all(engine, {"s|ann|bob": "", "s|ann|gaga": "", "p|bob|0001": "Hi", "cp|gaga|0002": "la", "cp|cher|0003": "no"})
    assert scan(engine, "t|ann|") == {"t|ann|0001|bob": "Hi", "t|ann|0002|gaga": "la"}
    put_all(engine, {"cp|gaga|0004": "la la", "t|ann|note": "mine"})
    assert list(scan(engine, "t|ann|")) == ["t|ann|0001|bob", "t|ann|0002|gaga", "t|ann|0004|gaga", "t|ann|note"]
    assert engine.statistics().joins["t.2"].rows == 0, "a pull join keeps nothing"
    assert engine.get(b"t|ann|0004|gaga") == b"la la"
    assert engine.count(b"t|ann|", b"t|ann}") == 4


def test_of_two_joins_that_compute_one_key_the_earlier_one_stands() -> None:
    engine = engine_with("o|<a> = copy x|<a>; o|<a> = copy y|<a>; copy|<a> = copy o|<a>")
    put_all(engine, {"y|1": "second"})
    assert scan(engine, "copy|") == {"copy|1": "second"}
    put_all(engine, {"x|1": "first"})
    assert scan(engine, "o|") == {"o|1": "first"}
    assert scan(engine, "copy|") == {"copy|1": "first"}
    put_all(engine, {"y|1": "hidden"})
    assert scan(engine, "copy|") == {"copy|1": "first"}
    engine.remove(b"x|1")
    assert scan(engine, "o|") == scan(engine, "o|") == {"o|1": "hidden"}
    assert scan(engine, "copy|") == {"copy|1": "hidden"}
    assert engine.count(b"o|", b"o}") == 1


def test_an_ambiguous_copy_shows_the_greatest_source_and_says_so() -> None:
    engine = Engine()
    (join,) = engine.add_joins(parse("t|<user>|<time> = check s|<user>|<poster> copy p|<poster>|<time>"))
    assert "<poster>" in join.warnings[0]
    put_all(engine, {"s|ann|bob": "", "s|ann|liz": "", "p|bob|1": "bob's", "p|liz|1": "liz's"})
    assert scan(engine, "t|ann|") == {"t|ann|1": "liz's"}
    engine.remove(b"p|liz|1")
    assert scan(engine, "t|ann|") == {"t|ann|1": "bob's"}


def test_a_snapshot_stays_as_it_is_for_its_age() -> None:
    engine = engine_with("karma|<a> = snapshot 2.5 count vote|<a>|<v>; top|<n>|<a> = check rank|<n>|<a> copy karma|<a>")
    put_all(engine, {"vote|bob|1": "", "rank|1|bob": ""})
    assert scan(engine, "karma|", now=10.0) == {"karma|bob": "1"}
    put_all(engine, {"vote|bob|2": "", "vote|liz|1": ""})
    assert scan(engine, "karma|", now=12.5) == {"karma|bob": "1"}
    assert scan(engine, "top|", now=12.5) == {"top|1|bob": "1"}
    assert scan(engine, "top|", now=12.6) == {"top|1|bob": "2"}
    assert scan(engine, "karma|", now=12.6) == {"karma|bob": "2", "karma|liz": "1"}
    assert engine.get(b"karma|liz", now=13.0) == b"1"


def test_each_range_of_a_snapshot_has_its_own_age() -> None:
    engine = engine_with("o|<a> = snapshot 1 copy x|<a>")
    put_all(engine, {"x|a": "1", "x|b": "1"})
    assert engine.get(b"o|a", now=0.0) == b"1"
    assert engine.get(b"o|b", now=0.8) == b"1"
    put_all(engine, {"x|a": "2", "x|b": "2"})
    assert engine.get(b"o|a", now=1.5) == b"2"
    assert engine.get(b"o|b", now=1.5) == b"1"
    assert engine.get(b"o|b", now=1.9) == b"2"


def test_a_push_join_over_a_pull_join_is_exact() -> None:
    engine = engine_with("mid|<b>|<a> = pull copy x|<a>|<b>; out|<a>|<b> = copy mid|<b>|<a>")
    put_all(engine, {"x|1|2": "v"})
    assert scan(engine, "out|1|") == {"out|1|2": "v"}
    put_all(engine, {"x|1|2": "w"})
    assert scan(engine, "out|1|") == {"out|1|2": "w"}
    assert "pull" in engine.explain_join("out").maintenance
    assert engine.statistics().joins["out"].rows == 0


def test_sums_are_exact_and_printed_one_way() -> None:
    engine = engine_with("total|all = sum v|<a>")
    cases = [
        ("0.1", "0.1"),
        ("0.2", "0.3"),
        ("-0.30", "0"),
        ("x", "0"),
        ("100", "100"),
        ("+.50", "100.5"),
        ("9" * 60, None),
    ]
    total = b"total|all"
    assert engine.get(total) is None
    for number, (value, expected) in enumerate(cases):
        put_all(engine, {f"v|{number}": value})
        if expected is not None:
            assert engine.get(total) == expected.encode()
    assert engine.get(total) == b"1" + b"0" * 57 + b"099.5"[-5:]
    assert engine.statistics().joins["total"].not_a_number >= 1
    for number in range(len(cases)):
        engine.remove(f"v|{number}".encode())
    assert engine.get(total) is None


def test_a_sum_over_nothing_but_text_has_no_key() -> None:
    engine = engine_with("total|<a> = sum v|<a>|<b>; n|<a> = count v|<a>|<b>")
    put_all(engine, {"v|1|1": "text", "v|1|2": ""})
    assert scan(engine, "total|") == {}
    assert scan(engine, "n|") == {"n|1": "2"}


def test_fixed_width_slots_hold_any_bytes() -> None:
    engine = engine_with("o|<b:2><a:1> = copy x|<a:1><b:2>")
    engine.put(b"x||\x00\xff", b"v")
    assert engine.scan(b"o|", b"o}").keys == [b"o|\x00\xff|"]
    assert engine.get(b"o|\x00\xff|") == b"v"
    engine.put(b"x|abcd", b"too long")
    engine.put(b"x|ab", b"too short")
    assert engine.count(b"o|", b"o}") == 1


def test_keys_that_match_no_pattern_are_left_alone() -> None:
    engine = engine_with(TIMELINE)
    put_all(
        engine, {"s|ann|": "", "s|ann|bob|x": "", "s|ann|bob": "", "p|bob|100": "", "p|bob|01000": "", "p||0100": ""}
    )
    assert scan(engine, "t|") == {}


def test_keys_without_a_table_are_data_too() -> None:
    engine = Engine()
    put_all(engine, {"a": "1", "a|x": "2", "a!": "3", "b": "4"})
    assert list(scan(engine, "a", "b~")) == ["a", "a!", "a|x", "b"]
    assert engine.get(b"a!") == b"3"
    assert engine.remove(b"a!")
    assert not engine.remove(b"a!")
    assert engine.statistics().loose_keys == 2


def test_eviction_forgets_and_reads_compute_anew() -> None:
    engine = engine_with(TIMELINE + "; copy|<time:4>|<user>|<poster> = copy t|<user>|<time>|<poster>")
    put_all(engine, {"s|ann|bob": "", "s|liz|bob": "", "p|bob|0001": "Hi"})
    before = scan(engine, "t|ann|"), scan(engine, "t|liz|"), scan(engine, "copy|")
    assert engine.evict(1) >= 1
    engine.put(b"p|bob|0002", b"new")
    engine.remove(b"p|bob|0002")
    assert (scan(engine, "t|ann|"), scan(engine, "t|liz|"), scan(engine, "copy|")) == before
    assert engine.evict(100) >= 3
    assert all(join.rows == join.updaters == join.contexts == 0 for join in engine.statistics().joins.values())


def test_gets_leave_no_crumbs_when_a_scan_comes() -> None:
    engine = engine_with("n|<a> = count x|<a>|<b>")
    for number in range(50):
        put_all(engine, {f"x|{number:02}|1": ""})
        assert engine.get(f"n|{number:02}".encode()) == b"1"
    assert engine.statistics().joins["n"].status_ranges == 50
    assert len(scan(engine, "n|")) == 50
    assert engine.statistics().joins["n"].status_ranges == 1
    put_all(engine, {"x|07|2": ""})
    assert engine.get(b"n|07") == b"2"
