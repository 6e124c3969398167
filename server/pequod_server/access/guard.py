"""The guard before the service: who calls, once for each call, and whether the caller may do what is asked.

    call -> AccessGuard -> token or certificate -> Caller -> rule of the call -> service
                                                                  Execute -> rule of each command

Without an access file there is no guard. A call without a rule needs `admin` on every key, so that a new call is
closed until it has a rule.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final

import grpc
from grpc import aio
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine, JoinError, JoinSpec, Pattern
from pequod.errors import PermissionDeniedError, UnauthenticatedError
from pequod.language.ranges import prefix_end, within
from pequod.language.spec import DELIMITER
from pequod_server.access.access_file import Access, AccessRules, Credential
from pequod_server.access.grants import Right, Role
from pequod_server.access.trims import keep, trim_added, trim_explanation
from pequod_server.config import ServerConfig
from pequod_server.joins import JoinLimits
from pequod_server.wire.bounds import last_of, range_of
from pequod_server.wire.errors import status_of
from pequod_server.wire.handlers import (
    PEER_PATH,
    SERVICE_PATH,
    Context,
    Continuation,
    Handler,
    Wrapped,
    method_of,
    refusing,
)

#: Calls that every client may make: they ask whether the server lives.
_OPEN: Final = ("/grpc.health.v1.Health/",)
#: Calls that every known caller may make: their replies are public.
_KNOWN: Final = ("/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/")
_BEARER: Final = "bearer "


class Caller:
    """A client that makes a call; its role is looked up again after the access file has changed."""

    __slots__ = ("_access", "_role", "_rules", "credential")

    def __init__(self, access: Access, credential: Credential) -> None:
        self.credential = credential
        self._access = access
        self._rules: AccessRules | None = None
        self._role: Role | None = None

    def role(self) -> Role:
        """Return the caller's present role.

        Raises:
            UnauthenticatedError: The access file does not name the caller, or not any more.
        """
        rules = self._access.rules()
        if self._role is None or rules is not self._rules:
            self._rules, self._role = rules, rules.role_of(self.credential)
        return self._role


#: The caller of the call that the present task runs; None without an access file.
_caller: ContextVar[Caller | None] = ContextVar("pequod_caller", default=None)


def present_caller() -> Caller | None:
    """Return the caller of the call that the present task runs, None without an access file."""
    return _caller.get()


class AccessGuard(aio.ServerInterceptor):
    """Lets calls through to the service, or refuses them.

    Requires:
        It is the last interceptor: others may put refusals in the place of handlers, which take no requests.
    """

    def __init__(self, access: Access, engine: Engine, *, takes_certificates: bool, join_limits: JoinLimits) -> None:
        self._join_limits = join_limits
        self.access = access
        self._engine = engine
        self._takes_certificates = takes_certificates
        self._guarded = Wrapped(self._guard)
        self._rules: dict[str, Callable[[Role, Any], None]] = {
            "Get": lambda role, request: role.need_key(Right.READ, request.key),
            "Put": lambda role, request: role.need_key(Right.WRITE, request.key),
            "Remove": lambda role, request: role.need_key(Right.WRITE, request.key),
            "MultiGet": lambda role, request: _need_keys(role, Right.READ, request.keys),
            "MultiPut": lambda role, request: _need_keys(role, Right.WRITE, request.keys),
            "RemoveRange": lambda role, request: _need_range(role, Right.WRITE, *range_of(request)),
            "Scan": lambda role, request: role.need(Right.READ, *range_of(request)),
            "Watch": lambda role, request: role.need(Right.READ, request.first, last_of(request)),
            "Count": lambda role, request: role.need(Right.READ, *range_of(request)),
            "Splits": lambda role, request: role.need(Right.READ, *range_of(request)),
            # The commands are judged one by one (`RightsJudge`).
            "Execute": _need_nothing,
            # The map is for every client.
            "FollowCluster": _need_nothing,
            # The replies have what the caller may see.
            "ListJoins": _need_nothing,
            "Stats": _need_nothing,
            "AddJoin": self._need_join_rights,
            "DropJoin": self._need_drop,
            "Explain": self._need_explain,
            "Invalidate": self._need_invalidate,
            "SaveSnapshot": _need_admin,
            "RestoreSnapshot": _need_restore,
            "BeginBackfill": self._need_begin,
            "ReadBackfill": self._need_source_rows,
            "LoadBackfill": self._need_pieces,
            "RenewBackfill": self._need_backfill,
            "EndBackfill": self._need_backfill,
            "ListBackfills": _need_nothing,
            PEER_PATH + "Load": _need_feed_ranges,
            # The handlers look at the ranges of each load, and of the hello.
            PEER_PATH + "Loads": _need_feed,
            PEER_PATH + "Feed": _need_feed,
            PEER_PATH + "Position": _need_feed,
            PEER_PATH + "Write": lambda role, request: _need_keys(role, Right.WRITE, request.keys),
        }
        self._trims: dict[str, Callable[[Role, Any], None]] = {
            "ListJoins": self._trim_joins,
            "AddJoin": trim_added,
            "Explain": trim_explanation,
            "Stats": self._trim_statistics,
            "ListBackfills": self._trim_backfills,
        }

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Find the caller, where possible before the request is read."""
        handler = await continuation(details)
        if handler is None or details.method.startswith(_OPEN):
            return handler
        try:
            caller = Caller(self.access, _credential(details.invocation_metadata))
            if caller.credential.digest is not None or not self._takes_certificates:
                caller.role()
        except UnauthenticatedError as error:
            return refusing(status_of(error))
        _caller.set(caller)
        return self._guarded.around(details.method, handler)

    def _guard(self, method: str, handler: Handler) -> Handler:
        name = method.removeprefix(SERVICE_PATH)
        known = _need_nothing if method.startswith(_KNOWN) else _need_admin
        rule = self._rules.get(name, known)
        trim = self._trims.get(name, _trim_nothing)
        shape = (handler.request_deserializer, handler.response_serializer)
        behaviour, make = method_of(handler)
        if inspect.isasyncgenfunction(behaviour):
            return make(_guarded_generator(behaviour, rule), *shape)
        assert inspect.iscoroutinefunction(behaviour), f"{method} is asynchronous"
        return make(_guarded_coroutine(behaviour, rule, trim), *shape)

    def _spec(self, name: str) -> JoinSpec | None:
        """Return an installed join, None where there is none of this name: then the handler refuses the call."""
        return next((join.spec for join in self._engine.joins() if join.name == name), None)

    def _need_join_rights(self, role: Role, request: pb.AddJoinRequest) -> None:
        """Pass if the role may compute the outputs and read the sources of all joins of a text."""
        if not role.has(Right.JOIN):
            # Long texts take long to parse; only those who may install something can have that done, within limits.
            raise PermissionDeniedError(role.name, Right.JOIN, b"", None)
        self._join_limits.refuse_text(request.text)
        try:
            specs = parse(request.text)
        except JoinError:
            return  # the handler says what is wrong with the text
        for spec in specs:
            role.need(Right.JOIN, *_range(spec.output))
            for source in spec.sources:
                role.need(Right.READ, *_range(source.pattern))

    def _need_drop(self, role: Role, request: pb.DropJoinRequest) -> None:
        if (spec := self._spec(request.name)) is not None:
            role.need(Right.JOIN, *_range(spec.output))

    def _need_backfill(self, role: Role, request: Any) -> None:
        """Pass if the role may administer all that the join computes."""
        if (spec := self._spec(request.join)) is not None:
            role.need(Right.ADMIN, *_range(spec.output))

    def _need_begin(self, role: Role, request: pb.BeginBackfillRequest) -> None:
        """Pass if the role may also load, so that no driver computes for hours what is refused then."""
        self._need_backfill(role, request)
        if (spec := self._spec(request.join)) is not None:
            for source in spec.sources:
                role.need(Right.READ, *_range(source.pattern))
            role.need(Right.WRITE, *_within(_range(spec.output), (request.first, last_of(request))))

    def _need_source_rows(self, role: Role, request: pb.ReadBackfillRequest) -> None:
        # A source's table has more keys than the join reads, and a checksum reveals rows, too.
        self._need_backfill(role, request)
        role.need(Right.READ, request.first, request.last)

    def _need_pieces(self, role: Role, request: pb.LoadBackfillRequest) -> None:
        self._need_backfill(role, request)
        # The handler refuses lists of different lengths.
        for first, last in zip(request.firsts, request.lasts, strict=False):
            role.need(Right.WRITE, first, last)

    def _need_explain(self, role: Role, request: pb.ExplainRequest) -> None:
        if request.WhichOneof("subject") == "range":
            role.need(Right.READ, request.range.first, last_of(request.range), Right.ADMIN)
        elif (spec := self._spec(request.join)) is not None:
            role.need(Right.READ, *_range(spec.output), Right.ADMIN)

    def _need_invalidate(self, role: Role, request: pb.InvalidateRequest) -> None:
        if request.WhichOneof("subject") == "range":
            _need_range(role, Right.ADMIN, request.range.first, last_of(request.range))
        elif (spec := self._spec(request.join)) is not None:
            role.need(Right.ADMIN, *_range(spec.output))

    def _visible_joins(self, role: Role) -> set[str]:
        shown = (Right.READ, Right.ADMIN, Right.JOIN)
        return {
            join.name
            for join in self._engine.joins()
            if any(role.may(right, *_range(join.spec.output)) for right in shown)
        }

    def _trim_joins(self, role: Role, reply: pb.ListJoinsReply) -> None:
        visible = self._visible_joins(role)
        keep(reply.joins, lambda join: join.name in visible)

    def _trim_backfills(self, role: Role, reply: pb.ListBackfillsReply) -> None:
        visible = self._visible_joins(role)
        keep(reply.backfills, lambda backfill: backfill.join in visible)

    def _trim_statistics(self, role: Role, reply: pb.StatsReply) -> None:
        visible = self._visible_joins(role)
        keep(reply.joins, lambda kept: kept.join in visible)
        for kept in reply.joins:
            for named in (kept.largest, kept.hottest):
                keep(named, lambda context: _may_see(role, *within(context.prefix, b"", None)))
        keep(reply.tables, lambda kept: _may_see(role, *within(kept.table + DELIMITER, b"", None)))
        if not _may_see(role, b"", None):
            reply.loose_keys = 0
            # The error may say where a database is.
            for one in reply.databases:
                one.ClearField("error")
            reply.ClearField("memory")


def make_guard(config: ServerConfig, engine: Engine) -> AccessGuard | None:
    """Return the guard that the settings ask for, None if every client may do everything.

    Raises:
        SettingError: The access file cannot be read, or is not right.
    """
    if config.access_file is None:
        return None
    return AccessGuard(
        Access(config.access_file),
        engine,
        takes_certificates=config.tls_client_ca is not None,
        join_limits=JoinLimits(config),
    )


def _guarded_coroutine(
    behaviour: Callable[[Any, Context], Awaitable[Any]],
    rule: Callable[[Role, Any], None],
    trim: Callable[[Role, Any], None],
) -> Callable[[Any, Context], Awaitable[Any]]:
    """Guard a handler that returns a reply, or reads and writes messages itself."""

    async def guarded(request: object, context: Context) -> object:
        role = _admitted(context).role()
        rule(role, request)
        reply = await behaviour(request, context)
        trim(role, reply)
        return reply

    return guarded


def _guarded_generator(
    behaviour: Callable[[Any, Context], AsyncIterator[Any]], rule: Callable[[Role, Any], None]
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    """Guard a handler that yields replies; the rule is applied again when the access file changes in between."""

    async def guarded(request: object, context: Context) -> AsyncIterator[Any]:
        caller = _admitted(context)
        role = caller.role()
        rule(role, request)
        async with aclosing(behaviour(request, context)) as replies:  # type: ignore[type-var]
            async for reply in replies:
                if role is not caller.role():
                    role = caller.role()
                    rule(role, request)
                yield reply

    return guarded


def _admitted(context: Context) -> Caller:
    """Return the caller; one without a token goes by the names of its certificate."""
    caller = _caller.get()
    assert caller is not None, "the interceptor has set it in this task"
    if caller.credential.digest is None:
        caller.credential = Credential(None, _certificate_names(context))
    return caller


def _credential(metadata: Iterable[tuple[str, str | bytes]] | None) -> Credential:
    """Return the credential of a call by its metadata.

    Raises:
        UnauthenticatedError: The metadata hold something that is no bearer token.
    """
    sent = [value for name, value in metadata or () if name == "authorization"]
    if not sent:
        return Credential(None)
    value = sent[0] if isinstance(sent[0], str) else sent[0].decode("latin-1")
    if len(sent) > 1 or value[: len(_BEARER)].lower() != _BEARER:
        raise UnauthenticatedError("`authorization` must be sent once, as `Bearer TOKEN`")
    return Credential.of_token(value[len(_BEARER) :])


def _certificate_names(context: Context) -> tuple[str, ...]:
    found = context.auth_context()
    names = [*found.get("x509_common_name", ()), *found.get("x509_subject_alternative_name", ())]
    return tuple(dict.fromkeys(name.decode("utf-8", "backslashreplace") for name in names))


def _need_nothing(_role: Role, _request: object) -> None:
    pass


def _need_keys(role: Role, right: Right, keys: Iterable[bytes]) -> None:
    for key in keys:
        role.need_key(right, key)


def _need_range(role: Role, right: Right, first: bytes, last: bytes | None) -> None:
    """Pass if the role has a right on a range, of an empty one on its first key: so callers learn what they may do."""
    if last is not None and last <= first:
        role.need_key(right, first)
    else:
        role.need(right, first, last)


def _need_feed(role: Role, _request: object) -> None:
    if not role.has(Right.FEED):
        raise PermissionDeniedError(role.name, Right.FEED, b"", None)


def _need_feed_ranges(role: Role, request: pb.PeerLoadRequest) -> None:
    _need_feed(role, request)
    # The handler refuses lists of different lengths.
    for first, last in zip(request.firsts, request.lasts, strict=False):
        role.need(Right.FEED, first, last or None)


def _need_admin(role: Role, _request: object) -> None:
    """Pass if the role may administer everything."""
    role.need(Right.ADMIN, b"", None)


def _need_restore(role: Role, _request: object) -> None:
    """Pass if the role may also write every key: those of the file replace what clients have written since."""
    role.need(Right.ADMIN, b"", None)
    role.need(Right.WRITE, b"", None)


def _trim_nothing(_role: Role, _reply: object) -> None:
    pass


def _range(pattern: Pattern) -> tuple[bytes, bytes | None]:
    """Return the smallest range that holds all keys of a pattern."""
    first = pattern.literal_prefix
    return first, prefix_end(first) if any(pattern.slots()) else first + b"\0"


def _within(outer: tuple[bytes, bytes | None], inner: tuple[bytes, bytes | None]) -> tuple[bytes, bytes | None]:
    """Return what two ranges have in common."""
    ends = [last for _, last in (outer, inner) if last is not None]
    return max(outer[0], inner[0]), min(ends, default=None)


def _may_see(role: Role, first: bytes, last: bytes | None) -> bool:
    return role.may(Right.READ, first, last) or role.may(Right.ADMIN, first, last)
