"""What options, schemas and rows the data source takes, and what it says of others."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pequod_spark.connection import Connection
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType
from pyspark_pequod import DefaultSource
from pyspark_pequod.columns import ColumnError, RowColumns
from pyspark_pequod.options import OptionError, connection, key_pattern, session_settings
from pyspark_pequod.packing import Packing, RowError, sorted_once
from pyspark_pequod.writer import BYTES_MAX, ROWS_MAX, messages

from pequod.answers.rows import Rows
from pequod.language.decimals import parse_number

TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
}


def columns_of(text: str) -> StructType:
    """Return a schema; Spark's own parser of such texts needs a session."""
    pairs = [column.split() for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


ROWS = columns_of("key binary, value binary")
PATTERN = key_pattern({"pattern": "p|<poster>|<time:4>"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "p|<poster"}, "option 'pattern'"),
        ({"pattern": "p|<key>"}, "a slot cannot be named 'key'"),
        ({"prefx": "p|"}, r"did you mean 'prefix'\?"),
        ({"host": "here"}, "there is none; there are target, "),
        ({"prefix": "p|", "first": "p|a"}, "name the range by prefix, or by first and last"),
        ({"partitions": "0"}, "'0' is no whole number of 1 or more"),
        ({"timeout": "soon"}, "'soon' is no positive number of seconds"),
        ({"tls": "maybe"}, "'maybe' is neither true nor false"),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        DefaultSource(options).reader(ROWS)


def test_a_column_that_is_no_slot_is_refused() -> None:
    with pytest.raises(ColumnError, match="column 'poster': there is none; there are key, value; slots need"):
        DefaultSource({}).reader(columns_of("poster string"))


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionError, match=r"there is only append; a put replaces .* `pequod rm --prefix` removes"):
        DefaultSource({}).writer(ROWS, overwrite=True)
    with pytest.raises(OptionError, match="'outputMode': there is only append; write each batch with `foreachBatch`"):
        DefaultSource({}).streamWriter(ROWS, overwrite=True)


def test_options_come_before_settings_and_those_before_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("of the file\n")
    conf = {"spark.pequod.target": "setting:1", "spark.pequod.token_file": str(token), "spark.executor.cores": "1"}
    monkeypatch.setenv("PEQUOD_TARGET", "variable:1")
    monkeypatch.setenv("PEQUOD_TOKEN", "of the variable")
    monkeypatch.setenv("PEQUOD_CA", "ca.pem")
    monkeypatch.setenv("PEQUOD_TLS", "1")
    assert connection({}) == Connection("variable:1", tls=True, ca="ca.pem", token="of the variable")

    class Set(DefaultSource):
        settings = session_settings(conf)

    source = Set({"timeout": "7"})
    found = connection(source.options)
    assert found == Connection("setting:1", 7.0, tls=True, ca="ca.pem", token="of the file")
    assert "of the" not in repr(found)
    assert connection(Set({"target": "option:1", "token": "of the option"}).options).token == "of the option"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("token", r"Spark shows its settings; name a file by spark\.pequod\.token_file"),
        ("prefix", "there is none; there"),
    ],
)
def test_a_setting_that_cannot_be_one_is_refused(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        session_settings({f"spark.pequod.{name}": "x"})


def test_a_token_file_that_is_not_there_is_named() -> None:
    with pytest.raises(OptionError, match="option 'token_file': '/no/such' cannot be read"):
        connection({"token_file": "/no/such"})


def test_keys_that_are_not_of_the_pattern_are_left_out() -> None:
    columns = RowColumns(columns_of("time int, poster string, value string"), PATTERN)
    keys = [b"p|ann|0012", b"p|ann|12", b"p|a|b|0012", b"q|ann|0012", b"p|bob|0013"]
    assert columns.batch(Rows(keys, [b"%d" % number for number in range(5)])).to_pylist() == [
        {"time": 12, "poster": "ann", "value": "0"},
        {"time": 13, "poster": "bob", "value": "4"},
    ]


def test_a_repeated_slot_must_be_the_same() -> None:
    columns = RowColumns(columns_of("a binary"), key_pattern({"pattern": "x|<a>|<a>"}))
    assert columns.batch(Rows([b"x|1|1", b"x|1|2", b"x|\xff|\xff"], [])).to_pylist() == [{"a": b"1"}, {"a": b"\xff"}]


def test_bytes_that_are_not_of_the_type_are_refused() -> None:
    columns = RowColumns(columns_of("value int"), None)
    with pytest.raises(ColumnError, match=r"column 'value': not all of it is int32: .*choose binary"):
        columns.batch(Rows([b"k"], [b"many"]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"poster": None, "time": 1, "value": "v"}, "'poster': it is null"),
        ({"poster": "", "time": 1, "value": "v"}, "'poster': it is empty, and a slot is not"),
        ({"poster": "a|b", "time": 1, "value": "v"}, r"'poster': it holds a \|, which ends the slot"),
        ({"poster": "a", "time": -1, "value": "v"}, "'time': it is negative, and has a width"),
        ({"poster": "a", "time": 12345, "value": "v"}, "'time': it is not 4 bytes long"),
        ({"poster": "a", "time": 1, "value": None}, "'value': it is null, in the row poster='a', time=1, value=None"),
    ],
)
def test_a_row_that_makes_no_key_is_refused(row: dict[str, object], message: str) -> None:
    schema = pa.schema([("poster", pa.string()), ("time", pa.int64()), ("value", pa.string())])
    good = {"poster": "ann", "time": 7, "value": "v"}
    batch = pa.RecordBatch.from_pylist([good, row], schema=schema)
    packing = Packing(columns_of("poster string, time bigint, value string"), PATTERN)
    assert packing.pack(batch.slice(0, 1)).to_pylist() == [{"key": b"p|ann|0007", "value": b"v"}]
    with pytest.raises(RowError, match=message):
        packing.pack(batch)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("key binary", "column 'value': there is none"),
        ("value binary", "column 'key': there is none; a key, or the option `pattern`"),
        (
            "key binary, poster string, value binary",
            "column 'poster': the column `key` says where a row goes; drop one",
        ),
        ("key binary, value binary, extra int", "column 'extra': nobody reads it; drop it, or select value, key"),
    ],
)
def test_columns_that_give_no_rows_are_refused(schema: str, message: str) -> None:
    with pytest.raises(ColumnError, match=message):
        Packing(columns_of(schema), PATTERN if "poster" in schema else None)


def test_rows_are_sorted_and_of_equal_keys_the_last_stays() -> None:
    tables = [
        pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
        for keys, values in (([b"b", b"a"], [b"1", b"2"]), ([b"b", b"c"], [b"3", b"4"]), ([], []))
    ]
    assert [tuple(row.values()) for row in sorted_once(tables).to_pylist()] == [
        (b"a", b"2"),
        (b"b", b"3"),
        (b"c", b"4"),
    ]


def test_messages_are_bounded_in_rows_and_bytes() -> None:
    large = b"x" * (BYTES_MAX // 2)
    values = [b""] * (2 * ROWS_MAX) + [large] * 5
    keys = [b"%09d" % number for number in range(len(values))]
    sent = list(messages(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})))
    assert [key for message in sent for key in message.keys] == keys
    assert all(len(message.keys) <= ROWS_MAX for message in sent)
    assert all(sum(map(len, message.values)) <= BYTES_MAX for message in sent)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (pa.float64(), [1e15, 1e16, -2.5e22, 1.5, 0.1, 1e-7, 12345678901234567.0, 3.0]),
        (pa.float32(), [1e10, 0.5, -(2.0**70)]),
        (pa.decimal128(38, 10), [0.0, 1.5, -1e-10]),
    ],
)
def test_numbers_are_written_as_joins_read_them(kind: pa.DataType, numbers: list[float]) -> None:
    given = [Decimal(repr(number)) for number in numbers] if pa.types.is_decimal(kind) else numbers
    batch = pa.record_batch([[b"k"] * len(given), pa.array(given, kind)], names=["key", "value"])
    written = [parse_number(text) for text in Packing(ROWS, None).pack(batch)["value"].to_pylist()]
    assert None not in written
    assert pa.array(map(float, written), pa.float32()) == pa.array(numbers, pa.float32())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "message"),
    [(float("nan"), "it is no number"), (float("-inf"), "it is no number"), (1e200, "round it, or write it as text")],
)
def test_what_joins_would_not_take_for_a_number_is_refused(number: float, message: str) -> None:
    batch = pa.record_batch([[b"k", b"l"], [1.5, number]], names=["key", "value"])
    with pytest.raises(RowError, match=message):
        Packing(ROWS, None).pack(batch)
