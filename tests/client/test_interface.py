"""All clients have the calls of one definition, and so has the page about them."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from pequod import AsyncClient, Client
from pequod.calls import ServerStatistics
from pequod.client import AsyncBatch, SyncBatch
from pequod.client.backfills import AsyncBackfills
from pequod.client.sessions import AsyncServerSession
from pequod.client.sync import ServerSession
from pequod.client.sync_backfills import Backfills
from pequod.embedded import AsyncEmbedded, Embedded
from pequod.embedded.aio import AsyncEmbeddedSession
from pequod.embedded.batch import AsyncEmbeddedBatch, EmbeddedBatch
from pequod.embedded.sync import EmbeddedSession
from pequod.interface import AsyncCalls, AsyncSession, Calls, Commands, Session

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
#: Where the clients differ from each other: what they return is more than the definition says.
RETURNS: dict[tuple[type, str], str] = {
    (Calls, "session"): "Session",
    (Session, "session"): "Session",
    (AsyncClient, "session"): "AsyncServerSession",
    (AsyncServerSession, "session"): "AsyncServerSession",
    (Client, "session"): "ServerSession",
    (ServerSession, "session"): "ServerSession",
    (AsyncEmbedded, "session"): "AsyncEmbeddedSession",
    (AsyncEmbeddedSession, "session"): "AsyncEmbeddedSession",
    (Embedded, "session"): "EmbeddedSession",
    (EmbeddedSession, "session"): "EmbeddedSession",
    **{(kind, "batch"): "AsyncBatch" for kind in (AsyncClient, AsyncServerSession)},
    **{(kind, "batch"): "SyncBatch" for kind in (Client, ServerSession)},
    **{(kind, "batch"): "AsyncEmbeddedBatch" for kind in (AsyncEmbedded, AsyncEmbeddedSession)},
    **{(kind, "batch"): "EmbeddedBatch" for kind in (Embedded, EmbeddedSession)},
    **{(kind, "statistics"): "ServerStatistics" for kind in (AsyncClient, AsyncServerSession, Client, ServerSession)},
}
#: What only a server has. A store in the process has no file of its own, and no address.
SERVER = {"target", "save_snapshot", "restore_snapshot", "send"}
#: What is for managers of views alone, and not on the page.
MANAGERS = {"watch_ranges"}

#: What batches for a server have besides, for those who send them.
COLUMNS = {
    *(
        "harmless_twice",
        "has_reads",
        "has_writes",
        "is_done_once",
        "is_harmless_twice",
        "message",
        "other_fields",
        "picked",
        "protect",
    ),
    *("reads", "starts", "take", "take_in"),
}


def _calls(kind: type) -> dict[str, tuple[object, ...]]:
    """Return what a user sees of each call: its parameters with defaults and annotations, what it returns, its text."""
    members = inspect.getmembers(kind, lambda member: inspect.isfunction(member) or isinstance(member, property))
    return {name: _seen(member) for name, member in members if not name.startswith("_")}


def _seen(member: Any) -> tuple[object, ...]:
    signature = inspect.signature(getattr(member, "fget", member))
    parameters = [(p.name, p.kind, p.default, p.annotation) for p in signature.parameters.values()]
    returns = str(signature.return_annotation).replace("AsyncGenerator", "Generator")
    return isinstance(member, property), parameters, returns, inspect.getdoc(member)


@pytest.mark.parametrize(
    ("definition", "kind", "own"),
    [
        (AsyncCalls, Calls, set()),
        (AsyncCalls, AsyncClient, {*SERVER, *MANAGERS, "batches_sent"}),
        (AsyncCalls, Client, SERVER),
        (AsyncCalls, AsyncEmbedded, set()),
        (AsyncCalls, Embedded, set()),
        (AsyncSession, Session, set()),
        (AsyncSession, AsyncServerSession, {"send"}),
        (AsyncSession, ServerSession, {"send"}),
        (AsyncSession, AsyncEmbeddedSession, set()),
        (AsyncSession, EmbeddedSession, set()),
        (AsyncBackfills, Backfills, set()),
        (Commands, AsyncBatch, {"send", *COLUMNS}),
        (Commands, SyncBatch, {"send", "send_nowait", *COLUMNS}),
        (Commands, AsyncEmbeddedBatch, {"send"}),
        (Commands, EmbeddedBatch, {"send", "send_nowait"}),
    ],
)
def test_calls_are_those_of_the_definition(definition: type, kind: type, own: set[str]) -> None:
    defined, calls = _calls(definition), _calls(kind)
    assert calls.keys() - defined.keys() == own
    for name, (is_property, parameters, returns, document) in defined.items():
        expected = (is_property, parameters, RETURNS.get((kind, name), returns), document)
        assert calls[name] == expected, name
        assert document, name


def test_calls_of_a_server_are_the_same_for_those_who_await_and_those_who_wait() -> None:
    awaiting, waiting = _calls(AsyncClient), _calls(Client)
    for name in SERVER - {"send"}:
        assert awaiting[name] == waiting[name], name


def test_clients_are_what_the_definition_says() -> None:
    assert issubclass(ServerStatistics, inspect.get_annotations(AsyncCalls.statistics, eval_str=True)["return"])
    for kind in (AsyncClient, AsyncEmbedded, AsyncServerSession, AsyncEmbeddedSession):
        assert issubclass(kind, AsyncCalls)
        for name, member in inspect.getmembers(AsyncCalls, inspect.isfunction):
            if not name.startswith("_"):
                mine = getattr(kind, name)
                for is_such in (inspect.iscoroutinefunction, inspect.isasyncgenfunction):
                    assert is_such(mine) == is_such(member), name
    for waiting in (Client, Embedded, ServerSession, EmbeddedSession):
        assert issubclass(waiting, Calls)
        assert not [name for name, member in inspect.getmembers(waiting, inspect.iscoroutinefunction)]


def test_the_page_names_every_call_and_its_arguments() -> None:
    text = PAGE.read_text()
    told: dict[str, list[str]] = {}
    for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE):
        for name, arguments in re.findall(r"`(\w+)\((.*?)\)`", row):
            told[name] = re.findall(r"(\w+)(?:=[^,]*)?(?:, |$)", arguments)
    attributes = {name for name, member in inspect.getmembers(AsyncClient, lambda m: isinstance(m, property))}
    public = (
        {name for name in _calls(Client).keys() | _calls(AsyncClient).keys() if name != "send"} - attributes - MANAGERS
    )
    assert told.keys() == public
    for name, arguments in told.items():
        parameters = list(inspect.signature(getattr(Client, name)).parameters)
        positions = [parameters.index(argument) for argument in arguments]
        assert positions == sorted(positions), name
    for attribute in attributes:
        assert re.search(rf"\b{attribute}\b", text), attribute
