"""Cases in which the engine once differed from the model, as short as they became."""

import pytest
from pequod_grammar import parse

from pequod.engine.base import presence
from pequod.engine.testing import NaiveModel
from tests.engine.random_walk import replay
from tests.engine.walker import Step


def _script(join: str, *steps: Step) -> list[Step]:
    return [Step("add", (spec,)) for spec in parse(join)] + list(steps)


CASES = {
    # A watch that a new join had ended was still told of changes.
    "ended watch": [
        Step("watch", (b"q|", b"w|b")),
        *_script("t|<y:1>|<y:1> = copy s|<y:1>|<y:1>"),
        Step("put", (b"s|b|b", b"x")),
        Step("watch", (b"t|", b"t||||~")),
        Step("remove", (b"s|b|b",)),
        Step("settle", (0,)),
    ],
    # Rows of a join that is no rival, but lies in a range that was lost, were told anew.
    "two joins in a lost range": [
        *_script("w|all = min q|<y>|<x>", Step("put", (b"q|a|b~", b"1"))),
        *_script("w|<z>|<x>|<y> = check v|<z>|1 sum u|<y>|a|<x>|<y>"),
        Step("watch", (b"v}", b"w|b\xff|")),
        Step("evict", (1,)),
        Step("drop", (5,)),
        Step("put", (b"v|a|1", b"1")),
        Step("settle", (4,)),
    ],
    # A check below the value source lost the value.
    "check after the value source": _script(
        "w|<x>|<p>|<u> = copy p|<p>|<x> check s|<u>|<p>",
        Step("put", (b"p|a|a", b"7")),
        Step("scan", (b"", None, 1, False)),
        Step("put", (b"s|ab|a", b"007")),
        Step("scan", (b"", None, None, False)),
    ),
    # A known slot behind an unknown one was not compared when keys were spliced.
    "known slot behind an unknown one, push": _script(
        "v|<x:1><y:1>|<z:2>|1 = check s|<z:2><y:1>|2 copy s|<x:1><y:1>",
        Step("put", (b"s|\x00ba|2", b"2")),
        Step("put", (b"s|a|", b"1e3")),
        Step("scan", (b"s|ba", b"w|aaab", None, False)),
    ),
    "known slot behind an unknown one, pull": _script(
        "u|<x:2><z:1> = pull check s|<z:1><z:1> copy p|<x:2><z:1>",
        Step("put", (b"p|aa\xff", b"007")),
        Step("put", (b"s|bb", b"1")),
        Step("scan", (b"u|\x00b\x00", b"u}", None, False)),
    ),
    # A reversed range inside a context was cut at the wrong place.
    "reversed range over a materialised one": _script(
        "t|<y>|<x> = count q|<y>|<x>",
        Step("put", (b"q|a|b~", b"1.50")),
        Step("scan", (b"t|a|", b"t|a}", 1, False)),
        Step("scan", (b"t|a|ab\0", b"t|ab|b~", 1, False)),
    ),
    # A context that ends at the greatest key that there may be was taken for one that goes on to the end of the read.
    "no key above a slot of a width": _script(
        "v|<z:1>|2 = min s|<z:1>",
        Step("scan", (b"v|b|3", b"v|\xff|2\0", 2, False)),
        Step("scan", (b"v|\xff|", b"v}", None, False)),
        Step("put", (b"s|\xff", b"1")),
        Step("scan", (b"v|\xff|", b"v}", None, False)),
    ),
    # A range of one join that was lost was also looked for, the wrong way round, in others that the watch covers.
    "a watch over two joins loses a range of one": (
        Step("back", (b"q", b"p", b"s")),
        *_script(
            "w|<x>|<z>|<y:1> = check q|<x>|<z> copy q|<y:1><x>;"
            "u|<y:1>|<x:2><z:1> = min q|<x:2>|<z:1> check p|<y:1><x:2>|1 check w|<z:1><z:1>|1",
            Step("put", (b"q|ba", b"2")),
            Step("watch", (b"u|b|b\0a|", b"w|a|b}")),
            Step("put", (b"q|a|b~", b"7")),
            Step("forget", (b"q|ab|a", b"q|ab|a\0")),
            Step("watch", (b"u|", b"u|\xff|a")),
            Step("get", (b"u|\xff|\xffb|",)),
            Step("watch", (b"q}", b"u|||a\xffa~")),
            Step("scan", (b"", None, None, False)),
            Step("settle", (3,)),
        ),
    ),
}


#: A table is cut by the first join that reads it. Another one's slots with widths may hold the delimiter, at which that
#: cut ends, so that its frame keys were looked for among groups of shorter prefixes, and nothing was found.
_TIMELINE = "t|<user>|<time:4>|<poster:3> = check s|<user>|<poster> copy p|<poster>|<time>"
_CUTTING = [
    "y|<a> = count p|<a>|<b>",
    "y|<a:1> = count p|<a>|<b>",
    "y|<a:3> = count p|<a>|<b>",
    "y|<a:7> = copy p|<a>|<b>",
]
_POSTS = [
    Step("put", (b"p|a|b|6939", b"1")),
    Step("put", (b"p|abc|6939", b"2")),
    Step("put", (b"s|eve|a|b", b"")),
    Step("put", (b"s|eve|abc", b"")),
]
_READS = [
    Step("scan", (b"t|eve|", b"t|eve}", None, False)),
    Step("put", (b"p|a|b|7000", b"3")),
    Step("put", (b"s|eve|||d", b"")),
    Step("put", (b"p|||d|7001", b"4")),
    Step("scan", (b"t|eve|", b"t|eve}", None, False)),
    Step("remove", (b"s|eve|a|b",)),
    Step("scan", (b"t|eve|6", b"t|eve}", None, False)),
]


@pytest.mark.parametrize("backed", [(), (b"p",), (b"s", b"p")], ids=["clients", "posts", "both"])
@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("cutting", _CUTTING)
def test_a_timeline_shows_all_posts_however_an_earlier_join_reads_them(
    cutting: str, is_dropped: bool, backed: tuple[bytes, ...]
) -> None:
    drop = [Step("drop", (0,))] * is_dropped
    replay([Step("back", backed), *_script(cutting, *drop), *_script(_TIMELINE, *_POSTS, *_READS)])
    replay([Step("back", backed), *_script(cutting, *_POSTS, *drop), *_script(_TIMELINE, *_READS)])


@pytest.mark.parametrize("name", CASES)
def test_the_engine_equals_the_model(name: str) -> None:
    replay(CASES[name])


def test_what_is_loaded_for_a_backfill_stays_until_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part of a large range went when the next call began, so that something was missing for ever."""
    monkeypatch.setattr(presence, "PART_ROWS_MAX", 1)
    begin = Step("begin", (0, b"", None, 0, 1 << 20))
    replay(
        [
            Step("back", (b"s", b"p")),
            *_script("t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>", begin),
            Step("scan", (b"t|b|a\xff", b"t|b}", None, False)),
            Step("limit", (12_000,)),
            Step("put", (b"p|b|\0\0", b"1")),
            Step("put", (b"s|a|b", b"-3")),
            Step("put", (b"p|a|bb", b"-3")),
            begin,
        ]
    )


def test_the_model_sums_without_rounding() -> None:
    model = NaiveModel()
    model.add(*parse("total|<user> = sum n|<user>|<id>"))
    model.put(b"n|ann|1", b"1" + b"0" * 40)
    model.put(b"n|ann|2", b"0." + b"0" * 40 + b"1")
    assert model.get(b"total|ann") == b"1" + b"0" * 40 + b"." + b"0" * 40 + b"1"
