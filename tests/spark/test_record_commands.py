"""`pequod backfill` and `pequod verify` of joins over records, as an operator runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest
from pequod_grammar import parse
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import Client
from pequod.engine.testing import NaiveModel
from tests.client.conftest import ServerProcess
from tests.engine.joins import REVIEW
from tests.spark.faulty import faulty_server

TAGGED = "tagged|<tag>|<time:10>|<id> = copy post|<id> with tags[] = <tag>, time = <time:10>"
JOINS = f"{TAGGED}; {REVIEW}"
NAMES = ("tagged", "review")


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    server = ServerProcess()
    yield server
    server.kill()


def record(random: Random, table: str) -> str:
    """Draw a value of a table; one of ten is no record, or lacks what the joins look at."""
    if random.random() < 0.1:
        return random.choice(["", "text", "{}", '{"tags": 1, "time": null, "item": {}}'])
    number = random.randrange(4)
    fields: dict[str, dict[str, object]] = {
        "post": {"tags": random.sample(["red", "new", "old", "é"], number), "time": f"{random.randrange(50):010}"},
        "item": {"visible": random.random() < 0.7},
        "review": {"item": f"{number}", "date": f"d{number}", "subject": "Hi", "rating": number},
    }
    return json.dumps(fields[table], ensure_ascii=False)


def fill(client: Client, model: NaiveModel, random: Random, count: int) -> None:
    rows = {}
    for _ in range(count):
        table = random.choice(["post", "item", "review"])
        rows[f"{table}|{random.randrange(4 if table == 'item' else 60)}"] = record(random, table)
    client.multi_put(rows)
    for key, value in rows.items():
        model.put(key.encode(), value.encode())


def expected(model: NaiveModel, name: str) -> dict[bytes, bytes]:
    """Return all rows of a join's table; that of the reviews has base rows, too."""
    return dict(model.scan(name.encode() + b"|", name.encode() + b"}"))


@pytest.mark.usefixtures("spark")
def test_joins_over_records_are_backfilled_and_verified_by_commands(server: ServerProcess) -> None:
    random, model = Random(5), NaiveModel()
    for spec in parse(JOINS):
        model.add(spec)
    with Client(server.target) as client:
        client.add_join(JOINS)
        fill(client, model, random, 150)
        for name in NAMES:
            result = CliRunner().invoke(app, ["backfill", "--join", name, "--target", server.target])
            assert result.exit_code == 0, result.stderr
            assert dict(client.scan(prefix=f"{name}|")) == expected(model, name)
            # Only the gaps between what Spark loaded were left to the server.
            assert client.statistics().joins[name].rows_computed == 0
        fill(client, model, random, 40)
        for name in NAMES:
            assert dict(client.scan(prefix=f"{name}|")) == expected(model, name)
    result = CliRunner().invoke(app, ["verify", "--target", server.target])
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    computed = [len(rows) for rows in model.evaluate_joins()]
    assert min(computed) > 2
    assert f"none of {sum(computed)} computed keys" in result.stderr


@pytest.mark.usefixtures("spark")
def test_wrong_rows_of_a_join_over_records_are_found_by_the_command() -> None:
    rows = {f"post|{number}": f'{{"tags": ["red"], "time": "{number:010}"}}' for number in range(5)}
    faults = [("tagged", "tagged|red|0000000002|2", "no"), ("tagged", "tagged|red|0000000003|3", None)]
    with faulty_server(TAGGED, rows, [("tagged|red|", "tagged|red}")], faults) as target:
        result = CliRunner().invoke(app, ["verify", "--target", target, "--json"])
    assert result.exit_code == 1, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert found == [
        {"key": "tagged|red|0000000002|2", "have": "no", "want": rows["post|2"]},
        {"key": "tagged|red|0000000003|3", "have": None, "want": rows["post|3"]},
    ]
