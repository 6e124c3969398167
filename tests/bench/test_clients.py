"""Every form of using a client runs, tiny, and looks at its answers; so do other event loops."""

from __future__ import annotations

import asyncio
import json

import pytest
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.report.progress import QUIET
from pequod_bench.settings import ClientsSettings
from pequod_bench.systems.server import loop_factory
from pequod_bench.wire.clients import run
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import Client
from tests.forked import started_server


@pytest.mark.usefixtures("forked_servers")
def test_every_form_runs_and_reports() -> None:
    result = CliRunner().invoke(app, ["bench", "clients", "--smoke", "--json"])
    assert result.exit_code == 0, result.stderr
    forms = json.loads(result.stdout)["forms"]
    assert {form["at_once"] for form in forms} == {1, 4, 10, 16, 100, 256, 1000, 3000}
    assert len({form["name"] for form in forms}) == len(forms) == 34
    for form in forms:
        assert form["operations_per_s"] > 0
        assert form["client_cpu_us"] > 0
        assert form["server_cpu_us"] >= 0


@pytest.mark.usefixtures("forked_servers")
def test_one_form_on_the_loop_of_asyncio() -> None:
    arguments = ["--smoke", "--only", "AsyncClient.get, 10 ", "--client-loop", "asyncio"]
    result = CliRunner().invoke(app, ["bench", "clients", *arguments])
    assert result.exit_code == 0, result.stderr
    assert "AsyncClient.get, 10 at once" in result.stdout
    assert "put" not in result.stdout


@pytest.mark.parametrize("form", ["AsyncClient.scan, 10 ", "batch of 16 scan"])
def test_other_answers_are_found_out(form: str) -> None:
    with started_server() as (target, _), Client(target) as client:
        batch = client.batch()
        for user in range(1_000):
            batch.put(f"s|{user:08}|00000002", "1")
        batch.send()
        client.put("p|00000002|0000000007", "one more")
        with pytest.raises(WrongAnswerError, match="scan returned"):
            run(ClientsSettings(operations=20, samples=1, only=form, target=target), QUIET)


def test_the_loop_that_was_asked_for_is_taken() -> None:
    assert loop_factory("asyncio") is None
    make = loop_factory("uvloop")
    assert make is not None, "uvloop is one of the server's extras"
    with asyncio.Runner(loop_factory=make) as runner:
        assert type(runner.get_loop()).__module__ == "uvloop"
