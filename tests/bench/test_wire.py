"""What a plain call takes is measured at each place that is here; the others are named, with the reason."""

from __future__ import annotations

import asyncio
import json

import pytest
from lab import figures
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.wire.callee import KEYS, title
from pequod_bench.wire.pequod_callee import PequodCallee
from pequod_bench.wire.places import PLACES
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import AsyncClient
from tests.forked import started_server


@pytest.mark.usefixtures("forked_servers")
def test_each_call_of_each_place_is_measured_once() -> None:
    result = CliRunner().invoke(app, ["bench", "wire", "--smoke", "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    missing = {reason.partition(": ")[0] for reason in report["missing"]}
    wanted = [title(place.name, *call) for place in PLACES if place.name not in missing for call in place.calls]
    assert [form["name"] for form in report["forms"]] == wanted
    assert len(set(wanted)) == len(wanted)
    for form in report["forms"]:
        assert form["client_cpu_us"] > 0
        assert form["server_cpu_us"] > 0
    if not missing:
        for measure, _, found in figures.FIGURES["wire"]:
            text, _ = found([report])
            assert text.endswith((" µs", ")")), measure


def test_what_cannot_be_started_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_bench.wire.places.why_absent", lambda: "no core")
    monkeypatch.setenv("PATH", "")
    found = [CliRunner().invoke(app, ["bench", "wire", "--only", only]) for only in ("etcd, Get", "TLS and")]
    assert [one.exit_code for one in found] == [0, 0]
    assert "not measured: etcd: no etcd on PATH; install it with: apt-get install etcd-server" in found[0].stdout
    assert "not measured: native, TLS and access file: no core" in found[1].stdout


def test_another_answer_is_found_out() -> None:
    async def call(callee: PequodCallee) -> None:
        await callee.connect()
        try:
            await callee.get(7, 0)
            await callee.scan(0, 0)
            async with AsyncClient(callee.target) as client:
                await client.put(KEYS[7], "other")
                await client.remove(KEYS[3])
            with pytest.raises(WrongAnswerError, match="Get returned b'other'"):
                await callee.get(7, 0)
            with pytest.raises(WrongAnswerError, match="Scan returned"):
                await callee.scan(0, 0)
        finally:
            await callee.close()

    with started_server() as (target, pid):
        asyncio.run(call(PequodCallee(target, pid)))
