"""What the engine refuses, and why."""

import pytest
from pequod_grammar import parse

from pequod.engine import ComputedKeyError, Engine, InvalidKeyError, JoinError, LimitExceededError
from tests.engine.joins import TIMELINE, engine_with, put_all, scan


class TestRefusals:
    """What is refused changes nothing."""

    def test_writes_of_computed_keys(self) -> None:
        engine = engine_with(TIMELINE)
        for write in (lambda: engine.put(b"t|ann|0001|bob", b""), lambda: engine.remove(b"t|ann|0001|bob")):
            with pytest.raises(ComputedKeyError) as caught:
                write()
            assert caught.value.join == "t"
        engine.put(b"t|ann|01|bob", b"no key of the pattern")
        assert engine.revision == 2

    def test_empty_and_long_keys_and_values(self) -> None:
        engine = Engine(key_bytes_max=4, value_bytes_max=2)
        for call in (lambda: engine.put(b"", b""), lambda: engine.remove(b"")):
            with pytest.raises(InvalidKeyError):
                call()
        with pytest.raises(LimitExceededError, match="key_bytes_max"):
            engine.put(b"12345", b"")
        with pytest.raises(LimitExceededError, match="value_bytes_max") as caught:
            engine.put(b"1", b"123")
        assert (caught.value.setting, caught.value.size, caught.value.maximum) == ("value_bytes_max", 3, 2)
        assert engine.revision == 0
        assert Engine().get(b"") is None

    def test_rows_that_are_put_together_are_put_all_or_not_at_all(self) -> None:
        engine = engine_with("b|<x> = copy a|<x>")
        engine._admission.value_bytes_max = 2
        refused = [(b"b|1", b"", ComputedKeyError), (b"", b"", InvalidKeyError), (b"a|1", b"123", LimitExceededError)]
        for key, value, error in refused:
            with pytest.raises(error):
                engine.put_all([b"a|0", key], [b"0", value])
        assert scan(engine, "b|") == {}
        engine.put_all([b"a|0", b"b", b"a|0"], [b"0", b"", b"1"])
        assert scan(engine, "b|") == {"b|0": "1"}

    def test_cycles_are_spelled_out(self) -> None:
        engine = engine_with("b|<x> = copy a|<x>; c|<x> = copy b|<x>")
        with pytest.raises(JoinError, match=r"a\|<x> reads c\|<x> reads b\|<x> reads a\|<x>") as caught:
            engine.add_joins(parse("d|<x> = copy c|<x>; a|<x> = copy c|<x>"))
        assert caught.value.span is not None
        with pytest.raises(JoinError, match="own output"):
            engine.add_joins(parse("a|<x>|<y> = copy a|<y>|<x>"))
        assert [join.name for join in engine.joins()] == ["b", "c"], "all or none"

    def test_the_same_table_with_other_literals_is_no_cycle(self) -> None:
        engine = engine_with("a|<x>|2 = copy a|<x>|1; a|<x>|3 = copy a|<x>|2")
        put_all(engine, {"a|k|1": "v"})
        assert scan(engine, "a|") == {"a|k|1": "v", "a|k|2": "v", "a|k|3": "v"}

    def test_outputs_that_a_client_has_written(self) -> None:
        engine = Engine()
        engine.put(b"t|ann|0001|bob", b"mine")
        with pytest.raises(JoinError, match="a client has written"):
            engine.add_joins(parse(TIMELINE))
        assert engine.joins() == []
        assert scan(engine, "t|") == {"t|ann|0001|bob": "mine"}

    def test_installing_a_join_again_changes_nothing(self) -> None:
        engine = engine_with(TIMELINE)
        revision = engine.revision
        assert engine.add_joins(parse(TIMELINE)) == engine.joins()
        assert engine.revision == revision
