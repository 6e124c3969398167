"""Computed keys of real servers are compared with what Spark computes; planted faults are found and repaired."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pequod_spark.comparing import Difference
from pequod_spark.connection import Connection
from pequod_spark.verify import VerifyError, repair, verify
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pequod import Client
from pequod.cli.app import app
from tests.engine.joins import BY_AUTHOR, CELEBRITY, TIMELINE
from tests.spark.faulty import faulty_server
from tests.spark.served import served

USERS = ["ann", "bob", "liz", "zoë"]
POSTS = {f"p|{user}|{time:04}": f"{user} at {time}" for user in USERS for time in range(20)}
FOLLOWS = {f"s|{user}|{poster}": "1" for user in USERS for poster in USERS if user < poster}
VOTES = {f"vote|{author}|{number}|{voter}": "" for author in USERS for number in range(2) for voter in USERS}
COMMENTS = {f"comment|{author}|{number}|0001|ann": "agreed" for author in USERS for number in range(2)}
#: What pages of Newp need of comments: joins over a join.
COMMENTED = """
karma|<author> = count vote|<author>|<id>|<voter>;
page|<author>|<id>|c|<cid>|<commenter> = copy comment|<author>|<id>|<cid>|<commenter>;
page|<author>|<id>|k|<cid>|<commenter> = check comment|<author>|<id>|<cid>|<commenter> copy karma|<commenter>;
"""


@contextmanager
def writing(target: str) -> Iterator[None]:
    """Change posts, old and new, and who follows whom, all the time."""
    stop = threading.Event()

    def write() -> None:
        with Client(target) as client:
            for number in count():
                batch = client.batch()
                for user in USERS:
                    batch.put(f"p|{user}|{number % 40:04}", f"change {number}")
                    batch.remove(f"p|{user}|{(number + 7) % 40:04}")
                if number % 2:
                    batch.put("s|zoë|ann", "1")
                else:
                    batch.remove("s|zoë|ann")
                batch.send()
                if stop.wait(0.01):
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def test_a_sound_server_is_clean_also_while_others_write(spark: SparkSession) -> None:
    with faulty_server(TIMELINE, POSTS | FOLLOWS, [("t|ann|", "t|ann}")]) as target:
        found = verify(spark, Connection(target)).found
        assert (found.difference_count, found.key_count) == (0, 20 * len(FOLLOWS))
        assert list(found) == []
        with writing(target):
            found = verify(spark, Connection(target)).found
            assert list(found) == []
            # At least a dozen posts of each are there at any moment, and most follow.
            assert found.key_count > 50


def test_faults_are_found_and_repaired_while_others_write(spark: SparkSession) -> None:
    faults = [("t", "t|ann|0100|bob", "wrong"), ("t", "t|bob|0101|liz", None), ("t", "t|bob|0102|ann", "from nowhere")]
    rows = POSTS | FOLLOWS | {"p|bob|0100": "right", "p|liz|0101": "lost"}
    with faulty_server(TIMELINE, rows, [("t|ann|", "t|ann}"), ("t|bob|", "t|bob}")], faults) as target, writing(target):
        differences = [
            Difference(b"t|ann|0100|bob", b"wrong", b"right"),
            Difference(b"t|bob|0101|liz", None, b"lost"),
            Difference(b"t|bob|0102|ann", b"from nowhere", None),
        ]
        assert list(verify(spark, Connection(target)).found) == differences
        assert list(verify(spark, Connection(target), first=b"t|ann|", last=b"t|ann}").found) == differences[:1]
        assert repair(Connection(target), differences) >= 2
        assert list(verify(spark, Connection(target)).found) == []


def test_joins_over_records_are_verified(spark: SparkSession) -> None:
    joins = f"{BY_AUTHOR}; number|<tag> = count article|<id> with tags[] = <tag>"
    rows = {
        f"article|{number}": json.dumps({"author": USERS[number % 4], "title": f"t{number}", "tags": ["x", "y"]})
        for number in range(40)
    }
    fault = ("by_author", "by_author|ann|8", '{"title":"wrong"}')
    with faulty_server(joins, rows | {"article|x": "text"}, [("by_author|", "by_author}")], [fault]) as target:
        found = verify(spark, Connection(target)).found
        assert found.key_count == 42
        assert list(found) == [Difference(b"by_author|ann|8", b'{"title":"wrong"}', b'{"title":"t8"}')]
        assert repair(Connection(target), list(found)) == 1
        assert list(verify(spark, Connection(target)).found) == []


def test_what_a_wrong_row_led_to_is_repaired_with_it(spark: SparkSession) -> None:
    with faulty_server(COMMENTED, VOTES | COMMENTS, [("page|", "page}")], [("karma", "karma|ann", "99")]) as target:
        with Client(target) as client:
            # Computed from the wrong row, and kept.
            client.put("comment|bob|1|0002|ann", "more")
            assert client.get("page|bob|1|k|0002|ann") == b"99"
        found = verify(spark, Connection(target)).found
        assert {difference.key for difference in found} == {b"karma|ann", b"page|bob|1|k|0002|ann"}
        page = verify(spark, Connection(target), join="page.2").found
        assert list(page) == [Difference(b"page|bob|1|k|0002|ann", b"99", b"8")]
        repair(Connection(target), page)
        assert list(verify(spark, Connection(target)).found) == []


def test_pull_joins_are_read_and_snapshots_left_out(spark: SparkSession) -> None:
    joins = CELEBRITY + "top|<user> = snapshot 60 count p|<user>|<time:4>; best|<user> = copy top|<user>;"
    celebrity = {"cp|liz|0500": "hello", "s|ann|zoë": "1"}
    with faulty_server(joins, POSTS | FOLLOWS | celebrity, [("t|ann|", "t|ann}")]) as target:
        verification = verify(spark, Connection(target))
        assert verification.found.difference_count == 0
        assert verification.found.key_count == 20 * len(FOLLOWS) + 1 + 2
        assert verification.left_out == {
            "top": "it shows snapshots, which are of any moment within their age",
            "best": "it reads what the snapshot join 'top' shows",
        }
        with pytest.raises(VerifyError, match="'best' cannot be verified: it reads what the snapshot join 'top' shows"):
            verify(spark, Connection(target), join="best")
        with pytest.raises(VerifyError, match=r"no join is called 'x'; installed: ct, t, t\.2, top, best"):
            verify(spark, Connection(target), join="x")
        with writing(target), pytest.raises(VerifyError, match=r"after 3 attempts: .*; try when writers pause"):
            verify(spark, Connection(target), join="t.2")


def test_a_server_without_joins_is_clean(spark: SparkSession) -> None:
    with faulty_server("", {"a|1": "x"}) as target:
        found = verify(spark, Connection(target)).found
        assert (found.key_count, list(found)) == (0, [])


@pytest.mark.usefixtures("spark")
def test_the_command_prints_differences_and_repairs_them() -> None:
    faults = [("t", "t|ann|0003|bob", "a\tb"), ("t", "t|ann|0005|bob", None)]
    with faulty_server(TIMELINE, POSTS | FOLLOWS, [("t|ann|", "t|ann}")], faults) as target:
        command = ["verify", "--target", target, "--prefix", "t|ann|"]
        result = CliRunner().invoke(app, [*command, "--json"])
        assert (result.exit_code, result.stdout) == (
            1,
            (
                '{"key": "t|ann|0003|bob", "have": "a\\tb", "want": "bob at 3"}\n'
                '{"key": "t|ann|0005|bob", "have": null, "want": "bob at 5"}\n'
            ),
        )
        result = CliRunner().invoke(app, [*command, "--repair"])
        assert (result.exit_code, result.stdout) == (
            1,
            "- t|ann|0003|bob\ta\\tb\n+ t|ann|0003|bob\tbob at 3\n+ t|ann|0005|bob\tbob at 5\n",
        )
        assert "2 of 60 computed keys at revision" in result.stderr
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, result.stdout) == (0, "")
        assert "none of 60 computed keys" in result.stderr


def test_without_java_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with served() as target:
        result = CliRunner().invoke(app, ["verify", "--target", target])
    assert result.exit_code == 3
    assert "Spark cannot start: JAVA_HOME is" in result.stderr
    assert "install Java 17" in result.stderr
    result = CliRunner().invoke(app, ["verify", "--conf", "fast"])
    assert result.exit_code == 2
    assert "--conf needs NAME=VALUE, not 'fast'" in result.stderr
