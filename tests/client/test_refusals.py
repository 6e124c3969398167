"""What a server refuses, its clients raise: the same exception with the same facts. docs/api.md lists all of them."""

import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_server.wire.errors import command_error, status_of

from pequod import errors
from pequod.client import decode
from pequod.refusals import REFUSALS

ROOT = Path(__file__).parents[2]
SAMPLES: dict[type[errors.PequodError], errors.PequodError] = {
    type(error): error
    for error in (
        errors.BadRequestError("each key needs one value"),
        errors.JoinError("'coutn' is no operator", hint="did you mean `count`?", span=errors.Span(3, 8, 1, 4)),
        errors.InvalidConditionError(9),
        errors.TransactionError("it compares a computed key", "compare its sources"),
        errors.InvalidDeltaError(b"one"),
        errors.NotNumberError(b"n|\xff"),
        errors.SumTooLongError(b"n|1", 64),
        errors.InvalidTtlError("-1 s", "it is above 0"),
        errors.NoDeadlineError(b"p|\xff"),
        errors.InvalidKeyError(b"", "it is empty"),
        errors.PackError("t.body", "it is null"),
        errors.UnknownJoinError("t.7"),
        errors.ComputedKeyError(b"t|\xff", "t"),
        errors.BackedKeyError(b"p|\0"),
        errors.NotWatchableError("top", "it is a snapshot"),
        errors.MixedWriteError("the range"),
        errors.UnassignedKeyError(b"p|\xff"),
        errors.WriteRefusedError("the database", "UNIQUE constraint failed: posts.id"),
        errors.SchemaError("the database", ["there is no table posts", "there is no table größe"]),
        errors.SnapshotError("pequod.snapshot", "it is damaged"),
        errors.NotBackfillableError("top", "it is a snapshot"),
        errors.InvalidPieceError(b"t|ann|", b"t|ann}", "the tails do not ascend"),
        errors.UnknownBackfillError(0x7F3A),
        errors.BackfillEndedError("t", "cancelled"),
        errors.NotReplaceableError("t", "another replacement is under way"),
        errors.ReplacementEndedError("t", "it was cancelled"),
        errors.ClusterMapError("server h1, weight", "0 is not above 0"),
        errors.NoClusterError("the server stands alone"),
        errors.NotHomeError(b"p|bob|1", 7),
        errors.WatchCompactedError("the server was started anew"),
        errors.LimitExceededError("value_bytes_max", 12, 11),
        errors.DiskFullError("data", 7),
        errors.QuotaExceededError("web", "calls_per_s", 12.5, 0.25),
        errors.QuotaExceededError("web", "keys", 12),
        errors.UnauthenticatedError("the server wants a token"),
        errors.PermissionDeniedError("web", "write", b"p|", None),
        errors.BackingUnavailableError("the database", "it does not answer"),
        errors.BackingStaleError(12.25, 5.0, ""),
        errors.StaleError(12.25, 1.0, "the feed is down"),
        errors.TokenLostError("the database has failed over"),
        errors.InvalidTokenError("it is empty"),
        errors.CoordinatorUnavailableError("etcd at there:2379", "no leader"),
        errors.MapChangedError(7),
        errors.MapFixedError("cluster.toml", 8),
    )
}


def _refused(error: errors.PequodError) -> errors.PequodError:
    """Send an error over a call, and return what the client raises."""
    status = status_of(error)
    trailing = aio.Metadata(*status.trailing_metadata)
    return decode.call_error(aio.AioRpcError(status.code, aio.Metadata(), trailing, status.details), "there:1", 1.0)


def test_there_is_a_sample_of_each() -> None:
    assert set(SAMPLES) == set(REFUSALS)


@pytest.mark.parametrize("kind", REFUSALS, ids=lambda kind: kind.__name__)
def test_an_error_comes_out_as_it_went_in(kind: type[errors.PequodError]) -> None:
    error = SAMPLES[kind]
    for found in (_refused(error), decode.command_error(command_error(error))):
        assert type(found) is kind
        assert str(found) == str(error)
        assert vars(found) == vars(error)


def test_the_code_of_a_command_is_that_of_a_call() -> None:
    for kind, error in SAMPLES.items():
        assert command_error(error).code == getattr(grpc.StatusCode, REFUSALS[kind].code).value[0]


@pytest.mark.parametrize(
    "error",
    [
        errors.SchemaError("größe" * 1000, ["ж" * 5000] * 100),
        errors.JoinError("ж" * 5000, hint="ж" * 5000),
        errors.UnknownJoinError("ж" * 5000),
        errors.ComputedKeyError(b"\xff" * 5000, "ж" * 5000),
        errors.BackingUnavailableError("ж" * 5000, "世" * 5000),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_endless_error_fits_into_metadata(error: errors.PequodError) -> None:
    status = status_of(error)
    details = len(status.details.encode()) * 3 + sum(len(value) * 4 // 3 for _, value in status.trailing_metadata)
    assert details < 15 << 10
    assert type(_refused(error)) is type(error)


@pytest.mark.parametrize("kind", [errors.LimitExceededError, errors.UnknownJoinError, errors.ComputedKeyError])
def test_what_another_version_refuses_keeps_its_message(kind: type[errors.PequodError]) -> None:
    message = command_error(SAMPLES[kind])
    message.facts.clear()
    found = decode.command_error(message)
    assert (type(found), str(found)) == (errors.PequodError, message.message)
    message = command_error(SAMPLES[kind])
    message.reason = "NewError"
    assert (type(found), str(decode.command_error(message))) == (errors.PequodError, message.message)


def test_the_table_of_the_api_page_is_that_of_the_code() -> None:
    page = (ROOT / "docs/api.md").read_text()
    rows = re.findall(r"^\| `(\w+Error)` \| (\w*) ?\| (.*) \|$", page, re.MULTILINE)
    documented = {name: code for name, code, _ in rows}
    of_clients = {
        "UnavailableError": "UNAVAILABLE",
        "DeadlineExceededError": "DEADLINE_EXCEEDED",
        "SettingError": "",
        "ClosedError": "",
    }
    assert documented == {kind.__name__: refusal.code for kind, refusal in REFUSALS.items()} | of_clients
    assert {"PequodError", "Span", *documented} == set(errors.__all__)
    for name, _, text in rows:
        sample: Any = SAMPLES.get(getattr(errors, name))
        shown = set(re.findall(r"`(\w+)`", text))
        if sample is not None:
            assert {fact.removesuffix("_hex") for fact in REFUSALS[type(sample)].say(sample)} - {
                "start",
                "end",
                "line",
                "column",
            } <= shown, f"{name}: its facts are told"
            assert all(hasattr(sample, fact) for fact in shown), name


def test_the_contract_names_every_code() -> None:
    contract = (ROOT / "proto/pequod/v1/pequod.proto").read_text().partition("syntax")[0]
    for refusal in REFUSALS.values():
        assert re.search(rf"\b{refusal.code}\b", contract), refusal.code
