"""pequod transaction: what it prints, and what is wrong with a form, with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Pequod


def test_a_transaction_from_a_file_and_from_standard_input(pequod: Pequod, tmp_path: Path) -> None:
    form = {
        "compares": [
            *({"key": "x|a", "is": "absent"}, {"key": "x|a", "!=": "1"}),
            *({"key": "x|n", ">": 4}, {"key": "x|n", "<": "5.5"}, {"key": "x|n", "=": {"base64": "NQ=="}}),
        ],
        "then": [
            *({"put": "x|a", "value": {"base64": "/w=="}}, {"get": "x|a"}, {"get": "x|none"}, {"count": "x|"}),
            *({"add": "x|m", "delta": -2}, {"add": "x|m", "delta": "0.5"}, {"remove": "x|m"}),
            *({"scan": "x|", "limit": 1, "reverse": True}, {"scan": ["x|", "x|n"]}, {"remove": "x|n"}),
        ],
        "otherwise": [{"remove": "x|n"}, {"count": ["x|", "x|b"]}],
    }
    (tmp_path / "form.json").write_text(json.dumps(form))
    pequod("put", "x|n", "5")
    done = pequod("transaction", "-f", str(tmp_path / "form.json"))
    assert (done.code, done.err) == (0, "")
    byte = {"base64": "/w=="}
    outcomes = [None, byte, None, 2, "-2", "-1.5", True, [["x|n", "5"]], [["x|a", byte]], True]
    assert json.loads(done.out) == {"held": True, "outcomes": outcomes}
    again = pequod("transaction", "-f", "-", stdin=json.dumps(form).encode())
    assert again.code == 1
    assert json.loads(again.out) == {"held": False, "outcomes": [False, 1]}
    assert "a compare does not hold, so the commands of `otherwise` have run" in again.err
    alone = pequod("transaction", "-f", "-", stdin=json.dumps(form | {"otherwise": []}).encode())
    assert (alone.code, "a compare does not hold, so nothing was done" in alone.err) == (1, True)


def test_a_put_of_a_transaction_may_say_when_its_key_expires(pequod: Pequod) -> None:
    puts = [{"put": "x|ttl", "value": "1", "ttl_s": 1800}, {"put": "x|ttl", "value": "2", "keep_ttl": True}]
    assert pequod("transaction", "-f", "-", stdin=json.dumps({"then": puts}).encode()).code == 0
    assert 1700 < float(pequod("ttl", "x|ttl").out) <= 1800


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ('{"then": [\n  {"put": "a"\n]}', "line 3, column 1: "),
        ("[]", "it must be an object"),
        ('{"then": [{"get": "a"}], "then": []}', "'then' stands twice in one object"),
        ('{"then": [{"put": "a", "value": "1", "value": "2"}]}', "'value' stands twice in one object"),
        ('{"when": []}', "it has 'when'; members are 'compares', 'then', 'otherwise'"),
        ('{"then": {}}', "then: it must be a list"),
        ('{"compares": [{"is": "absent"}]}', "compares[0]: it lacks 'key'"),
        ('{"compares": [{"key": "a"}]}', "compares[0]: it must have one of 'is', '=', '!=', '<', '>'"),
        ('{"compares": [{"key": "a", "is": "there"}]}', 'compares[0].is: it must be "absent" or "present"'),
        ('{"compares": [{"key": 1, "=": ""}]}', "compares[0].key: it must be text"),
        ('{"compares": [{"key": "a", "<": 1.5}]}', "compares[0].<: it must be text"),
        ('{"then": [{"get": "a"}, {"put": "a"}]}', "then[1]: it lacks 'value'"),
        ('{"then": [{"put": "a", "value": "1", "ttl_s": true}]}', "then[0].ttl_s: it must be a number of seconds"),
        ('{"then": [{"put": "a", "value": "1", "keep_ttl": 1}]}', "then[0].keep_ttl: it must be true or false"),
        ('{"then": [{"get": "a", "ttl_s": 1}]}', "then[0]: it has 'ttl_s'; members are 'get'"),
        ('{"then": [{"add": "a"}]}', "then[0]: it lacks 'delta'"),
        ('{"then": [{"add": "a", "delta": 0.5}]}', "then[0].delta: it must be text"),
        ('{"then": [{"add": "a", "delta": true}]}', "then[0].delta: it must be text"),
        ('{"otherwise": [{"get": "a", "limit": 1}]}', "otherwise[0]: it has 'limit'; members are 'get'"),
        ('{"otherwise": [{"get": "a", "put": "a"}]}', "otherwise[0]: it must be an object with one of"),
        ('{"then": [{"scan": "a", "limit": -1}]}', "then[0].limit: it must be a number of rows"),
        ('{"then": [{"scan": "a", "reverse": 1}]}', "then[0].reverse: it must be true or false"),
        ('{"then": [{"count": ["a"]}]}', "then[0].count: a range is [FIRST, LAST]"),
        ('{"then": [{"count": ["a", {"base64": "?"}]}]}', "then[0].count[1]: it is no base64"),
    ],
)
def test_what_is_wrong_with_a_form_is_said_with_its_place(pequod: Pequod, form: str, said: str) -> None:
    outcome = pequod("transaction", "-f", "-", stdin=form.encode())
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("pequod: standard input: ")
    assert said in outcome.err


def test_what_cannot_be_read_or_run_is_said(pequod: Pequod, tmp_path: Path) -> None:
    missing = pequod("transaction", "-f", str(tmp_path / "none.json"))
    assert (missing.code, "cannot be read" in missing.err) == (2, True)
    assert pequod("transaction", "-f", "-", stdin=b"\xff").code == 2
    refused = pequod("transaction", "-f", "-", stdin=b'{"compares": [{"key": "a", "<": "x"}]}')
    assert refused.code == 3
    assert "is no number" in refused.err
    refused = pequod(
        "transaction", "-f", "-", stdin=b'{"then": [{"put": "a", "value": "b"}, {"add": "a", "delta": 1}]}'
    )
    assert (refused.code, "the value of key 'a' is no number" in refused.err) == (3, True)
    assert pequod("get", "a").code == 1
