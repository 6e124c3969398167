"""The listener for HTTP: requests -> endpoints and watches -> calls of the service; a failure is an object of JSON.

aiohttp in the loop of the server, as for the metrics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import ceil
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import orjson
from aiohttp import hdrs, web
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.addresses import is_local
from pequod.errors import BadRequestError, PequodError, SettingError
from pequod.freshness import Token
from pequod.language.ranges import within
from pequod_server.access.tls import tls_files
from pequod_server.calls.service import PequodService, add_service
from pequod_server.config import ServerConfig
from pequod_server.console.pages import Console
from pequod_server.gateway.asked import FRESHNESS, RANGE, Asked, Endpoint, Json, parameters_of
from pequod_server.gateway.endpoints import ENDPOINTS
from pequod_server.gateway.forms import decoded
from pequod_server.gateway.local_calls import Handlers, LocalCalls, RefusedCallError, Visitor
from pequod_server.gateway.openapi import description
from pequod_server.gateway.shared_watches import SharedWatches, event
from pequod_server.gateway.views_and_lakes import ViewsAndLakes
from pequod_server.memory.admission import COPIES, SMALL_BYTES, Admission, message_bytes_max
from pequod_server.ops.web import faults
from pequod_server.wire.errors import code_of, facts_of
from pequod_server.wire.handlers import SERVICE_PATH
from pequod_server.wire.publishing import public

#: HTTP's statuses of gRPC's codes.
_STATUSES: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
#: Headers that calls are told as gRPC's metadata.
_TOLD: Final = ("authorization", "traceparent", "x-request-id")
#: The header of a reply that has the token of the state which answered.
_STATE: Final = "Pequod-Token"
_METHODS: Final = "GET, PUT, POST, DELETE"
_HEADERS: Final = "Authorization, Content-Type, Last-Event-ID"
_WATCH: Final = {
    **RANGE,
    "access_token": ("The token, for clients that send no headers.", {"type": "string"}),
    **FRESHNESS,
}
#: The keys in a request line, of which three characters say each byte, and the characters beside them.
_KEYS_A_LINE: Final = 3
_LINE_BYTES: Final = 4096
#: How long requests that are under way may take at the end.
_END_S: Final = 1.0

_Next = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """Serves `/v1` and the console until it is stopped."""

    def __init__(
        self,
        config: ServerConfig,
        calls: LocalCalls,
        watches: SharedWatches,
        views: ViewsAndLakes,
        admission: Admission,
    ) -> None:
        self._config = config
        self._calls = calls
        self._watches = watches
        self._views = views
        self._admission = admission
        #: Where it listens, once it does.
        self.url = ""
        self._origins = config.http_origins.split()
        application = web.Application(
            client_max_size=message_bytes_max(config),
            middlewares=(self._opened_to_pages, self._failing_as_json),
        )
        for endpoint in ENDPOINTS:
            path = endpoint.path.replace("{key}", r"{key:[\s\S]*}")
            application.router.add_route(endpoint.method, path, self._responder(endpoint))
            if endpoint.method == hdrs.METH_GET:
                application.router.add_route(hdrs.METH_HEAD, path, self._responder(endpoint))
        application.router.add_get("/v1/watch", self._watch)
        application.router.add_get("/v1/openapi.json", self._describe)
        Console().add_to(application.router)
        self._description = orjson.dumps(description(_WATCH))
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=faults,
            shutdown_timeout=_END_S,
            max_line_size=_KEYS_A_LINE * 3 * config.key_bytes_max + _LINE_BYTES,
        )

    async def start(self) -> None:
        """Listen as the settings say.

        Raises:
            OSError: The address cannot be listened on.
        """
        address = self._config.http
        host, _, port = address.rpartition(":")
        files = tls_files(self._config)
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, host.strip("[]"), int(port), ssl_context=None if files is None else files.web_context()
        )
        try:
            await site.start()
        except OSError as error:
            raise OSError(f"cannot listen on {address} for HTTP: {error.strerror or error}") from error
        bound_host, bound_port = self._runner.addresses[0][:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        self.url = f"{'http' if files is None else 'https'}://{shown}:{bound_port}"

    async def stop(self) -> None:
        """Stop listening and close all connections; fine if it never listened."""
        await self._runner.cleanup()
        self._watches.close()
        self._views.close()

    def end_streams(self) -> None:
        """End the watches."""
        self._watches.end()

    # What stands around all requests.

    @web.middleware
    async def _opened_to_pages(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        """Tell browsers which pages may read replies."""
        opening = self._opening(request)
        if request.method == hdrs.METH_OPTIONS and hdrs.ACCESS_CONTROL_REQUEST_METHOD in request.headers:
            asked = {hdrs.ACCESS_CONTROL_ALLOW_METHODS: _METHODS, hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _HEADERS}
            is_open = hdrs.ACCESS_CONTROL_ALLOW_ORIGIN in opening
            return web.Response(status=204 if is_open else 403, headers=opening | asked)
        reply = await handler(request)
        if not reply.prepared:
            reply.headers.update(opening)
        return reply

    def _opening(self, request: web.Request) -> dict[str, str]:
        """Return the headers that let the page of a request read the reply, if its origin may."""
        origin = request.headers.get(hdrs.ORIGIN, "")
        headers: dict[str, str] = {hdrs.VARY: hdrs.ORIGIN}
        if origin and ("*" in self._origins or origin in self._origins):
            headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _STATE
        return headers

    @web.middleware
    async def _failing_as_json(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        try:
            self._refuse_strange_host(request)
            return await handler(request)
        except web.HTTPException as error:
            text = f"{request.method} {request.path}: {error.reason}; GET /v1/openapi.json lists what there is"
            return _failure(error.status, error.reason.upper().replace(" ", "_"), "", text, {}, dict(error.headers))
        except RefusedCallError as error:
            return _refusal(error)
        except PequodError as error:
            return _refusal(_refused(error))

    def _refuse_strange_host(self, request: web.Request) -> None:
        """Pass if the request does not come from a page that has a name of its own for this machine.

        A browser sends such a page's requests with the page's host. Where tokens are asked for, it has none.
        """
        if self._config.access_file is None:
            host = urlsplit(f"//{request.host}").hostname or ""
            own = self._config.http.rpartition(":")[0].strip("[]")
            if host != own and not is_local(f"[{host}]:1" if ":" in host else f"{host}:1"):
                text = f"this server is not called {host[:100]!r}; without an access file it answers local callers"
                raise RefusedCallError(grpc.StatusCode.PERMISSION_DENIED, text, "PermissionDeniedError")

    # What requests ask for.

    def _responder(self, endpoint: Endpoint) -> _Next:
        async def respond(request: web.Request) -> web.StreamResponse:
            visitor = _visitor(request)
            # A client that keeps its body back waits behind itself alone.
            body = await self._admission.read(visitor.peer, request.read) if request.can_read_body else b""
            if body and request.content_type != "application/json":
                # Pages of other origins may send other types without asking whether they may.
                text = "a body must be JSON, with the header Content-Type: application/json"
                return _failure(415, "INVALID_ARGUMENT", "BadRequestError", text, {})
            asked = endpoint.asked(_key_of(request, endpoint), request.rel_url.raw_query_string, body)
            del body
            return await self._sent(request, await self._respond(endpoint, asked, visitor))

        return respond

    async def _respond(self, endpoint: Endpoint, asked: Asked, visitor: Visitor) -> web.Response:
        async def call(method: str, message: object) -> object:
            replies: list[object] = []

            async def take(reply: object) -> None:
                replies.append(reply)

            await self._calls.replies(SERVICE_PATH + method, message, visitor, take)
            return replies[0] if replies else None

        answer = await endpoint.respond(asked, call)
        headers = {_STATE: str(Token.parse(answer.token))} if answer.token else {}
        return _json(answer.status, answer.members, headers)

    async def _sent(self, request: web.Request, reply: web.Response) -> web.Response:
        """Send a reply that is not small, and count it until its client has taken it."""
        assert isinstance(reply.body, bytes), "it is JSON"
        if len(reply.body) > SMALL_BYTES:
            reply.headers.update(self._opening(request))
            with self._admission.taken(COPIES * len(reply.body)):
                await reply.prepare(request)
                await reply.write_eof()
        return reply

    async def _describe(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._description, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        query = parameters_of("GET /v1/watch", request.rel_url.raw_query_string, _WATCH)
        visitor = _visitor(request)
        if token := query.get("access_token"):
            visitor = visitor._replace(metadata=(("authorization", f"Bearer {token.decode('utf-8', 'replace')}"),))
        message = self._watch_request(Asked(b"", query, b""), request.headers.get("Last-Event-ID", ""))
        headers = {hdrs.CACHE_CONTROL: "no-store", "X-Accel-Buffering": "no", hdrs.CONTENT_TYPE: "text/event-stream"}
        reply = web.StreamResponse(headers=headers | self._opening(request))

        async def take(data: bytes) -> None:
            if not reply.prepared:
                await reply.prepare(request)
            await reply.write(data)

        try:
            await self._calls.replies(f"{SERVICE_PATH}Watch", message, visitor, take)
        except ConnectionError:
            pass  # Its reader has left.
        except RefusedCallError as error:
            if not reply.prepared:
                raise
            # The reader comes again by itself, and goes on or begins anew.
            with suppress(ConnectionError):
                await reply.write(event("end", _error_of(error)))
        return reply

    def _watch_request(self, asked: Asked, last: str) -> pb.WatchRequest:
        query = asked.query
        if not query.keys() & RANGE.keys():
            raise BadRequestError("say which keys to watch: prefix, or first and last")
        first, end = within(query.get("prefix", b""), query.get("first", b""), query.get("last"))
        after = self._watches.after_of(last) if last else None
        return pb.WatchRequest(first=first, last=end, rows=True, after=after, freshness=asked.level())


def make_gateway(
    config: ServerConfig, service: PequodService, interceptors: Sequence[aio.ServerInterceptor], admission: Admission
) -> Gateway:
    """Return a gateway to a service.

    Args:
        interceptors: They see messages, not bytes.

    Raises:
        SettingError: It would be reached in plain text, or by callers who are not known.
    """
    refuse_exposed(config)
    watches, views = SharedWatches(service, admission), ViewsAndLakes(config)
    # No role may ask for what has no rule, but administrators.
    shared: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Watch": grpc.unary_stream_rpc_method_handler(watches.watch),
        "ViewsAndLakes": grpc.unary_unary_rpc_method_handler(views.tell),
    }
    handlers = Handlers()
    handlers.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_PATH.strip("/"), shared),))
    add_service(service, handlers)
    return Gateway(config, LocalCalls(interceptors, handlers.all), watches, views, admission)


def refuse_exposed(config: ServerConfig) -> None:
    """Pass if other machines do not reach HTTP, or with a token and not in plain text.

    Raises:
        SettingError: It would be reached in plain text, or by callers who are not known.
    """
    if is_local(config.http):
        return
    if config.access_file is None:
        raise SettingError(
            "http",
            f"{config.http} can be reached from other machines, and everybody there could do everything; give "
            "--access-file, so that callers need a token, or listen on 127.0.0.1",
        )
    if tls_files(config) is None and not config.insecure:
        raise SettingError(
            "http",
            f"{config.http} can be reached from other machines, and tokens would go over the network in plain text; "
            "give --tls-certificate and --tls-key, or --insecure if something before it talks TLS",
        )


def _visitor(request: web.Request) -> Visitor:
    metadata = tuple((name, request.headers[name]) for name in _TOLD if name in request.headers)
    host, port = (request.transport.get_extra_info("peername") or ("", 0))[:2] if request.transport else ("", 0)
    return Visitor(f"http:{host}:{port}", metadata)


def _key_of(request: web.Request, endpoint: Endpoint) -> bytes:
    """Return the key in the path, of any bytes."""
    if "{key}" not in endpoint.path:
        return b""
    path = request.raw_path.partition("?")[0]
    count = endpoint.path.count("/")
    return decoded("the path", path.split("/", count)[count])


def _json(status: int, members: Json, headers: dict[str, str]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(members), content_type="application/json", headers=headers)


def _failure(
    status: int, code: str, reason: str, message: str, facts: dict[str, str], headers: dict[str, str] | None = None
) -> web.Response:
    allowed = {name: value for name, value in (headers or {}).items() if name == hdrs.ALLOW}
    if status == 401:
        allowed[hdrs.WWW_AUTHENTICATE] = "Bearer"
    if (retry_s := facts.get("retry_s")) is not None:
        allowed[hdrs.RETRY_AFTER] = str(ceil(float(retry_s)))
    error = {"code": code, "reason": reason, "message": message, "facts": facts}
    return _json(status, {"error": error}, allowed)


def _refusal(error: RefusedCallError) -> web.Response:
    members = _error_of(error)
    status = _STATUSES.get(error.code, 500)
    return _failure(status, members["code"], members["reason"], members["message"], members["facts"])


def _error_of(error: RefusedCallError) -> Json:
    return {"code": error.code.name, "reason": error.reason, "message": str(error), "facts": error.facts}


def _refused(error: PequodError) -> RefusedCallError:
    error = public(error)
    return RefusedCallError(code_of(error), str(error), type(error).__name__, facts_of(error))
