"""Rows go out to files and come back in, byte for byte; what is not right is told with its line and changes nothing."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pequod_installed.names import how_to_install

from pequod.cli.rowfiles import BadRow, Row, read_csv, read_json_lines
from pequod.client import Client
from tests.cli.conftest import Pequod
from tests.cli.terminal import on_a_terminal

FORMATS = ("csv", "jsonl", "parquet")
KEYS = st.binary(min_size=1, max_size=40) | st.text(min_size=1, max_size=20).map(str.encode)
VALUES = st.binary(max_size=80) | st.text(max_size=40).map(str.encode)


@pytest.fixture(autouse=True)
def store(target: str) -> Any:
    """Yield a client of the module's server, which is empty."""
    with Client(target) as client:
        for join in client.joins():
            client.drop_join(join.name)
        clear(client)
        yield client


def clear(client: Client) -> None:
    batch = client.batch()
    for key, _ in client.scan(""):
        batch.remove(key)
    batch.send()


@pytest.mark.parametrize("kind", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(rows=st.dictionaries(KEYS, VALUES, max_size=12))
def test_a_load_of_a_dump_is_the_same_store(
    store: Client, pequod: Pequod, tmp_path: Path, kind: str, rows: dict[bytes, bytes]
) -> None:
    clear(store)
    batch = store.batch()
    for key, value in rows.items():
        batch.put(key, value)
    batch.send()
    file = tmp_path / f"all.{kind}"
    dumped = pequod("dump", "", "-o", str(file))
    assert dumped.code == 0, dumped.err
    clear(store)
    loaded = pequod("load", str(file), "--batch", "5", "--window", "2")
    assert loaded.code == 0, loaded.err
    assert f"{len(rows)} row" in loaded.err
    assert dict(store.scan("")) == rows


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_standard_streams_carry_rows(store: Client, target: str, tmp_path: Path, kind: str) -> None:
    rows = [(b"a\xff", b'\0\r\n,"'), (b"b", "é".encode())]
    for key, value in rows:
        store.put(key, value)

    def run(command: str) -> None:
        pequod = f"{sys.executable} -m pequod.cli"
        environment = {"PEQUOD_TARGET": target, "PATH": os.environ["PATH"], "FILE": str(tmp_path / "rows")}
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.format(pequod)], env=environment, timeout=60, check=True
        )

    run(f"{{}} dump '' -f {kind} | cat > $FILE")
    clear(store)
    run(f"cat $FILE | {{}} load - -f {kind}")
    assert store.scan("") == rows


@pytest.mark.parametrize("kind", FORMATS)
def test_deadlines_go_into_a_file_and_back(store: Client, pequod: Pequod, tmp_path: Path, kind: str) -> None:
    store.multi_put({"a": "1", "b": "2"}, ttl_s=3600)
    store.put("c", "3")
    file = tmp_path / f"all.{kind}"
    assert pequod("dump", "", "-o", str(file)).code == 0
    clear(store)
    store.put("c", "4", ttl_s=5)
    assert "3 rows loaded" in pequod("load", str(file)).err
    left_s = [store.ttl(key) for key in ("a", "b", "c")]
    assert all(one is not None and 3500 < one <= 3600 for one in left_s[:2])
    assert left_s[2] == math.inf


def test_a_row_that_has_expired_is_left_out_of_a_load(store: Client, pequod: Pequod) -> None:
    rows = f"key,value,expires_ms\na,1,1000\nb,2,\nc,3,{1 << 46}\nd,4,soon\n".encode()
    done = pequod("load", "-", "-f", "csv", "--skip-bad", stdin=rows)
    assert done.code == 3
    assert "line 5: the expires_ms: it must be milliseconds since 1970" in done.err
    assert "line 4: a time to live of" in done.err
    assert "1 row loaded" in done.err
    assert "1 left out that have expired" in done.err
    assert store.scan("") == [(b"b", b"2")]


def test_a_file_of_keys_that_do_not_expire_is_as_it_always_was(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    store.put("a", "1")
    assert pequod("dump", "", "-f", "csv").out == "key,value\na,1\n"
    assert pequod("dump", "").out == '{"key": "a", "value": "1"}\n'
    assert pequod("dump", "", "-o", str(tmp_path / "all.parquet")).code == 0
    assert pq.read_table(tmp_path / "all.parquet").column_names == ["key", "value"]


def test_a_dump_is_as_scan_prints_it(store: Client, pequod: Pequod) -> None:
    store.put(b"b|\xff", 'tab\t, "quoted"')
    assert pequod("dump", "").out == pequod("scan", "", "--json").out
    assert pequod("dump", "-p", "b|", "-f", "csv").out == 'key,value\nb|\\xff,"tab\\t, ""quoted"""\n'
    assert pequod("dump", "c", "d").out == ""


def test_a_dump_larger_than_replies_comes_whole(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"key": "r|{i:06}", "value": "{i}"}}\n' for i in range(30_000)))
    assert pequod("load", str(file)).err.startswith("pequod: 30000 rows loaded in ")
    assert store.count("") == 30_000
    copies = [tmp_path / f"copy.{kind}" for kind in FORMATS]
    for copy in copies:
        assert pequod("dump", "", "-o", str(copy)).code == 0
    assert copies[1].read_bytes() == file.read_bytes()
    assert pq.read_table(copies[2]).num_rows == 30_000
    assert copies[0].read_text().count("\n") == 30_001


def test_a_dump_holds_computed_rows_which_load_may_leave_out(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    store.add_join("karma|<author> = count vote|<author>|<voter>")
    store.put("vote|ann|bob", "")
    file = tmp_path / "all.csv"
    assert pequod("dump", "", "-o", str(file)).code == 0
    assert "karma|ann,1\n" in file.read_text()
    store.remove("vote|ann|bob")
    refused = pequod("load", str(file))
    assert refused.code == 3
    assert "all.csv, line 2: key 'karma|ann' is computed by the join 'karma'" in refused.err
    assert "1 row loaded" in refused.err
    assert "1 refused by the server" in refused.err
    assert store.get("karma|ann") == b"1"
    skipped = pequod("load", str(file), "--skip-computed")
    assert (skipped.code, "1 left out that joins compute" in skipped.err) == (0, True)


def test_no_more_refusals_are_shown_than_can_be_read(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    store.add_join("karma|<author> = count vote|<author>|<voter>")
    file = tmp_path / "all.csv"
    file.write_text("key,value\n" + "".join(f"karma|{i},1\n" for i in range(25)) + "a,1\n")
    outcome = pequod("load", str(file))
    assert outcome.code == 3
    assert len(outcome.err.splitlines()) == 12
    assert "... and 15 more" in outcome.err
    assert "25 refused" in outcome.err
    assert store.get("a") == b"1"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "key,value\na,1\nb,2\nc,3\nd,4,5\ne,5\n", "line 5: its cells are 3"),
        ("a.csv", "key,value\na,1\nb,2\nc,3\n\\d,4\n", "line 5: the key: a backslash must"),
        ("a.csv", 'key,value\na,1\nb,2\nc,3\nd,"4\n', "line 5: it is no CSV"),
        ("a.csv", 'key,value\na,1\nb,"2\n"\nc,3\nd\n', "line 6: its cells are 1"),
        ("a.jsonl", '{"key":"a","value":"1"}\n\n' * 3 + '{"key":"d"}\n', "line 7: it must be"),
        ("a.jsonl", '{"key":"a","value":"1"}\n' * 3 + '{"key":"d","value":4}\n', "line 4: the value: it must be text"),
        ("a.jsonl", '{"key":"a","value":"1"}\n' * 3 + "{'key'}\n", "line 4: it is no JSON"),
    ],
)
def test_a_malformed_row_stops_a_load_before_its_batch(
    store: Client, pequod: Pequod, tmp_path: Path, name: str, text: str, said: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    outcome = pequod("load", str(file), "--batch", "100")
    assert outcome.code == 3
    assert f"{name}, {said}" in outcome.err
    assert "--skip-bad" in outcome.err
    assert "0 rows written, nothing from line" in outcome.err
    assert store.count("") == 0
    outcome = pequod("load", str(file), "--batch", "2")
    assert "2 rows written" in outcome.err
    assert set(dict(store.scan(""))) <= {b"a", b"b"}


def test_bad_rows_may_be_left_out(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xef\xbb\xbfkey,value\r\na,1\r\nb\r\n\xff,3\r\nd,4\r\n")
    outcome = pequod("load", str(file), "--skip-bad")
    assert outcome.code == 0
    assert "a.csv, line 3: its cells are 1" in outcome.err
    assert "a.csv, line 4: the key: it holds bytes that are no UTF-8" in outcome.err
    assert "2 left out that cannot be read" in outcome.err
    assert store.scan("") == [(b"a", b"1"), (b"d", b"4")]


def test_parquet_may_hold_text_and_must_hold_two_columns(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    file = str(tmp_path / "a.parquet")
    keys, values = pa.array(["a", None, "c"]).dictionary_encode(), pa.array(["1", "2", "é"], pa.large_string())
    pq.write_table(pa.table({"value": values, "key": keys}), file)
    outcome = pequod("load", file)
    assert (outcome.code, "a.parquet, row 2: the key: it is null" in outcome.err) == (3, True)
    assert pequod("load", file, "--skip-bad").code == 0
    assert store.scan("") == [(b"a", b"1"), (b"c", "é".encode())]
    pq.write_table(pa.table({"key": ["a"], "value": [1]}), file)
    assert "the column value is int64; write it as binary or text" in pequod("load", file).err
    pq.write_table(pa.table({"key": ["a"], "values": ["b"]}), file)
    assert "its columns must be key and value, not key, values" in pequod("load", file).err
    Path(file).write_text("key,value\n")
    outcome = pequod("load", file)
    assert (outcome.code, "it is no Parquet file" in outcome.err) == (3, True)


def test_without_pyarrow_the_message_says_what_to_install(
    pequod: Pequod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "a.parquet"
    outcome = pequod("dump", "", "-o", str(file))
    assert (outcome.code, list(tmp_path.iterdir())) == (3, [])
    assert how_to_install("files") in outcome.err


@pytest.mark.parametrize(
    "arguments", [("load", "rows.txt"), ("load", "/nowhere/a.csv"), ("load", "/"), ("load", "a", "-f", "xml")]
)
def test_files_that_are_none_end_with_2(pequod: Pequod, arguments: tuple[str, ...]) -> None:
    outcome = pequod(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err


def test_a_csv_needs_its_header(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    for text in ("a,1\n", "", '"\n'):
        (tmp_path / "a.csv").write_text(text)
        outcome = pequod("load", str(tmp_path / "a.csv"))
        assert (outcome.code, "must be the header key,value" in outcome.err) == (3, True)
    assert store.count("") == 0


def test_a_file_appears_only_when_it_is_complete(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    file, link = tmp_path / "a.csv", tmp_path / "link.csv"
    file.write_text("old")
    link.symlink_to(file)
    assert pequod("dump", "", "-o", str(link), target="127.0.0.1:1").code == 4
    assert (file.read_text(), sorted(tmp_path.iterdir())) == ("old", [file, link])
    store.put("a", "1")
    assert pequod("dump", "", "-o", str(link)).code == 0
    assert (file.read_text(), link.is_symlink()) == ("key,value\na,1\n", True)
    assert stat.S_IMODE(file.stat().st_mode) & 0o600 == 0o600
    assert pequod("dump", "", "-o", "/dev/null", "-f", "csv").code == 0
    assert not Path("/dev/null").is_file()
    outcome = pequod("dump", "", "-o", str(tmp_path / "no" / "a.csv"))
    assert (outcome.code, "cannot write the file" in outcome.err) == (3, True)


def test_a_fifo_is_written_to_directly(store: Client, process: Pequod, tmp_path: Path) -> None:
    store.put("a", "1")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert process("dump", "", "-o", str(fifo), "-f", "csv").code == 0
    assert os.read(reader, 100) == b"key,value\na,1\n"
    os.close(reader)


def test_a_batch_that_the_server_refuses_as_a_whole_is_told(store: Client, pequod: Pequod, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    rows = [{"key": "a", "value": "1"}, {"key": "", "value": "no key"}, {"key": "b", "value": "x" * (1 << 20) + "x"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = pequod("load", str(file))
    assert outcome.code == 3
    assert "line 2: key ''" in outcome.err
    assert "value_bytes_max" in outcome.err
    assert store.scan("") == [(b"a", b"1")]


def test_no_server_ends_with_4(pequod: Pequod, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("key,value\na,1\n")
    outcome = pequod("load", str(file), target="127.0.0.1:1")
    assert outcome.code == 4
    assert "0 rows written before it ended" in outcome.err


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_bad_rows(data: bytes) -> None:
    for row in read_json_lines(BytesIO(data)):
        assert isinstance(row, Row | BadRow)
    places = [row.place for row in read_csv(BytesIO(b"key,value\n" + data))]
    assert places == sorted(set(places))
    assert all(place > 1 for place in places)


def test_a_terminal_shows_how_far_a_load_is(store: Client, target: str, tmp_path: Path) -> None:
    file = tmp_path / "rows[b].csv"
    file.write_text("key,value\n" + "".join(f"r|{i:05},{i}\n" for i in range(3000)))
    with on_a_terminal("load", str(file), target=target, COLUMNS="200") as terminal:
        terminal.wait_for(f"loading {file}")
        terminal.wait_for("3,000 rows")
        terminal.wait_for("3000 rows loaded")
        assert terminal.end() == 0
    assert store.count("r|", "r}") == 3000
