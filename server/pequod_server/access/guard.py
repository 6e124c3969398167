"""The guard before the service: who calls, once for each call, and whether the caller may do what is asked.

    call -> AccessGuard -> token or certificate -> Caller -> rule of the call -> service
                                                                  Execute -> rule of each command

Without an access file there is no guard.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from contextvars import ContextVar
from typing import Any, Final, Protocol

import grpc
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine
from pequod.errors import UnauthenticatedError
from pequod_server.access.access_file import Access, AccessRules, Credential, Tenure
from pequod_server.access.grants import Role
from pequod_server.access.needs import Needs, Rule
from pequod_server.access.quotas import Meter, Meters, charge
from pequod_server.access.trims import Trim, Trims
from pequod_server.config import ServerConfig
from pequod_server.joins import JoinLimits
from pequod_server.wire.errors import status_of
from pequod_server.wire.handlers import (
    SERVICE_PATH,
    Context,
    Continuation,
    Handler,
    Wrapped,
    method_of,
    refusing,
)


class Certified(Protocol):
    """A call or a connection that knows the certificate of its client."""

    def auth_context(self) -> Mapping[str, Any]:
        """Return what the certificate says."""


#: Calls that every client may make: they ask whether the server lives.
_OPEN: Final = ("/grpc.health.v1.Health/",)
_BEARER: Final = "bearer "
_WATCHES: Final = (f"{SERVICE_PATH}Watch", f"{SERVICE_PATH}WatchRanges")


class Caller:
    """A client that makes a call; its role is looked up again after the access file has changed, or its token ended."""

    __slots__ = ("_access", "_meters", "_rules", "_tenure", "credential")

    def __init__(self, access: Access, meters: Meters, credential: Credential) -> None:
        self.credential = credential
        self._access = access
        self._meters = meters
        self._rules: AccessRules | None = None
        self._tenure: Tenure | None = None

    def role(self) -> Role:
        """Return the caller's present role.

        Raises:
            UnauthenticatedError: The access file does not name the caller, or not any more, or its token has expired.
        """
        rules, tenure, now_s = self._access.rules(), self._tenure, self._access.clock()
        if tenure is None or rules is not self._rules or tenure.end_s <= now_s:
            tenure = rules.tenure_of(self.credential, now_s)
            self._rules, self._tenure = rules, tenure
        return tenure.role

    def meter(self) -> Meter | None:
        """Return what counts the use of the role's quotas; None: it has none.

        Raises:
            UnauthenticatedError: As `role`.
        """
        return self._meters.of(self.role())


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
        self.access = access
        self._needs = Needs(engine, join_limits)
        self._trims = Trims(engine)
        self._takes_certificates = takes_certificates
        #: The meters of roles with quotas.
        self.meters = Meters(engine)
        self._guarded = Wrapped(self._guard)

    async def intercept_service(self, continuation: Continuation, details: grpc.HandlerCallDetails) -> Handler | None:
        """Find the caller, where possible before the request is read."""
        handler = await continuation(details)
        if handler is None or details.method.startswith(_OPEN):
            return handler
        try:
            caller = Caller(self.access, self.meters, _credential(details.invocation_metadata))
            if caller.credential.token is not None:
                await self.access.prepare(caller.credential)
            if caller.credential.digest is not None or not self._takes_certificates:
                caller.role()
        except UnauthenticatedError as error:
            return refusing(status_of(error))
        _caller.set(caller)
        return self._guarded.around(details.method, handler)

    def present_meters(self) -> list[Meter]:
        """Return the meters of the roles that have quotas now."""
        meters = (self.meters.of(role) for role in self.access.rules().roles.values())
        return [meter for meter in meters if meter is not None]

    def tenure_of(self, authorization: str, names: Callable[[], tuple[str, ...]]) -> Tenure:
        """Return the role of a caller, and for how long.

        Args:
            authorization: The header of this name; empty: there is none.
            names: Returns those of the client's certificate.

        Raises:
            UnauthenticatedError: The access file does not name the caller.
        """
        credential = _credential([("authorization", authorization)]) if authorization else Credential(None, names())
        return self.access.rules().tenure_of(credential, self.access.clock())

    def _guard(self, method: str, handler: Handler) -> Handler:
        rule, trim = self._needs.rule_of(method), self._trims.trim_of(method)
        shape = (handler.request_deserializer, handler.response_serializer)
        behaviour, make = method_of(handler)

        def admit(role: Role, request: object) -> None:
            rule(role, request)
            if (meter := self.meters.of(role)) is not None:
                charge(meter, method, request)

        if inspect.isasyncgenfunction(behaviour):
            watching = self._watching if method in _WATCHES else _counting_nothing
            return make(_guarded_generator(behaviour, rule, admit, watching), *shape)
        assert inspect.iscoroutinefunction(behaviour), f"{method} is asynchronous"
        return make(_guarded_coroutine(behaviour, admit, trim), *shape)

    def _watching(self, role: Role, request: object) -> AbstractContextManager[None]:
        """Count the ranges that a role watches while they are, if the role has quotas."""
        meter = self.meters.of(role)
        count = len(request.ranges) if isinstance(request, pb.WatchRangesRequest) else 1
        return nullcontext() if meter is None else meter.watching(count)


def make_guard(config: ServerConfig, engine: Engine, trusted: str = "") -> AccessGuard | None:
    """Return the guard that the settings ask for, None if every client may do everything.

    Args:
        trusted: See `Access`.

    Raises:
        SettingError: The access file cannot be read, or is not right.
    """
    if config.access_file is None:
        return None
    return AccessGuard(
        Access(
            config.access_file,
            owns_data=not config.backing and config.cluster_roles != "compute",
            trusted=trusted,
        ),
        engine,
        takes_certificates=config.tls_client_ca is not None,
        join_limits=JoinLimits(config),
    )


def _guarded_coroutine(
    behaviour: Callable[[Any, Context], Awaitable[Any]],
    admit: Rule,
    trim: Trim,
) -> Callable[[Any, Context], Awaitable[Any]]:
    """Guard a handler that returns a reply, or reads and writes messages itself."""

    async def guarded(request: object, context: Context) -> object:
        role = _admitted(context).role()
        admit(role, request)
        reply = await behaviour(request, context)
        trim(role, reply)
        return reply

    return guarded


def _guarded_generator(
    behaviour: Callable[[Any, Context], AsyncIterator[Any]],
    rule: Rule,
    admit: Rule,
    watching: Callable[[Role, object], AbstractContextManager[None]],
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    """Guard a handler that yields replies; the rule is applied again when the access file changes in between."""

    async def guarded(request: object, context: Context) -> AsyncIterator[Any]:
        caller = _admitted(context)
        role = caller.role()
        admit(role, request)
        with watching(role, request):
            async with aclosing(behaviour(request, context)) as replies:  # type: ignore[type-var]
                async for reply in replies:
                    if role is not caller.role():
                        role = caller.role()
                        rule(role, request)
                    yield reply
                    del reply

    return guarded


def _counting_nothing(_role: Role, _request: object) -> AbstractContextManager[None]:
    return nullcontext()


def _admitted(context: Context) -> Caller:
    """Return the caller; one without a token goes by the names of its certificate."""
    caller = _caller.get()
    assert caller is not None, "the interceptor has set it in this task"
    if caller.credential.digest is None:
        caller.credential = Credential(None, certificate_names(context))
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


def certificate_names(context: Certified) -> tuple[str, ...]:
    """Return the names in the certificate of a client."""
    found = context.auth_context()
    names = [*found.get("x509_common_name", ()), *found.get("x509_subject_alternative_name", ())]
    return tuple(dict.fromkeys(name.decode("utf-8", "backslashreplace") for name in names))
