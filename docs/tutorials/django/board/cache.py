"""The client of Pequod, and a middleware that has each browser see what it has done."""

from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse

import pequod

COOKIE = "seen"


@cache
def client() -> pequod.Client:
    """Return the client of this process; all its threads share it."""
    return pequod.Client(settings.PEQUOD_TARGET)


def seen(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Give each request a session that continues the browser's last one."""

    def middleware(request: HttpRequest) -> HttpResponse:
        try:
            request.pequod = client().session(request.COOKIES.get(COOKIE))
        except pequod.errors.InvalidTokenError:
            request.pequod = client().session()
        response = answer(request)
        if request.method == "POST" and connection.connection is not None:
            response.set_cookie(COOKIE, str(pequod.token_of(connection.connection)))
        else:
            response.set_cookie(COOKIE, str(request.pequod.token))
        return response

    return middleware
