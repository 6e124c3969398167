"""Transactions: an engine does what the model does, all or none and in one turn; what cannot run is refused by name."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_grammar import parse

from pequod import absent, value_of
from pequod.commands.kinds import ADD, COUNT, GET, KINDS, PUT, PUT_IF, REMOVE, REMOVE_IF, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod.engine import ComputedKeyError, Engine, InvalidKeyError, LimitExceededError, Rows
from pequod.engine.testing import NaiveModel
from pequod.engine.transacting import TransactionLimits, holds, refuse, transact
from pequod.language.errors import InvalidDeltaError, NotNumberError, SumTooLongError, TransactionError
from pequod.language.transactions import (
    EQUAL,
    GREATER,
    IS_ABSENT,
    IS_PRESENT,
    LESS,
    NOT_EQUAL,
    CommandList,
    KeyCompare,
    Transaction,
)
from tests.engine.draw_transactions import draw_transaction

TIMELINE = parse("t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
PAIR = CommandList(bytes([PUT, PUT]), [b"p|a|1", b"Hi", b"s|x|a", b"1"], [])


def run(engine: Engine, then: CommandList, *compares: KeyCompare, otherwise: CommandList | None = None) -> object:
    transaction = Transaction(compares, then, otherwise or CommandList())
    refuse(transaction, 128)
    return transact(engine, transaction, now=0.0, limits=TransactionLimits(1000, 10))


def following() -> Engine:
    engine = Engine()
    engine.add_joins(TIMELINE)
    return engine


@given(st.integers(0, 1 << 30))
def test_an_engine_does_what_the_model_does_and_joins_follow(seed: int) -> None:
    random, engine, model = Random(seed), following(), NaiveModel()
    for spec in TIMELINE:
        model.add(spec)
    for _ in range(20):
        transaction = draw_transaction(random, TIMELINE, model.base)
        if any(map(model.computes, transaction.decided_by())):
            continue
        refuse(transaction, 128)
        before = engine.scan(b"", None)
        try:
            done = transact(engine, transaction, now=0.0)
        except TransactionError:
            assert engine.scan(b"", None) == before, "what is refused does nothing"
            continue
        except (NotNumberError, SumTooLongError):
            assert engine.scan(b"", None) == before, "what is refused does nothing"
            assert model.transact(transaction) is None
            continue
        assert done == model.transact(transaction)
        rows = engine.scan(b"", None)
        assert list(zip(*rows, strict=True)) == model.scan(b"", None)
        engine._check()


def test_a_watch_hears_one_change_of_each_key_and_all_of_them_together() -> None:
    engine = following()
    watch = engine.watch(b"", None, lambda: None)
    writes = [b"p|a|1", b"0", b"s|x|a", b"1", b"p|a|1", b"Hi", b"p|a|2", b"gone", b"p|a|2"]
    run(engine, CommandList(bytes([PUT, PUT, PUT, PUT, REMOVE]), writes, []))
    engine.scan(b"t|", b"t}")
    heard = {(change.key, change.new) for change in engine.settle(watch)}
    assert heard == {(b"p|a|1", b"Hi"), (b"s|x|a", b"1"), (b"t|x|1|a", b"Hi")}


def test_commands_run_in_order_and_see_what_those_before_them_wrote() -> None:
    engine = Engine()
    for key in (b"a", b"b", b"d", b"e"):
        engine.put(key, b"0")
    kinds = [GET, PUT, GET, REMOVE, REMOVE, SCAN_LIMIT, SCAN_DOWN, COUNT, SCAN]
    arguments = [b"c", b"c", b"1", b"c", b"b", b"b", b"a", b"e", b"a", b"e", b"a", b"", b"b", b"d"]
    done = run(engine, CommandList(bytes(kinds), arguments, [2, 2]))
    assert done == (
        True,
        [
            None,
            None,
            b"1",
            True,
            False,
            Rows([b"a", b"c"], [b"0", b"1"]),
            Rows([b"d", b"c"], [b"0", b"1"]),
            4,
            Rows([b"c"], [b"1"]),
        ],
    )


def test_adds_see_what_commands_before_them_wrote_and_joins_follow_their_sums() -> None:
    engine = following()
    run(engine, PAIR)
    kinds = [ADD, ADD, GET, REMOVE, ADD, PUT, ADD, SCAN, COUNT]
    arguments = [b"p|b|1", b"5", b"p|b|1", b"-0.50", b"p|b|1", b"p|a|1", b"p|a|1", b"7", b"p|c|1", b"40", b"p|c|1"]
    arguments += [b"2", b"p|", b"p}", b"p|", b"p}"]
    done = run(engine, CommandList(bytes(kinds), arguments))
    rows = Rows([b"p|a|1", b"p|b|1", b"p|c|1"], [b"7", b"4.5", b"42"])
    assert done == (True, [b"5", b"4.5", b"4.5", True, b"7", None, b"42", rows, 3])
    assert engine.scan(b"p|", b"p}") == rows
    assert engine.scan(b"t|", b"t}") == Rows([b"t|x|1|a"], [b"7"])


def test_an_add_that_is_refused_takes_all_with_it() -> None:
    engine = Engine()
    engine.put(b"text", b"twelve")
    engine.put(b"long", b"9" * 64)
    before = engine.scan(b"", None), engine.revision
    refusals = [
        (PUT, [b"a", b"x"], [b"a", b"1"], NotNumberError),
        (REMOVE, [b"long"], [b"text", b"1"], NotNumberError),
        (ADD, [b"a", b"1"], [b"long", b"1"], SumTooLongError),
        (ADD, [b"a", b"9" * 64], [b"a", b"1"], SumTooLongError),
    ]
    for kind, arguments, more, error in refusals:
        with pytest.raises(error):
            run(engine, CommandList(bytes([kind, ADD]), [*arguments, *more]))
        assert (engine.scan(b"", None), engine.revision) == before
    adding = CommandList(bytes([ADD]), [b"text", b"1"])
    assert run(engine, CommandList(), otherwise=adding) == (True, []), "a list that does not run is not refused"
    for lists in (
        (CommandList(bytes([ADD]), [b"a", b"one"]), None),
        (CommandList(), CommandList(bytes([ADD]), [b"", b""])),
    ):
        with pytest.raises(InvalidDeltaError):
            run(engine, lists[0], otherwise=lists[1])
    engine.add_joins(TIMELINE)
    for computed in (CommandList(bytes([ADD]), [b"t|x|1|a", b"1"]), CommandList(bytes([ADD]), [b"a", b"1"])):
        behind = CommandList(computed.kinds + bytes([COUNT]), [*computed.arguments, b"t|", b"t}"])
        with pytest.raises(ComputedKeyError if computed.arguments[0] != b"a" else TransactionError):
            run(engine, behind)
    assert engine.get(b"a") is None


def test_sums_count_against_what_a_reply_may_take() -> None:
    engine = Engine()
    with pytest.raises(LimitExceededError) as refused:
        run(engine, CommandList(bytes([ADD] * 16), [b"k", b"1" * 60] * 16))
    assert refused.value.setting == "reply_bytes_max"
    assert engine.get(b"k") is None


def test_a_scan_with_a_limit_goes_on_behind_what_was_removed() -> None:
    engine = Engine()
    for key in (b"a", b"b", b"c", b"d"):
        engine.put(key, b"0")
    done = run(engine, CommandList(bytes([REMOVE, SCAN_LIMIT, SCAN_DOWN]), [b"b", b"a", b"", b"a", b"c"], [3, 2]))
    assert done == (True, [True, Rows([b"a", b"c", b"d"], [b"0"] * 3), Rows([b"a"], [b"0"])])


@pytest.mark.parametrize(
    ("operator", "value", "holding", "failing"),
    [
        (IS_ABSENT, b"", [None], [b"", b"1"]),
        (IS_PRESENT, b"", [b"", b"1"], [None]),
        (EQUAL, b"1", [b"1"], [None, b"1.0", b""]),
        (NOT_EQUAL, b"1", [None, b"1.0", b""], [b"1"]),
        (LESS, b"1.50", [b"-3", b"1.4999"], [None, b"", b"1.5", b"2", b"text", b"1e0"]),
        (GREATER, b"-1", [b"-0.5", b"12345678901234567890123"], [None, b"-1.0", b"-2", b"text"]),
    ],
)
def test_what_a_compare_asks_for(
    operator: int, value: bytes, holding: list[bytes | None], failing: list[bytes | None]
) -> None:
    compare = KeyCompare(b"k", operator, value)
    assert [holds(compare, one) for one in (*holding, *failing)] == [True] * len(holding) + [False] * len(failing)


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        (CommandList(bytes([PUT, PUT]), [b"p|a|1", b"1", b"t|x|1|a", b"1"], []), ComputedKeyError),
        (CommandList(bytes([PUT, REMOVE]), [b"p|a|1", b"1", b"t|x|1|a"], []), ComputedKeyError),
        (CommandList(bytes([PUT, PUT]), [b"p|a|1", b"1", b"", b"1"], []), InvalidKeyError),
        (CommandList(bytes([PUT, PUT]), [b"p|a|1", b"1", b"p|a|2", b"x" * 2000], []), LimitExceededError),
        (CommandList(bytes([PUT, GET]), [b"p|a|1", b"1", b"t|x|1|a"], []), TransactionError),
        (CommandList(bytes([PUT, SCAN]), [b"p|a|1", b"1", b"", b""], []), TransactionError),
    ],
)
def test_a_write_that_is_refused_takes_all_with_it(commands: CommandList, error: type[Exception]) -> None:
    engine = Engine(value_bytes_max=1000)
    engine.add_joins(TIMELINE)
    with pytest.raises(error):
        run(engine, commands)
    if error is not TransactionError:
        with pytest.raises(error):
            run(engine, CommandList(), otherwise=commands)
    assert (engine.scan(b"", None).keys, engine.get(b"p|a|1")) == ([], None)


def test_computed_keys_are_read_before_the_writes_and_not_compared() -> None:
    engine = following()
    run(engine, PAIR)
    done = run(engine, CommandList(bytes([SCAN, COUNT, REMOVE]), [b"t|x|", b"t|x}", b"t|", b"t}", b"p|a|1"], []))
    assert done == (True, [Rows([b"t|x|1|a"], [b"Hi"]), 1, True])
    assert engine.scan(b"t|", b"t}").keys == []
    with pytest.raises(TransactionError, match=r"the join 't' computes it: .*\nhint: compare the keys from which"):
        run(engine, CommandList(), KeyCompare(b"t|x|1|a", IS_ABSENT))


def test_what_is_too_long_for_a_reply_does_nothing() -> None:
    engine = Engine()
    for number in range(20):
        engine.put(b"k|%02d" % number, b"v" * 90)
    for kind, arguments, setting in (
        (SCAN, [b"k|", b"k}"], "rows_max"),
        (SCAN, [b"k|", b"k|10"], "reply_bytes_max"),
    ):
        with pytest.raises(LimitExceededError) as refused:
            run(engine, CommandList(bytes([PUT, kind]), [b"a", b"1", *arguments], []))
        assert refused.value.setting == setting
    assert engine.get(b"a") is None
    engine.put(b"b", b"x" * 200)
    with pytest.raises(LimitExceededError):
        run(engine, CommandList(bytes([PUT] + [GET] * 6), [b"a", b"1", *[b"b"] * 6], []))
    assert engine.get(b"a") is None


def test_what_can_never_run_is_refused_with_a_hint() -> None:
    for kind in (PUT_IF, REMOVE_IF):
        arguments = [b"k", b"v", b""][: 3 if kind == PUT_IF else 2]
        with pytest.raises(TransactionError, match="a condition of its own\nhint: say the condition as a compare"):
            refuse(Transaction((), CommandList(bytes([kind]), arguments, [1])), 128)
    unknown = max(kind.code for kind in KINDS) + 1
    for commands, reason in (
        (CommandList(bytes([unknown])), f"of kind {unknown}, which transactions do not take"),
        (CommandList(bytes([PUT]), [b"k"]), "have 1 arguments, and their kinds take 2"),
        (CommandList(bytes([GET]), [b"k"], [1]), "have 1 numbers, and their kinds take 0"),
    ):
        with pytest.raises(TransactionError, match=reason):
            refuse(Transaction((), CommandList(), commands), 128)
    with pytest.raises(TransactionError, match="operator 7, which is none"):
        refuse(Transaction((KeyCompare(b"k", 7),), CommandList()), 128)
    with pytest.raises(TransactionError, match="which is no number"):
        refuse(Transaction((KeyCompare(b"k", LESS, b"1e3"),), CommandList()), 128)
    gets = CommandList(bytes([GET] * 2), [b"a", b"b"])
    refuse(Transaction((), gets, gets), 4)
    for transaction in (Transaction((), gets, gets), Transaction((KeyCompare(b"k", IS_ABSENT),) * 4, CommandList())):
        with pytest.raises(LimitExceededError, match="transaction_commands_max is 3, and this needs 4"):
            refuse(transaction, 3)


def test_compares_that_python_would_join_are_refused_at_once() -> None:
    # The first of two would be dropped, and the transaction run without it.
    for joined in (
        lambda: 2000 < value_of("n") < 5000,
        lambda: (value_of("a") == "9") and (value_of("n") == "1"),
        lambda: not absent("n"),
    ):
        with pytest.raises(TypeError, match="give each by itself"):
            joined()
