"""Runs cases of the conformance script with a client of Python, one whose callers wait or one whose callers await.

case --> empty server --> step --> call --> reply or error in the script's form --> compared
"""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import Any, Final

import pequod
from pequod.errors import PequodError
from tests.conformance.forms import data_of, differing, error_of, json_of, result_of

#: Arguments that hold no bytes.
_PLAIN: Final = frozenset({"text", "name", "limit", "reverse", "count", "keep_ttl"})
_COMMANDS: Final = {
    "get": pequod.Get,
    "put": pequod.Put,
    "remove": pequod.Remove,
    "add": pequod.Add,
    "scan": pequod.Scan,
    "count": pequod.Count,
}
_CONDITIONS: Final = {"absent": pequod.IF_ABSENT, "present": pequod.IF_PRESENT}


async def settled(result: Any) -> Any:
    """Return what a call gives, whether its callers wait or await it."""
    return await result if isawaitable(result) else result


class CaseRunner:
    """Runs the steps of one case.

    Args:
        client: Has the calls of `pequod.Client` or of `pequod.AsyncClient`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tokens: dict[str, Any] = {}
        self._sessions: dict[str, Any] = {}
        self._watches: dict[str, _Watch] = {}
        #: Of the latest page.
        self._resume_key: bytes | None = None

    async def run(self, case: dict[str, Any]) -> None:
        """Empty the server, and run a case; the first step that differs raises AssertionError."""
        for join in reversed(await settled(self._client.joins())):
            await settled(self._client.drop_join(join.name))
        await settled(self._client.remove_range(""))
        try:
            for number, step in enumerate(case["steps"], 1):
                found = await self._outcome(step)
                wrong = differing(found, {name: step[name] for name in ("reply", "error") if name in step})
                if not wrong and "error" in found and "error" not in step:
                    wrong = f"it failed: {found['error']}"
                assert not wrong, f"{case['name']}: step {number}, {step['call']}: {wrong}"
        finally:
            for watch in self._watches.values():
                await watch.close()
            for session in self._sessions.values():
                await settled(session.close())

    async def _outcome(self, step: dict[str, Any]) -> dict[str, Any]:
        """Make the call of a step; return its reply or its error."""
        client = self._sessions[step["in"]] if "in" in step else self._client
        name, args = step["call"], step.get("args", {})
        try:
            if name == "changes":
                reply = await self._watches[args["watch"]].changes(len(step.get("reply", ())), fails="error" in step)
            elif (own := getattr(self, f"_{name}", None)) is not None:
                reply = await own(client, **args)
            else:
                reply = result_of(name, await settled(getattr(client, name)(**self._args(args))))
        except PequodError as error:
            return {"error": error_of(error)}
        if "save" in step:
            self._tokens[step["save"]] = client.last_token
        return {"reply": reply}

    def _args(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as Python's clients take them."""
        made: dict[str, Any] = {}
        for name, value in args.items():
            match name:
                case "ttl_ms":
                    made["ttl_s"] = value / 1000
                case "freshness":
                    made[name] = self._freshness(**value)
                case "condition":
                    made[name] = _CONDITIONS.get(value["is"]) or pequod.if_value(data_of(value["value"]))
                case _:
                    made[name] = value if name in _PLAIN else data_of(value)
        return made

    def _freshness(self, wait_ms: int = 1000, **level: Any) -> Any:
        ((kind, value),) = level.items()
        wait_s = wait_ms / 1000
        match kind:
            case "any":
                return pequod.freshness.AnyState(wait_s)
            case "latest":
                return pequod.freshness.Latest(wait_s)
            case "max_age_ms":
                return pequod.max_age(value / 1000, wait_s=wait_s)
            case "after":
                return pequod.after(self._tokens[value], wait_s=wait_s)
        assert kind == "token", kind
        return pequod.after(data_of(value), wait_s=wait_s)

    async def _batch(self, client: Any, commands: list[Any], freshness: Any = None) -> Any:
        batch = client.batch(None if freshness is None else self._freshness(**freshness))
        for command in commands:
            getattr(batch, command["call"])(**self._args(command["args"]))
        results = await settled(batch.send())
        return [
            {"error": error_of(result)} if isinstance(result, PequodError) else {"reply": result_of(name, result)}
            for name, result in zip([command["call"] for command in commands], results, strict=True)
        ]

    async def _transaction(
        self, client: Any, compares: Any = (), then: Any = (), otherwise: Any = (), freshness: Any = None
    ) -> Any:
        level = None if freshness is None else self._freshness(**freshness)
        lists = ([_COMMANDS[one["call"]](**self._args(one["args"])) for one in part] for part in (then, otherwise))
        return json_of(await settled(client.transaction(list(map(_compare, compares)), *lists, freshness=level)))

    async def _scan_page(self, client: Any, resume: bool = False, **args: Any) -> Any:
        page = await settled(client.scan_page(**self._args(args), resume_key=self._resume_key if resume else None))
        self._resume_key = page.resume_key
        return {"rows": json_of(page.rows), "has_more": page.resume_key is not None}

    async def _session(self, client: Any, token: str | None = None, **named: str) -> None:
        self._sessions[named["as"]] = client.session(None if token is None else self._tokens[token])

    async def _watch(self, client: Any, rows: bool = False, freshness: Any = None, **args: Any) -> Any:
        name = args.pop("as")
        watch = self._watches[name] = _Watch(client, self._args(args))
        level = None if freshness is None else self._freshness(**freshness)
        return await watch.begin(rows=rows, freshness=level)

    async def _resume(self, client: Any, watch: str) -> None:
        await self._watches[watch].resume()

    async def _unwatch(self, client: Any, watch: str) -> None:
        await self._watches.pop(watch).close()


def _compare(compare: dict[str, Any]) -> Any:
    key, value = data_of(compare["key"]), data_of(compare.get("value"))
    match compare["is"]:
        case "absent":
            return pequod.absent(key)
        case "present":
            return pequod.present(key)
        case "equal":
            return pequod.value_of(key) == value
        case "not_equal":
            return pequod.value_of(key) != value
        case "less":
            return pequod.value_of(key) < value
    assert compare["is"] == "greater", compare
    return pequod.value_of(key) > value


class _Watch:
    """A watch of a case, by a client of either kind."""

    def __init__(self, client: Any, bounds: dict[str, Any]) -> None:
        self._client = client
        self._bounds = bounds
        self._events: Any = None
        self._last: Any = None

    async def begin(self, **options: Any) -> Any:
        """Begin it, and return its rows."""
        self._events = self._client.watch(**self._bounds, **options)
        return json_of((await self._next()).rows)

    async def _next(self) -> Any:
        # A synchronous iterator waits in a thread, so that a lost event ends with the test's time, and not never.
        events = self._events
        self._last = await (anext(events) if hasattr(events, "__anext__") else asyncio.to_thread(next, events))
        return self._last

    async def changes(self, count: int, *, fails: bool) -> Any:
        """Return the changes of the events up to the one with the last of ``count``, or all until the watch fails."""
        found: list[Any] = []
        while fails or len(found) < count:
            found += (await self._next()).changes
        return json_of(found)

    async def resume(self) -> None:
        """End the watch, and begin another one after its last event."""
        await self.close()
        await self.begin(after=self._last)

    async def close(self) -> None:
        """End the watch."""
        if self._events is not None:
            await settled(self._events.aclose() if hasattr(self._events, "aclose") else self._events.close())
