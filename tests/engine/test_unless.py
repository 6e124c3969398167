"""Sources after `unless`: a row is there only while no key of them matches."""

import pytest
from pequod_grammar import parse, parse_some

from pequod.engine import Engine, JoinError
from pequod.engine.testing import NaiveModel

FEED = "t|<user>|<time:1>|<poster> = check s|<user>|<poster> unless mute|<user>|<poster> copy p|<poster>|<time:1>"
ROOMS = "open|<room> = count member|<room>|<who> unless closed|<room>|<reason>"


class Both:
    """An engine and the naive model, which take the same steps and are compared by `rows`."""

    def __init__(self, text: str, rows: str = "") -> None:
        self.engine, self.model = Engine(), NaiveModel()
        specs = parse(text)
        self.engine.add_joins(specs)
        for spec in specs:
            self.model.add(spec)
        for key in rows.split():
            self.put(key)

    def put(self, key: str, value: str = "x") -> None:
        self.engine.put(key.encode(), value.encode())
        self.model.put(key.encode(), value.encode())

    def remove(self, key: str) -> None:
        assert self.engine.remove(key.encode()) == self.model.remove(key.encode())

    def rows(self, table: str) -> dict[str, str]:
        first, last = f"{table}|".encode(), f"{table}}}".encode()
        found = list(zip(*self.engine.scan(first, last), strict=True))
        assert found == self.model.scan(first, last)
        self.engine._check()
        return {key.decode(): value.decode() for key, value in found}


def test_a_row_goes_when_a_key_comes_and_returns_when_it_goes() -> None:
    both = Both(FEED, "s|ann|bob s|ann|liz p|bob|1 p|liz|2")
    assert list(both.rows("t")) == ["t|ann|1|bob", "t|ann|2|liz"]
    both.put("mute|ann|bob")
    assert list(both.rows("t")) == ["t|ann|2|liz"]
    both.remove("mute|ann|bob")
    assert list(both.rows("t")) == ["t|ann|1|bob", "t|ann|2|liz"]


def test_what_is_written_while_a_key_is_there_shows_when_it_goes() -> None:
    both = Both(FEED, "s|ann|bob p|bob|1 mute|ann|bob")
    assert both.rows("t") == {}
    both.put("p|bob|2")
    both.remove("p|bob|1")
    assert both.rows("t") == {}
    both.remove("mute|ann|bob")
    assert list(both.rows("t")) == ["t|ann|2|bob"]


def test_the_value_of_the_key_does_not_matter_nor_does_its_change() -> None:
    both = Both(FEED, "s|ann|bob p|bob|1")
    both.rows("t")
    for value in ("", "1", "2"):
        both.put("mute|ann|bob", value)
        assert both.rows("t") == {}


def test_a_slot_of_its_own_stands_for_any_bytes() -> None:
    both = Both(ROOMS, "member|a|ann member|a|bob member|b|ann")
    assert both.rows("open") == {"open|a": "2", "open|b": "1"}
    both.put("closed|a|paint")
    assert both.rows("open") == {"open|b": "1"}


def test_a_second_key_takes_nothing_away_and_the_last_one_gives_back() -> None:
    both = Both(ROOMS, "member|a|ann member|a|bob closed|a|paint")
    assert both.rows("open") == {}
    both.put("closed|a|water")
    assert both.rows("open") == {}
    both.remove("closed|a|paint")
    assert both.rows("open") == {}
    both.put("member|a|eve")
    both.remove("closed|a|water")
    assert both.rows("open") == {"open|a": "3"}


def test_keys_that_come_and_go_between_two_reads_leave_no_trace() -> None:
    both = Both(ROOMS, "member|a|ann closed|a|paint")
    both.rows("open")
    both.remove("closed|a|paint")
    both.put("closed|a|water")
    assert both.rows("open") == {}
    both.remove("closed|a|water")
    both.put("closed|a|fire")
    both.remove("closed|a|fire")
    assert both.rows("open") == {"open|a": "1"}


def test_the_first_key_in_a_row_that_was_read_takes_away_what_was_counted_once() -> None:
    both = Both("n|<u> = check s|<u>|<p> sum v|<p>|<k> unless ban|<p>|<why>", "s|a|x s|a|y")
    for key, value in (("v|x|1", "5"), ("v|x|2", "7"), ("v|y|1", "100")):
        both.put(key, value)
    assert both.rows("n") == {"n|a": "112"}
    both.put("ban|x|1")
    both.put("ban|x|2")
    both.put("v|x|3", "1")
    assert both.rows("n") == {"n|a": "100"}
    both.put("ban|x|3")
    both.put("v|x|1", "6")
    assert both.rows("n") == {"n|a": "100"}
    for why in "123":
        both.remove(f"ban|x|{why}")
    assert both.rows("n") == {"n|a": "114"}


def test_subscriptions_and_mutes_that_change_together() -> None:
    both = Both(FEED, "s|ann|bob p|bob|1 p|liz|2")
    both.rows("t")
    both.put("s|ann|liz")
    both.put("mute|ann|liz")
    both.put("mute|ann|bob")
    both.remove("s|ann|bob")
    assert both.rows("t") == {}
    both.remove("mute|ann|bob")
    both.put("s|ann|bob")
    both.remove("mute|ann|liz")
    assert list(both.rows("t")) == ["t|ann|1|bob", "t|ann|2|liz"]


def test_keys_that_another_join_computes() -> None:
    both = Both(f"{FEED}; mute|<user>|<poster> = copy block|<poster>|<user>", "s|ann|bob p|bob|1")
    assert list(both.rows("t")) == ["t|ann|1|bob"]
    both.put("block|bob|ann")
    assert both.rows("t") == {}
    both.remove("block|bob|ann")
    assert list(both.rows("t")) == ["t|ann|1|bob"]


def test_a_join_over_one_with_unless_hears_of_what_goes_and_returns() -> None:
    both = Both(f"{FEED}; unread|<user> = count t|<user>|<time:1>|<poster>", "s|ann|bob p|bob|1 p|bob|2")
    assert both.rows("unread") == {"unread|ann": "2"}
    both.put("mute|ann|bob")
    assert both.rows("unread") == {}
    both.remove("mute|ann|bob")
    assert both.rows("unread") == {"unread|ann": "2"}


def test_a_watch_tells_what_goes_and_returns() -> None:
    both = Both(FEED, "s|ann|bob p|bob|1")
    both.rows("t")
    watch = both.engine.watch(b"t|ann|", b"t|ann}", lambda: None)
    both.put("mute|ann|bob")
    assert [(change.key, change.new) for change in both.engine.settle(watch)] == [(b"t|ann|1|bob", None)]
    both.remove("mute|ann|bob")
    assert [(change.key, change.new) for change in both.engine.settle(watch)] == [(b"t|ann|1|bob", b"x")]


def test_records_select_what_must_not_be_there() -> None:
    text = "t|<user>|<id> = check s|<user>|<poster> unless mute|<user>|<poster> with level >= 2 copy p|<poster>|<id>"
    both = Both(text, "s|ann|bob p|bob|1")
    both.put("mute|ann|bob", '{"level": 1}')
    assert list(both.rows("t")) == ["t|ann|1"]
    both.put("mute|ann|bob", '{"level": 2}')
    assert both.rows("t") == {}
    both.put("mute|ann|bob", '{"level": 0}')
    assert list(both.rows("t")) == ["t|ann|1"]


def test_pull_and_point_reads_see_it_too() -> None:
    both = Both("f|<a>|<b> = pull copy s|<a>|<b> unless s|<b>|<a>", "s|ann|bob s|bob|ann s|ann|liz")
    assert list(both.rows("f")) == ["f|ann|liz"]
    assert both.engine.get(b"f|ann|bob") is None
    both.remove("s|bob|ann")
    assert both.engine.get(b"f|ann|bob") == b"x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("t|<a> = unless m|<a>", "no value source"),
        ("t|<a>|<r> = copy p|<a> unless m|<a>|<r>", "no source gives a value to <r>"),
        ("t|<a>|<b> = check s|<a> unless m|<b> copy p|<a>|<b>", "write it after the source that gives <b> a value"),
        ("t|<a> = copy p|<a> unless m|<a>|<r> unless n|<r>", "call it <r2> in this one"),
        ("t|<a> = copy p|<a> unless m|<a> as x", "gives no value"),
        ("m|<a> = copy p|<a> unless m|<a>", "read its own output: m|<a> reads m|<a>"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, shown: str) -> None:
    with pytest.raises(JoinError) as caught:
        Engine().add_joins(parse_some(text))
    assert shown in f"{caught.value}"


def test_it_is_printed_as_it_is_written() -> None:
    (spec,) = parse(FEED)
    assert str(spec) == FEED
