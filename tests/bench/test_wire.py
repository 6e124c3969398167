"""The bench of the transports runs, tiny, and reports each kind of call by both."""

import json

from typer.testing import CliRunner

from pequod.cli.app import app


def test_each_call_is_measured_by_both_transports() -> None:
    result = CliRunner().invoke(app, ["bench", "wire", "--smoke", "--json"])
    assert result.exit_code == 0, result.stderr
    costs = json.loads(result.stdout)["costs"]
    assert {(cost["call"], cost["in_flight"]) for cost in costs} == {
        (call, in_flight) for call in ("Get", "Put", "Scan of 10 rows") for in_flight in (1, 32)
    }
    for cost in costs:
        assert cost["grpcio_us"] > 0
        assert cost["native_us"] > 0
