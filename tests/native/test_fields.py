"""Records that are shown from the bytes of their JSON: as Python shows them, or left to it."""

from random import Random
from typing import Any

import pytest
from pequod_grammar import parse

from pequod.language.records import Lens, parse_value
from pequod.language.views import plain_join
from tests.engine.draw_records import draw_record
from tests.native.core import hot

assert hot.INTERFACE

JOINS = [
    "t|<a>|<id> = copy s|<id> with a = <a>",
    "t|<a>|<id> = copy s|<id> with a = <a> as b",
    "t|<a>|<id> = copy s|<id> with a = <a> as {b, a}",
    "t|<a>|<id> = copy s|<id> with a = <a> as {ab: b}",
    "t|<a>|<b:i64>|<id> = copy s|<id> with a = <a>, b = <b:i64>",
    "t|<a:3>|<id> = sum s|<id> with a = <a:3> as b",
    "t|<a>|<id> = count s|<id> with a = <a>",
    "t|<id> = copy s|<id> as {a, b}",
    "t|<a>|<id> = copy s|<id> with a = <a> as {b.a, b, c.d}",
    "t|<a>|<id> = copy s|<id> with a = <a> as b.a",
]
#: Members of a record, as they stand there.
MEMBERS = [
    *[
        b'"a":"x"',
        b'"a" : 7',
        b'"a":-7',
        b'"a":-0',
        b'"a":0',
        b'"a":01',
        b'"a":1.5',
        b'"a":1e2',
        b'"a":true',
        b'"a":null',
    ],
    *[
        b'"a":tru',
        b'"a":"x',
        b'"a":"\\n"',
        b'"a":"\\u0061"',
        b'"a":"\\x"',
        b'"a":"a\x01"',
        b'"a":"\x7f"',
        b'"a":{"d":[1,{}]}',
    ],
    *[b'"a":"\xc3\xa9"', b'"a":"\xe2\x82\xac"', b'"a":"\xf0\x9f\x98\x80"', b'"a":"\xed\xa0\x80"', b'"a":"\xc0\xaf"'],
    *[b'"a":"\xf4\x90\x80\x80"', b'"a":"\xe0\x80\x80"', b'"a":"\xc3"', b'"a":"\xff"', b'"a":"\xf0\x80\x80\x80"'],
    *[b'"a":999999999999999999', b'"a":1000000000000000000', b'"a":-999999999999999999', b'"a":123456789012345.5'],
    *[
        b'"b":"',
        b'"b":"y|"',
        b'"b":12',
        b'"b":false',
        b'"b":null',
        b'"b":[]',
        b'"b":[1,2,]',
        b'"b":[1 , 2 ]',
        b'"b":{,}',
    ],
    *[b'"b":[[[]]]', b'"b":{"a":"z"}', b'"b":{"a":1]', b'"b":[}', b'"b":' + b"[" * 64 + b"]" * 64],
    *[
        b'"b":' + b"[" * 65 + b"]" * 65,
        b'"b":"' + b"y" * 40 + b'"',
        b'"b":"' + b"y" * 31 + b'\\""',
        b'"b":.5',
        b'"b":5.',
    ],
    *[
        b'"\\u0061":"z"',
        b'"\\\\":1',
        b'"":1',
        b'"c":"\\ud83d\\ude00"',
        b'"c":"\\ud83d"',
        b"c:1",
        b'"c"',
        b'"c":',
        b'"c" 1',
        b"",
    ],
]
# The end of an object that is open far outside.
MEMBERS += [b'"b":{"x":' + b"[" * 64 + b"]" * 65, b'"b":{"x":' + b"[" * 63 + b"]" * 63 + b"}"]
#: Texts of which several bytes are looked at together, and what no text may have among them.
MEMBERS += [
    b'"b":"%b%b%b"' % (b"y" * 23, wrong, b"y" * 40) for wrong in (b"\x01", b"\xff", b"\xc3\xa9", b"\\n", b"\\x", b"")
]
#: Fields within fields, and what looks like some.
MEMBERS += [
    b'"b":{"a":"z","a":"y"}',
    b'"b":{"a":{}}',
    b'"b":{"a":null, "c":2}',
    b'"b":{"c":1}',
    b'"b":"{\\n}"',
    b'"b":{"a":7}',
]
SPACES = [b"", b" ", b"\n", b"\t\r", b"\x0c", b"\xef\xbb\xbf", b"x", b"\0"]


def _texts() -> list[bytes]:
    random = Random(7)
    texts = [b"{%b}" % member for member in MEMBERS]
    texts += [b'{"a":"x",%b}' % member for member in MEMBERS]
    for _ in range(800):
        members = [random.choice(MEMBERS) for _ in range(random.choice([2, 2, 3]))]
        if random.random() < 0.7:
            members[random.randrange(len(members))] = b'"a":"x"'
        texts.append(random.choice([b",", b" , "]).join(members).join([b"{", b"}"]))
    texts += [space + b'{"a":"x"}' for space in SPACES] + [b'{"a":"x"}' + space for space in SPACES]
    texts += [b'{%b"a":"x"%b}' % (space, space) for space in SPACES]
    # Slips in records: a byte that is another, or is not there.
    for _ in range(800):
        text = bytearray(draw_record(random))
        at = random.randrange(len(text) + 1)
        text[at : at + 1] = random.choice([b"", bytes([random.randrange(256)]), b'"', b"{", b"]", b",", b":", b"\\"])
        texts.append(bytes(text))
    return texts


@pytest.mark.parametrize("join", JOINS)
def test_what_is_read_of_a_record_is_what_python_reads(join: str) -> None:
    (view,) = plain_join(*parse(join))[1]
    assert view is not None
    lens, whole = Lens(view), Lens(view)
    assert lens.quick is not None
    whole.quick = None
    shown_count = 0
    for text in _texts():
        shown = lens.quick.show(b"s|1", text)
        if shown is not None:
            assert shown == whole.show_row(b"s|1", text, parse_value), text
            shown_count += 1
    assert shown_count


@pytest.mark.parametrize("member", [b'"c":1.25', b'"c":[1,{"a":"y"}]', b'"c":"\xc3\xa9\\n"', b'"c":null', b'"a":"z"'])
def test_usual_records_are_not_left_to_python(member: bytes) -> None:
    (view,) = plain_join(*parse(JOINS[0]))[1]
    assert view is not None
    quick = Lens(view).quick
    assert quick is not None
    text = b' { "a" : "x" , %b } ' % member
    assert quick.show(b"s|1", text) == (b"s|z|1" if b"z" in member else b"s|x|1", text)


def test_a_row_is_shown_of_a_key_and_a_value() -> None:
    lens = hot.QuickLens((b"s|", None), (("a", None, False),), (b"s|", 2, b"|", 1), 9, None)
    assert lens.show(b"s|1", b'{"a":"x"}') == (b"s|x|1", b'{"a":"x"}')
    assert lens.show(b"s|1|", b'{"a":"x"}') is None
    slash = hot.QuickLens((b"s|", None), (), (b"s|", 1), 9, ((b'"/":', "/"),))
    assert slash.show(b"s|1", b'{"/":1}') == (b"s|1", b'{"/":1}')
    assert slash.show(b"s|1", b'{"\\/":1}') is None
    wrong: Any
    for wrong in [(b"s|1",), (b"s|1", "text"), ("s|1", b"{}")]:
        with pytest.raises(TypeError):
            lens.show(*wrong)


@pytest.mark.parametrize("gives", [b"x", ("a",), ((b'"a":', b"a"),), (("a", "a"),), ((None, "a"), (None, "b")), 7])
def test_a_lens_that_gives_nonsense_is_refused(gives: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        hot.QuickLens((b"s|",), (), (b"s|",), 9, gives)
